"""Step 5 of the way of a reading: event time -> one row a zone and step; pure, without clock, files or threads.

The rows are a function of the partition's records alone. A site has one watermark, the newest event time among its
samples (none trusted beyond its receive time) less the lateness, and all its zones close a step together once the
watermark reaches the step's end. A site that stays silent closes by receive time: when ticks went by for ``idle_ms``
without any new event time, the watermark is also the tick's receive time less lateness and idle. Silence is measured
between *ticks*, so that the queue that a broker hands over after the gateway was away is not taken for silence and
its samples are not late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec

from edge.log import Record
from edge.reading import Metric, Refusal, Sample, decode_samples, sample_topic
from services.ingest.sensors import Sensors, SensorsState
from services.store.rows import DeadLetter, SiteStep

__all__ = ["GAP_MS", "Closed", "PartitionWindows"]

GAP_MS = 3 * 86_400_000
"""A silent site goes on to give empty rows for this long after its newest sample; then its rows jump to the next."""

_Key = tuple[str, str, str, int]  # zone, device, boot, seq
_ts_of, _id_of = attrgetter("ts_ms"), attrgetter("zone", "device", "boot", "seq")
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
    other_records: dict[str, int] = field(default_factory=dict)  # plan and event records
    dead_letters: list[DeadLetter] = field(default_factory=list)


@dataclass(slots=True)
class _Site:
    sensors: Sensors
    closed_ms: int | None = None  # every step that ends here or before is closed
    newest_ms: int | None = None  # newest event time, as far as it is trusted
    newest_row_ms: int = 0  # end of the newest closed step that held samples
    quiet_ms: int | None = None  # receive time of the first tick since the newest event time moved
    open_rows: dict[int, dict[_Key, Sample]] = field(default_factory=dict)


class _SiteState(msgspec.Struct):
    closed_ms: int | None
    newest_ms: int | None
    newest_row_ms: int
    quiet_ms: int | None
    sensors: SensorsState
    open_samples: list[Sample]


_STATE = msgspec.msgpack.Decoder(dict[str, _SiteState])


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
        self._step_ms, self._lateness_ms, self._idle_ms = step_ms, lateness_ms, idle_ms
        self._vocabulary = vocabulary
        self._primary = primary or {}
        self._sites: dict[str, _Site] = {}

    def feed(self, records: Sequence[Record]) -> Closed:
        """Take the next records of the partition, in order; what they close comes back in closing order."""
        closed = Closed()
        for record in records:
            if record.kind == "samples":
                self._samples(record, closed)
            elif record.kind == "tick":
                self._tick(record, closed)
            elif record.kind == "refused":
                self._refused(record, closed)
            else:
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

    def _samples(self, record: Record, closed: Closed) -> None:
        try:
            samples = decode_samples(record.payload)
        except msgspec.DecodeError as error:
            return self._corrupt(record, str(error), closed)
        site = self._sites.get(record.site)
        if site is None:
            site = self._sites[record.site] = self._new_site(record.site)
        if samples and self._all_at_once(record, samples, site, closed):
            return
        open_rows, step_ms = site.open_rows, self._step_ms
        for index, sample in enumerate(samples):
            ts = sample.ts_ms
            end = -(-ts // step_ms) * step_ms
            if site.closed_ms is not None and end <= site.closed_ms:
                closed.late += 1
                closed.dead_letters.append(_late(record, index, sample, site.closed_ms))
                continue
            row = open_rows.get(end)
            if row is None:
                row = open_rows[end] = {}
            key = _id_of(sample)
            if key in row:
                closed.duplicates += 1
                continue
            row[key] = sample
            closed.accepted += 1
            trusted = min(ts, record.receive_ms)  # a clock that runs ahead must not make the others late
            if site.newest_ms is None or trusted > site.newest_ms:
                site.newest_ms = trusted
                site.quiet_ms = None
                self._advance(record.partition, record.site, site, trusted - self._lateness_ms, closed)

    def _all_at_once(self, record: Record, samples: Sequence[Sample], site: _Site, closed: Closed) -> bool:
        """Take samples that all belong to one open row, are new and close nothing: nearly every record's are."""
        times = [*map(_ts_of, samples)]
        latest = max(times)
        newest = min(latest, record.receive_ms)
        end = -(-latest // self._step_ms) * self._step_ms
        if site.closed_ms is None or not site.closed_ms <= end - self._step_ms < min(times):
            return False
        if site.newest_ms is None or newest - self._lateness_ms >= site.closed_ms + self._step_ms:
            return False
        row = site.open_rows.setdefault(end, {})
        new = dict(zip(map(_id_of, samples), samples, strict=True))
        if len(new) < len(samples) or not row.keys().isdisjoint(new):
            return False
        row.update(new)
        closed.accepted += len(samples)
        if newest > site.newest_ms:
            site.newest_ms, site.quiet_ms = newest, None
        return True

    def _new_site(self, name: str) -> _Site:
        return _Site(Sensors(self._vocabulary, self._primary.get(name, {})))

    def _tick(self, record: Record, closed: Closed) -> None:
        site = self._sites.get(record.site)
        if site is None:
            return
        if site.quiet_ms is None:
            site.quiet_ms = record.receive_ms
        if record.receive_ms - site.quiet_ms >= self._idle_ms:
            watermark = record.receive_ms - self._lateness_ms - self._idle_ms
            self._advance(record.partition, record.site, site, watermark, closed)

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
        target = watermark // self._step_ms * self._step_ms
        if site.closed_ms is not None and target <= site.closed_ms:
            return
        for end in self._ends(site, target):
            closed.steps.append(self._close(partition, name, site, end))
        site.closed_ms = target

    def _ends(self, site: _Site, target: int) -> list[int]:
        """The steps to close up to ``target``: those with samples, and empty ones up to ``GAP_MS`` after a sample."""
        ends: list[int] = []
        held, previous = site.newest_row_ms, site.closed_ms or 0
        for end in [*sorted(e for e in site.open_rows if e <= target), None]:
            stop = min(held + GAP_MS, target if end is None else end - self._step_ms)
            ends += range(previous + self._step_ms, stop + 1, self._step_ms) if held else []
            if end is not None:
                ends.append(end)
                held = previous = end
        return ends

    def _close(self, partition: int, name: str, site: _Site, end: int) -> SiteStep:
        row = site.open_rows.pop(end, None) or {}
        if row:
            site.newest_row_ms = end
        zones, values, ages, devices = site.sensors.close(row, end)
        return SiteStep(partition, name, end, zones, values, ages, devices)

    def state(self) -> bytes:
        """Everything that the next :meth:`feed` depends on."""
        states = {
            name: _SiteState(
                s.closed_ms, s.newest_ms, s.newest_row_ms, s.quiet_ms, s.sensors.state(),
                [sample for row in s.open_rows.values() for sample in row.values()],
            )
            for name, s in self._sites.items()
        }  # fmt: skip
        return msgspec.msgpack.encode(states)

    def load(self, state: bytes) -> None:
        """Continue exactly where :meth:`state` was taken; raises ``msgspec.DecodeError`` on foreign bytes."""
        self._sites = {}
        for name, s in _STATE.decode(state).items():
            site = self._new_site(name)
            site.sensors.load(s.sensors)
            site.closed_ms, site.newest_ms = s.closed_ms, s.newest_ms
            site.newest_row_ms, site.quiet_ms = s.newest_row_ms, s.quiet_ms
            for sample in s.open_samples:
                end = -(-sample.ts_ms // self._step_ms) * self._step_ms
                site.open_rows.setdefault(end, {})[_id_of(sample)] = sample
            self._sites[name] = site


def _late(record: Record, index: int, sample: Sample, closed_ms: int) -> DeadLetter:
    return DeadLetter(
        record.partition, record.offset, index, record.receive_ms,
        sample_topic(sample.site, sample.zone, sample.device), "late",
        f"ts {sample.ts_ms} belongs to a row that was closed; rows are closed up to {closed_ms}",
        msgspec.json.encode(sample)[:1024],
    )  # fmt: skip
