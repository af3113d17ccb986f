"""Scenarios: each time keeps its distribution, and errors belong together as the templates say."""

import numpy as np
import pytest

from models.paths.scenarios import SCENARIOS, scenarios
from models.psychrometrics import vpd_kpa
from models.spec import ForecastSpec

SPEC = ForecastSpec(channels=(), targets=("air_temp_c", "rh_pct"), step_ms=1_800_000)
STEPS, KNOWN = np.arange(1, 49), np.arange(2, 49, 2)
PATH = np.tile(np.float32([[18, 20, 21], [60, 70, 75]]), (2, 48, 1, 1))
NONE = np.empty((0, 2, len(KNOWN), 2), dtype=np.float32)


def drawn(templates=NONE, seed=("site", 7), zones=("a", "b"), path=PATH):
    """Scenarios of two zones, a day of half hours."""
    return scenarios(path, STEPS, templates, KNOWN, seed, zones, SPEC)


def past(rows, seed=0):
    """Templates in which the second target errs against the first, and both zones alike all day."""
    error = np.random.default_rng(seed).normal(size=(rows, 1, 1, 1))
    return np.broadcast_to(error * np.array([1, -1]), (rows, 2, len(KNOWN), 2)).astype(np.float32)


@pytest.mark.parametrize("templates", [NONE, past(20), past(100)])
def test_each_time_keeps_the_distribution_of_the_path(templates):
    """p10, p50 and p90 over scenarios are those of the path, whatever the templates are."""
    found = np.quantile(drawn(templates), [0.1, 0.5, 0.9], axis=0)
    width = PATH[..., 2] - PATH[..., 0]
    assert (np.abs(np.moveaxis(found, 0, -1) - PATH) < 0.05 * width[..., None]).all()


def test_errors_belong_together_as_those_of_past_days_did():
    """Where the second target erred against the first, all day and in both zones, scenarios do so too."""
    found = drawn(past(100))
    first = found[:, 0, 10, 0]
    assert np.corrcoef(first, found[:, 0, 10, 1])[0, 1] < -0.9
    assert np.corrcoef(first, found[:, 1, 40, 0])[0, 1] > 0.9


@pytest.mark.parametrize("templates", [0, 20, 100])
def test_vpd_is_what_air_and_humidity_of_the_same_scenario_make(templates):
    """The larger VPD computed of a scenario's air and humidity is, the larger is its VPD; each time's distribution
    stays that of the path.
    """
    spec = ForecastSpec(channels=(), targets=("air_temp_c", "rh_pct", "co2_ppm", "vpd_kpa"), step_ms=1_800_000)
    path = np.tile(np.float32([[18, 20, 21], [60, 70, 75], [400, 500, 700], [0.5, 0.7, 1.0]]), (2, 48, 1, 1))
    past_errors = np.random.default_rng(0).normal(size=(templates, 2, len(KNOWN), 4)).astype(np.float32)
    found = scenarios(path, STEPS, past_errors, KNOWN, ("site", 7), ("a", "b"), spec)
    made = vpd_kpa(found[..., 0], found[..., 1])
    order = np.argsort(made, axis=0)
    assert (np.diff(np.take_along_axis(found[..., 3], order, axis=0), axis=0) >= 0).all()
    said = np.quantile(found[..., 3], [0.1, 0.5, 0.9], axis=0)
    np.testing.assert_allclose(np.moveaxis(said, 0, -1), path[..., 3, :], atol=0.02)


def test_vpd_of_saturated_air_is_not_in_the_order_of_the_scenarios():
    """Where humidity is 100 % in many scenarios, it makes 0 in all of them; their VPD is as it was drawn."""
    spec = ForecastSpec(channels=(), targets=("air_temp_c", "rh_pct", "vpd_kpa"), step_ms=1_800_000)
    path = np.tile(np.float32([[18, 20, 21], [97, 100, 100], [0.1, 0.2, 0.3]]), (2, 48, 1, 1))
    found = scenarios(path, STEPS, np.zeros((0, 2, len(KNOWN), 3), np.float32), KNOWN, ("site", 7), ("a", "b"), spec)
    saturated = found[..., 1] >= 100
    assert saturated.mean() > 0.3
    number = np.broadcast_to(np.arange(100)[:, None, None], saturated.shape)
    assert abs(np.corrcoef(number[saturated], found[..., 2][saturated])[0, 1]) < 0.3


def test_errors_that_are_drawn_fade_out_over_time_and_are_shared_by_zones():
    """The stated dependence of a zone with nine days: neighbours in time are alike, half a day apart they are not;
    zones a little.
    """
    found = drawn(past(18))[18:]
    assert np.corrcoef(found[:, 0, 20, 0], found[:, 0, 21, 0])[0, 1] > 0.8
    assert abs(np.corrcoef(found[:, 0, 20, 0], found[:, 0, 44, 0])[0, 1]) < 0.4
    zones = [np.corrcoef(found[:, 0, t, 0], found[:, 1, t, 0])[0, 1] for t in range(48)]
    assert 0.05 < np.mean(zones) < 0.5


def test_in_a_zones_first_days_errors_last():
    """The fewer days a zone has, the more alike errors half a day apart are; after nine days no more changes."""

    def apart(zone, templates):
        seeds = (drawn(templates, seed=("site", seed))[60:, zone] for seed in range(20))
        return np.mean([np.corrcoef(found[:, 20, 0], found[:, 44, 0])[0, 1] for found in seeds])

    at_once, after_six, after_nine = (apart(0, past(rows)) for rows in (0, 12, 18))
    assert 0.5 < at_once < 0.7
    assert at_once - 0.2 > after_six > after_nine + 0.1
    assert after_nine < 0.25
    only_one = past(18)
    only_one[:, 1] = np.nan
    assert apart(1, only_one) == pytest.approx(at_once, abs=0.1)


def test_with_a_short_past_the_rest_is_the_stated_dependence():
    """Few past days, or none of one of the zones, still give scenarios, and they are not the same day again."""
    templates = past(10)
    templates[:, 1] = np.nan
    found = drawn(templates)
    assert found.shape == (SCENARIOS, 2, 48, 2)
    assert np.isfinite(found).all()
    assert np.corrcoef(found[:, 1, 5, 0], found[:, 1, 5, 1])[0, 1] > -0.4
    assert len(np.unique(found[:, 0, 5, 0])) == SCENARIOS


def test_the_same_origin_has_the_same_scenarios():
    """Bit for bit, and another origin has others."""
    assert np.array_equal(drawn(), drawn())
    assert not np.array_equal(drawn(), drawn(seed=("site", 8)))


def test_a_zone_alone_has_the_scenarios_that_it_has_among_others():
    """So the zones of a site can be asked one by one, and belong together."""
    templates = past(30)
    alone = scenarios(PATH[1:], STEPS, templates[:, 1:], KNOWN, ("site", 7), ["b"], SPEC)
    assert np.array_equal(alone[:, 0], drawn(templates)[:, 1])


def test_scenarios_stay_within_what_is_possible():
    """No humidity above 100 %, however wide the interval is."""
    path = PATH.copy()
    path[..., 1, :] = [80, 98, 100]
    assert drawn(path=path)[..., 1].max() <= 100


@pytest.mark.parametrize("missing", [0, 1])
def test_templates_with_gaps_are_used_where_they_are_known(missing):
    """A time without an error in the past is drawn, its neighbours are not."""
    templates = past(100)
    templates[:, :, 5 + missing] = np.nan
    found = drawn(templates)
    assert np.corrcoef(found[:, 0, 30, 0], found[:, 0, 30, 1])[0, 1] < -0.9
    assert np.isfinite(found).all()
