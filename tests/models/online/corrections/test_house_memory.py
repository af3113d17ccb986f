"""What is kept of a zone's last day is what a window of its rows would say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from models.features.inputs import build_inputs, input_channels, targets_of
from models.features.plan_differences import plan_differences
from models.features.plans import BINS_BACK, PLANNED, bins_ahead
from models.network.house_features import HouseFeatures
from models.online.corrections.house_memory import HouseMemory, channels_of
from models.spec import ForecastSpec, Place
from tests.models.worlds import SPEC

FIVE = ForecastSpec(("air_temp_c", "rh_pct", "co2_ppm", "lamp_pct", "out_temp_c", "sp_heat_c", "rain"))
SPECS = {
    "5 min": (FIVE, 3),
    "15 min": (SPEC, 1),
    "1 h": (replace(SPEC, step_ms=3_600_000, lookback_steps=24, horizons_min=(60, 360, 1440, 2880)), 1),
    "1 min": (replace(FIVE, step_ms=60_000, lookback_steps=1440), 15),
}


def along(
    spec: ForecastSpec, stride: int, values: np.ndarray, away: slice = slice(0), foreseen: np.ndarray | None = None
) -> HouseMemory:
    """A memory that has seen ``values [Z, T, C]``; the second zone leaves out the steps of ``away``. Plans said of each
    step what ``foreseen [Z, T, P]`` says.
    """
    memory = HouseMemory(spec, stride, 1)
    memory.add_zones(len(values))
    memory.remember_planned()
    gone = set(range(values.shape[1])[away])
    for step in range(values.shape[1]):
        zones = np.array([0] if step in gone else [0, 1])
        said = None
        if foreseen is not None:
            said = np.full((len(zones), bins_ahead(spec), len(PLANNED)), np.nan, np.float32)
            said[:, BINS_BACK] = foreseen[zones, step]
        memory.see(zones, step, values[zones, step], said)
    return memory


def made_up(spec: ForecastSpec, steps: int) -> np.ndarray:
    """Random walks with gaps, ``[2, steps, C]``."""
    rng = np.random.default_rng(0)
    values = 40 + rng.normal(0, 0.3, (2, steps, len(spec.channels))).cumsum(axis=1).astype(np.float32)
    values[rng.random(values.shape) < 0.1] = np.nan
    return values.astype(np.float32)


@pytest.mark.parametrize("name", SPECS)
def test_it_says_what_a_window_says(name: str) -> None:
    """Tokens, the newest targets and yesterday's of an example, for rows of 1 minute to an hour, to half precision."""
    spec, stride = SPECS[name]
    steps = spec.steps_per_day * 3 // 2 // stride * stride + 1
    values, zones = made_up(spec, steps), np.array([0, 1])
    memory = along(spec, stride, values)
    held = values[:, -spec.lookback_steps :]
    baseline = np.ones((2, len(spec.horizons_min), len(spec.targets), 3), np.float32)
    inputs = build_inputs(held, np.array([0, 0]), [Place()] * 2, baseline, spec)
    columns = [input_channels(spec).index(channel) for channel in channels_of(spec)]
    window = memory.window(zones, steps - 1)
    np.testing.assert_allclose(window, inputs.window[..., columns], atol=0.05)
    np.testing.assert_allclose(memory.now(zones, steps - 1, values[:, -1]), inputs.now, atol=0.05)
    between = np.array(spec.horizon_steps) % stride != 0  # on a line there
    yesterday = memory.yesterday(zones, steps - 1)
    np.testing.assert_allclose(yesterday[:, ~between], inputs.yesterday[:, ~between], atol=0.05)
    features = HouseFeatures(spec)(*inputs.arrays())
    mine = HouseFeatures(spec, channels_of(spec))(window, *inputs.arrays()[1:])
    for one, other in zip(features, mine, strict=True):
        np.testing.assert_allclose(one, other, atol=0.05)


def test_plans_are_measured_against_the_same_rows() -> None:
    """What was foreseen off what was measured is as a window has it: means end at examples, so nearly."""
    spec, stride = SPECS["5 min"]
    values, zones = made_up(spec, 433), np.array([0, 1])
    memory = along(spec, stride, values)
    ahead = np.random.default_rng(1).normal(40, 3, (2, bins_ahead(spec), len(PLANNED))).astype(np.float32)
    ahead[:, ::7] = np.nan
    wanted = plan_differences(ahead, values[:, -288:], np.full(2, 432 * spec.step_ms), spec)
    given = memory.foreseen_off(zones, 432, ahead)
    assert (np.isnan(given) == np.isnan(wanted)).mean() > 0.95
    known = np.isfinite(given) & np.isfinite(wanted)
    assert known.mean() > 0.05
    assert np.abs(given - wanted)[known].mean() < 0.25
    count = len(PLANNED)
    np.testing.assert_allclose(given[..., :count], wanted[..., :count], atol=0.05)


def test_what_is_not_measured_is_known_as_it_was_foreseen() -> None:
    """Plans of a zone without a weather station are held against what was foreseen of the last day."""
    spec, stride = SPECS["5 min"]
    values = made_up(spec, 433)
    ahead = np.random.default_rng(1).normal(40, 3, (2, bins_ahead(spec), len(PLANNED))).astype(np.float32)
    outside = spec.channels.index("out_temp_c")
    values[..., outside] = np.nan_to_num(values[:, (np.arange(433) + 2) // stride, outside], nan=40)  # between examples
    blind = values.copy()
    blind[..., outside] = np.nan
    foreseen = np.full((*values.shape[:2], len(PLANNED)), np.nan, np.float32)
    foreseen[..., PLANNED.index("out_temp_c")] = values[..., outside]
    said = along(spec, stride, blind, foreseen=foreseen).foreseen_off(np.array([0, 1]), 432, ahead)
    wanted = along(spec, stride, values).foreseen_off(np.array([0, 1]), 432, ahead)
    np.testing.assert_array_equal(said, wanted)


def test_rows_that_a_zone_has_missed_are_missing() -> None:
    """A zone that was away for half a day has no hours of then, and not those of the day before in their place."""
    spec, stride = SPECS["15 min"]
    values = made_up(spec, 4 * 96 + 1)
    memory = along(spec, stride, values, slice(3 * 96, 3 * 96 + 48))
    window = memory.window(np.array([0, 1]), 4 * 96)
    known = np.isfinite(window[:, :24]).all(axis=-1).mean(axis=1)
    assert known[0] > 0.9
    assert known[1] == pytest.approx(0.5, abs=0.1)
    whole = along(spec, stride, values).window(np.array([1]), 4 * 96)[0]
    np.testing.assert_array_equal(window[1, 12:], whole[12:])


def test_values_beyond_any_sensor_are_kept_finite() -> None:
    """Infinity is missing, and what half precision cannot hold is cut."""
    memory = HouseMemory(SPEC, 1, 1)
    memory.add_zones()
    row = np.array([[1e9, -1e9, np.inf, 5, 5, 5]], np.float32)
    memory.see(np.array([0]), 0, row)
    window = memory.window(np.array([0]), 0)[0, -1, :-1]  # the last is computed of the others
    assert np.isnan(window[2])
    assert np.abs(window[np.isfinite(window)]).max() <= 60_000
    assert targets_of(row, SPEC).shape == (1, 3)
