"""The sites of a fleet: drawn by seed, and different in every part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from edge.simulator.fleet.draws import MOST_ZONES, SiteDraw, draw_site
from edge.simulator.zone_config import ZoneConfig

SITES = [draw_site(7, index) for index in range(300)]
FIRST = [site.zones[0].config for site in SITES]


def test_a_site_is_the_same_for_its_seed_and_number() -> None:
    """Another seed, or another number, gives another site."""
    assert draw_site(7, 5) == SITES[5]
    assert draw_site(8, 5) != SITES[5]
    assert len({(site.latitude, site.longitude, site.climate) for site in SITES}) == len(SITES)


@pytest.mark.parametrize(
    ("part", "low", "high"),
    [
        (lambda site: site.latitude, -30.0, 56.0),
        (lambda site: site.longitude, -90.0, 120.0),
        (lambda site: site.start_ms / 86_400_000 % 365.25, 40.0, 325.0),
        (lambda site: site.climate.mean_c, 7.0, 19.0),
        (lambda site: site.climate.season_c, 4.0, 8.5),
        (lambda site: site.climate.hours_between_fronts, 40.0, 100.0),
        (lambda site: site.climate.wind_m_s, 2.5, 5.0),
        (lambda site: site.climate.cloudiness, -0.6, 0.6),
        (lambda site: site.sensors.offset, 0.7, 3.0),
        (lambda site: site.sensors.noise, 0.5, 2.0),
        (lambda site: site.sensors.drift, 0.3, 1.2),
        (lambda site: site.sensors.gaps_a_week, 0.1, 1.6),
        (lambda site: site.plans.forecast_error, 0.6, 1.4),
        (lambda site: site.plans.known, 0.6, 0.9),
    ],
)
def test_sites_differ_in_place_season_climate_sensors_and_plans(
    part: Callable[[SiteDraw], float], low: float, high: float
) -> None:
    """A twentieth of the sites at least is below the lower value, and as many above the higher one."""
    values = np.array([part(site) for site in SITES])
    assert (values < low).mean() >= 0.05
    assert (values > high).mean() >= 0.05


@pytest.mark.parametrize(
    ("part", "low", "high"),
    [
        (lambda zone: zone.shell.leakage, 0.7e-4, 1.5e-4),
        (lambda zone: zone.shell.roof_vent_per_floor, 0.06, 0.16),
        (lambda zone: zone.shell.below_screens_m, 3.2, 5.3),
        (lambda zone: zone.shell.cover_transmission, 0.75, 0.84),
        (lambda zone: zone.shell.heating_w_m2, 60.0, 150.0),
        (lambda zone: zone.shell.co2_capacity_mg_m2_s, 0.1, 2.5),
        (lambda zone: zone.crop.leaf_area_index, 0.9, 3.0),
        (lambda zone: zone.crop.min_stomatal_resistance_s_m, 75.0, 150.0),
        (lambda zone: zone.crop.respiration_mg_m2_s, 0.015, 0.06),
        (lambda zone: zone.recipe.heat_day_c, 13.5, 21.5),
        (lambda zone: zone.recipe.heat_day_c - zone.recipe.heat_night_c, 1.5, 4.5),
        (lambda zone: zone.recipe.rh_max_pct, 77.0, 92.0),
        (lambda zone: zone.recipe.day_from_h, 4.0, 7.0),
        (lambda zone: zone.recipe.day_to_h, 16.5, 20.0),
        (lambda zone: zone.recipe.pipe_min_c, 5.0, 35.0),
        (lambda zone: zone.control.pipe_per_k, 6.0, 14.0),
        (lambda zone: zone.control.vent_band_c, 3.0, 8.0),
        (lambda zone: zone.control.vent_stroke_a_min, 0.1, 0.3),
    ],
)
def test_zones_differ_in_shell_crop_recipe_and_control(
    part: Callable[[ZoneConfig], float], low: float, high: float
) -> None:
    """A twentieth of the zones at least is below the lower value, and as many above the higher one."""
    values = np.array([part(zone) for zone in FIRST])
    assert (values < low).mean() >= 0.05
    assert (values > high).mean() >= 0.05


def test_sites_have_all_kinds_of_equipment() -> None:
    """With and without heating, CO₂, two kinds of lamps and of screens; plans of three kinds; one to six zones."""
    kinds = Counter[str]()
    for site, zone in zip(SITES, FIRST, strict=True):
        lamps, shell = zone.lamps, zone.shell
        kinds["no lamps" if lamps.power_w_m2 == 0 else "LED" if lamps.nir_share < 0.1 else "HPS"] += 1
        kinds["no heating" if shell.heating_w_m2 == 0 else "weak" if shell.heating_w_m2 <= 60 else "heating"] += 1
        kinds["no CO2" if shell.co2_capacity_mg_m2_s < 0.01 else "CO2"] += 1
        kinds["energy screen" if zone.recipe.screen_below_c > -50 else "no energy screen"] += 1
        kinds["blackout screen" if shell.has_black_screen else "no blackout screen"] += 1
        kinds["single" if shell.insulation_m2_k_w == 0 else "double"] += 1
        kinds[f"plans: {site.plans.setpoints}"] += 1
        kinds["no forecasts" if not site.plans.forecasts else "forecasts"] += 1
        kinds["north" if site.latitude > 0 else "south"] += 1
    assert len(kinds) == 21
    assert min(kinds.values()) >= 0.04 * len(SITES), kinds
    assert {len(site.zones) for site in SITES} == set(range(1, MOST_ZONES + 1))
    assert 1.8 <= np.mean([len(site.zones) for site in SITES]) <= 2.4


def test_sites_lack_sensors_in_their_own_ways() -> None:
    """What a site has not, it does not measure; and hardly two sites measure the same."""
    for site, zone in zip(SITES, FIRST, strict=True):
        assert (zone.lamps.power_w_m2 > 0) or {"lamp_pct", "sp_lamp_pct"} <= site.sensors.absent
        assert zone.shell.heating_w_m2 > 0 or "heat_pipe_low_c" in site.sensors.absent
        assert {"sp_rh_pct", "sp_hd_g_m3"} & site.sensors.absent
    assert not any({"air_temp_c", "rh_pct"} & site.sensors.absent for site in SITES)
    assert len({site.sensors.absent for site in SITES}) > 0.95 * len(SITES)
    without = sum("sp_heat_c" in site.sensors.absent for site in SITES)
    assert 0.1 < without / len(SITES) < 0.35
