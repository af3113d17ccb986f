"""A change of step, alias or calibration takes effect at its event in the log and nowhere else."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.log import Record
from edge.wire.events import Alias, Calibration, Change, SettingsChange, encode_change
from edge.wire.reading import Sample
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import VOCABULARY
from services.ingest.windows.partition_windows import Closed, PartitionWindows
from services.store.rows import SiteStep
from tests.services.ingest.samples import BOOT, STEP, T0, long_silence, record, sample, tick

LATE, IDLE = 30_000, 60_000
GAUGES = ["air_temp_c", "rh_pct", "air_temp_c.2", "wind_dir_deg"]  # nothing of them is held from row to row
CHANNELS = tuple(VOCABULARY)


def windows(step_ms: int = STEP) -> PartitionWindows:
    return PartitionWindows(step_ms, LATE, IDLE, VOCABULARY)


def event(change: Change, zone: str = "z1", device: str = "a", offset: int = 0) -> Record:
    zone = SITE_ZONE if isinstance(change, SettingsChange) else zone
    topic = f"hothouse/v1/demo/{zone}/{device}/event"
    return Record(0, offset, "demo", "event", T0, encode_change(change), topic)


def content(steps: list[SiteStep]) -> list[tuple[object, ...]]:
    """The rows, bit for bit, without the version that they were made under."""
    return [(s.end_ms, s.step_ms, s.zones, s.values.tobytes(), list(s.devices)) for s in steps]


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[Record], random.Random]:
    """A site's records over some 25 minutes, out of order within the lateness, and ticks that close all at the end."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    samples = []
    for seq in range(draw(st.integers(10, 80))):
        values = {name: rng.choice([0.1, 33.3, 7.7, 59.9]) for name in rng.sample(GAUGES, 2)}
        at = T0 + rng.randrange(0, 5 * STEP, 1000)
        samples.append(Sample("demo", rng.choice(["z1", "z2"]), rng.choice("ab"), BOOT, seq, at, values))
    samples.sort(key=lambda s: s.ts_ms + rng.uniform(0, LATE))
    end = T0 + 20 * STEP
    return [*(record(n, [s], end) for n, s in enumerate(samples)), *long_silence(1000, end)], rng


CHANGES = st.sampled_from([
    SettingsChange(2, step_s=60), SettingsChange(2, step_s=120), SettingsChange(2, step_s=900),
    Calibration(2, "air_temp_c", offset=-0.5, scale=1.1), Calibration(2, "wind_dir_deg", offset=350),
    Alias(2, "c"), Alias(2, "b"), Alias(2, "leaf_temp_c", metric="air_temp_c"),
])  # fmt: skip


def boundary(change: Change, closed_ms: int | None) -> int:
    """The end of the newest row that is as it would be without the change; every sample after it counts anew."""
    if closed_ms is None or not isinstance(change, SettingsChange):
        return closed_ms or 0
    both = math.lcm(STEP, (change.step_s or 0) * 1000)
    return math.ceil(closed_ms / both) * both


def in_parts(records: list[Record], rng: random.Random) -> list[SiteStep]:
    """Fed in any batches, through snapshots between them."""
    steps: list[SiteStep] = []
    at, w = 0, windows()
    while at < len(records):
        size = rng.randint(1, 20)
        steps += w.feed(records[at : at + size]).steps
        at += size
        other = windows()
        other.load(w.state())
        w = other
    return steps


@given(stories(), CHANGES)
def test_rows_before_are_those_without_it_and_rows_after_those_of_a_fresh_run(
    story: tuple[list[Record], random.Random], change: Change
) -> None:
    """Byte for byte: up to the boundary as if the change had never come, behind it as if it had always been there."""
    records, rng = story
    at = rng.randrange(sum(r.kind == "samples" for r in records))
    changed = windows()
    steps = changed.feed(records[:at]).steps
    until = boundary(change, changed.watermark_ms("demo"))
    steps += changed.feed([event(change), *records[at:]]).steps
    without, fresh = windows().feed(records).steps, windows().feed([event(change), *records]).steps
    assert content([s for s in steps if s.end_ms <= until]) == content([s for s in without if s.end_ms <= until])
    assert content([s for s in steps if s.end_ms > until]) == content([s for s in fresh if s.end_ms > until])
    assert [s.schema_version for s in steps] == sorted(s.schema_version for s in steps)
    counted = sum(row.n for s in steps for row in s.devices)
    assert counted == sum(row.n for s in without for row in s.devices)


@given(stories(), CHANGES, CHANGES)
@pytest.mark.thorough
def test_batches_restarts_and_repeated_events_change_no_byte(
    story: tuple[list[Record], random.Random], one: Change, two: Change
) -> None:
    """Events are told apart by their version, so that one that is delivered again, also late, is ignored."""
    records, rng = story
    first, second = sorted(rng.sample(range(sum(r.kind == "samples" for r in records) + 3), 2))
    events = [event(one), event(type(two)(**{f: getattr(two, f) for f in two.__struct_fields__} | {"version": 3}))]
    once = [*records[:first], events[0], *records[first:second], events[1], *records[second:]]
    again = list(once)
    for copy in (events[0], *events, *events):
        again.insert(rng.randrange(second + 2, len(again) + 1), copy)
    steady = windows().feed(once).steps
    for steps in (windows().feed(again).steps, in_parts(once, rng), in_parts(again, rng)):
        assert content(steps) == content(steady)
        assert [s.schema_version for s in steps] == [s.schema_version for s in steady]


def value(step: SiteStep, zone: str, channel: str) -> float:
    return float(step.values[step.zones.index(zone), CHANNELS.index(channel)])


def feed(*records: Record) -> Closed:
    return windows().feed(records)


def test_a_calibration_holds_from_its_time_on_and_only_for_its_sensor() -> None:
    """Samples before ``from_ms`` and other devices stay as sent; a newer calibration replaces it from its own time."""
    both = [record(n, [sample(ts, n, device=d) for d in "ab"]) for n, ts in enumerate([T0 - 2, T0 - 1, T0, T0 + LATE])]
    calibrations = [
        event(Calibration(2, "air_temp_c", offset=1, from_ms=T0 - 1)),
        event(Calibration(3, "air_temp_c", scale=2, from_ms=T0)),
    ]
    rows = feed(*calibrations, *both).steps[0].devices
    assert [(row.device, row.min, row.max, row.last) for row in rows] == [("a", 20, 40, 40), ("b", 20, 20, 20)]
    assert rows[0].mean == 27


@pytest.mark.parametrize(
    ("metric", "sent", "scale", "offset", "counts"),
    [("rh_pct", 99.0, 1, 4, 100), ("par_umol_m2_s", 2.0, 1, -5, 0), ("air_temp_c", 21.4, 1e300, 1e300, 60),
     ("air_temp_c", 21.5, 1, -0.5, 21)],
)  # fmt: skip
def test_what_a_calibration_makes_of_a_value_is_possible(
    metric: str, sent: float, scale: float, offset: float, counts: float
) -> None:
    """Air is never more than saturated, and a typing error in the scale makes no number that nobody can reckon with."""
    both = [record(n, [sample(ts, n, device="a", **{metric: sent})]) for n, ts in enumerate([T0, T0 + LATE])]
    step = feed(event(Calibration(2, metric, offset=offset, scale=scale)), *both).steps[0]
    assert value(step, "z1", metric) == counts
    assert step.devices[0].mean == counts


def test_a_shorter_lateness_closes_rows_sooner_from_the_next_sample_on() -> None:
    """And an event of another type, or one that is not newer, changes nothing."""
    until = [record(1, [sample(T0 + 1, 1)]), record(2, [sample(T0 + 2, 2)])]
    assert feed(*until).steps == []
    closed = feed(until[0], event(SettingsChange(2, lateness_s=0)), event(SettingsChange(2, lateness_s=30)), until[1])
    assert [s.end_ms for s in closed.steps] == []  # the first sample belongs to the next row
    on_time = feed(record(1, [sample(T0, 1)]), event(SettingsChange(2, lateness_s=0)), until[1])
    assert [s.end_ms for s in on_time.steps] == [T0]
    assert on_time.other_records == {"event": 1}


def test_a_change_before_the_first_sample_holds_from_the_beginning() -> None:
    """A site may be set up before it sends anything; ticks meanwhile close nothing."""
    change = event(SettingsChange(2, step_s=60))
    closed = feed(change, tick(1, T0), tick(2, T0 + 10 * STEP), *(record(n, [sample(T0 + n, n)]) for n in (1, 90_000)))
    assert [(s.end_ms, s.step_ms, s.schema_version) for s in closed.steps] == [(T0 + 60_000, 60_000, 2)]
    assert closed.late == 0


def test_an_alias_is_taken_back_by_the_own_name() -> None:
    """A device that gets its own name back is itself again."""
    at = [record(n, [sample(T0 + n * STEP, n, device="a")]) for n in range(4)]
    closed = feed(event(Alias(2, "new")), at[0], at[1], event(Alias(3, "a")), at[2], at[3])
    assert [row.device for s in closed.steps for row in s.devices] == ["new", "a", "a"]


def metered(*parts: tuple[str, float] | Alias) -> float:
    """What a zone's meters gained in all: a row each of a device and what it reads, and renamings of device ``b``."""
    records, seq = list[Record](), 0
    for part in parts:
        if isinstance(part, Alias):
            records.append(event(part, device="b"))
        else:
            (device, reads), seq = part, seq + 1
            records.append(record(seq, [sample(T0 + seq * STEP, seq, device=device, irrigation_l_m2=reads)]))
    closing = record(seq + 1, [sample(T0 + (seq + 2) * STEP, seq + 1, device="other")])
    rows = [row for s in feed(*records, closing).steps for row in s.devices if row.metric.startswith("irrigation")]
    return sum(row.mean for row in rows)


def test_a_meter_counts_once_under_whatever_name() -> None:
    """An alias that is taken back began again at what the meter had read before it, and counted all since twice."""
    own = [("b", 100.0), ("b", 110.0)]
    renamed = [*own, Alias(2, "c"), ("b", 120.0), ("b", 130.0)]
    assert metered(*renamed) == 30.0
    back = [*renamed, Alias(3, "b"), ("b", 140.0), ("b", 150.0)]
    assert metered(*back) == 50.0
    assert metered(*back, Alias(4, "c"), ("b", 160.0)) == 60.0
    metric = [*own, Alias(2, "irrigation_l_m2.2", metric="irrigation_l_m2"), ("b", 120.0)]
    assert metered(*metric) == 20.0
    back = [*metric, Alias(3, "irrigation_l_m2", metric="irrigation_l_m2"), ("b", 130.0)]
    assert metered(*back) == 30.0


def test_a_new_meter_that_gets_the_old_ones_name_goes_on_from_its_own_reading() -> None:
    """It took what it had counted under its own name for gained again; the old one, if it comes back, goes on, too."""
    new = [("a", 1000.0), ("a", 1010.0), ("b", 2.0), ("b", 7.0), Alias(2, "a"), ("b", 9.0)]
    assert metered(*new) == 17.0
    assert metered(*new, Alias(3, "b"), ("a", 1011.0), ("b", 10.0)) == 19.0
    # A name that is given before the new meter says anything: it is taken to have begun at zero.
    assert metered(("a", 1000.0), ("a", 1010.0), Alias(2, "a"), ("b", 2.0), ("b", 7.0)) == 17.0


def test_a_wrong_change_in_the_log_is_a_dead_letter() -> None:
    """What no gateway would have taken stops nothing and changes nothing."""
    wrong = Record(
        0, 7, "demo", "event", T0, b'{"type":"settings","version":2,"step_s":7}', "hothouse/v1/demo/_site/a/event"
    )
    closed = feed(wrong, record(8, [sample(T0, 1)]), record(9, [sample(T0 + LATE, 2)]))
    assert [(d.offset, d.reason) for d in closed.dead_letters] == [(7, "corrupt_record")]
    assert closed.steps[0].schema_version == 1


@pytest.mark.parametrize("step_s", [60, 900])
def test_no_sample_is_lost_or_counted_twice_when_the_step_changes(step_s: int) -> None:
    """Rows that are open are cut anew; what was sent once counts once."""
    samples = [record(n, [sample(T0 + n * 10_000, n)]) for n in range(300)]
    closed = feed(*samples[:100], event(SettingsChange(2, step_s=step_s)), *samples[100:])
    ends = [s.end_ms for s in closed.steps]
    assert ends == sorted(set(ends))
    assert closed.late == closed.duplicates == 0
    counted = sum(row.n for s in closed.steps for row in s.devices)
    assert counted == (ends[-1] - T0) // 10_000 + 1
