"""Training: what it may know, that it repeats, and that it learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from models.features.inputs import build_inputs, targets_along
from models.network.quantile import QuantileNetwork
from models.network.training import Errors, TrainingConfig, WindowSet, evaluate, fit, pinball, split
from tests.models.worlds import PLACE, SPEC, START_MS, STEP_MS, rows, window_set

CONFIG = TrainingConfig(epochs=2, batch_size=64, hidden=16, max_windows=400)


def columns(days=3, zones=2):
    """Rows as the history holds them, shuffled, and the grid they came from."""
    grid = rows(days, zones)
    zone_ids = np.repeat([f"z{i}" for i in range(zones)], grid.shape[1])
    end_ms = np.tile(START_MS + np.arange(grid.shape[1], dtype=np.int64) * STEP_MS, zones)
    return zone_ids, end_ms, grid.reshape(-1, grid.shape[2]), grid


def test_rows_in_any_order_give_the_same_set():
    """from_columns sorts by zone and time."""
    zone_ids, end_ms, values, grid = columns()
    order = np.random.default_rng(0).permutation(len(values))
    windows = WindowSet.from_columns(zone_ids[order], end_ms[order], values[order], {"z0": PLACE, "z1": PLACE}, SPEC)
    assert windows.zone_ids == ("z0", "z1")
    assert np.array_equal(windows.targets, targets_along(grid, SPEC), equal_nan=True)


def test_gaps_become_missing_and_bad_rows_are_refused():
    """A step without a row is NaN; doubled and off-grid rows and an empty history are errors."""
    zone_ids, end_ms, values, _ = columns()
    places = {"z0": PLACE, "z1": PLACE}
    kept = end_ms != START_MS + 50 * STEP_MS
    windows = WindowSet.from_columns(zone_ids[kept], end_ms[kept], values[kept], places, SPEC)
    assert np.isnan(windows.targets[:, 50]).all()
    assert not np.isin(windows.times(windows.origins()), START_MS + 50 * STEP_MS).any()
    with pytest.raises(ValueError, match="grid"):
        WindowSet.from_columns(zone_ids, end_ms + 1, values, places, SPEC)
    with pytest.raises(ValueError, match="same time"):
        WindowSet.from_columns(zone_ids, end_ms * 0 + START_MS, values, places, SPEC)
    with pytest.raises(ValueError, match="no rows"):
        WindowSet.from_columns([], end_ms[:0], values[:0], places, SPEC)


def test_training_sees_what_service_sees():
    """A window of the set equals build_inputs over the rows of the ring."""
    windows = window_set(3)
    grid = rows(3)
    origins = windows.origins(SPEC.steps_per_day)[[3, 57]]
    inputs = windows.inputs(origins)
    for i, origin in enumerate(origins):
        zone, t = divmod(int(origin), windows.length)
        ring = grid[zone, t + 1 - SPEC.lookback_steps : t + 1][None]
        served = build_inputs(ring, windows.end_ms[t : t + 1], [PLACE], windows.baseline[zone, t][None], SPEC)
        assert np.array_equal(served.window[0], inputs.window[i], equal_nan=True)
        assert np.array_equal(served.yesterday[0], inputs.yesterday[i], equal_nan=True)


def test_truth_is_the_row_that_ends_at_origin_plus_horizon():
    """Truth is taken at the horizon, and is unknown beyond what is known."""
    windows = window_set(3)
    origin = windows.origins(SPEC.steps_per_day)[:1]
    zone, t = divmod(int(origin[0]), windows.length)
    truth = windows.truth(origin)
    for h, steps in enumerate(SPEC.horizon_steps):
        assert np.array_equal(truth[0, h], windows.targets[zone, t + steps], equal_nan=True)
    known = windows.truth(origin, int(windows.times(origin)[0]) + 60 * 60_000)
    assert np.array_equal(known[0, :2], truth[0, :2], equal_nan=True)
    assert np.isnan(known[0, 2:]).all()


def test_the_newest_rows_are_held_back():
    """Every training origin is before the cut, every held-back one at or after it."""
    windows = window_set(4)
    parts = split(windows, 0.25)
    assert windows.times(parts.train).max() < parts.cut_ms <= windows.times(parts.held_back).min()
    share = len(parts.held_back) / (len(parts.train) + len(parts.held_back))
    assert 0.15 < share < 0.35


def test_training_knows_nothing_after_the_cut():
    """Changing the held-back rows changes no weight."""
    grid = rows(4)
    parts = split(WindowSet(["z0", "z1"], START_MS, grid, [PLACE] * 2, SPEC), 0.3)
    changed = grid.copy()
    changed[:, START_MS + np.arange(grid.shape[1]) * STEP_MS > parts.cut_ms] += 9
    states = [
        fit(WindowSet(["z0", "z1"], START_MS, g, [PLACE] * 2, SPEC), parts.train, CONFIG, cut_ms=parts.cut_ms).state
        for g in (grid, changed)
    ]
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[0])


def test_equal_seeds_give_equal_weights():
    """Training repeats bit for bit, leaves the global random state alone, and differs by seed."""
    windows = window_set(3)
    origins = split(windows, 0.2).train
    before = torch.get_rng_state()
    one, two = (fit(windows, origins, CONFIG).state for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    other = fit(windows, origins, replace(CONFIG, seed=8)).state
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert not all(np.array_equal(one[name], other[name]) for name in one)


def test_training_goes_on_from_an_earlier_state():
    """A warm start begins where the earlier training ended, not anew."""
    windows = window_set(3)
    origins = split(windows, 0.2).train
    first = fit(windows, origins, replace(CONFIG, epochs=4))
    second = fit(windows, origins, replace(CONFIG, epochs=1), initial_state=first.state)
    assert second.history[0].loss < first.history[0].loss


def test_each_epoch_is_reported_with_a_state_that_loads():
    """on_epoch gets the progress of every epoch."""
    seen = []
    windows = window_set(3)

    def report(progress):
        QuantileNetwork(SPEC, hidden=16).load_arrays(progress.state)
        seen.append(progress.history[-1].number)

    result = fit(windows, split(windows, 0.2).train, CONFIG, on_epoch=report)
    assert seen == [1, 2]
    assert [epoch.number for epoch in result.history] == seen


def test_more_days_are_trusted_more():
    """With trust_days days of history, half of the correction is used."""
    windows = window_set(3)
    origins = split(windows, 0.2).train
    days = len(np.unique(windows.times(origins) // 86_400_000))
    state = fit(windows, origins, replace(CONFIG, epochs=1, trust_days=float(days))).state
    assert state["trust"] == 0.5


@pytest.mark.thorough
def test_a_lead_is_learned_and_shrinking_limits_what_is_overlearned():
    """The air inside follows the weather an hour later: the network sees it; less trust costs less a day ahead."""
    windows = window_set(14)
    parts = split(windows, 0.2)
    config = TrainingConfig(epochs=20, batch_size=128, hidden=32, trust_days=0.0)
    state = fit(windows, parts.train, config, cut_ms=parts.cut_ms).state
    ratios = []
    for trust in (1.0, 0.35):
        network = QuantileNetwork(SPEC, hidden=32)
        network.load_arrays({**state, "trust": np.array(trust, dtype=np.float32)})
        errors = evaluate(network.eval().predict, windows, parts.held_back)
        ratios.append(errors.mae() / errors.mae("climatology"))
    whole, shrunk = ratios
    assert whole[1, 0] < 0.95
    assert np.mean(shrunk[3]) < np.mean(whole[3])


def test_errors_are_paired_and_a_model_cannot_hide_behind_nan():
    """Where the baselines can be compared, a model's NaN stays visible; elsewhere all are NaN."""
    windows = window_set(3)
    origins = windows.origins(SPEC.steps_per_day)[:40]
    errors = evaluate(lambda inputs: inputs.baseline * np.nan, windows, origins)
    assert isinstance(errors, Errors)
    assert np.isnan(errors.model).all()
    assert np.isfinite(errors.climatology).any()
    assert np.array_equal(np.isnan(errors.climatology), np.isnan(errors.persistence))
    assert np.array_equal(np.isnan(errors.climatology), np.isnan(errors.naive_24h))


def test_pinball_leaves_missing_out_and_punishes_the_right_side():
    """Under-forecasting costs p90 nine times what over-forecasting does; a NaN truth costs nothing."""
    truth = torch.tensor([[[1.0, torch.nan]]])
    low, high = torch.zeros(1, 1, 2, 3), torch.full((1, 1, 2, 3), 2.0)
    scale = torch.ones(1, 2)
    assert pinball(low, truth, scale) == pytest.approx((0.1 + 0.5 + 0.9) / 3)
    assert pinball(high, truth, scale) == pytest.approx((0.9 + 0.5 + 0.1) / 3)


def test_no_origins_is_an_error_with_a_reason():
    """A history that is too short is refused in words."""
    windows = window_set(1)
    with pytest.raises(ValueError, match="too short"):
        fit(windows, windows.origins(10_000), CONFIG)
