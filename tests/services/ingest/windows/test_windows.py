"""Rows are a pure function of a partition's records."""

from __future__ import annotations

import dataclasses
import math
import random

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.log import Record
from edge.wire.reading import Refusal, Sample
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import VOCABULARY
from services.config import StreamSettings
from services.ingest.windows import open_rows
from services.ingest.windows.partition_windows import Closed, PartitionWindows
from services.store.rows import SiteStep
from tests.services.ingest.samples import STEP, T0, long_silence, record, sample, tick

LATE = 30_000
IDLE = 60_000
CHANNELS = tuple(VOCABULARY)
METRICS = ["air_temp_c", "rh_pct", "air_temp_c.2", "vent_lee_pct", "wind_dir_deg", "irrigation_l_m2"]


def windows(**options: object) -> PartitionWindows:
    return PartitionWindows(STEP, LATE, IDLE, VOCABULARY, **options)  # type: ignore[arg-type]


def feed(samples: list[Sample], into: PartitionWindows | None = None) -> Closed:
    return (into or windows()).feed([record(n, [s]) for n, s in enumerate(samples)])


def value(step: SiteStep, zone: str, channel: str) -> float:
    return float(step.values[step.zones.index(zone), CHANNELS.index(channel)])


def age(step: SiteStep, zone: str, channel: str) -> float:
    return float(step.ages_s[step.zones.index(zone), CHANNELS.index(channel)])


def content(steps: list[SiteStep]) -> list[tuple[object, ...]]:
    return [(s.site, s.end_ms, s.zones, s.values.tobytes(), s.ages_s.tobytes(), s.devices) for s in steps]


def test_a_sample_on_the_grid_belongs_to_the_row_that_ends_there() -> None:
    """The row (end - step, end] keeps a recording's grid values at their own time."""
    closed = feed([sample(T0, 1, air_temp_c=18.0), sample(T0 + 1, 2, air_temp_c=25.0), sample(T0 + STEP + LATE, 3)])
    assert [s.end_ms for s in closed.steps] == [T0, T0 + STEP]
    assert [value(s, "z1", "air_temp_c") for s in closed.steps] == [18.0, 25.0]


def test_a_row_closes_when_the_lateness_has_passed_and_not_before() -> None:
    """The watermark is the newest event time less the lateness."""
    w = windows()
    assert feed([sample(T0, 1), sample(T0 + LATE - 1, 2)], w).steps == []
    assert [s.end_ms for s in feed([sample(T0 + LATE, 3)], w).steps] == [T0]
    assert w.watermark_ms("demo") == T0


def test_a_device_row_has_count_mean_min_max_last() -> None:
    """A device's step is summed up from all its samples, the last by event time."""
    closed = feed([
        sample(T0 + 20_000, 2, air_temp_c=23.0), sample(T0 + 10_000, 1, air_temp_c=20.0),
        sample(T0 + STEP + LATE, 3),
    ])  # fmt: skip
    assert closed.steps[0].devices == [("z1", "climate", "air_temp_c", 2, 21.5, 20.0, 23.0, 23.0)]


def test_a_zone_takes_the_median_over_sensors_also_a_second_one_of_a_device() -> None:
    """``metric.2`` counts as another sensor of its metric."""
    values = {"air_temp_c": 20.0, "air_temp_c.2": 22.0}
    closed = feed([
        sample(T0, 1, **values), sample(T0, 1, device="other", air_temp_c=29.0), sample(T0 + LATE, 2),
    ])  # fmt: skip
    assert value(closed.steps[0], "z1", "air_temp_c") == 22.0
    assert [row.metric for row in closed.steps[0].devices] == ["air_temp_c", "air_temp_c.2", "air_temp_c"]


def test_the_primary_device_decides_where_it_is_there() -> None:
    """A configured primary wins over the median; a zone without that device keeps the median."""
    w = windows(primary={"demo": {"air_temp_c": "best"}})
    samples = [
        sample(T0, 1, device="best", air_temp_c=30.0), sample(T0, 1, device="a", air_temp_c=20.0),
        sample(T0, 1, device="b", air_temp_c=21.0), sample(T0, 1, zone="z2", device="a", air_temp_c=19.0),
        sample(T0 + LATE, 2),
    ]  # fmt: skip
    step = feed(samples, w).steps[0]
    assert (value(step, "z1", "air_temp_c"), value(step, "z2", "air_temp_c")) == (30.0, 19.0)


def test_weather_is_joined_into_every_zone() -> None:
    """``_site`` has no row of its own; a zone's own sensor of the same metric wins."""
    closed = feed([
        sample(T0, 1, zone=SITE_ZONE, device="ws", out_temp_c=4.0, co2_ppm=420.0),
        sample(T0, 1, zone="z1", co2_ppm=800.0), sample(T0, 1, zone="z2"), sample(T0 + LATE, 2),
    ])  # fmt: skip
    step = closed.steps[0]
    assert step.zones == ("z1", "z2")
    assert [value(step, z, "out_temp_c") for z in step.zones] == [4.0, 4.0]
    assert [value(step, z, "co2_ppm") for z in step.zones] == [800.0, 420.0]


def test_directions_are_averaged_as_vectors() -> None:
    """350 and 10 degrees make north, not south."""
    closed = feed([sample(T0 - 1, 1, wind_dir_deg=350.0), sample(T0, 2, wind_dir_deg=10.0), sample(T0 + LATE, 3)])
    mean = value(closed.steps[0], "z1", "wind_dir_deg")
    assert min(mean, 360 - mean) < 1e-6


def test_a_counter_gives_its_increase_through_a_reset() -> None:
    """A drop means that the counter began again at zero; the increase runs on over the rows."""
    readings = [(T0, 10.0), (T0 + 60_000, 12.0), (T0 + 120_000, 1.0), (T0 + STEP + 1, 4.0)]
    closed = feed([
        *(sample(ts, n, irrigation_l_m2=v) for n, (ts, v) in enumerate(readings)), sample(T0 + 2 * STEP + LATE, 9),
    ])  # fmt: skip
    assert [value(s, "z1", "irrigation_l_m2") for s in closed.steps] == [0.0, 3.0, 3.0]


def test_a_value_sent_on_change_holds_then_is_missing() -> None:
    """``hold_s`` carries an actuator's value on; after it the value is NaN and only its age goes on."""
    hours = 2
    closed = feed([sample(T0, 1, vent_lee_pct=40.0, air_temp_c=20.0), sample(T0 + hours * 3_600_000 + LATE, 2)])
    held = [value(s, "z1", "vent_lee_pct") for s in closed.steps]
    assert held[:13] == [40.0] * 13
    assert all(math.isnan(v) for v in held[13:])
    assert all(math.isnan(value(s, "z1", "air_temp_c")) for s in closed.steps[1:-1])
    assert age(closed.steps[13], "z1", "vent_lee_pct") == 13 * 300
    assert math.isnan(age(closed.steps[0], "z1", "co2_ppm"))


def test_all_zones_of_a_site_close_together() -> None:
    """A zone that is silent in a step still gets its row."""
    closed = feed([sample(T0, 1), sample(T0, 1, zone="z2"), sample(T0 + STEP, 2), sample(T0 + STEP + LATE, 3)])
    assert [s.zones for s in closed.steps] == [("z1", "z2"), ("z1", "z2")]
    assert math.isnan(value(closed.steps[1], "z2", "air_temp_c"))


def test_late_and_duplicate_samples_change_no_row() -> None:
    """A copy in an open row is a duplicate; after its row closed any sample is late, with a dead letter."""
    first = sample(T0, 1)
    w = windows()
    closed = feed([first, first, sample(T0 + LATE, 2)], w)
    assert (closed.accepted, closed.duplicates, closed.late) == (2, 1, 0)
    again = w.feed([record(7, [sample(T0 + LATE, 2), first])])
    assert (again.accepted, again.duplicates, again.late, again.steps) == (0, 1, 1, [])
    letter = again.dead_letters[0]
    assert (letter.partition, letter.offset, letter.item, letter.reason) == (0, 7, 1, "late")
    assert "before its receive time, and its row was closed" in letter.detail
    assert letter.topic == "hothouse/v1/demo/z1/climate/sample"


def test_a_late_sample_of_whole_hours_ago_is_asked_for_its_time_zone() -> None:
    """Each sample of a device that sends local time comes late, where others keep the site's time."""
    w = windows()
    feed([sample(T0, 1), sample(T0 + STEP + LATE, 2)], w)
    five_ms = 5 * 3_600_000
    letters = w.feed([record(2, [sample(T0 - five_ms, 3), sample(T0 - STEP, 4)], T0 + STEP + LATE)]).dead_letters
    questions = [letter.detail.partition(f"up to {T0 + STEP}")[2] for letter in letters]
    assert questions == ["", ""]
    letters = w.feed([record(3, [sample(T0 + STEP - five_ms, 5)], T0 + STEP)]).dead_letters
    assert letters[0].detail.endswith("; does the device send local time (UTC-5)?")


def test_refusals_are_counted_apart_by_sample_and_by_value() -> None:
    """A refused record raises ``rejected`` by its samples, ``values_refused`` by its values; a torn one counts too."""
    refusals = [Refusal("malformed", "t", "x", b"?", True, 3), Refusal("out_of_range", "t", "y", b"", False)]
    refused = Record(0, 5, "demo", "refused", T0, msgspec.msgpack.encode(refusals), "t")
    torn = Record(0, 6, "demo", "samples", T0, b"\x93", "")
    closed = windows().feed([refused, torn, Record(0, 7, "demo", "plan", T0, b"{}", "")])
    assert closed.rejected == {"malformed": 3, "corrupt_record": 1}
    assert closed.values_refused == {"out_of_range": 1}
    assert closed.other_records == {"plan": 1}
    assert [(d.offset, d.item, d.reason) for d in closed.dead_letters] == [
        (5, 0, "malformed"), (5, 1, "out_of_range"), (6, 0, "corrupt_record"),
    ]  # fmt: skip


def test_half_a_state_is_refused() -> None:
    """A state in which something is missing raises and changes nothing."""
    w = windows()
    feed([sample(T0, 1)], w)
    with pytest.raises(KeyError):
        w.load({"sites": {"other": {}}, "origins": {}})
    assert w.sites == ("demo",)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Sample], random.Random]:
    """Samples of two sites, several zones and devices over 20 minutes, some metrics sparse."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    samples = []
    for seq in range(draw(st.integers(5, 60))):
        site, zone = rng.choice(["demo", "other"]), rng.choice(["z1", "z2", SITE_ZONE])
        names = rng.sample(METRICS, 3)
        values = {name: rng.choice([0.1, 33.3, 7.7, 1e-3, 59.9]) for name in names}
        at = T0 + rng.randrange(0, 4 * STEP, 1000)
        name = site, zone, rng.choice("ab"), rng.choice(["bootbootA", "bootbootB"])
        samples.append(Sample(*name, seq + rng.choice([0, 0, 2**32, 2**52]), at, values))
    return sorted(samples, key=lambda s: (s.ts_ms, s.seq)), rng


@pytest.mark.parametrize("small", [False, True])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(streams())
@pytest.mark.thorough
def test_rows_do_not_depend_on_order_batching_or_repetition(
    small: bool, monkeypatch: pytest.MonkeyPatch, stream: tuple[list[Sample], random.Random]
) -> None:
    """Within the lateness any order, batching and repetition gives byte-identical rows, also through a snapshot, and
    also where keys settle, columns grow and names are forgotten all the time.
    """
    if small:
        for name, size in (("_RECENT", 2), ("_FIRST_ROOM", 1), ("_SPARE_NAMES", -3)):
            monkeypatch.setattr(open_rows, name, size)
    samples, rng = stream
    end = max(s.ts_ms for s in samples) + 10 * STEP
    ticks = [*long_silence(10_000, end), *long_silence(20_000, end, "other")]
    plain = windows().feed([*(record(n, [s]) for n, s in enumerate(samples)), *ticks])
    copies = rng.sample(samples, len(samples) // 2)
    shuffled = sorted([*samples, *copies], key=lambda s: s.ts_ms + rng.uniform(0, LATE))
    records: list[Record] = []
    at = 0
    while at < len(shuffled):
        batch = shuffled[at : at + rng.randint(1, 7)]
        at += len(batch)
        for site in dict.fromkeys(s.site for s in batch):
            records.append(record(len(records), [s for s in batch if s.site == site], end))
    first, second, steps, counts = windows(), windows(), [], [0, 0, 0]
    cut = rng.randint(0, len(records))
    for w, part in ((first, records[:cut]), (second, [*records[cut:], *ticks])):
        if w is second:
            second.load(first.state())
        closed = w.feed(part)
        steps += closed.steps
        counts = [n + m for n, m in zip(counts, (closed.accepted, closed.duplicates, closed.late), strict=True)]
    assert counts == [len(samples), len(shuffled) - len(samples), 0]
    order = lambda s: (s.site, s.end_ms)  # noqa: E731
    assert content(sorted(steps, key=order)) == content(sorted(plain.steps, key=order))


def test_rows_are_sorted_and_typed() -> None:
    """Zones come sorted, as float32, whatever came first."""
    step = feed([sample(T0, 1, zone="b"), sample(T0, 1, zone="a"), sample(T0 + LATE, 2)]).steps[0]
    assert step.zones == ("a", "b", "z1")[: len(step.zones)]
    assert step.values.dtype == step.ages_s.dtype == np.float32
    assert dataclasses.is_dataclass(step)


@given(streams())
def test_a_device_ten_minutes_ahead_closes_nobodys_row(stream: tuple[list[Sample], random.Random]) -> None:
    """Every row of the others is the same as without it, and none of their samples is late."""
    samples, rng = stream
    arrived = sorted(samples, key=lambda s: s.ts_ms + rng.uniform(0, LATE))
    records: list[Record] = []
    with_it: list[Record] = []
    now = 0
    for s in arrived:
        now = max(now, s.ts_ms)
        records.append(record(len(records), [s], now))
        ahead = sample(now + 600_000, len(records), "z1", "ahead", s.site, wind_m_s=3.0)
        with_it += [record(0, [ahead], now), records[-1]] if rng.random() < 0.3 else [records[-1]]
    end = now + 20 * STEP
    ticks = [*long_silence(10_000, end), *long_silence(20_000, end, "other")]
    plain, ahead_too = windows().feed([*records, *ticks]), windows().feed([*with_it, *ticks])
    assert ahead_too.late == plain.late == 0

    def rows(closed: Closed) -> list[tuple[object, ...]]:
        return sorted((s.site, s.end_ms, *row) for s in closed.steps for row in s.devices if row.device != "ahead")

    assert rows(ahead_too) == rows(plain)


@given(st.lists(st.integers(0, 3 * 900_000), min_size=1, max_size=20), st.sampled_from([60_000, 300_000, 900_000]))
def test_a_silent_sites_rows_close_by_receive_time(offsets: list[int], step_ms: int) -> None:
    """Ticks close a row at the latest two of them after its end, the lateness and the idle time have passed."""
    w = PartitionWindows(step_ms, LATE, IDLE, VOCABULARY)
    tick_ms = step_ms // 10
    w.feed([record(0, [sample(T0 + at, n)]) for n, at in enumerate(sorted(offsets))])
    begin = T0 + max(offsets)
    still_open = max(offsets) + T0
    for now in range(begin, begin + 4 * step_ms + LATE + IDLE, tick_ms):
        for step in w.feed([tick(1, now)]).steps:
            assert now <= max(step.end_ms, begin - LATE) + LATE + IDLE + 2 * tick_ms
    closed_ms = w.watermark_ms("demo")
    assert closed_ms is not None
    assert closed_ms >= still_open


@given(st.integers(1, 900), st.integers(0, 99), st.sampled_from([60, 120, 300, 900]))
def test_with_the_defaults_a_silent_sites_rows_close_within_a_step(at_s: int, phase: int, step_s: int) -> None:
    """Of receive time, whenever in the step its last sample came and its ticks come."""
    stream = StreamSettings(step_s=step_s)
    step_ms, tick_ms = step_s * 1000, step_s * 100
    w = PartitionWindows(step_ms, stream.lateness_s * 1000, stream.idle_s * 1000, VOCABULARY)
    last_ms = T0 + at_s * 1000
    w.feed([record(0, [sample(last_ms, 0)], last_ms)])
    closed_at: dict[int, int] = {}
    for now in range(last_ms + tick_ms * phase // 100, last_ms + 3 * step_ms, tick_ms):
        closed_at |= {step.end_ms: now for step in w.feed([tick(1, now)]).steps}
    assert min(closed_at) >= last_ms
    assert all(now - end_ms <= step_ms for end_ms, now in closed_at.items())


@given(streams())
def test_a_replay_from_any_offset_gives_the_same_rows(stream: tuple[list[Sample], random.Random]) -> None:
    """Whatever record it begins at: each row of which all samples are there is the same."""
    samples, rng = stream
    gauges = [s for s in samples if not {"vent_lee_pct", "irrigation_l_m2"} & s.values.keys()]
    records = [record(n, [s], s.ts_ms) for n, s in enumerate(gauges)]
    start = rng.randint(0, len(records))
    newest: dict[str, int] = {}
    for r, s in zip(records[:start], gauges, strict=False):
        newest[r.site] = max(newest.get(r.site, 0), s.ts_ms)
    end = T0 + 20 * STEP
    ticks = [*long_silence(10_000, end), *long_silence(20_000, end, "other")]

    def rows(closed: Closed) -> list[tuple[object, ...]]:
        found = [(s.site, s.end_ms, *row) for s in closed.steps for row in s.devices]
        return sorted(row for row in found if row[1] - STEP >= newest.get(row[0], 0))

    assert rows(windows().feed([*records[start:], *ticks])) == rows(windows().feed([*records, *ticks]))
