"""Recursive ridges: they find what is there, follow a change, and resist outliers."""

from dataclasses import replace

import numpy as np
import pytest

from edge.wire.vocabulary import VOCABULARY
from models.features.eight_bits import CLIP
from models.features.inputs import targets_along
from models.features.regressors import Features, feature_channels
from models.online.online_forecaster import OnlineForecaster
from models.online.ridge import PooledRidge
from models.pretraining.shipped_arrays import pretrained
from models.spec import ForecastSpec
from tests.models.online.online_worlds import DAY, SPEC, forecaster, rows, run, sun

PRIOR = np.array([150.0])
FIRST = np.array([0])


def test_only_known_channels_become_regressors():
    """Targets are not named twice, and what a schema lacks is left out."""
    assert feature_channels(SPEC) == ("co2_ppm", "lamp_pct", "out_temp_c")


def fed(ridge, truth, steps, start=0, outlier=0.0):
    """Feed a pooled ridge examples of ``truth`` from a fixed stream."""
    rng = np.random.default_rng(start)
    for step in range(start, start + steps):
        x = rng.normal(size=(4, 3)).astype(np.float32)
        y = x @ truth[:, None] + rng.normal(0, 0.1, (4, 1))
        y[rng.random(4) < outlier] += 50
        ridge.learn(FIRST, step, x[:, None], y[:, None].astype(np.float32))
        if step % 24 == 0:
            ridge.refit(0)
    ridge.refit(0)
    return ridge


def answer(ridge):
    """The weights, by asking for each regressor alone."""
    eye = np.eye(3, dtype=np.float32)
    return ridge.predict(eye[:, :2], eye[:, None, 2:])[:, 0, 0, 0]


@pytest.mark.parametrize("stride", [1, 2, 3, 15])
def test_all_zones_of_a_large_site_teach_each_horizon_in_turn(stride):
    """A third of 300 zones at a time; examples come every ``stride`` steps, later for one horizon than for another."""
    zone_of_three = np.eye(3, dtype=np.float32)[np.arange(300) % 3][:, None]
    ridge = PooledRidge(np.array([150.0, 150.0]), 1, 3, (7.0,), 96, stride)
    for example in range(6):
        for horizon in range(2):
            step = example * stride + horizon * (stride > 1)
            ridge.learn(np.array([horizon]), step, zone_of_three, np.ones((300, 1, 1), np.float32))
    seen = np.diagonal(ridge.state_dict()["moment"][0, :, 0], axis1=1, axis2=2)
    assert (seen > 0).all()


def test_a_ridge_finds_the_slopes():
    """On clean examples the learner's answer is the truth."""
    truth = np.array([1.0, -2.0, 0.5])
    assert np.allclose(answer(fed(PooledRidge(PRIOR, 1, 3, (7.0,), 96), truth, 2000)), truth, atol=0.1)


def test_absolute_error_resists_outliers():
    """One example in ten that is off by 50 hardly moves the answer, as it would with squares."""
    truth = np.array([1.0, -2.0, 0.5])
    assert np.allclose(answer(fed(PooledRidge(PRIOR, 1, 3, (7.0,), 96), truth, 4000, outlier=0.1)), truth, atol=0.3)


def test_a_ridge_follows_a_change():
    """A week after the slopes have changed, a learner that remembers three days has the new ones."""
    ridge = fed(PooledRidge(PRIOR, 1, 3, (3.0,), 96), np.array([1.0, -2.0, 0.5]), 2000)
    fed(ridge, np.array([-1.0, 0.0, 0.5]), 20 * 96, start=2000)
    assert np.allclose(answer(ridge), [-1.0, 0.0, 0.5], atol=0.2)


def test_a_ridge_learns_on_after_years_without_examples():
    """As where an old recording was imported before the zone's own rows came: what was before is forgotten."""
    ridge = fed(PooledRidge(PRIOR, 1, 3, (2.5,), 96), np.array([1.0, -2.0, 0.5]), 500)
    fed(ridge, np.array([-1.0, 0.0, 0.5]), 2000, start=8 * 365 * 96)
    assert np.allclose(answer(ridge), [-1.0, 0.0, 0.5], atol=0.2)


def test_regressors_are_finite_and_bounded_whatever_comes():
    """A sensor that reads a million or nothing gives regressors within the clip."""
    features = Features(SPEC)
    features.add_zones()
    zone = np.array([0])
    values = rows(2, zones=1)
    values[0, 100:, 0] = 1e6
    values[0, 120:] = np.nan
    cells = (1, len(SPEC.horizons_min), len(SPEC.targets))
    for step in range(values.shape[1]):
        nothing = np.full(cells, np.nan, np.float32)
        common, ahead, detail, planned = features.learn(
            zone, step, values[:, step], np.array([step % DAY]), sun(step, 1), nothing,
            np.full((1, 2, *cells[1:]), np.nan, np.float32), nothing, np.ones(cells[1:]),
        )  # fmt: skip
        assert np.isfinite(common).all()
        assert np.isfinite(ahead).all()
        assert max(np.abs(common).max(), np.abs(ahead).max()) <= 2 * CLIP
    assert (common.shape[1], ahead.shape[2]) == features.width
    assert (detail.shape[1], planned.shape[2]) == features.detail_width


@pytest.mark.thorough
def test_the_online_layer_beats_the_climatology_and_both_yardsticks():
    """On a world with weather the mixture is better than the climatology alone, a quarter of an hour to a day ahead."""
    values = rows(30, zones=3, missing=0)
    out = run(forecaster(3), values)
    climatology = climatology_alone(values)
    t = np.arange(14 * DAY, 29 * DAY)
    ratios = []
    for h, steps in enumerate(SPEC.horizon_steps):
        truth = values[:, t + steps, 0]
        error = np.abs(out[:, t, h, 0, 1] - truth).mean()
        ratios.append(error / np.abs(climatology[:, t, h, 0] - truth).mean())
        assert error < np.abs(values[:, t, 0] - truth).mean()
        assert error < np.abs(values[:, t + steps - DAY, 0] - truth).mean() or steps == DAY
    assert np.mean(ratios) < 1


@pytest.mark.thorough
def test_a_sensor_that_reports_now_and_then_is_forecast_from_its_newest_value():
    """A quarter of an hour ahead: from rows without a value hardly worse than from the others, where an hour of hold
    bridges them.
    """
    values = rows(20, zones=3, missing=0)
    gone = np.random.default_rng(0).random(values.shape[:2]) < 0.4
    seen = np.where(gone[..., None], np.float32(np.nan), values)
    off = np.abs(run(forecaster(3), seen)[:, :-1, 0, 0, 1] - values[:, 1:, 0])[:, 10 * DAY :]
    missing = gone[:, 10 * DAY : -1]
    assert SPEC.horizon_steps[0] == 1
    assert off[missing].mean() < 1.5 * off[~missing].mean()  # 1.9 without the hold


def climatology_alone(values):
    """The climatology's medians along the same rows."""
    made = forecaster(len(values))
    zones, out = np.arange(len(values)), []
    for step in range(values.shape[1]):
        learned = made.learn(zones, step, values[:, step], np.full(len(zones), step % DAY), sun(step, len(zones)))
        out.append(learned.baseline)
    return np.stack(out, axis=1)


@pytest.mark.parametrize(("step_min", "most"), [(1, 88_000), (5, 78_000)])
def test_the_state_of_a_zone_stays_within_its_budget(step_min, most):
    """With the live schema, ten horizons and four targets; rows of a minute cost little more than others."""
    made = OnlineForecaster(ForecastSpec(channels=tuple(VOCABULARY), step_ms=60_000 * step_min), 1, pretrained())
    empty = size(made.state_dict())
    made.add_zones()
    assert size(made.state_dict()) - empty <= most


def size(state):
    """Bytes of a nested state."""
    return sum(size(part) if isinstance(part, dict) else part.nbytes for part in state.values())


def test_an_example_is_the_same_whether_corrections_learn_or_not():
    """Examining rows gives what learning gives as its example, bit for bit, gaps and a late zone included."""
    values = rows(days=3, zones=3, seed=4)
    values[1, 100:140] = np.nan
    learner, examiner = forecaster(3), forecaster(3)
    for step in range(values.shape[1]):
        zones = np.arange(2 if step < 120 else 3)
        given = (zones, step, values[zones, step], np.full(len(zones), step % DAY), sun(step, len(zones)))
        learned, seen = learner.learn(*given).example, examiner.examine(*given)
        assert seen.step == learned.step
        for name in ("zones", "common", "ahead", "base", "y"):
            assert np.array_equal(getattr(seen, name), getattr(learned, name), equal_nan=True), (step, name)
    assert np.array_equal(examiner.unit, learner.unit)


@pytest.mark.parametrize("hours", [7, pytest.param(30, marks=pytest.mark.thorough)])
def test_a_zone_that_was_away_is_forecast_as_one_that_was_silent(hours):
    """A day ago is a day ago: what was learned before it left is not taken for what was at another hour."""
    values = rows(days=8, zones=2, seed=4)
    left, back = 5 * DAY, 5 * DAY + 4 * hours
    silent = values.copy()
    silent[0, left:back] = np.nan
    away, there = forecaster(2), forecaster(2)
    run(away, values, stop=left)
    run(away, values, left, back, zones=[1])
    run(there, silent, stop=back)
    one, other = (run(made, silent, back, back + DAY)[0, :, :, 0, 1] for made in (away, there))
    assert np.abs(one - other).mean() < 0.1


@pytest.mark.parametrize("gone", [pytest.param(0, marks=pytest.mark.thorough), 8], ids=["all there", "most zones gone"])
def test_what_zones_share_is_forgotten_as_slowly_where_each_site_is_a_call(gone):
    """Two zones with the same rows, learned in one call a step, or in one each as zones of two sites are. Zones that
    are no more do not count.
    """
    values = np.repeat(rows(6, zones=1), 2 + gone, axis=0)
    usual = np.nanmean(values, axis=1, keepdims=True)
    values[:, 3 * DAY :] = (usual + 3 * (values - usual))[:, 3 * DAY :]

    def shared(*calls):
        made = forecaster(2 + gone)
        run(made, values, stop=3 * DAY)
        state = made.state_dict()
        before = parts(state)
        for seen in (state["seen"], state["features"]["seen"]):
            seen[seen > 0] = 1_000_000  # long ago: what is new counts as it does after months
        made.load_state_dict(state)
        for step in range(3 * DAY, 6 * DAY):
            for zones in calls:
                run(made, values, step, step + 1, zones)
        return [now - then for now, then in zip(parts(made.state_dict()), before, strict=True)]

    def parts(state):
        shared = state["unit"], state["features"]["scale"], state["intervals"]["pooled"], state["first"]["pool_counted"]
        return [each.copy() for each in shared]

    for together, apart in zip(shared([0, 1]), shared([0], [1]), strict=True):
        moved = np.nanmax(np.abs(together))
        assert moved > 0
        assert np.nanmax(np.abs(apart - together)) < 0.2 * moved


def test_an_example_is_the_newest_value_of_its_quarter_of_an_hour():
    """A sensor that reports between examples, once in each, teaches all of them; other rows have what they measured."""
    made = forecaster(1, replace(SPEC, step_ms=300_000))
    for step in range(1, 40):
        row = np.full((1, len(SPEC.channels)), 20 + step if step % 3 == 1 else np.nan, np.float32)
        learned = made.learn(FIRST, step, row, np.array([step]), np.zeros((1, 1 + len(SPEC.horizon_steps)), np.float32))
        newest = {0: 20 + step - 2, 1: 20 + step, 2: np.nan}[step % 3]
        if step >= 3:
            np.testing.assert_equal(learned.example.y[0, 0], np.float32(newest))
    silent = np.full_like(row, np.nan)
    for step in range(40, 46):
        learned = made.learn(
            FIRST, step, silent, np.array([step]), np.zeros((1, 1 + len(SPEC.horizon_steps)), np.float32)
        )
    assert np.isnan(learned.example.y).all()  # step 45: its quarter of an hour has none


def test_a_vapour_pressure_deficit_is_forecast_of_sensors_that_never_share_a_row():
    """Each reports every quarter of an hour, in other rows: what is learned is what rows say offline."""
    spec = replace(SPEC, step_ms=300_000)
    values = np.repeat(rows(3, zones=1, missing=0), 3, axis=1)
    step = np.arange(values.shape[1])
    values[:, step % 3 != 0, 0] = np.nan
    values[:, step % 3 != 1, 1] = np.nan
    made, learned = forecaster(1, spec), []
    light = np.zeros((1, 1 + len(spec.horizon_steps)), np.float32)
    for t in step.tolist():
        last = made.learn(FIRST, t, values[:, t], np.array([t % spec.steps_per_day]), light)
        learned.append(last.targets)
    np.testing.assert_allclose(np.stack(learned, axis=1), targets_along(values, spec), rtol=2e-3)
    assert np.isfinite(made.predict(last)).all()
