"""Paths: their times, and what lies between learned horizons."""

import numpy as np
import pytest

from models.paths.steps import Knots, between, path_steps
from models.spec import ForecastSpec
from tests.models.online.online_worlds import DAY, SPEC, forecaster, rows, run, same

KNOTS = Knots.of(path_steps(SPEC), SPEC)


def learned_until(made, values, stop):
    """The last forecast of ``run``, and the path from there."""
    quantiles = run(made, values, 0, stop)[:, -1]
    zones = np.arange(len(values))
    bins = np.full(len(values), (stop - 1) % DAY)
    return quantiles, made.path(zones, stop - 1, bins, quantiles, KNOTS)


@pytest.mark.parametrize(
    ("step_min", "first", "count"), [(1, [5, 10, 15], 58), (5, [5, 10, 15], 58), (15, [15, 30, 45, 60, 90], 50)]
)
def test_a_path_has_a_time_every_half_hour_and_more_in_the_first_hour(step_min, first, count):
    """No time is between two rows, and the last is a day ahead."""
    spec = ForecastSpec(channels=(), step_ms=60_000 * step_min, horizons_min=(60, 1440))
    minutes = path_steps(spec) * step_min
    assert minutes[: len(first)].tolist() == first
    assert (len(minutes), minutes[-1]) == (count, 1440)


@pytest.mark.parametrize("step_s", [18, 45, 60, 100, 200, 300, 360, 600, 900, 1800])
def test_every_half_hour_that_rows_fill_is_a_time_of_a_path(step_s):
    """Alerts count half hours: the first that they look at is the first ahead."""
    spec = ForecastSpec(channels=(), step_ms=1000 * step_s, horizons_min=(60, 1440))
    assert np.isin(np.arange(1, 49) * 1800 // step_s, path_steps(spec)).all()


def test_a_path_ends_with_the_longest_horizon():
    """Who forecasts six hours gets a path of six hours."""
    spec = ForecastSpec(channels=(), horizons_min=(60, 360))
    assert path_steps(spec)[-1] == 72


def test_between_horizons_a_path_follows_the_usual_day():
    """A forecast that is 2 above the usual value at both horizons around is 2 above it in between."""
    spec = ForecastSpec(channels=(), targets=("air_temp_c",), horizons_min=(60, 720), step_ms=3_600_000)
    knots = Knots.of(np.arange(1, 13), spec)
    day = np.sin(np.arange(13))[None, :, None].astype(np.float32)
    path = between(knots, day[:, 1:], day[:, [0, 1, 12]], day[:, 0] + 2, day[:, [1, 12]] + 2)
    assert path[0, :, 0] == pytest.approx(day[0, 1:, 0] + 2, abs=1e-5)


def test_where_the_usual_day_is_unknown_a_path_is_a_line():
    """A zone's first day is not known at its hours to come."""
    spec = ForecastSpec(channels=(), targets=("air_temp_c",), horizons_min=(60, 180), step_ms=3_600_000)
    knots = Knots.of(np.arange(1, 4), spec)
    unknown = np.full((1, 3, 1), np.nan, dtype=np.float32)
    medians = np.array([[[11.0], [15.0]]], dtype=np.float32)
    path = between(knots, unknown, unknown, np.array([[10.0]], dtype=np.float32), medians)
    assert path[0, :, 0].tolist() == [11.0, 13.0, 15.0]


def test_at_a_horizon_a_path_is_the_forecast():
    """What is published for a horizon is the path there, all quantiles."""
    quantiles, path = learned_until(forecaster(2), rows(5), 4 * DAY + 7)
    steps = path_steps(SPEC).tolist()
    at = [steps.index(step) for step in SPEC.horizon_steps]
    assert np.array_equal(path[:, at], quantiles)


@pytest.mark.parametrize("days", [0.1, 0.6, 4, 12])
@pytest.mark.thorough
def test_quantiles_of_a_path_are_in_order_and_possible(days):
    """From a zone's first hours on: p10 < p50 < p90 or at a limit, and no humidity above 100 %."""
    values = rows(days + 1)
    values[:, :, 1] = np.minimum(values[:, :, 1] + 15, 100)  # close to the limit
    _, path = learned_until(forecaster(2), values, round(days * DAY))
    assert np.isfinite(path).all()
    assert (path[..., 0] <= path[..., 1]).all()
    assert (path[..., 1] <= path[..., 2]).all()
    assert (path[..., 0] < path[..., 2]).all()
    assert path[..., 1, :].max() <= 100


@pytest.mark.thorough
def test_a_sensor_that_stands_still_keeps_a_width_between_horizons():
    """Young and old: a path is nowhere thinner than at the horizon before or after, whichever is thinner."""
    values = np.full((1, 14 * DAY, len(SPEC.channels)), 20.0, np.float32)
    made = forecaster(1)
    for first, stop in ((0, DAY), (DAY, 14 * DAY)):
        quantiles = run(made, values, first, stop)[:, -1]
        path = made.path(np.array([0]), stop - 1, np.array([(stop - 1) % DAY]), quantiles, KNOTS)
        widths, learned = (each[0, ..., 2] - each[0, ..., 0] for each in (path, quantiles))
        least = np.minimum(learned[np.maximum(KNOTS.before - 1, 0)], learned[KNOTS.after])
        assert (widths > 0.99 * least).all()
        assert (least > 0).all()


@pytest.mark.thorough
def test_a_night_between_two_horizons_is_no_line():
    """Between 6 and 24 hours the path is much closer to the truth than a line through the two forecasts."""
    values = rows(14, missing=0)
    made, off = forecaster(2), []
    for stop in range(10 * DAY, 13 * DAY, 8):
        quantiles = run(made, values, stop - 8 if off else 0, stop)[:, -1]
        path = made.path(np.arange(2), stop - 1, np.full(2, (stop - 1) % DAY), quantiles, KNOTS)
        ahead = path_steps(SPEC)
        between_them = (ahead > 24) & (ahead < 96)
        truth = values[:, stop - 1 + ahead[between_them], 0]
        share = ((ahead[between_them] - 24) / 72)[None]
        line = quantiles[:, 2, 0, 1][:, None] * (1 - share) + quantiles[:, 3, 0, 1][:, None] * share
        off.append([np.abs(path[:, between_them, 0, 1] - truth).mean(), np.abs(line - truth).mean()])
    ours, lines = np.mean(off, axis=0)
    assert ours < 0.7 * lines


@pytest.mark.thorough
def test_widths_between_horizons_follow_those_that_plans_have_changed():
    """Where plans made the intervals at all horizons half as wide, the path is about half as wide in between."""
    made, values = forecaster(2), rows(12)
    quantiles = run(made, values, 0, 11 * DAY)[:, -1]
    halved = quantiles[..., 1:2] + (quantiles - quantiles[..., 1:2]) / 2
    zones, bins = np.arange(2), np.full(2, (11 * DAY - 1) % DAY)
    usual = made.path(zones, 11 * DAY - 1, bins, quantiles, KNOTS)
    made.corrections.known = True  # plans are known, and nothing else is asked of them here
    narrow = made.path(zones, 11 * DAY - 1, bins, halved, KNOTS)
    between_them = ~KNOTS.learned
    share = (narrow[..., 2] - narrow[..., 0])[:, between_them] / (usual[..., 2] - usual[..., 0])[:, between_them]
    assert np.median(share) == pytest.approx(0.5, abs=0.1)


def test_asking_for_a_path_changes_nothing():
    """The learners' state is the same, bit for bit."""
    made, values = forecaster(2), rows(4)
    run(made, values, 0, 3 * DAY)
    before = made.state_dict()
    zones, bins = np.arange(2), np.full(2, (3 * DAY - 1) % DAY)
    made.path(zones, 3 * DAY - 1, bins, np.ones((2, 4, 3, 3), dtype=np.float32), KNOTS)
    assert same(before, made.state_dict())


@pytest.mark.thorough
def test_an_earlier_forecast_for_the_same_time_has_its_say():
    """A forecast of a day ahead that was given six hours ago moves what is said of the 18th hour from now."""
    values, moved = rows(6, missing=0), []
    for change in (0.0, 5.0):
        made = forecaster(2)
        run(made, values, 0, 5 * DAY)
        step = 5 * DAY - 1 - 5 * DAY % 4
        at = made.waiting.at(step - 24)[3:]
        made.first.issue(np.arange(2)[:, None], at[None], np.float32(20 + change))
        bins = np.full(2, step % DAY)
        moved.append(made.path(np.arange(2), step, bins, np.full((2, 4, 3, 3), 20, np.float32), KNOTS))
    hour = path_steps(SPEC).tolist()
    assert (moved[1][:, hour.index(72), :, 1] > moved[0][:, hour.index(72), :, 1] + 1).all()
    assert np.array_equal(moved[1][:, hour.index(24)], moved[0][:, hour.index(24)])


@pytest.mark.thorough
def test_what_is_learned_between_horizons_uses_nothing_to_come():
    """A path from the same rows is the same, whatever comes after."""
    values = rows(5)
    paths = []
    for after in (0.0, 30.0):
        changed = values.copy()
        changed[:, 4 * DAY :] += after
        paths.append(learned_until(forecaster(2), changed, 4 * DAY)[1])
    assert np.array_equal(*paths)
