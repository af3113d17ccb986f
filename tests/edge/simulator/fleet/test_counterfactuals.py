"""Pairs of runs: the same house and weather, and nothing differs before the change; other weather does what it says."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from edge.simulator.fleet.counterfactuals import Pair, simulate_pairs
from edge.simulator.fleet.draws import draw_site
from edge.simulator.fleet.fleet_recording import FleetRecording
from edge.simulator.fleet.row_sensors import FLEET_METRICS
from edge.simulator.fleet.simulation import simulate_fleet
from edge.simulator.fleet.weather_changes import WeatherChange
from edge.simulator.simulated_site import WEATHER_METRICS

AIR = FLEET_METRICS.index("air_temp_c")
SITES = 6


@functools.cache
def pairs() -> tuple[FleetRecording, list[Pair]]:
    return simulate_pairs([draw_site(5, index) for index in range(SITES)], 3, 2)


@pytest.mark.thorough
def test_each_zone_has_its_pairs_and_changes_begin_at_the_origin_or_later() -> None:
    """As many pairs as zones and copies; origins lie a day after the start and a day before the end."""
    recording, found = pairs()
    zones = sum(len(draw_site(5, index).zones) for index in range(SITES))
    assert len(found) == 2 * zones
    assert recording.values.shape[0] == 3 * zones
    for pair in found:
        assert 1440 <= pair.origin_min <= 2880
        assert pair.changes
        assert all(pair.origin_min <= change.begin_min < pair.origin_min + 1440 for change in pair.changes)


@pytest.mark.thorough
def test_nothing_differs_before_the_change_and_something_after() -> None:
    """Bit for bit the same rows until the first change begins; most changes then move the air."""
    recording, found = pairs()
    moved = 0
    for pair in found:
        was, became = recording.values[pair.as_was], recording.values[pair.as_changed]
        begin = min(change.begin_min for change in pair.changes) // 5
        assert was[:begin].tobytes() == became[:begin].tobytes()
        moved += bool(np.nanmax(np.abs(became[begin:, AIR] - was[begin:, AIR])) > 0.01)
    assert moved > len(found) / 2


@pytest.mark.thorough
def test_pairs_are_the_same_whichever_others_are_drawn() -> None:
    """A site's pairs come out the same alone."""
    recording, found = pairs()
    alone, few = simulate_pairs([draw_site(5, 0)], 3, 2)
    mine = [pair for pair in found if recording.site[recording.zone_site[pair.as_was]] == 0]
    assert [pair.changes for pair in few] == [pair.changes for pair in mine]
    for one, other in zip(few, mine, strict=True):
        assert alone.values[one.as_changed].tobytes() == recording.values[other.as_changed].tobytes()


@pytest.mark.parametrize(("metric", "value"), [("out_temp_c", -4.0), ("wind_m_s", 3.0), ("out_radiation_w_m2", -100.0)])
@pytest.mark.thorough
def test_other_weather_is_what_was_asked(metric: str, value: float) -> None:
    """The station sees it while it lasts: so much, as humid as before; radiation falls to no less than nothing."""
    site = draw_site(5, 1)
    change = WeatherChange(metric, 600, 1200, value)
    run = simulate_fleet([site, site], 1, weather_changes={1: [change]})
    off = run.weather[1] - run.weather[0]
    column = WEATHER_METRICS.index(metric)
    assert np.nan_to_num(off[:120]).any() == np.nan_to_num(off[241:, column]).any() == False  # noqa: E712
    during = off[121:239, column]
    known = np.isfinite(during)
    if metric == "out_radiation_w_m2":
        assert (during[known] <= 0.01).all()
        assert during[known].min() < -20
        assert np.nanmin(run.weather[1][:, column]) >= 0
    else:
        np.testing.assert_allclose(during[known], value, atol=0.05)
    if metric == "out_temp_c":
        rh = off[121:239, WEATHER_METRICS.index("out_rh_pct")]
        assert np.abs(rh[np.isfinite(rh)]).max() < 0.5


def test_what_cannot_be_changed_is_refused() -> None:
    """Each with a sentence: another metric, an end before its beginning, a site that is not there."""
    with pytest.raises(ValueError, match="'rain' of the weather cannot be changed"):
        WeatherChange("rain", 0, 10, 1.0)
    with pytest.raises(ValueError, match="ends at minute 10, before it has begun"):
        WeatherChange("wind_m_s", 10, 10, 1.0)
    with pytest.raises(ValueError, match="there is no site 3"):
        simulate_fleet([draw_site(5, 1)], 1, weather_changes={3: [WeatherChange("wind_m_s", 0, 10, 1.0)]})
