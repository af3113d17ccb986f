"""A fleet simulated together: the same by seed, physically possible, and answering to changes as greenhouses do."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from edge.simulator.fleet.draws import SiteDraw, draw_site
from edge.simulator.fleet.edits import SetpointEdit
from edge.simulator.fleet.fleet_recording import PLAN_METRICS, FleetRecording
from edge.simulator.fleet.row_sensors import FLEET_METRICS
from edge.simulator.fleet.simulation import simulate_fleet
from edge.simulator.simulated_site import WEATHER_METRICS
from edge.simulator.zone_config import Control
from edge.wire.vocabulary import VOCABULARY

DAYS, ROWS_A_DAY = 2, 288
AIR, RH, CO2, HEAT = (FLEET_METRICS.index(name) for name in ("air_temp_c", "rh_pct", "co2_ppm", "sp_heat_c"))


@functools.cache
def fleet() -> tuple[list[SiteDraw], FleetRecording]:
    sites = [draw_site(11, index) for index in range(60)]
    return sites, simulate_fleet(sites, DAYS)


def part_of(recording: FleetRecording, low: int, high: int) -> dict[str, bytes]:
    """The bytes of the arrays of some of the sites."""
    zones = (recording.zone_site >= low) & (recording.zone_site < high)
    by_zone = {name: getattr(recording, name)[zones].tobytes() for name in ("values", "plan", "plan_came", "zone")}
    names = ("site", "start_ms", "weather", "forecast", "forecast_came", "forecast_issued_ms", "latitude")
    return by_zone | {name: getattr(recording, name)[low:high].tobytes() for name in names}


@pytest.mark.thorough
def test_a_site_comes_out_the_same_whichever_others_are_simulated_with_it() -> None:
    """Bit for bit: alone, and among many."""
    sites, recording = fleet()
    one = next(n for n, site in enumerate(sites) if len(site.zones) == 1)
    assert part_of(simulate_fleet(sites[one : one + 1], DAYS), 0, 1) == part_of(recording, one, one + 1)


@pytest.mark.thorough
def test_values_are_within_the_vocabulary() -> None:
    """All metrics of zones and weather, and humidity not above 100 %; what there is not is NaN."""
    sites, recording = fleet()
    for array, names in ((recording.values, FLEET_METRICS), (recording.weather, WEATHER_METRICS)):
        for column, name in enumerate(names):
            known = array[..., column][np.isfinite(array[..., column])]
            assert known.size > 0
            assert VOCABULARY[name].low <= known.min(), name
            assert known.max() <= VOCABULARY[name].high, name
    for number, s in enumerate(recording.zone_site):
        absent = [FLEET_METRICS.index(name) for name in FLEET_METRICS if name in sites[s].sensors.absent]
        assert np.isnan(recording.values[number][:, absent]).all()
    assert 0.001 < np.isnan(recording.values[..., AIR]).mean() < 0.05


def test_the_climate_is_that_of_greenhouses() -> None:
    """Most zones keep their setpoint, are warmer by day than by night, and vary by some degrees a day."""
    _, recording = fleet()
    air, heat = recording.values[..., AIR], recording.values[..., HEAT]
    below = np.nanmean((heat - air) > 1.5, axis=1)
    assert np.nanmedian(below) < 0.1
    swing = np.nanmax(air, axis=1) - np.nanmin(air, axis=1)
    assert 5.0 < np.median(swing) < 17.0
    light = recording.weather[..., WEATHER_METRICS.index("out_radiation_w_m2")][recording.zone_site]
    by_day = np.where(light > 200.0, air, np.nan)
    by_night = np.where(light < 1.0, air, np.nan)
    lit = np.isfinite(by_day).any(axis=1) & np.isfinite(by_night).any(axis=1)
    assert (np.nanmean(by_day[lit], axis=1) > np.nanmean(by_night[lit], axis=1)).mean() > 0.9
    assert 60.0 < np.nanmean(recording.values[..., RH]) < 88.0
    dark, bright = (
        np.where(light < 1.0, recording.values[..., CO2], np.nan),
        np.where(light > 200.0, recording.values[..., CO2], np.nan),
    )
    assert 420.0 < np.nanmedian(dark) < 650.0
    assert 300.0 < np.nanmedian(bright) < np.nanmedian(dark)


def test_the_weather_is_that_of_the_place() -> None:
    """No sun at night, more of it near the equator and in summer, and it is warmer there."""
    sites, recording = fleet()
    light = recording.weather[..., WEATHER_METRICS.index("out_radiation_w_m2")]
    assert np.nanmin(light) < 2.0  # an offset of the sensor at most
    high = np.array([np.cos(np.radians(site.latitude - _declination(site))) for site in sites])
    daily = np.nanmean(light, axis=1)
    known = np.isfinite(daily)
    assert np.corrcoef(high[known], daily[known])[0, 1] > 0.6
    warm = np.nanmean(recording.weather[..., WEATHER_METRICS.index("out_temp_c")], axis=1)
    there = np.isfinite(warm)
    assert np.corrcoef(high[there], warm[there])[0, 1] > 0.5


def _declination(site: SiteDraw) -> float:
    day = site.start_ms / 86_400_000 % 365.25
    return float(-23.4 * np.cos(2 * np.pi * (day + 10) / 365.25))


def test_plans_are_near_what_came_and_not_the_same() -> None:
    """Growers' plans of the heating are right most of the time, and wrong where an edit was not planned."""
    sites, recording = fleet()
    wrong = []
    for number, s in enumerate(recording.zone_site):
        if sites[s].plans.setpoints != "grower":
            continue
        for plan in np.flatnonzero(recording.plan_came[number]):
            middle = (
                recording.plan_issued_ms[number, plan] - recording.start_ms[s] + np.arange(48) * 1_800_000 + 900_000
            )
            row = middle // 300_000
            here = (row >= 0) & (row < recording.values.shape[1])
            said = recording.plan[number, plan, :48, PLAN_METRICS.index("sp_heat_c")][here]
            wrong.append(np.abs(said - recording.values[number, row[here], HEAT]))
    off = np.concatenate(wrong)
    off = off[np.isfinite(off)]
    assert np.mean(off < 0.6) > 0.75
    assert np.mean(off > 0.8) > 0.02


def test_forecasts_are_wrong_as_forecasts_are() -> None:
    """Their errors grow with the hours ahead; some sites have none."""
    sites, recording = fleet()
    temp = recording.weather[..., WEATHER_METRICS.index("out_temp_c")]
    errors: dict[int, list[float]] = {1: [], 24: []}
    for s in range(len(sites)):
        for run in np.flatnonzero(recording.forecast_came[s]):
            for ahead, found in errors.items():
                valid = recording.forecast_issued_ms[s, run] - recording.start_ms[s] + ahead * 3_600_000 - 1_800_000
                row = valid // 300_000 - 1
                if 0 <= row < temp.shape[1]:
                    found.append(float(recording.forecast[s, run, ahead - 1, 0] - temp[s, row]))
    first, later = (np.nanstd(found) for found in errors.values())
    assert 0.5 < first < later < 2.8
    assert later > 1.4 * first
    assert 0.05 < (recording.forecast_came.max(axis=1) == 0).mean() < 0.35


def cold_site() -> SiteDraw:
    """A heated site in a cold winter, in calm control without screens, whose grower edits nothing."""
    for index in range(1000):
        site = draw_site(21, index)
        zone = site.zones[0].config
        winter = (site.start_ms / 86_400_000 + 35) % 365.25 < 75
        if (
            winter
            and site.latitude > 45
            and zone.shell.heating_w_m2 > 100
            and "heat_pipe_low_c" not in site.sensors.absent
        ):
            control = Control(pipe_max_c=80.0, pipe_per_loss=0.4)
            recipe = replace(zone.recipe, rh_max_pct=97.0, pipe_min_c=0.0, screen_below_c=-90.0)
            shell = replace(zone.shell, heating_w_m2=300.0)
            calm = replace(zone, control=control, shell=shell, recipe=recipe)
            quiet = replace(site.zones[0], config=calm, recipe_edits_a_day=0.0, setpoint_edits_a_day=0.0)
            return replace(site, zones=(quiet,), climate=replace(site.climate, mean_c=9.0))
    raise AssertionError("no such site")


CHANGES = {
    "sp_heat_c add 3": (AIR, 1.0), "sp_heat_c add -3": (AIR, -1.0), "vent_min_pct least 60": (AIR, -1.0),
    "sp_pipe_min_c least 75": (AIR, 1.0), "sp_co2_ppm set 900": (CO2, 1.0),
}  # fmt: skip


@functools.cache
def counterfactuals() -> tuple[int, FleetRecording]:
    """When the changes begin, and the runs: without any, and with each of them."""
    site = cold_site()
    midnight = 1440 - 60 * site.utc_offset_h % 1440
    changes = {}
    for number, change in enumerate(CHANGES, start=1):
        metric, how, value = change.split()
        changes[number, 0] = [SetpointEdit(metric, midnight, midnight + 240, how, float(value))]  # type: ignore[arg-type]
    return midnight // 5, simulate_fleet([site] * (len(CHANGES) + 1), DAYS, changes=changes)


@pytest.mark.parametrize("number", range(len(CHANGES)))
@pytest.mark.thorough
def test_a_counterfactual_run_differs_only_after_the_change_and_as_physics_asks(number: int) -> None:
    """On a cold night: a higher heating setpoint warms, open vents cool, a hot pipe warms; the weather is the same."""
    row, runs = counterfactuals()
    metric, sign = list(CHANGES.values())[number]
    without, changed = runs.values[0], runs.values[number + 1]
    np.testing.assert_array_equal(changed[:row], without[:row])
    difference = sign * (changed - without)[row + 12 : row + 48, metric]
    difference = difference[np.isfinite(difference)]
    assert difference.mean() > (20.0 if metric == CO2 else 0.5)
    assert (difference > -0.1).mean() > 0.95
    np.testing.assert_array_equal(runs.weather[0], runs.weather[number + 1])


def test_a_run_that_cannot_be_says_why() -> None:
    """Each with a sentence: a step that cuts half-hours, no sites, a zone that is not there."""
    site = draw_site(1, 1)
    with pytest.raises(ValueError, match="must be whole minutes"):
        simulate_fleet([site], 1, step_s=420)
    with pytest.raises(ValueError, match="0 sites for 1 days"):
        simulate_fleet([], 1)
    with pytest.raises(ValueError, match="no zone 9 in site 0"):
        simulate_fleet([site], 1, changes={(0, 9): [SetpointEdit("sp_heat_c", 0, 10, "add", 1.0)]})
