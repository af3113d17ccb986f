"""Step 5 of the way of a reading: the open and closed steps of one site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from edge.wire.events import Alias, Retirement, decode_change
from edge.wire.hints import of_zone
from edge.wire.topic import SITE_ZONE, parse_topic, sample_topic
from edge.wire.vocabulary import Metric
from models.durations import DAY_MS, HOUR_MS
from services.ingest.windows.batch import RunSamples
from services.ingest.windows.closed import Feed, Left, PlacedRecord
from services.ingest.windows.open_rows import Names, OpenRow, OpenSamples
from services.ingest.windows.sensors import Sensors
from services.ingest.windows.site_rules import SiteRules
from services.ingest.windows.site_zones import Zones
from services.store.rows import ClosedStep, SilentStep, SiteStep, UnitFault

__all__ = ["GAP_MS", "LONG_SILENCE_MS", "SiteWindows"]

GAP_MS = 3 * DAY_MS
"""A silent site gives empty rows for this long after its newest sample; then its rows jump to the next."""

LONG_SILENCE_MS = HOUR_MS
"""A pause between two samples is shorter than this, or than three steps where these are longer."""

_LATE_ZONE_TOLERANCE_MS = 5000
"""A queue that comes late has samples of all ages; only of a few it would be asked whether they are of another zone."""

Bools = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]
_NEVER_MS = -(2**62)


class SiteWindows:
    """Takes a site's records in their order and gives what they close to a :class:`Feed`."""

    def __init__(
        self, name: str, initial_ms: tuple[int, int, int], vocabulary: Mapping[str, Metric], primary: Mapping[str, str]
    ) -> None:
        self.name = name
        self.settings = SiteRules(*initial_ms)
        self.closed_ms: int | None = None  # every step that ends here or before is closed
        self.names = Names()
        self.begun = False  # whether any sample or change came
        self.zones = Zones()
        self._first_step_ms = initial_ms[0]
        self._sensors = Sensors(vocabulary, primary, self.settings)
        self._newest_ms: int | None = None  # newest event time, as far as it is trusted
        self._heard_ms = 0  # receive time of the record that brought it
        self._newest_row_ms = 0  # end of the newest closed step that held samples
        self._quiet_ms: int | None = None  # receive time of the first tick later than that record
        self._tick_ms = 0  # receive time of the newest tick
        self._ticked_ms = 0  # how long ticks went by since the newest event time moved, without the times between them
        self._open_rows: dict[int, OpenRow] = {}

    @property
    def first_row(self) -> tuple[int, int] | None:
        """The end of the oldest open row with a sample of a zone, and the event time at which it closes."""
        for end, row in sorted(self._open_rows.items()):
            if self.names.by_zone(row.samples()).keys() - {SITE_ZONE}:
                return end, end + self.settings.lateness_ms
        return None

    def samples(self, run: RunSamples, places: Sequence[PlacedRecord], feed: Feed) -> int:
        """Take a run of samples; how many of its records are done with. ``places`` are its records.

        Afterwards :attr:`names` may be another object: then whatever the earlier one has numbered must be numbered
        again.
        """
        if run.records:
            self.begun = True
            if not self._into_one_row(run, places, feed):
                self._up_to_each_closing(run, places, feed)
            if (compacted := self.names.compacted(self._open_rows)) is not None:
                self.names, self._open_rows = compacted
        if not run.error:
            return run.records
        feed.corrupt(places[run.records], run.error)
        return run.records + 1

    def tick(self, place: PlacedRecord, feed: Feed) -> None:
        """Close the open rows of a silent site by receive time."""
        if self._newest_ms is None:
            return
        receive_ms = place[1].receive_ms
        # Ticks come every tenth of a step; a step may be longer than many idle times.
        apart_ms = max(self.settings.idle_ms, max(self._first_step_ms, self.settings.grid.newest_step_ms) // 5)
        since_ms, self._tick_ms = receive_ms - self._tick_ms, receive_ms
        if since_ms <= apart_ms:
            self.zones.listen(since_ms)
        if self._quiet_ms is None or since_ms > apart_ms:
            # A gateway whose clock is behind another's gives samples and ticks the time of the other's last record: a
            # tick of the same time as the newest sample does not say how long after it came.
            self._quiet_ms = receive_ms if receive_ms > self._heard_ms else None
        else:
            self._ticked_ms += since_ms
        silent_ms = 0 if self._quiet_ms is None else receive_ms - self._quiet_ms
        if silent_ms >= self.settings.idle_ms:
            newest_ms = self._reached_ms(self._newest_ms, receive_ms, silent_ms)
            self._advance(place, newest_ms - self.settings.lateness_ms, feed)

    def now_ms(self, receive_ms: int) -> int:
        """What time it is at the site when a record comes, as far as its samples and ticks tell.

        A receive time says less: after a gateway's clock was ahead it stays what that showed, until this time has come.
        """
        return receive_ms if self._newest_ms is None else max(self._newest_ms + self._ticked_ms, self.closed_ms or 0)

    def _reached_ms(self, newest_ms: int, receive_ms: int, silent_ms: int) -> int:
        """The event time that a site has reached whose newest is ``newest_ms``, at a tick of ``receive_ms``.

        It is the receive time less the idle time where clocks are right. But a receive time is a gateway's clock, which
        may be ahead. So event time goes no further than ticks went by since the newest sample. After ``silent_ms`` of
        ticks without a pause that are a long silence it does, so that a silent site does not stay behind because its
        gateway was away; but not by more than ``GAP_MS``: such a clock may refuse all that its devices send.
        """
        received_ms, ticked_ms = receive_ms - self.settings.idle_ms, newest_ms + self._ticked_ms
        long_ms = max(LONG_SILENCE_MS, 3 * self.settings.grid.newest_step_ms)
        is_believed = silent_ms >= long_ms and received_ms - ticked_ms <= GAP_MS
        return received_ms if is_believed else min(received_ms, ticked_ms)

    def event(self, place: PlacedRecord, feed: Feed) -> Left | None:
        """Take a change of what rows are made by, or of which zones are there; other events change nothing. Gives the
        zone that leaves at once.
        """
        record = place[1]
        where = parse_topic(record.topic)
        try:
            change = None if where is None else decode_change(where, record.payload)
        except (ValueError, RecursionError) as error:
            feed.corrupt(place, str(error))
            return None
        if where is None or change is None:
            return None
        if isinstance(change, Retirement):
            return self._retire(change, where.zone)
        self.begun = True
        step_ms = self.settings.grid.newest_step_ms
        metric = change.metric if isinstance(change, Alias) else ""
        before = self.settings.named(where.zone, where.device, metric)
        if self.settings.change(change, where.zone, where.device, self.closed_ms):
            self._sensors.forget_layouts()
            self._sensors.rename(where.zone, before, self.settings.named(where.zone, where.device, metric))
            if self.settings.grid.newest_step_ms != step_ms:
                self._sort_again()
        return None

    def _retire(self, change: Retirement, zone: str) -> Left | None:
        if self.closed_ms is None:
            return None
        waiting = sum((self.names.by_zone(row.samples()) for row in self._open_rows.values()), Counter[str]())
        if not self.zones.retire(change, zone, waiting, self.closed_ms):
            return None
        self._sensors.forget(zone)
        return Left(zone, self.closed_ms)

    def _into_one_row(self, run: RunSamples, places: Sequence[PlacedRecord], feed: Feed) -> bool:
        """Take a run of one open row that closes none, as nearly all do; else do nothing."""
        if run.end_ms is None or self.closed_ms is None or run.end_ms <= self.closed_ms:
            return False
        if run.newest_ms >= self._closing_ms(self.closed_ms):
            return False
        row = self._open_rows.get(run.end_ms)
        if row is None:
            row = self._open_rows[run.end_ms] = OpenRow()
        count, newest_ms, trusted_ms = len(run.keys), run.newest_ms, run.trusted_ms
        if (new := row.take(run.samples, run.keys, run.lengths)) is not None:
            count, trusted_ms = int(np.count_nonzero(new)), np.where(new, trusted_ms, _NEVER_MS)
            newest_ms = int(trusted_ms.max())
        feed.closed.accepted += count
        feed.closed.duplicates += len(run.keys) - count
        if self._hear(newest_ms):
            self._heard_ms = places[_record_of(run, trusted_ms.argmax())][1].receive_ms
        return True

    def _up_to_each_closing(self, run: RunSamples, places: Sequence[PlacedRecord], feed: Feed) -> None:
        """Take any run, up to and with each sample that lets a step close: what follows meets the closed step."""
        ends = self.settings.grid.ends_of(run.samples.ts_ms)
        done = 0
        while done < len(ends):
            part = slice(done, self._until_a_step_closes(run.trusted_ms, done))
            done = part.stop
            late = ends[part] <= (_NEVER_MS if self.closed_ms is None else self.closed_ms)
            if late.any():
                self._late(np.flatnonzero(late) + part.start, run, places, feed)
            of_part = run.samples if len(late) == len(ends) else run.samples.cut(part, run.lengths)
            new = _take(self._open_rows, of_part, run.lengths[part], ends[part], late)
            accepted, known = int(np.count_nonzero(new)), int(np.count_nonzero(~new & ~late))
            feed.closed.accepted += accepted
            feed.closed.duplicates += known
            # A late sample closes nothing. It tells that the site is not silent: else rows of a site whose clock is
            # behind would go on closing by receive time, and all that it sends would be late.
            heard_ms = np.where(new | late, run.trusted_ms[part], _NEVER_MS)
            newest = int(heard_ms.max())
            if self._hear(newest):
                self._heard_ms = places[_record_of(run, part.start + heard_ms.argmax())][1].receive_ms
                closing = _record_of(run, done - 1)
                self._advance(places[closing], newest - self.settings.lateness_ms, feed)

    def _until_a_step_closes(self, trusted_ms: I64, start: int) -> int:
        """The index behind the first sample that may close a step; the number of samples where none does."""
        if self.closed_ms is None:
            return start + 1
        closing = trusted_ms[start:] >= self._closing_ms(self.closed_ms)
        at = int(closing.argmax())
        return start + at + 1 if closing[at] else len(trusted_ms)

    def _closing_ms(self, closed_ms: int) -> int:
        """The event time that lets the next step close."""
        return self.settings.grid.end_of(closed_ms + 1) + self.settings.lateness_ms

    def _hear(self, newest_ms: int) -> bool:
        """Whether this is the newest event time."""
        if self._newest_ms is not None and newest_ms <= self._newest_ms:
            return False
        self._newest_ms, self._quiet_ms, self._ticked_ms = newest_ms, None, 0
        return True

    def _late(self, at: I64, run: RunSamples, places: Sequence[PlacedRecord], feed: Feed) -> None:
        feed.closed.late += len(at)
        samples = self.names.samples(self.name, run.samples, at)
        for (record, item), sample in zip(run.places(at), samples, strict=True):
            topic = sample_topic(self.name, sample.zone, sample.device)
            receive_ms = places[record][1].receive_ms
            detail = (
                f"ts {sample.ts_ms} is {receive_ms - sample.ts_ms} ms before its receive time, and its row was closed; "
                f"rows are closed up to {self.closed_ms}{of_zone(sample.ts_ms, receive_ms, _LATE_ZONE_TOLERANCE_MS)}"
            )
            feed.letter(places[record], item, topic, "late", detail, msgspec.json.encode(sample))

    def _advance(self, place: PlacedRecord, watermark_ms: int, feed: Feed) -> None:
        target = self.settings.grid.last_end(watermark_ms)
        if self.closed_ms is not None and target <= self.closed_ms:
            return
        for end in self._ends(target):
            step = self._close(place[1].partition, end)
            feed.step(place[0], step)
            self._tell_units(place, step, feed)
        self.closed_ms = target
        self.settings.grid.forget(target)

    def _ends(self, target: int) -> list[int]:
        """The steps to close up to ``target``: those with samples, and empty ones up to ``GAP_MS`` after a sample."""
        ends: list[int] = []
        held, previous = self._newest_row_ms, self.closed_ms or 0
        for end in [*sorted(e for e in self._open_rows if e <= target), None]:
            stop = min(held + GAP_MS, target if end is None else end - 1)
            ends += self.settings.grid.between(previous, stop) if held else []
            if end is not None:
                ends.append(end)
                held = previous = end
        return ends

    def _close(self, partition: int, end_ms: int) -> ClosedStep:
        row = self._open_rows.pop(end_ms, None)
        if row is not None:
            self._newest_row_ms = end_ms
        made_by = self.settings.version, self.settings.grid.step_ms(end_ms)
        if row is None:
            held = self._sensors.close_silent(end_ms)
            units = self._forget_left(end_ms, {})
            return SilentStep(partition, self.name, end_ms, held.zones, held.silent_rows, *made_by, units)
        samples = row.samples()
        zones, values, ages, devices = self._sensors.close(samples, self.names, end_ms)
        units = self._forget_left(end_ms, self.names.by_zone(samples))
        return SiteStep(partition, self.name, end_ms, zones, values, ages, devices, *made_by, units=units)

    def _forget_left(self, end_ms: int, counts: Mapping[str, int]) -> tuple[UnitFault, ...]:
        """Close a row in the zones, and let those leave that do; the faults of the sensors that stay."""
        for zone in self.zones.close(end_ms, counts):
            self._sensors.forget(zone)
        return self._sensors.units.faults

    def _tell_units(self, place: PlacedRecord, step: ClosedStep, feed: Feed) -> None:
        """A letter about each sensor whose unit was found wrong with this step, or right again.

        Their items count down from -1, for those of the record's samples count up.
        """
        begun = [(fault, fault.words()) for fault in step.units if fault.since_ms == step.end_ms]
        ended = self._sensors.units.ended
        again = [
            (fault, f"{fault.sensor} is in its unit again ({fault.low:.4g} to {fault.high:.4g})") for fault in ended
        ]
        for number, (fault, words) in enumerate(begun + again):
            looks_like = "" if number >= len(begun) else "share" if fault.is_share else "fahrenheit"
            said = {"metric": fault.metric, "looks_like": looks_like, "low": fault.low, "high": fault.high}
            topic = sample_topic(self.name, *fault[:2])
            feed.letter(place, feed.notice_item(place), topic, "unit", words, msgspec.json.encode(said))

    def _sort_again(self) -> None:
        """Put the samples of open rows into the rows that they belong to now."""
        rows: dict[int, OpenRow] = {}
        for end in sorted(self._open_rows):
            samples = self._open_rows[end].samples()
            ends = self.settings.grid.ends_of(samples.ts_ms)
            _take(rows, samples, self.names.lengths(samples.metric_set), ends, np.zeros(len(ends), bool))
        self._open_rows = rows

    def state(self) -> dict[str, Any]:
        """Everything that its later rows depend on, as maps, lists and arrays."""
        return {
            "settings": self.settings.state(), "sensors": self._sensors.state(), "names": self.names.state(),
            "zones": self.zones.state(),
            "closed_ms": self.closed_ms, "newest_ms": self._newest_ms, "heard_ms": self._heard_ms,
            "newest_row_ms": self._newest_row_ms,
            "quiet_ms": self._quiet_ms, "tick_ms": self._tick_ms, "ticked_ms": self._ticked_ms,
            "open_rows": [[end, list(row.samples())] for end, row in self._open_rows.items()],
        }  # fmt: skip

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where :meth:`state` was taken; raises ``KeyError`` if something is missing."""
        self.closed_ms, self._newest_ms = state["closed_ms"], state["newest_ms"]
        self._newest_row_ms, self._quiet_ms = state["newest_row_ms"], state["quiet_ms"]
        self._tick_ms, self._heard_ms = state["tick_ms"], state.get("heard_ms", 0)  # not in snapshots of before
        quiet_ms = self._tick_ms if self._quiet_ms is None else self._quiet_ms
        self._ticked_ms = state.get("ticked_ms", self._tick_ms - quiet_ms)  # snapshots of before do not say it
        self.settings.load(state["settings"])
        self._sensors.load(state["sensors"])
        self.zones.load(state["zones"])
        self.names = Names(**state["names"])
        self._open_rows = {end: OpenRow.of(OpenSamples(*columns)) for end, columns in state["open_rows"]}


def _record_of(run: RunSamples, sample: int | np.intp) -> int:
    """The record, counted from the run's first, that a sample is of."""
    return int(run.starts.searchsorted(sample, "right")) - 1


def _take(rows: dict[int, OpenRow], samples: OpenSamples, lengths: I64, ends: I64, late: Bools) -> Bools:
    """Put those samples that are neither late nor known into their rows; which those are [n]."""
    keys = samples.keys()
    taken = np.zeros(len(ends), bool)
    for end in dict.fromkeys(ends[~late].tolist()):
        row = rows.get(end)
        if row is None:
            row = rows[end] = OpenRow()
        mine = ends == end
        of_row = samples if mine.all() else samples.chosen(mine, lengths)
        if (new := row.take(of_row, keys[mine], lengths[mine])) is not None:
            mine[mine] = new
        taken |= mine
    return taken
