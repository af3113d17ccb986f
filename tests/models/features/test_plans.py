"""What was foreseen, as it was issued."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.features.plan_regressors import KnownAheadFeatures
from models.features.plans import (
    BIN_MS,
    BINS_BACK,
    PLANNED,
    Plan,
    Plans,
    add_planned,
    bin_of,
    bins_ahead,
    planned_columns,
    planned_now,
)
from models.spec import ForecastSpec

HOUR = 3_600_000
METRICS = ("out_temp_c", "sp_heat_c")


def weather(issued_h: float, *values: float, source: str = "service", zone: str = "", known_h: float = -1) -> Plan:
    """A forecast of the air outside, hour by hour from its issue on."""
    times = round(issued_h * HOUR) + HOUR * np.arange(len(values))
    series = {"out_temp_c": (times, np.array(values))}
    return Plan(source, "weather", round(issued_h * HOUR), series, zone, round(known_h * HOUR))


def setpoints(issued_h: float, *values: float, zone: str = "", source: str = "grower") -> Plan:
    """A heating setpoint, hour by hour from its issue on."""
    times = round(issued_h * HOUR) + HOUR * np.arange(len(values))
    return Plan(source, "setpoint", round(issued_h * HOUR), {"sp_heat_c": (times, np.array(values))}, zone)


def foreseen(plans: Plans, origin_h: float, *hours: float, zone: str = "north") -> list[list[float]]:
    """What METRICS are foreseen to be at these hours."""
    times = np.array([round(hour * HOUR) for hour in hours])
    return plans.foreseen(round(origin_h * HOUR), [zone], METRICS, times)[0].T.tolist()


made = st.builds(
    lambda kind, issued, values, zone, late, source: (weather if kind else setpoints)(
        issued, *values, zone=zone, source=source, **({"known_h": issued + late} if kind else {})
    ),
    st.booleans(), st.integers(0, 60), st.lists(st.integers(-9, 30), min_size=1, max_size=30),
    st.sampled_from(["", "north", "south"]), st.integers(0, 5), st.sampled_from(["a", "b"]),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(made, max_size=12), st.integers(0, 60), st.randoms(use_true_random=False))
def test_nothing_that_was_issued_later_is_used(issued: list[Plan], origin_h: int, random: Random) -> None:
    """At every origin all is foreseen as if no later plan existed, in whatever order plans came and with ``forget``."""
    once = {(plan.source, plan.zone, plan.issued_ms): plan for plan in reversed(issued)}.values()
    everything, until = Plans(), Plans()
    shuffled = list(once)
    random.shuffle(shuffled)
    for plan in shuffled:
        everything.add(plan)
        if plan.known_ms <= origin_h * HOUR:
            until.add(plan)
    asked = (everything, origin_h, *range(origin_h - 3, origin_h + 25))
    for zone in ("north", "south", "west"):
        expected = foreseen(until, *asked[1:], zone=zone)
        np.testing.assert_array_equal(foreseen(*asked, zone=zone), expected)
    everything.forget(origin_h * HOUR)
    np.testing.assert_array_equal(foreseen(*asked, zone=zone), expected)
    used = everything.as_of(origin_h * HOUR)
    assert all(plan.issued_ms <= plan.known_ms <= origin_h * HOUR for plan in used)
    assert len({(plan.source, plan.zone) for plan in used}) == len(used)


def test_the_newest_plan_of_a_source_replaces_the_one_before_whole() -> None:
    """From its issue on, also at times that it says nothing of; a repeated one changes nothing."""
    plans = Plans()
    assert plans.add(weather(0, *range(40)))
    assert plans.add(weather(6, 10, 11))
    assert not plans.add(weather(6, 50, 51))
    assert foreseen(plans, 5.9, 6, 20)[0] == [6, 20]
    assert foreseen(plans, 6, 6, 20)[0] == pytest.approx([10, np.nan], nan_ok=True)


def test_a_plan_that_came_late_counts_from_then_on() -> None:
    """One that was issued before another and became known after it never replaces it."""
    plans = Plans()
    plans.add(weather(0, 1, 1, 1, 1, 1, 1))
    plans.add(weather(1, 2, 2, 2, 2, 2, known_h=3))
    plans.add(weather(2, 3, 3, 3, 3))
    assert [foreseen(plans, origin, 4)[0] for origin in (1.9, 2, 3)] == [[1], [3], [3]]


def test_a_zones_own_plan_goes_before_the_sites() -> None:
    """Where it says something; of two sources of the site the one that was issued last."""
    plans = Plans()
    plans.add(setpoints(0, *[18] * 24))
    plans.add(setpoints(2, *[19] * 24, source="other"))
    plans.add(setpoints(1, 20, 20, zone="north"))
    assert foreseen(plans, 3, 4, zone="south")[1] == [19]
    assert foreseen(plans, 3, 1, 4, zone="north")[1] == [20, 20]


def test_each_time_is_judged_by_what_was_known_then() -> None:
    """Before it was known a plan says nothing, and the one of the site holds; one source may be left out."""
    plans = Plans()
    hours = np.arange(5) * 3_600_000
    plans.add(Plan("computer", "setpoint", int(hours[1]), {"sp_heat_c": (hours[:1], [16])}))
    plans.add(Plan("grower", "setpoint", int(hours[1]), {"sp_heat_c": (hours[:1], [18])}, "z1", int(hours[3])))
    plans.add(Plan("yesterday", "setpoint", 0, {"sp_heat_c": (hours[:1], [14])}, "z1"))
    plans.add(Plan("grower", "setpoint", 0, {"sp_heat_c": (hours[:1], [30])}, "z2"))

    def said(zone: str, without: str = "") -> list[float]:
        return plans.as_issued(zone, ["sp_heat_c"], hours, without)[:, 0].tolist()

    np.testing.assert_equal(said("z1", "yesterday"), [np.nan, 16, 16, 18, 18])
    assert said("z1") == [14, 14, 14, 18, 18]
    for n, at_ms in enumerate(hours.tolist()):
        foreseen = plans.foreseen(at_ms, ["z1"], ["sp_heat_c"], hours[n : n + 1])
        assert foreseen[0, 0, 0] == said("z1")[n]


def test_weather_is_linear_and_setpoints_hold() -> None:
    """A gap of more than six hours stays open, half an hour beside a value is known; a setpoint holds for a day."""
    plans = Plans()
    times = np.array([0, 6, 13]) * HOUR
    plans.add(Plan("service", "weather", 0, {"out_temp_c": (times, [0, 6, 13])}))
    plans.add(Plan("grower", "setpoint", 0, {"sp_heat_c": ([0, 8 * HOUR], [18, 20])}))
    temperature, heating = foreseen(plans, 0, -1, 0, 3, 6, 6.25, 9, 12.9, 13.4, 14, 32.1)
    assert temperature == pytest.approx([np.nan, 0, 3, 6, 6.25, np.nan, 12.9, 13, np.nan, np.nan], nan_ok=True)
    assert heating == pytest.approx([np.nan, 18, 18, 18, 18, 20, 20, 20, 20, np.nan], nan_ok=True)


def test_events_are_kept_and_foresee_no_metric() -> None:
    """A harvest is among the plans as of an origin, and no column has it."""
    plans = Plans()
    plans.add(Plan("crop", "event", 0, {"sp_heat_c": ([0], [1])}))
    assert [plan.kind for plan in plans.as_of(0)] == ["event"]
    assert foreseen(plans, 0, 0)[1] == pytest.approx([np.nan], nan_ok=True)


def test_what_is_over_is_forgotten() -> None:
    """One plan of each source is left, and none of a source that ended more than a day ago."""
    plans = Plans()
    for hour in range(50):
        plans.add(weather(hour, 1, 2, 3))
    plans.add(setpoints(0, 18, 18))
    plans.forget(40 * HOUR)
    assert len(plans) == 10  # 40, and those known later
    assert foreseen(plans, 40, 41)[0] == [2]
    plans.forget(90 * HOUR)
    assert len(plans) == 0


def test_a_state_is_taken_over() -> None:
    """Plans that were saved foresee the same, and know what they have."""
    plans, again = Plans(), Plans()
    for plan in (weather(0, 1, 2), weather(1, 3, 4, known_h=2), setpoints(0, 18, zone="north")):
        plans.add(plan)
    again.load_state_dict(plans.state_dict())
    assert len(again) == 3
    assert not again.add(weather(1, 9))
    np.testing.assert_array_equal(foreseen(again, 2, 0, 1, 2), foreseen(plans, 2, 0, 1, 2))


@pytest.mark.parametrize(
    ("series", "said"),
    [
        ({"out_temp_c": ([0, 1], [1])}, "as many values as times"),
        ({"out_temp_c": ([], [])}, "as many values as times"),
        ({"out_temp_c": ([1, 1], [1, 2])}, "must ascend"),
        ({"out_temp_c": ([0], [np.nan])}, "be numbers"),
    ],
)
def test_a_plan_without_sense_is_refused(series, said: str) -> None:
    """In a sentence that names the metric."""
    with pytest.raises(ValueError, match=said):
        Plan("service", "weather", 0, series)


def test_learners_see_the_half_hours_around_the_origin() -> None:
    """Each by its middle, as foreseen() says; also after a newer plan, and with zones in another order."""
    spec = ForecastSpec(channels=(), horizons_min=(5, 90))
    plans = Plans()
    plans.add(weather(0, *range(8)))
    plans.add(setpoints(1, *range(18, 26), zone="north"))
    for origin_h in (3, 3.25, 3.5, 3.75, 4):
        if origin_h == 3.5:
            plans.add(weather(3.5, *range(9, 20)))
        for zones in (["north", "south"], ["south", "north"]):
            origin = round(origin_h * HOUR)
            first = bin_of(origin) - BINS_BACK
            middles = (np.arange(first, first + bins_ahead(spec)) + 0.5) * BIN_MS
            expected = plans.foreseen(origin, zones, PLANNED, middles.astype(np.int64))
            np.testing.assert_array_equal(plans.ahead(origin, zones, spec), expected)
        assert middles[BINS_BACK] <= origin <= middles[BINS_BACK] + BIN_MS / 2
        assert origin + 90 * 60_000 <= middles[-1] < origin + 90 * 60_000 + 2 * BIN_MS


def test_what_a_zone_does_not_measure_is_as_it_was_foreseen() -> None:
    """For now, and so later for yesterday: a zone without a station has the regressors of one that measures just what
    was foreseen; what is measured goes first, and what nobody says stays unknown.
    """
    spec = ForecastSpec(("air_temp_c", "out_temp_c"), step_ms=HOUR, horizons_min=(60, 1440), lookback_steps=24)
    outside, rng = PLANNED.index("out_temp_c"), np.random.default_rng(0)
    columns, plans = planned_columns(spec), Plans()
    assert columns[outside] == 1
    assert set(columns) == {1, -1}
    alone, measuring = KnownAheadFeatures(spec), KnownAheadFeatures(spec)
    alone.add_zones()
    measuring.add_zones()
    for hour in range(72):
        if hour % 6 == 0:
            plans.add(weather(hour, *rng.normal(8, 3, 48)))
        foreseen = plans.ahead(hour * HOUR, ["north"], spec)
        nothing = np.array([[20, np.nan]], np.float32)
        said = np.array([[20, foreseen[0, BINS_BACK, outside]]], np.float32)
        one, other = (features.learn(np.array([0]), hour, values, foreseen)
                      for features, values in ((alone, nothing), (measuring, said)))  # fmt: skip
        np.testing.assert_array_equal(one.ahead, other.ahead)
        np.testing.assert_array_equal(one.now, other.now)
    assert one.ahead[0, :, :, outside].all()  # off the usual, off yesterday, and on the way


def test_no_mean_is_partly_a_plan() -> None:
    """What is foreseen stands for now until something is measured, and then for nothing; what nobody says is NaN."""
    spec = ForecastSpec(("air_temp_c", "out_temp_c"))
    columns, outside = planned_columns(spec), PLANNED.index("out_temp_c")
    foreseen = np.full((1, bins_ahead(spec), len(PLANNED)), np.nan, np.float32)
    foreseen[0, BINS_BACK, outside] = 10
    total, count, found = np.full((1, len(PLANNED)), np.nan, np.float32), np.zeros((1, len(PLANNED))), []
    for measured in (np.nan, 14, np.nan, 16):
        row = planned_now(np.array([[20, measured]], np.float32), columns)
        total, count = add_planned(total, count, row, foreseen), count + np.isfinite(row)
        found.append(float((total / np.maximum(count, 1))[0, outside]))
    assert found == [10, 14, 14, 15]
    assert np.isnan(np.delete(total[0], outside)).all()
    assert np.isnan(add_planned(total, 0 * count, row * np.nan, None)).all()
