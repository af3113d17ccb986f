"""What plans foresee, as differences: of what, and when nothing is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from models.features.inputs import build_inputs
from models.features.plan_differences import plan_differences
from models.features.plans import BIN_MS, BINS_BACK, PLANNED, Plan, Plans, bins_ahead
from tests.models.worlds import PLACE, SPEC, START_MS, rows

OUT, HEAT = PLANNED.index("out_temp_c"), PLANNED.index("sp_heat_c")
P = len(PLANNED)
ORIGIN = np.array([START_MS + 86_400_000 + 7 * SPEC.step_ms])


def day(channel: str = "out_temp_c") -> np.ndarray:
    """Rows of a day, ``[1, L, C]``, in which a channel counts its rows."""
    values = np.full((1, SPEC.lookback_steps, len(SPEC.channels)), np.nan, np.float32)
    values[..., SPEC.channels.index(channel)] = np.arange(SPEC.lookback_steps)
    return values


def nothing() -> np.ndarray:
    return np.full((1, bins_ahead(SPEC), P), np.nan, np.float32)


def test_it_is_told_off_now_off_the_day_before_and_on_the_way() -> None:
    """By hand: 6 h ahead of a course that counts quarters of an hour, with a plan that says 100 throughout."""
    ahead = nothing()
    ahead[..., OUT] = 100
    found = plan_differences(ahead, day(), ORIGIN, SPEC)[0, SPEC.horizons_min.index(360)]
    assert found[OUT] == 100 - 95  # the newest row
    assert found[P + OUT] == 100 - 23  # the row of 24 - 6 h ago, in the middle of three
    assert found[2 * P + OUT] == 100 - np.arange(24).mean()  # the same six hours of the day before
    others = np.delete(found.reshape(3, P), OUT, axis=1)
    assert np.isnan(others).all()


def test_a_horizon_asks_for_its_own_half_hour() -> None:
    """Each half-hour says its number: that of the row that ends at the horizon is found, from any origin."""
    ahead = nothing()
    ahead[..., OUT] = np.arange(bins_ahead(SPEC))
    for late in range(4):
        origin = ORIGIN + late * SPEC.step_ms
        found = plan_differences(ahead, day() * 0, origin, SPEC)[0, :, OUT]
        ends = origin + np.array(SPEC.horizon_steps) * SPEC.step_ms
        np.testing.assert_array_equal(found, BINS_BACK + (ends - 1) // BIN_MS - (origin - 1) // BIN_MS)


def test_what_plans_say_is_asked_for_as_the_system_keeps_it() -> None:
    """Plans.foreseen, in the middle of each half-hour, is what goes in."""
    plans, origin = Plans(), int(ORIGIN[0])
    plans.add(Plan("grower", "setpoint", origin - 1, {"sp_heat_c": ([origin - 1, origin + 7_200_000], [18, 21])}))
    middle = ((origin - 1) // BIN_MS + np.arange(bins_ahead(SPEC)) - BINS_BACK) * BIN_MS + BIN_MS // 2
    ahead = plans.foreseen(origin, ["north"], PLANNED, middle)
    spec = replace(SPEC, channels=(*SPEC.channels, "sp_heat_c"))
    values = np.concatenate([day(), np.full((1, SPEC.lookback_steps, 1), 18, np.float32)], axis=-1)
    found = plan_differences(ahead, values, ORIGIN, spec)[0, :, HEAT]
    np.testing.assert_array_equal(found, [0, 0, 3, 3])  # 15 min, 1 h, 6 h, 24 h


@pytest.mark.parametrize("length", [4, 40])
def test_a_window_of_less_than_a_day_knows_no_day_before(length: int) -> None:
    """Then only the difference from now is told; the longest horizons of a shorter window find their day before."""
    ahead = nothing()
    ahead[..., OUT] = 100
    short = replace(SPEC, lookback_steps=length)
    found = plan_differences(ahead, day()[:, -length:], ORIGIN, short)[0]
    assert np.isfinite(found[:, OUT]).all()
    assert np.isnan(found[0, P + OUT])
    assert np.isnan(found[:, 2 * P + OUT]).all()
    assert np.isfinite(found[3, P + OUT])


def test_plans_of_another_shape_are_refused() -> None:
    """With both shapes."""
    with pytest.raises(ValueError, match="this schema wants"):
        plan_differences(nothing()[:, 1:], day(), ORIGIN, SPEC)


def test_inputs_have_them_where_plans_are_given_and_nothing_else_changes() -> None:
    """One function for those who know plans and those who do not."""
    values = rows(1, zones=1)
    base = np.zeros((1, len(SPEC.horizons_min), len(SPEC.targets), 3), np.float32)
    ahead = np.random.default_rng(0).normal(size=(1, bins_ahead(SPEC), P)).astype(np.float32)
    without = build_inputs(values, ORIGIN, [PLACE], base, SPEC)
    told = build_inputs(values, ORIGIN, [PLACE], base, SPEC, ahead)
    assert without.future.shape == (1, 4, 0)
    np.testing.assert_array_equal(told.future, plan_differences(ahead, values, ORIGIN, SPEC))
    np.testing.assert_array_equal(told.window, without.window)
