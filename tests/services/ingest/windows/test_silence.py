"""When rows close while nothing comes: what ticks saw, what a receive time is worth, and how far empty rows go."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from edge.log import Record
from edge.wire.reading import Sample
from edge.wire.vocabulary import VOCABULARY
from services.ingest.windows.partition_windows import GAP_MS, Closed, PartitionWindows
from services.store.rows import SilentStep
from tests.services.ingest.samples import STEP, T0, long_silence, record, sample, tick

LATE = 30_000
IDLE = 60_000


def windows() -> PartitionWindows:
    return PartitionWindows(STEP, LATE, IDLE, VOCABULARY)


def feed(samples: list[Sample], into: PartitionWindows | None = None) -> Closed:
    return (into or windows()).feed([record(n, [s]) for n, s in enumerate(samples)])


def test_a_gateway_whose_clock_is_ahead_closes_no_row_before_its_time() -> None:
    """In a pause of the devices event time goes on from the newest sample, as far as ticks saw it go and no further."""
    w, ahead_ms = windows(), 12 * STEP
    w.feed([record(0, [sample(T0, 1)]), record(1, [sample(T0, 1, site="other")])])
    w.feed([tick(2 + n, T0 + ahead_ms + n * 30_000) for n in range(10)])
    assert (w.watermark_ms("demo"), w.watermark_ms("other")) == (T0, T0 - STEP)
    assert w.feed([record(12, [sample(T0 + STEP, 2)], T0 + ahead_ms + STEP)]).accepted == 1
    assert w.feed([tick(13 + n, T0 + ahead_ms + STEP + n * 30_000) for n in range(10)]).steps[0].end_ms == T0 + STEP


def test_a_clock_that_is_ahead_all_through_a_long_silence_is_believed_by_three_days() -> None:
    """Then rows close as far ahead: what devices measure until then is late, and told. One that is further is not."""
    for ahead_ms, closed_ms in ((12 * STEP, 12 * STEP), (GAP_MS + 12 * STEP, 0), (80 * 365 * 86_400_000, 0)):
        w = windows()
        w.feed([record(0, [sample(T0, 1)])])
        w.feed(silence := long_silence(1, T0 + ahead_ms))
        until_ms = w.watermark_ms("demo") or 0
        silent_ms = silence[-1].receive_ms - silence[0].receive_ms
        assert T0 + closed_ms < until_ms <= T0 + closed_ms + silent_ms
        late = w.feed([record(100, [sample(until_ms, 2)], until_ms)])
        assert (late.late, late.accepted) == (1, 0)
        assert late.dead_letters[0].detail.endswith(f"rows are closed up to {until_ms}")
        assert w.feed([record(101, [sample(until_ms + 1, 3)], until_ms)]).accepted == 1


def test_a_silent_site_whose_gateway_was_away_does_not_stay_behind() -> None:
    """After a long silence its rows close by receive time, those that ended while nobody listened, too."""
    w = windows()
    w.feed([record(0, [sample(T0, 1)])])
    away_ms = 20 * STEP
    ticks = long_silence(1, T0 + away_ms)
    ends = [step.end_ms for step in w.feed(ticks).steps]
    assert ends == [*range(T0, (w.watermark_ms("demo") or 0) + 1, STEP)]
    assert ticks[-1].receive_ms - (w.watermark_ms("demo") or 0) < STEP + LATE + IDLE


def test_a_device_that_sends_an_old_queue_in_parts_loses_nothing() -> None:
    """A site of one device whose queue of a day takes longer than the idle time: its pauses close by its own time."""
    w, day_ms, accepted, late = windows(), 288 * STEP, 0, 0
    for part in range(12):
        at_ms = T0 + day_ms + part * 5 * 60_000
        queue = [sample(T0 + (24 * part + n) * STEP, 24 * part + n) for n in range(24)]
        closed = w.feed([record(0, queue, at_ms), *(tick(1, at_ms + n * 30_000) for n in range(1, 10))])
        accepted, late = accepted + closed.accepted, late + closed.late
    assert (accepted, late) == (288, 0)


def test_a_silent_site_closes_by_ticks() -> None:
    """Receive time closes rows once ticks went by for the idle time without new event time."""
    w = windows()
    feed([sample(T0 - 10_000, 1)], w)
    assert w.feed([tick(1, T0), tick(2, T0 + IDLE - 1)]).steps == []
    assert w.feed([tick(3, T0 + IDLE)]).steps == []  # less lateness and idle: not yet T0
    assert [s.end_ms for s in w.feed([tick(4, T0 + LATE + IDLE)]).steps] == [T0]


def test_a_gateway_that_was_away_does_not_make_its_queue_late() -> None:
    """Silence is measured between ticks, so samples queued while nobody ticked are taken in full."""
    w = windows()
    feed([sample(T0, 1)], w)
    back = T0 + 10 * STEP
    queue = [record(2 + n, [sample(T0 + n * STEP, n + 1)], back) for n in range(1, 10)]
    closed = w.feed([tick(1, back), *queue])
    assert (closed.late, closed.accepted) == (0, 9)


@pytest.mark.parametrize("away_ms", [IDLE + 1, 10 * STEP])
def test_an_outage_that_begins_in_a_pause_of_the_devices_makes_nothing_late(away_ms: int) -> None:
    """A tick that saw no sample before the gateway went away does not make of its absence a silence of the devices."""
    w = windows()
    feed([sample(T0, 1)], w)
    gone = T0 + 30_000
    back = gone + away_ms
    queue = [record(3, [sample(at, at) for at in range(gone + 1000, back, 1000)], back)]
    closed = w.feed([tick(1, gone), tick(2, back), *queue])
    assert (closed.late, closed.accepted) == (0, len(range(gone + 1000, back, 1000)))


def test_a_stuck_clock_does_not_hold_a_site_open() -> None:
    """Samples that bring no new event time do not count as life."""
    w = windows()
    feed([sample(T0, 1)], w)
    records = []
    for n in range(1, 12):
        now = T0 + n * 30_000
        records += [record(2 * n, [sample(T0, n + 1)], now), tick(2 * n + 1, now)]
    assert w.feed(records).steps[0].end_ms == T0


def test_a_clock_that_runs_ahead_makes_no_other_device_late() -> None:
    """Event time is trusted up to the receive time only."""
    w = windows()
    w.feed([record(0, [sample(T0 + 60_000, 1, device="fast")], T0)])
    assert w.feed([record(1, [sample(T0, 1)], T0)]).late == 0


def test_a_long_silence_jumps() -> None:
    """Empty rows end three days after the newest sample; the next sample's row follows at once."""
    after = T0 + 10 * GAP_MS
    closed = feed([sample(T0, 1), sample(after, 2), sample(after + LATE, 3)])
    ends = [s.end_ms for s in closed.steps]
    assert ends == [*range(T0, T0 + GAP_MS + 1, STEP), after]


def test_days_of_silence_of_a_large_site_take_no_room() -> None:
    """All their rows close together: what is in them is made when somebody asks."""
    zones, minute = 100, 60_000
    told = [record(0, [sample(T0, 0, f"z{n}") for n in range(zones)])]
    late = [record(1, [sample(T0 + GAP_MS, 1, f"z{n}") for n in range(zones)])]
    into = PartitionWindows(minute, 30_000, 18_000, VOCABULARY)
    into.feed(told)
    tracemalloc.start()
    closed = into.feed(late)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(closed.steps) == GAP_MS // minute
    assert held < 10_000_000  # 140 MB with all values


def test_rows_of_a_silence_are_the_same_whenever_they_are_asked_for() -> None:
    """Values that hold, ages, the weather station's and a sensor of another unit are those of the moment at which a row
    closed, whatever the sensors said, were called or left since.
    """

    def records() -> Iterator[Record]:
        def said(n: int, rh_pct: float) -> list[Sample]:
            return [
                sample(T0 + n * STEP, n, "z1", air_temp_c=20.0 + n, vent_lee_pct=n % 100, rh_pct=0.6),
                sample(T0 + n * STEP, n, "z2", air_temp_c=21.0, sp_heat_c=18.0 + n % 3, rh_pct=rh_pct),
                sample(T0 + n * STEP, n, "_site", "ws", out_temp_c=4.0, wind_dir_deg=(350 + n) % 360),
            ]

        offset = 0
        for n in [*range(15), 40, 41, 400, 402]:
            yield record(offset, said(n, 70.0))
            offset += 1
        yield record(offset, [sample(T0 + 700 * STEP, 700, "z9", air_temp_c=1.0)])

    at_once = windows().feed(list(records())).steps
    into, made = windows(), []
    for told in records():
        made += [step.made() for step in into.feed([told]).steps]
    assert len(at_once) == len(made) > 690
    assert sum(isinstance(step, SilentStep) for step in at_once) > 650
    for one, other in zip(at_once, made, strict=True):
        assert (one.end_ms, one.zones, one.units, one.schema_version, one.step_ms, len(one.devices)) == (
            other.end_ms, other.zones, other.units, other.schema_version, other.step_ms, len(other.devices)
        )  # fmt: skip
        np.testing.assert_array_equal(one.values, other.values)
        np.testing.assert_array_equal(one.ages_s, other.ages_s)
