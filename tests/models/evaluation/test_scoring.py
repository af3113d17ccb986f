"""Live scoring: what counts, and that it is paired."""

from dataclasses import replace

import numpy as np
import pytest

from models.evaluation.scoring import LiveScore
from models.spec import ForecastSpec
from tests.models.worlds import SPEC

H, M = len(SPEC.horizons_min), len(SPEC.targets)
FIVE_MINUTES = replace(SPEC, step_ms=300_000, horizons_min=(5, 10, 60, 1440), lookback_steps=288)


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


@pytest.mark.parametrize(("spec", "every"), [(SPEC, 1), (FIVE_MINUTES, 3)])
def test_the_table_equals_a_direct_computation(spec, every):
    """Each figure is the mean over the cases where truth and all four forecasts are there, of a forecast every quarter
    of an hour.
    """
    y, quantiles, baseline = world(length=250 * every)
    score = LiveScore(spec, capacity=1)
    zones = np.array([score.add_zones(), score.add_zones()])
    run(score, zones, y, quantiles, baseline)
    table = score.table()
    length, day = y.shape[1], spec.steps_per_day
    for h, steps in enumerate(spec.horizon_steps):
        t = np.arange(max(day - steps, 0), length - steps)
        t = t[t % every == 0]
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
            cell = table[target][spec.horizons_min[h]]
            assert cell["n"] == paired.sum() > 0
            for name, error in errors.items():
                np.testing.assert_allclose(cell[name], error[paired].mean(), rtol=1e-3)  # half precision
            inside = (truth >= quantiles[:, t, h, m, 0]) & (truth <= quantiles[:, t, h, m, 2])
            np.testing.assert_allclose(cell["coverage"], inside[paired].mean(), atol=0.01)


@pytest.mark.parametrize("phase", range(3))
def test_forecasts_of_a_sensor_that_reports_every_quarter_of_an_hour_are_scored(phase):
    """Whichever of three rows it is in: the newest value of a quarter is its truth, but never one that was known when
    the forecast was made.
    """
    score, zone, length = LiveScore(FIVE_MINUTES), np.array([0]), 3 * 288
    score.add_zones()
    y = np.full((length, M), np.nan, np.float32)
    y[phase::3] = np.arange(phase, length, 3)[:, None]
    quantiles = np.zeros((1, len(FIVE_MINUTES.horizons_min), M, 3), np.float32)
    for t in range(length):
        newest = y[max(t - 2, 0) : t + 1]
        held = np.full(M, np.nan, np.float32) if np.isnan(newest).all() else np.nanmax(newest, axis=0)
        score.learn(zone, y[[t]], held[None])
        score.issue(zone, quantiles, quantiles[..., 1])
    table = score.table()[FIVE_MINUTES.targets[0]]
    assert table[60]["n"] > 180
    assert table[60]["persistence"] == 12
    assert all(table[minutes]["persistence"] in (None, 3) for minutes in (5, 10))


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


def test_a_late_forecast_is_scored_if_its_origin_has_its_turn():
    """Issued two steps after its row, it waits as the forecast from that row."""
    score = LiveScore(FIVE_MINUTES)
    zone = np.array([score.add_zones()])
    for t in range(600):
        score.learn(zone, np.full((1, M), t, np.float32))
        right = np.array(FIVE_MINUTES.horizon_steps, np.float32)[None, :, None, None] + t - 2
        right = np.broadcast_to(right, (1, H, M, 3))
        if t >= 2:
            score.issue(zone, right, right[..., 1], age=2)
    table = score.table()["air_temp_c"]
    assert [cell["n"] for cell in table.values()] == [0, 0, len(range(288 - 12, 600 - 12, 3)), 600 // 3 - 288 // 3]
    assert table[60]["model"] == 0


@pytest.mark.parametrize(("step_ms", "together"), [(300_000, 3), (300_000, 5), (60_000, 15), (60_000, 4)])
@pytest.mark.parametrize("begin", range(3))
def test_where_rows_close_together_the_newest_forecast_of_each_quarter_counts(step_ms, together, begin):
    """Of rows that come in bursts only the newest is forecast: each such forecast, or one in a quarter, is scored."""
    spec = replace(FIVE_MINUTES, step_ms=step_ms, lookback_steps=86_400_000 // step_ms)
    score, rng = LiveScore(spec), np.random.default_rng(0)
    zone, length, day = np.array([score.add_zones()]), 3 * spec.steps_per_day, spec.steps_per_day
    y = rng.normal(20, 3, (length, M)).astype(np.float32)
    said = rng.normal(20, 3, (length, H, M)).astype(np.float32)
    made, quarters = [], set()
    for t in range(length):
        score.learn(zone, y[None, t])
        if t % together == begin % together:
            score.issue(zone, np.repeat(said[None, t, ..., None], 3, axis=-1), said[None, t])
            if t * step_ms // 900_000 not in quarters:
                made.append(t)
            quarters.add(t * step_ms // 900_000)
    table = score.table()["air_temp_c"]
    for h, steps in enumerate(spec.horizon_steps):
        wanted = [abs(said[t, h, 0] - y[t + steps, 0]) for t in made if t + steps < length and t + steps >= day]
        assert table[spec.horizons_min[h]]["n"] == len(wanted) > 0
        np.testing.assert_allclose(table[spec.horizons_min[h]]["model"], np.mean(wanted), rtol=1e-2)


def test_a_zone_costs_at_most_14_kilobytes():
    """The default schema's state fits a shard's budget."""
    score = LiveScore(ForecastSpec(channels=("air_temp_c",)))
    score.add_zones()
    assert sum(held.nbytes for held in score.state_dict().values()) <= 14_000


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
