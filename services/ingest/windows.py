"""Step 5 of the way of a reading: event time -> one row a zone and step; pure, without clock, files or threads.

The rows are a function of the partition's records alone. A site has one watermark, the newest event time among its
samples (none trusted beyond its receive time) less the lateness, and all its zones close a step together once the
watermark reaches the step's end. A site that stays silent closes by receive time: when ticks went by for ``idle_ms``
without any new event time, the watermark is also the tick's receive time less lateness and idle. Silence is what ticks
saw: between two that are further apart than ``idle_ms``, and than two should be, nobody listened, and it is counted
anew. So the queue that a broker hands over after the gateway or the log was away is not taken for silence, and its
samples are not late. Step, lateness and idle time are the site's (``site_settings``): events of the log change them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from edge.change import Retirement, decode_change
from edge.log import Record
from edge.reading import SITE_ZONE, Metric, Refusal, parse_topic, sample_topic
from edge.samples import SampleColumns
from services.ingest.open_rows import Names, OpenRow, OpenSamples
from services.ingest.origins import Origins
from services.ingest.sensors import Sensors
from services.ingest.site_settings import SiteSettings
from services.ingest.zones import Zones
from services.store.rows import DeadLetter, SiteStep

__all__ = ["GAP_MS", "Closed", "PartitionWindows"]

GAP_MS = 3 * 86_400_000
"""A silent site goes on to give empty rows for this long after its newest sample; then its rows jump to the next."""

Bools = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]
_NEVER_MS = -(2**62)
_REFUSALS = msgspec.msgpack.Decoder(list[Refusal])


@dataclass(slots=True)
class Closed:
    """What a feed gave. ``accepted + duplicates + late + sum(rejected.values())`` is the number of samples in the
    records; ``values_refused`` counts single values of samples that were accepted otherwise.
    """

    steps: list[SiteStep] = field(default_factory=list)
    accepted: int = 0
    duplicates: int = 0
    late: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    values_refused: dict[str, int] = field(default_factory=dict)
    other_records: dict[str, int] = field(default_factory=dict)  # plan and event records, and copies of records
    dead_letters: list[DeadLetter] = field(default_factory=list)


@dataclass(slots=True)
class _Site:
    settings: SiteSettings
    sensors: Sensors
    closed_ms: int | None = None  # every step that ends here or before is closed
    newest_ms: int | None = None  # newest event time, as far as it is trusted
    newest_row_ms: int = 0  # end of the newest closed step that held samples
    quiet_ms: int | None = None  # receive time of the first tick since the newest event time moved
    tick_ms: int = 0  # receive time of the newest tick
    zones: Zones = field(default_factory=Zones)
    names: Names = field(default_factory=Names)
    open_rows: dict[int, OpenRow] = field(default_factory=dict)


class PartitionWindows:
    """Rows of one partition's sites.

    ``primary`` gives, per site, metric -> device whose value is the zone's; in a zone without that device, and for
    any other metric, it is the median over sensors (of angles, the vector mean). A metric that a zone has no sensor
    of comes from ``_site``. ``metric.2`` is another sensor of ``metric``.
    """

    def __init__(
        self, step_ms: int, lateness_ms: int, idle_ms: int, vocabulary: Mapping[str, Metric],
        primary: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:  # fmt: skip
        self.channels = tuple(vocabulary)
        self.initial_ms = step_ms, lateness_ms, idle_ms
        self._vocabulary = vocabulary
        self._primary = primary or {}
        self._sites: dict[str, _Site] = {}
        self._origins: dict[str, Origins] = {}  # of a site

    def feed(self, records: Sequence[Record]) -> Closed:
        """Take the next records of the partition, in order; what they close comes back in closing order."""
        closed = Closed()
        for record in records:
            if record.origin is not None and not self._of(record.site).is_new(record.origin):
                closed.other_records["copied"] = closed.other_records.get("copied", 0) + 1
            elif record.kind == "samples":
                self._samples(record, closed)
            elif record.kind == "tick":
                self._tick(record, closed)
            elif record.kind == "refused":
                self._refused(record, closed)
            else:
                if record.kind == "event":
                    self._event(record, closed)
                closed.other_records[record.kind] = closed.other_records.get(record.kind, 0) + 1
        return closed

    def watermark_ms(self, site: str) -> int | None:
        """The end of the newest closed step of a site, ``None`` before its first sample."""
        state = self._sites.get(site)
        return None if state is None else state.closed_ms

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites seen so far."""
        return tuple(self._sites)

    def zones(self, site: str) -> Zones:
        """Which zones a site has, and which have left; raises ``KeyError`` before its first sample or change."""
        return self._sites[site].zones

    def first_row(self, site: str) -> tuple[int, int] | None:
        """Of the oldest open row that holds a sample of a zone: its end, and the event time at which it closes."""
        state = self._sites[site]
        for end, row in sorted(state.open_rows.items()):
            if _count(row.samples(), state.names).keys() - {SITE_ZONE}:
                return end, end + state.settings.lateness_ms
        return None

    def _of(self, site: str) -> Origins:
        origins = self._origins.get(site)
        if origins is None:
            origins = self._origins[site] = Origins()
        return origins

    def _samples(self, record: Record, closed: Closed) -> None:
        site = self._sites.get(record.site) or self._new_site(record.site)
        try:
            columns = SampleColumns.of(record.payload)
            samples = site.names.number(columns)
        except msgspec.DecodeError as error:
            return self._corrupt(record, str(error), closed)
        self._sites[record.site] = site
        ends = site.settings.grid.ends_of(samples.ts_ms)
        trusted = np.minimum(samples.ts_ms, record.receive_ms)  # a clock ahead must not make the others late
        done = 0
        while done < len(columns):
            # What follows the sample that lets a step close meets the closed step: so up to that one at a time.
            part = slice(done, self._until_a_step_closes(site, trusted, done))
            done = part.stop
            late = ends[part] <= (_NEVER_MS if site.closed_ms is None else site.closed_ms)
            if late.any():
                self._late(record, columns, np.flatnonzero(late) + part.start, site, closed)
            of_part = samples if part.stop - part.start == len(columns) else samples.cut(part, columns.lengths)
            taken = _take(site.open_rows, of_part, columns.lengths[part], ends[part], late)
            accepted, known = int(np.count_nonzero(taken)), int(np.count_nonzero(~taken & ~late))
            closed.accepted += accepted
            closed.duplicates += known
            newest = int(trusted[part][taken].max()) if accepted else _NEVER_MS
            if site.newest_ms is None or newest > site.newest_ms:
                site.newest_ms, site.quiet_ms = newest, None
                self._advance(record.partition, record.site, site, newest - site.settings.lateness_ms, closed)
        if (compacted := site.names.compacted(site.open_rows)) is not None:
            site.names, site.open_rows = compacted

    def _until_a_step_closes(self, site: _Site, trusted: I64, start: int) -> int:
        """The index behind the first sample that may close a step; the number of samples where none does."""
        if site.closed_ms is None:
            return start + 1
        closing = trusted[start:] >= site.settings.grid.end_of(site.closed_ms + 1) + site.settings.lateness_ms
        at = int(closing.argmax())
        return start + at + 1 if closing[at] else len(trusted)

    def _late(self, record: Record, columns: SampleColumns, at: I64, site: _Site, closed: Closed) -> None:
        closed.late += len(at)
        for index, sample in zip(at.tolist(), columns.samples(at), strict=True):
            topic = sample_topic(record.site, sample.zone, sample.device)
            detail = f"ts {sample.ts_ms} belongs to a row that was closed; rows are closed up to {site.closed_ms}"
            where = (record.partition, record.offset, index, record.receive_ms, topic)
            closed.dead_letters.append(DeadLetter(*where, "late", detail, msgspec.json.encode(sample)[:1024]))

    def _new_site(self, name: str) -> _Site:
        settings = SiteSettings(*self.initial_ms)
        return _Site(settings, Sensors(self._vocabulary, self._primary.get(name, {}), settings))

    def _tick(self, record: Record, closed: Closed) -> None:
        site = self._sites.get(record.site)
        if site is None or site.newest_ms is None:
            return
        # Ticks come every tenth of a step; a step may be longer than many idle times.
        apart_ms = max(site.settings.idle_ms, max(self.initial_ms[0], site.settings.grid.newest_step_ms) // 5)
        if site.quiet_ms is None or record.receive_ms - site.tick_ms > apart_ms:
            site.quiet_ms = record.receive_ms
        if record.receive_ms - site.tick_ms <= apart_ms:
            site.zones.listen(record.receive_ms - site.tick_ms)
        site.tick_ms = record.receive_ms
        if record.receive_ms - site.quiet_ms >= site.settings.idle_ms:
            watermark = record.receive_ms - site.settings.lateness_ms - site.settings.idle_ms
            self._advance(record.partition, record.site, site, watermark, closed)

    def _event(self, record: Record, closed: Closed) -> None:
        """Take a change of what rows are made by; other events change no row."""
        where = parse_topic(record.topic)
        try:
            change = None if where is None else decode_change(where, record.payload)
        except (ValueError, RecursionError) as error:
            return self._corrupt(record, str(error), closed)
        if where is None or change is None:
            return
        if isinstance(change, Retirement):
            return self._retire(change, where.zone, self._sites.get(record.site))
        site = self._sites.get(record.site) or self._new_site(record.site)
        self._sites[record.site] = site
        step_ms = site.settings.grid.newest_step_ms
        if site.settings.change(change, where.zone, where.device, site.closed_ms):
            site.sensors.forget_layouts()
            if site.settings.grid.newest_step_ms != step_ms:
                site.open_rows = _sorted_again(site)

    def _retire(self, change: Retirement, zone: str, site: _Site | None) -> None:
        if site is None or site.closed_ms is None:
            return
        waiting = sum((_count(row.samples(), site.names) for row in site.open_rows.values()), Counter[str]())
        if site.zones.retire(change, zone, waiting, site.closed_ms):
            site.sensors.forget(zone)

    def _refused(self, record: Record, closed: Closed) -> None:
        try:
            refusals = _REFUSALS.decode(record.payload)
        except msgspec.DecodeError as error:
            return self._corrupt(record, str(error), closed)
        for index, refusal in enumerate(refusals):
            counts = closed.rejected if refusal.whole else closed.values_refused
            counts[refusal.reason] = counts.get(refusal.reason, 0) + (refusal.samples if refusal.whole else 1)
            where = (record.partition, record.offset, index, record.receive_ms, refusal.topic)
            closed.dead_letters.append(DeadLetter(*where, refusal.reason, refusal.detail, refusal.payload))

    def _corrupt(self, record: Record, detail: str, closed: Closed) -> None:
        closed.rejected["corrupt_record"] = closed.rejected.get("corrupt_record", 0) + 1
        where = (record.partition, record.offset, 0, record.receive_ms, record.topic)
        closed.dead_letters.append(DeadLetter(*where, "corrupt_record", detail, record.payload[:1024]))

    def _advance(self, partition: int, name: str, site: _Site, watermark: int, closed: Closed) -> None:
        target = site.settings.grid.last_end(watermark)
        if site.closed_ms is not None and target <= site.closed_ms:
            return
        for end in self._ends(site, target):
            closed.steps.append(self._close(partition, name, site, end))
        site.closed_ms = target
        site.settings.grid.forget(target)

    def _ends(self, site: _Site, target: int) -> list[int]:
        """The steps to close up to ``target``: those with samples, and empty ones up to ``GAP_MS`` after a sample."""
        ends: list[int] = []
        held, previous = site.newest_row_ms, site.closed_ms or 0
        for end in [*sorted(e for e in site.open_rows if e <= target), None]:
            stop = min(held + GAP_MS, target if end is None else end - 1)
            ends += site.settings.grid.between(previous, stop) if held else []
            if end is not None:
                ends.append(end)
                held = previous = end
        return ends

    def _close(self, partition: int, name: str, site: _Site, end: int) -> SiteStep:
        row = site.open_rows.pop(end, None)
        if row is not None:
            site.newest_row_ms = end
        samples = None if row is None else row.samples()
        zones, values, ages, devices = site.sensors.close(samples, site.names, end)
        for zone in site.zones.close(end, {} if samples is None else _count(samples, site.names)):
            site.sensors.forget(zone)
        made_by = site.settings.version, site.settings.grid.step_ms(end)
        return SiteStep(partition, name, end, zones, values, ages, devices, *made_by)

    def state(self) -> dict[str, Any]:
        """Everything that the next :meth:`feed` depends on, as maps, lists and arrays."""
        sites = {
            name: {
                "settings": s.settings.state(), "sensors": s.sensors.state(), "names": s.names.state(),
                "zones": s.zones.state(),
                "closed_ms": s.closed_ms, "newest_ms": s.newest_ms, "newest_row_ms": s.newest_row_ms,
                "quiet_ms": s.quiet_ms, "tick_ms": s.tick_ms,
                "open_rows": [[end, list(row.samples())] for end, row in s.open_rows.items()],
            }
            for name, s in self._sites.items()
        }  # fmt: skip
        return {"sites": sites, "origins": {site: origins.state() for site, origins in self._origins.items()}}

    def begin_with(self, state: Mapping[str, Any]) -> list[SiteSettings]:
        """Begin with the settings that sites had in :meth:`state`, and with nothing else of it; gives them."""
        self._sites = {name: self._new_site(name) for name in state["sites"]}
        for name, site in self._sites.items():
            site.settings.load(state["sites"][name]["settings"])
        return [site.settings for site in self._sites.values()]

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken; raises ``KeyError`` where something is missing."""
        sites = {}
        for name, s in state["sites"].items():
            site = sites[name] = self._new_site(name)
            site.closed_ms, site.newest_ms = s["closed_ms"], s["newest_ms"]
            site.newest_row_ms, site.quiet_ms, site.tick_ms = s["newest_row_ms"], s["quiet_ms"], s["tick_ms"]
            site.settings.load(s["settings"])
            site.sensors.load(s["sensors"])
            site.zones.load(s["zones"])
            site.names = Names(**s["names"])
            site.open_rows = {end: OpenRow.of(OpenSamples(*columns)) for end, columns in s["open_rows"]}
        self._origins = {site: Origins(seen) for site, seen in state["origins"].items()}
        self._sites = sites


def _take(rows: dict[int, OpenRow], samples: OpenSamples, lengths: I64, ends: I64, late: Bools) -> Bools:
    """Put those samples that are neither late nor known into their rows; which those are [n]."""
    keys = samples.keys()
    taken = np.zeros(len(ends), bool)
    for end in dict.fromkeys(ends[~late].tolist()):
        row = rows.get(end)
        if row is None:
            row = rows[end] = OpenRow()
        mine = ends == end
        if (fresh := row.new(keys[mine])) is not None:
            mine[mine] = fresh
        if mine.all():
            row.add(samples, keys)
        elif mine.any():
            row.add(samples.chosen(mine, lengths), keys[mine])
        taken |= mine
    return taken


def _sorted_again(site: _Site) -> dict[int, OpenRow]:
    """The samples of a site's open rows in the rows that they belong to now."""
    rows: dict[int, OpenRow] = {}
    for end in sorted(site.open_rows):
        samples = site.open_rows[end].samples()
        ends = site.settings.grid.ends_of(samples.ts_ms)
        _take(rows, samples, site.names.lengths(samples.metric_set), ends, np.zeros(len(ends), bool))
    return rows


def _count(samples: OpenSamples, names: Names) -> Counter[str]:
    """How many of the samples each zone has."""
    counts = Counter[str]()
    of_device = np.bincount(samples.device)
    for device in np.flatnonzero(of_device).tolist():
        counts[names.devices[device].zone] += int(of_device[device])
    return counts
