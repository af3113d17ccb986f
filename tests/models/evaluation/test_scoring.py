"""Live scoring: what counts, and that it is paired."""

import numpy as np

from models.evaluation.scoring import LiveScore
from models.spec import ForecastSpec
from tests.models.worlds import SPEC

H, M = len(SPEC.horizons_min), len(SPEC.targets)


def run(score, zones, y, quantiles, baseline, start=0):
    """Feed ``y [Z, T, M]`` and forecasts ``[Z, T, H, M, Q]`` step by step."""
    for t in range(start, y.shape[1]):
        score.learn(zones, y[:, t])
        score.issue(zones, quantiles[:, t], baseline[:, t, ..., 1])


def world(zones=2, length=250, seed=0):
    """Random truth and forecasts with some missing."""
    rng = np.random.default_rng(seed)
    y = rng.normal(20, 3, (zones, length, M)).astype(np.float32)
    y[rng.random(y.shape) < 0.05] = np.nan
    quantiles = np.sort(rng.normal(20, 3, (zones, length, H, M, 3)), axis=-1).astype(np.float32)
    baseline = np.sort(rng.normal(20, 3, (zones, length, H, M, 3)), axis=-1).astype(np.float32)
    quantiles[rng.random(quantiles.shape[:4]) < 0.05] = np.nan
    return y, quantiles, baseline


def test_the_table_equals_a_direct_computation():
    """Each figure is the mean over the cases where truth and all four forecasts are there."""
    y, quantiles, baseline = world()
    score = LiveScore(SPEC, capacity=1)
    zones = np.array([score.add_zones(), score.add_zones()])
    run(score, zones, y, quantiles, baseline)
    table = score.table()
    length, day = y.shape[1], SPEC.steps_per_day
    for h, steps in enumerate(SPEC.horizon_steps):
        t = np.arange(max(day - steps, 0), length - steps)
        for m, target in enumerate(SPEC.targets):
            truth = y[:, t + steps, m]
            forecasts = {
                "model": quantiles[:, t, h, m, 1],
                "climatology": baseline[:, t, h, m, 1],
                "persistence": y[:, t, m],
                "naive_24h": y[:, t + steps - day, m],
            }
            errors = {name: np.abs(forecast - truth) for name, forecast in forecasts.items()}
            paired = np.isfinite(sum(errors.values()))
            cell = table[target][SPEC.horizons_min[h]]
            assert cell["n"] == paired.sum() > 0
            for name, error in errors.items():
                np.testing.assert_allclose(cell[name], error[paired].mean(), rtol=1e-3)  # half precision
            inside = (truth >= quantiles[:, t, h, m, 0]) & (truth <= quantiles[:, t, h, m, 2])
            np.testing.assert_allclose(cell["coverage"], inside[paired].mean(), atol=0.01)


def test_totals_are_the_sums_behind_the_table_and_only_rise():
    """What Prometheus counts: cases, those inside, and errors; also when zones are added."""
    y, quantiles, baseline = world()
    score = LiveScore(SPEC, capacity=1)
    zones = np.array([score.add_zones(), score.add_zones()])
    run(score, zones, y[:, :150], quantiles, baseline)
    before = score.totals()
    score.add_zones(3)
    run(score, zones, y, quantiles, baseline, start=150)
    totals, table = score.totals(), score.table()
    for target in SPEC.targets:
        for minutes in SPEC.horizons_min:
            cell, n = table[target][minutes], totals["matured"][target][minutes]
            assert n == cell["n"] > before["matured"][target][minutes]
            assert totals["inside"][target][minutes] == round(cell["coverage"] * n)
            for name, mean in (("absolute_error", cell["model"]), ("climatology_absolute_error", cell["climatology"])):
                assert abs(totals[name][target][minutes] - mean * n) < 1e-2
                assert totals[name][target][minutes] > before[name][target][minutes] >= 0


def test_a_saved_score_goes_on_as_if_nothing_had_happened():
    """Stopping, saving and loading in the middle changes no figure."""
    y, quantiles, baseline = world()
    whole, first, second = LiveScore(SPEC), LiveScore(SPEC), LiveScore(SPEC, capacity=9)
    for score in (whole, first):
        zones = np.array([score.add_zones(), score.add_zones()])
    run(whole, zones, y, quantiles, baseline)
    run(first, zones, y[:, :130], quantiles, baseline)
    second.load_state_dict(first.state_dict())
    run(second, zones, y, quantiles, baseline, start=130)
    assert second.table() == whole.table()


def test_nothing_matured_is_none_not_zero():
    """An empty table says that it is empty."""
    score = LiveScore(SPEC)
    score.add_zones()
    assert score.table()["rh_pct"][60] == {
        "model": None, "climatology": None, "persistence": None, "naive_24h": None, "coverage": None, "n": 0,
    }  # fmt: skip


def test_a_step_without_a_forecast_scores_nothing():
    """A forecast that was not issued is not scored later with an old one."""
    y, quantiles, baseline = world(1)
    y = np.nan_to_num(y, nan=20.0)
    score = LiveScore(SPEC)
    zone = np.array([score.add_zones()])
    for t in range(200):
        score.learn(zone, y[:, t])
        if t < 100:
            score.issue(zone, np.nan_to_num(quantiles[:, t]), baseline[:, t, ..., 1])
    assert score.table()["air_temp_c"][15]["n"] == 100 - (SPEC.steps_per_day - 1)


def test_five_minute_rows_cost_at_most_60_kilobytes_a_zone():
    """The default schema's state fits a shard's budget."""
    score = LiveScore(ForecastSpec(channels=("air_temp_c",)))
    score.add_zones()
    assert sum(held.nbytes for held in score.state_dict().values()) <= 60_000


def test_a_forecast_that_comes_a_step_late_is_scored_at_its_own_truth_or_not_at_all() -> None:
    """Issued one step after its origin, a forecast meets the truth of origin + h; a horizon of one step is left out."""
    spec = ForecastSpec(
        channels=("air_temp_c",), targets=("air_temp_c",), horizons_min=(60, 180), step_ms=3_600_000, lookback_steps=24
    )
    score = LiveScore(spec)
    zone = np.array([score.add_zones()])
    for hour in range(60):
        score.learn(zone, np.array([[float(hour)]], np.float32))
        if hour:
            exact = np.array([[[[hour - 1 + h] * 3] for h in (1, 3)]], np.float32)  # made from the row before
            score.issue(zone, exact, exact[..., 1], age=1)
    table = score.table()["air_temp_c"]
    assert table[60]["n"] == 0
    assert table[180]["n"] > 0
    assert table[180]["model"] == 0.0
