"""A sensor that sends another unit is found by its first hour, and is not the zone's value from then on."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.log import Record
from edge.wire.reading import Sample
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import VOCABULARY
from services.ingest.windows.partition_windows import Closed, PartitionWindows
from services.store.rows import SiteStep
from tests.services.ingest.samples import STEP, T0, long_silence, record, sample

LATE, IDLE = 30_000, 60_000
HOUR_STEPS = 12
CHANNELS = tuple(VOCABULARY)


def windows() -> PartitionWindows:
    """Those of a partition with rows of five minutes."""
    return PartitionWindows(STEP, LATE, IDLE, VOCABULARY)


def row(number: int, *devices: tuple[str, str, dict[str, float]]) -> list[Sample]:
    """One row's samples, at its end: zone, device and values of each."""
    return [sample(T0 + number * STEP, number, zone, device, **values) for zone, device, values in devices]


def feed(rows: list[list[Sample]], into: PartitionWindows | None = None) -> Closed:
    """A record a row, and one that closes the last."""
    last = rows[-1][0].ts_ms + STEP + LATE
    end = [sample(last, 10**6, "z1", "clock", wind_m_s=1.0)]
    return (into or windows()).feed([record(n, samples) for n, samples in enumerate([*rows, end])])


def value(step: SiteStep, zone: str, channel: str) -> float:
    """What a row says."""
    return float(step.values[step.zones.index(zone), CHANNELS.index(channel)])


def two_sensors(number: int) -> list[Sample]:
    """A zone whose climate computer sends shares and whose second sensor sends percents."""
    share = 0.62 + 0.09 * (number % 2)
    return row(number, ("z1", "climate", {"rh_pct": share}), ("z1", "second", {"rh_pct": 71.0}))


def test_a_share_is_not_averaged_with_percents_after_its_first_hour() -> None:
    """Before the hour is over the zone's value is the median of both; then it is that of the sensor that is right."""
    closed = feed([two_sensors(n) for n in range(HOUR_STEPS + 4)])
    found = [round(value(step, "z1", "rh_pct"), 3) for step in closed.steps[: HOUR_STEPS + 4]]
    assert found[:2] == [35.81, 35.855]
    assert found[HOUR_STEPS - 1] == 35.855
    assert found[HOUR_STEPS:] == [71.0] * 4
    assert [(fault.zone, fault.device, fault.metric) for fault in closed.steps[HOUR_STEPS].units] == [
        ("z1", "climate", "rh_pct")
    ]
    assert (
        closed.steps[HOUR_STEPS].units[0].words() == "z1/climate rh_pct looks like a share (0.62 to 0.71): send percent"
    )


def test_it_is_a_dead_letter_once() -> None:
    """With the device's topic; it counts as no refusal, for the samples are in rows."""
    closed = feed([two_sensors(n) for n in range(2 * HOUR_STEPS)])
    (letter,) = closed.dead_letters
    assert (letter.reason, letter.topic, letter.item) == ("unit", "hothouse/v1/demo/z1/climate/sample", -1)
    assert letter.offset == HOUR_STEPS + 1  # the record that closed the row
    assert "looks like a share" in letter.detail
    assert msgspec.json.decode(letter.payload)["looks_like"] == "share"
    assert closed.rejected == closed.values_refused == {}
    assert closed.accepted == 2 * 2 * HOUR_STEPS + 1


@pytest.mark.parametrize(
    ("metric", "values", "words"),
    [
        ("rh_pct", [0.62, 0.71], "a share (0.62 to 0.71): send percent"),
        ("out_rh_pct", [0.9, 1.0], "a share (0.9 to 1): send percent"),
        ("soil_vwc_pct", [0.35, 0.36], "a share (0.35 to 0.36): send percent"),
        ("air_temp_c", [46.0, 59.5], "°F (46 to 59.5): send °C"),
        ("air_temp_c.2", [46.0, 59.5], "°F (46 to 59.5): send °C"),
        ("air_temp_c", [44.9, 59.5], ""),
        ("heat_pipe_low_c", [55.0, 60.0], ""),
        ("vent_lee_pct", [0.5, 1.0], ""),
        ("lamp_pct", [0.0, 1.0], ""),
        ("rh_pct", [0.0, 0.0], ""),
        ("soil_vwc_pct", [0.0, 0.03], ""),
        ("rh_pct", [0.71, 71.0], ""),
    ],
)
def test_what_a_greenhouse_can_be_for_an_hour_is_no_fault(metric: str, values: list[float], words: str) -> None:
    """Humidity and soil water are never at 1.5 % or below, air never above 45 °C; actuators are where they like."""
    zone = SITE_ZONE if metric.startswith("out_") else "z1"
    rows = [row(n, (zone, "d", {metric: values[n % 2]}), ("z1", "d", {"wind_m_s": 1.0})) for n in range(2 * HOUR_STEPS)]
    last = feed(rows).steps[-2]
    assert [fault.words() for fault in last.units] == ([f"{zone}/d {metric} looks like {words}"] if words else [])
    if zone == "z1" and "." not in metric:
        assert np.isnan(value(last, "z1", metric)) == bool(words)


def test_a_setpoint_that_is_sent_once_is_judged_too() -> None:
    """Its one value holds for a day."""
    rows = [
        row(0, ("z1", "control", {"sp_rh_pct": 0.8})),
        *(row(n, ("z1", "d", {"wind_m_s": 1.0})) for n in range(1, 20)),
    ]
    closed = feed(rows)
    assert value(closed.steps[HOUR_STEPS - 1], "z1", "sp_rh_pct") == pytest.approx(0.8)
    assert np.isnan(value(closed.steps[HOUR_STEPS], "z1", "sp_rh_pct"))


def test_a_sensor_that_is_mended_counts_again() -> None:
    """With the first row of its right unit; a second letter says so."""
    rows = [two_sensors(n) for n in range(HOUR_STEPS + 2)]
    rows += [row(n, ("z1", "climate", {"rh_pct": 69.0})) for n in range(HOUR_STEPS + 2, HOUR_STEPS + 4)]
    closed = feed(rows)
    assert value(closed.steps[-3], "z1", "rh_pct") == 69.0
    assert closed.steps[-3].units == ()
    first, second = closed.dead_letters
    assert (second.reason, second.detail) == ("unit", "z1/climate rh_pct is in its unit again (69 to 69)")
    assert msgspec.json.decode(second.payload)["looks_like"] == ""
    assert (first.topic, first.partition) == (second.topic, second.partition)


def test_a_calibration_mends_it() -> None:
    """An operator says what the device's numbers mean, and it counts again from the next row on."""
    into = windows()
    into.feed([record(n, two_sensors(n)) for n in range(20)])
    event = b'{"type":"calibration","version":2,"metric":"rh_pct","from_ms":0,"scale":100.0,"offset":0.0}'
    topic = "hothouse/v1/demo/z1/climate/event"
    into.feed([Record(0, 20, "demo", "event", T0 + 20 * STEP, event, topic)])
    closed = into.feed([record(n + 1, two_sensors(n)) for n in range(20, 24)])
    assert [step.units for step in closed.steps[1:]] == [(), (), ()]
    assert {round(value(step, "z1", "rh_pct"), 1) for step in closed.steps[1:]} == {66.5, 71.0}


def test_silence_repeats_no_letter() -> None:
    """Rows that ticks close after a sensor was mended say nothing new."""
    into = windows()
    rows = [two_sensors(n) if n < 20 else row(n, ("z1", "climate", {"rh_pct": 69.0})) for n in range(21)]
    dead_letters = feed(rows, into).dead_letters
    assert [letter.reason for letter in dead_letters] == ["unit", "unit"]
    assert into.feed(long_silence(100, T0 + 40 * STEP)).dead_letters == []


def test_rows_that_time_closes_judge_too() -> None:
    """Two sensors of which the wrong one falls silent: its hour is over when a tick closes the rows after it."""
    into = windows()
    into.feed([record(n, two_sensors(n)) for n in range(HOUR_STEPS)])
    closed = into.feed(long_silence(100, T0 + (HOUR_STEPS + 2) * STEP))
    assert [letter.reason for letter in closed.dead_letters] == ["unit"]


def test_a_restart_changes_no_word_of_a_fault() -> None:
    """What the sensor says after it was found is not what it was found by."""
    rows = [two_sensors(n) if n < 20 else row(n, ("z1", "climate", {"rh_pct": 0.9})) for n in range(24)]
    records = [record(n, samples) for n, samples in enumerate(rows)]
    steady, before, after = windows(), windows(), windows()
    expected = steady.feed(records).steps[-1].units
    before.feed(records[:22])
    after.load(before.state())
    assert after.feed(records[22:]).steps[-1].units == expected
    assert expected[0].words().endswith("(0.62 to 0.71): send percent")


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 60))
@pytest.mark.thorough
def test_what_is_found_does_not_depend_on_order_reads_or_restarts(rng: random.Random, cut: int) -> None:
    """The same records give the same rows, faults and letters, whatever order samples have in a record, however
    records are read, and whether a snapshot lay between.
    """
    rows = [two_sensors(n) if n < 30 else row(n, ("z1", "climate", {"rh_pct": 69.0})) for n in range(60)]
    records = [record(n, samples) for n, samples in enumerate(rows)]
    shuffled = [record(n, rng.sample(samples, len(samples))) for n, samples in enumerate(rows)]
    whole, first, second = windows(), windows(), windows()
    expected = whole.feed(records)
    before = first.feed(shuffled[:cut])
    second.load(first.state())
    parts = [before, *(second.feed([each]) for each in shuffled[cut:])]
    steps = [step for closed in parts for step in closed.steps]
    dead_letters = [letter for closed in parts for letter in closed.dead_letters]
    assert dead_letters == expected.dead_letters
    assert len(dead_letters) == 2
    for mine, theirs in zip(steps, expected.steps, strict=True):
        assert (mine.end_ms, mine.units, mine.values.tobytes()) == (
            theirs.end_ms,
            theirs.units,
            theirs.values.tobytes(),
        )
