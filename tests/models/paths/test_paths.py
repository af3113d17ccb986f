"""Paths of zones: what is learned beside the forecaster, and what is said of a night."""

from dataclasses import replace

import numpy as np
import pytest

from models.paths.past_nights import DAY as DAYTIME
from models.paths.past_nights import NIGHT
from models.paths.paths import Paths, night_by_clock
from models.paths.scenario_events import quantiles_of
from models.spec import ForecastSpec
from tests.models.online.online_worlds import DAY, SPEC, flat, forecaster, rows, same, sun


def run(values, stop, start=0, made=None):
    """A forecaster and its paths along ``values``; with the last forecast's quantiles."""
    zones = np.arange(len(values))
    if made is None:
        made = forecaster(len(values)), Paths(SPEC, 1)
        made[1].add_zones(len(values))
    learners, paths = made
    for step in range(start, stop):
        bins = np.full(len(zones), step % DAY)
        learned = learners.learn(zones, step, values[:, step], bins, sun(step, len(zones)))
        paths.learn(learners, learned, lambda ahead, now=step: night_by_clock(now + ahead, DAY))
        quantiles = learners.predict(learned)
    return learners, paths, quantiles


def said(learners, paths, quantiles, step, kind):
    """The extreme of the next night or day, ``[3, Z, M]``, and the first and last row that it is of."""
    zones, bins = np.arange(2), np.full(2, step % DAY)
    path = learners.path(zones, step, bins, quantiles, paths.knots)
    span = paths.span(kind, lambda ahead: night_by_clock(step + ahead, DAY))
    drawn = paths.scenarios(zones, step, step % DAY, path, "site", ["a", "b"])
    values, at = paths.extremes(zones, bins, drawn[:, :, span[0] : span[1]], kind, span)
    assert (at >= span[0]).all()
    assert (at < span[1]).all()
    steps = paths.knots.steps
    return quantiles_of(values), step + steps[span[0]], step + steps[span[1] - 1]


@pytest.mark.parametrize(("every", "phase"), [(2, 0), (3, 1), (12, 7)])
def test_nights_of_a_sensor_that_reports_less_often_than_rows_close_are_known(every, phase):
    """As one on a battery: rows of five minutes, and a reading every ten, fifteen or sixty."""
    spec = replace(SPEC, step_ms=300_000, horizons_min=(60,), lookback_steps=288)
    learners, paths, zone = forecaster(1, spec), Paths(spec, 1), np.array([0])
    paths.add_zones()
    values = np.full((1, 3 * 288, len(spec.channels)), np.nan, np.float32)
    values[:, phase::every] = 20
    for step in range(values.shape[1]):
        bins, dark = np.array([step % 288]), np.full((1, 2), np.nan, np.float32)
        learned = learners.learn(zone, step, values[:, step], bins, dark)
        paths.learn(learners, learned, lambda ahead, now=step: night_by_clock(now + ahead, 288))
    assert len(paths.nights.past(0, NIGHT)) == 2


def test_a_night_lies_between_evening_and_morning():
    """Where the place is unknown."""
    hours = night_by_clock(np.arange(0, DAY, 4), DAY)
    assert [hour for hour in range(24) if hours[hour]] == [0, 1, 2, 3, 4, 5, 6, 19, 20, 21, 22, 23]


@pytest.mark.thorough
def test_the_nights_minimum_and_the_days_maximum_are_foreseen():
    """Over some weeks of a made-up world their intervals hold most truths, and are in order."""
    values = rows(15, missing=0)
    learners, paths, _ = run(values, 5 * DAY)
    inside = []
    for day in range(5, 14):
        for kind, hour in ((NIGHT, 16), (DAYTIME, 4)):
            step = day * DAY + 4 * hour - 1
            done = (day - 1) * DAY + 4 * 16 if kind == DAYTIME else day * DAY + 4 * 4
            made = run(values, step + 1, max(done, 5 * DAY), (learners, paths))
            found, first, last = said(*made, step, kind)
            truth = values[:, first : last + 1, 0]
            truth = truth.min(axis=1) if kind == NIGHT else truth.max(axis=1)
            inside += ((found[0, :, 0] <= truth) & (truth <= found[2, :, 0])).tolist()
            assert (found[0] <= found[1]).all()
            assert (found[1] <= found[2]).all()
            learners, paths, _ = made
    assert 0.55 < np.mean(inside) <= 1


def test_a_night_in_which_a_zone_was_away_is_none():
    """Its minimum may lie in the gap; neither is the night before it known to be whole."""
    values = rows(5, missing=0)
    learners, paths = forecaster(2), Paths(SPEC, 1)
    paths.add_zones(2)
    for step in range(5 * DAY):
        zones = np.array([1] if 3 * DAY - 4 <= step < 3 * DAY + 16 else [0, 1])  # 23 to 4 o'clock
        bins = np.full(len(zones), step % DAY)
        learned = learners.learn(zones, step, values[zones, step], bins, sun(step, len(zones)))
        paths.learn(learners, learned, lambda ahead, now=step: night_by_clock(now + ahead, DAY))
    nights = [values[:, 4 * (24 * day - 5) : 4 * (24 * day + 7), 0].min(axis=1) for day in range(1, 5)]
    for zone, kept in ((0, [0, 1, 3]), (1, [0, 1, 2, 3])):
        np.testing.assert_allclose(paths.nights.past(zone, NIGHT)[:, 0], [nights[n][zone] for n in kept], atol=0.02)


@pytest.mark.thorough
def test_questions_leave_the_state_as_it_is():
    """Whoever asks for scenarios in between changes nothing that is learned."""
    values = rows(4)
    one = run(values, 3 * DAY)[1]
    learners, paths, quantiles = run(values, 2 * DAY)
    said(learners, paths, quantiles, 2 * DAY - 1, DAYTIME)
    other = run(values, 3 * DAY, 2 * DAY, (learners, paths))[1]
    assert same(one.state_dict(), other.state_dict())


@pytest.mark.thorough
def test_paths_go_on_from_their_state():
    """A forecaster and paths that took over a state give the same scenarios, bit for bit."""
    values = rows(6)
    learners, paths, _ = run(values, 4 * DAY)
    fresh = forecaster(2), Paths(SPEC, 1)
    fresh[0].load_state_dict(learners.state_dict())
    fresh[1].load_state_dict(paths.state_dict())
    both = [run(values, 5 * DAY, 4 * DAY, made) for made in ((learners, paths), fresh)]
    first, second = (said(*made, 5 * DAY - 1, DAYTIME)[0] for made in both)
    assert np.array_equal(first, second)


def test_a_state_that_does_not_fit_is_refused():
    """A part of another shape is named."""
    paths = Paths(SPEC, 1)
    paths.add_zones()
    state = paths.state_dict()
    state["errors"]["origin"] = np.zeros((1, 2, 3), np.int32)
    with pytest.raises(ValueError, match="origin"):
        Paths(SPEC, 1).load_state_dict(state)


def test_the_state_of_a_zone_is_small():
    """Zones of four targets at five-minute rows keep at most 16 KB."""
    paths = Paths(ForecastSpec(("air_temp_c",)), 8)

    def size() -> int:
        return sum(part.nbytes for part in flat(paths.state_dict()).values())

    empty = size()
    paths.add_zones(8)
    assert (size() - empty) / 8 < 16 * 1024
