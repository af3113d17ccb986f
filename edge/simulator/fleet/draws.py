"""A site of the fleet as it is drawn: its place, house, crop, control, sensors and plans, all of them by chance.

Each part has its own random numbers, named by seed, site and part. So a site is the same whichever others are
simulated with it, and a change of one part's draws leaves the others as they were.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from edge.simulator.physics.weather import Climate
from edge.simulator.zone_config import HPS, LED, NO_LAMPS, Control, Crop, Lamps, Recipe, Shell, ZoneConfig
from models.durations import DAY_MS

__all__ = [
    "DRAWS_VERSION", "MOST_ZONES", "PlanHabit", "SensorHabit", "SiteDraw", "ZoneDraw", "chance", "draw_site",
]  # fmt: skip

DRAWS_VERSION = 1
"""Rises whenever the same seed gives other sites."""

MOST_ZONES = 6
_ZONES = np.array([0.45, 0.27, 0.12, 0.08, 0.05, 0.03])
_FIRST_DAY, _DAYS = 18_262, 1_461  # 2020 to 2023
_PLACE, _SEASON, _SHELL, _LAMPS, _PLANS, _SENSORS, _ZONE = range(7)
_NEVER_C = -90.0  # so cold that a screen never closes

_ABSENT_CLIMATE = {
    "par_umol_m2_s": 0.5, "leaf_temp_c": 0.75, "soil_temp_c": 0.6, "co2_ppm": 0.15, "vent_wind_pct": 0.25,
    "vent_lee_pct": 0.05, "heat_pipe_low_c": 0.1, "co2_dosing_pct": 0.5, "lamp_pct": 0.1, "screen_energy_pct": 0.1,
    "screen_black_pct": 0.1, "hd_g_m3": 0.7,
}  # fmt: skip
_ABSENT_SETPOINTS = {
    "sp_heat_c": 0.03, "sp_vent_c": 0.08, "sp_rh_pct": 0.2, "sp_co2_ppm": 0.2, "sp_pipe_min_c": 0.3,
    "sp_lamp_pct": 0.3, "sp_screen_energy_pct": 0.3, "sp_screen_black_pct": 0.3, "sp_hd_g_m3": 0.0,
}  # fmt: skip
_ABSENT_WEATHER = {
    "out_longwave_net_w_m2": 0.7, "wind_dir_deg": 0.25, "rain": 0.25, "out_rad_sum_j_cm2": 0.5, "out_rh_pct": 0.08,
    "wind_m_s": 0.04, "out_radiation_w_m2": 0.03, "out_temp_c": 0.01,
}  # fmt: skip
_NO_SETPOINTS = 0.2
"""Share of sites of which no setpoint is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorHabit:
    """What a site's instruments are worth: shares of the usual offset and noise, slow drift in shares of the offset,
    gaps a week, and the metrics that there are none for.
    """

    offset: float
    noise: float
    drift: float
    gaps_a_week: float
    absent: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHabit:
    """What a site says of its future."""

    forecasts: bool
    forecast_error: float
    """Share of the usual error of weather forecasts."""
    outages: float
    """Share of the forecasts that never came."""
    setpoints: str
    """``grower`` (plans each day), ``repeated`` (yesterday's setpoints are today's plan) or ``none``."""
    issue_hour: int
    """Local, when the grower plans."""
    known: float
    """Share of the edits that the plan knows beforehand."""
    broken: float
    """Share of the zone-days whose plan is not there, or is another day's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneDraw:
    """A zone; edits a day of its recipe, in working hours, and of its setpoints, at any time."""

    config: ZoneConfig
    recipe_edits_a_day: float
    setpoint_edits_a_day: float
    edit_size: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteDraw:
    """A site. ``start_ms`` is a midnight UTC; ``utc_offset_h`` is its clock, all year."""

    seed: int
    index: int
    latitude: float
    longitude: float
    utc_offset_h: int
    start_ms: int
    climate: Climate
    zones: tuple[ZoneDraw, ...]
    sensors: SensorHabit
    plans: PlanHabit

    @property
    def timezone(self) -> str:
        """The IANA name of its clock.

        >>> draw_site(1, 0).timezone.startswith("Etc/GMT")
        True
        """
        return f"Etc/GMT{-self.utc_offset_h:+d}" if self.utc_offset_h else "Etc/GMT"


def chance(seed: int, index: int, *part: int) -> np.random.Generator:
    """The random numbers of one part of one site."""
    return np.random.default_rng([seed, 11, index, *part])


def draw_site(seed: int, index: int) -> SiteDraw:
    """Site number ``index`` of the fleet ``seed``.

    >>> draw_site(7, 3) == draw_site(7, 3), draw_site(7, 3).start_ms == draw_site(7, 4).start_ms
    (True, False)
    """
    rng = chance(seed, index, _PLACE)
    north = rng.random() < 0.85
    degrees = float(np.clip(rng.normal(47.0, 8.0), 8.0, 65.0)) if rng.random() < 0.85 else float(rng.uniform(5, 65))
    latitude = degrees if north else -min(degrees, 45.0)
    longitude = float(rng.uniform(-120.0, 150.0))
    season = chance(seed, index, _SEASON)
    day = _FIRST_DAY + int(season.integers(_DAYS))
    shell, lamps = _shell(chance(seed, index, _SHELL), abs(latitude)), _lamps(chance(seed, index, _LAMPS))
    zone_count = 1 + int(rng.choice(MOST_ZONES, p=_ZONES))
    one_crop = bool(rng.random() < 0.6)
    zones = tuple(_zone(seed, index, z, shell, lamps, one_crop) for z in range(zone_count))
    return SiteDraw(
        seed=seed, index=index, latitude=latitude, longitude=longitude,
        utc_offset_h=int(np.clip(round(longitude / 15.0) + int(rng.integers(0, 2)), -11, 11)),
        start_ms=day * DAY_MS, climate=_climate(rng, latitude), zones=zones,
        sensors=_sensors(chance(seed, index, _SENSORS), zones[0].config), plans=_plans(chance(seed, index, _PLANS)),
    )  # fmt: skip


def _climate(rng: np.random.Generator, latitude: float) -> Climate:
    degrees, inland = abs(latitude), float(rng.uniform(0.0, 1.0))
    return Climate(
        mean_c=27.0 - 0.45 * max(degrees - 15.0, 0.0) + float(rng.normal(0.0, 2.5)),
        season_c=max(0.07 * degrees + 6.0 * inland * degrees / 50.0 + float(rng.normal(0.0, 0.8)), 0.3),
        coldest_day=(25 if latitude > 0 else 207) + int(rng.integers(-8, 20)),
        air_mass_sd_c=(0.8 + 0.04 * degrees) * float(rng.uniform(0.7, 1.4)),
        hours_between_fronts=float(rng.uniform(30.0, 110.0)),
        wind_m_s=float(np.clip(rng.lognormal(np.log(3.4), 0.3), 1.2, 7.0)),
        co2_ppm=float(rng.uniform(412.0, 432.0)),
        dew_depression_c=float(np.clip(3.0 + 5.0 * inland + rng.normal(0.0, 1.0), 1.5, 12.0)),
        cloudiness=float(np.clip(rng.normal(0.3 + 0.01 * (degrees - 45.0) - 0.6 * inland, 0.5), -1.5, 1.2)),
    )


def _shell(rng: np.random.Generator, degrees: float) -> Shell:
    kind = rng.choice(3, p=[0.6, 0.2, 0.2])  # single glass, double, plastic
    insulation = (0.0, float(rng.uniform(0.06, 0.2)), float(rng.uniform(0.0, 0.12)))[kind]
    light = (rng.uniform(0.78, 0.9), rng.uniform(0.68, 0.84), rng.uniform(0.6, 0.82))[kind]
    leakage = float(1e-4 * np.clip(rng.lognormal(0.0 if kind < 2 else 0.4, 0.5), 0.3, 5.0))
    below = float(rng.uniform(2.6, 6.0))
    draw = rng.random()
    heating = 0.0 if draw < 0.08 else rng.uniform(20.0, 60.0) if draw < 0.2 else rng.uniform(70.0, 190.0)
    dosing = 1e-6 if rng.random() < 0.35 else float(rng.uniform(0.3, 4.0))
    return Shell(
        cover_per_floor=float(rng.uniform(1.1, 1.5)), insulation_m2_k_w=insulation, cover_transmission=float(light),
        leakage=leakage, roof_vent_per_floor=float(rng.uniform(0.03, 0.2)), height_m=below + float(rng.uniform(0.3, 1)),
        below_screens_m=below, heating_w_m2=float(heating) if degrees > 12.0 else float(heating) * 0.5,
        co2_capacity_mg_m2_s=dosing, has_black_screen=float(rng.random() < 0.3),
    )  # fmt: skip


def _lamps(rng: np.random.Generator) -> Lamps:
    kind = rng.choice(3, p=[0.45, 0.3, 0.25])
    return (
        NO_LAMPS,
        replace(HPS, power_w_m2=float(rng.uniform(40.0, 130.0))),
        replace(LED, power_w_m2=float(rng.uniform(30.0, 130.0)), cooled_share=float(rng.choice([0.0, 0.63]))),
    )[kind]


def _zone(seed: int, index: int, number: int, shell: Shell, lamps: Lamps, one_crop: bool) -> ZoneDraw:
    rng = chance(seed, index, _ZONE, number)
    kind = chance(seed, index, _ZONE, MOST_ZONES) if one_crop else rng
    lit, has_energy = lamps.power_w_m2 > 0, bool(chance(seed, index, _SHELL, 1).random() < 0.7)
    leaf_area = float(np.clip(kind.uniform(0.4, 3.6) * rng.lognormal(0.0, 0.15), 0.25, 4.0))
    crop = Crop(
        leaf_area_index=leaf_area, min_stomatal_resistance_s_m=float(kind.uniform(60.0, 170.0)),
        electron_transport_umol=float(kind.uniform(130.0, 250.0)),
        respiration_mg_m2_s=float(np.clip(kind.lognormal(np.log(0.03), 0.6), 0.008, 0.12)),
    )  # fmt: skip
    day = float(kind.uniform(11.0, 24.0))
    recipe = Recipe(
        heat_day_c=day + float(rng.normal(0.0, 0.7)),
        heat_night_c=max(day - float(kind.gamma(2.0, 1.6)), 5.0) + float(rng.normal(0.0, 0.7)),
        vent_above_heat_c=float(kind.uniform(0.8, 5.0)), light_raise_c=float(kind.uniform(0.0, 4.0)),
        light_follow_c=float(kind.uniform(0.0, 3.0)), rh_max_pct=float(kind.uniform(74.0, 95.0)),
        vent_min_pct=float(kind.choice([0.0, 0.0, kind.uniform(1.0, 12.0)])),
        co2_day_ppm=float(kind.uniform(420.0, 1150.0)),
        pipe_min_c=float(kind.choice([0.0, kind.uniform(10.0, 30.0), kind.uniform(25.0, 50.0)])),
        day_from_h=float(kind.uniform(0.5, 8.0) if lit else kind.uniform(4.0, 8.5)) + float(rng.normal(0.0, 0.3)),
        day_to_h=float(kind.uniform(15.5, 21.5)) + float(rng.normal(0.0, 0.3)),
        lamps_off_above_w_m2=float(kind.uniform(80.0, 450.0)) if lit else -1.0,
        screen_below_c=float(kind.uniform(2.0, 18.0)) if has_energy else _NEVER_C,
        screen_below_w_m2=float(kind.uniform(5.0, 120.0)),
    )  # fmt: skip
    control = Control(
        pipe_max_c=float(kind.uniform(45.0, 85.0)), pipe_per_k=float(rng.uniform(4.0, 16.0)),
        pipe_per_loss=float(rng.uniform(0.3, 1.3)), valve_w_m2_k=float(rng.uniform(15.0, 60.0)),
        vent_band_c=float(rng.uniform(2.0, 9.0)), vent_band_rh=float(rng.uniform(20.0, 100.0)),
        humid_vent_max=float(rng.uniform(0.03, 0.3)), vent_stroke_a_min=float(rng.uniform(0.05, 0.35)),
        screen_stroke_a_min=float(rng.uniform(0.08, 0.4)), co2_band_ppm=float(rng.uniform(60.0, 300.0)),
        storm_m_s=float(rng.uniform(11.0, 18.0)),
    )  # fmt: skip
    leak = shell.leakage * float(rng.lognormal(0.0, 0.15))
    config = ZoneConfig(
        name=f"zone-{number + 1}", crop=crop, lamps=lamps, shell=replace(shell, leakage=leak), recipe=recipe,
        control=control,
    )  # fmt: skip
    return ZoneDraw(
        config=config, recipe_edits_a_day=float(rng.uniform(0.2, 2.0)),
        setpoint_edits_a_day=float(np.clip(rng.lognormal(np.log(0.7), 0.6), 0.1, 3.0)),
        edit_size=float(rng.lognormal(0.0, 0.3)),
    )  # fmt: skip


def _sensors(rng: np.random.Generator, zone: ZoneConfig) -> SensorHabit:
    absent = {name for name, share in (_ABSENT_CLIMATE | _ABSENT_WEATHER).items() if rng.random() < share}
    missing = {name for name, share in _ABSENT_SETPOINTS.items() if rng.random() < share}
    absent |= set(_ABSENT_SETPOINTS) if rng.random() < _NO_SETPOINTS else missing
    # A site says its humidity setpoint as humidity or as humidity deficit.
    absent.add("sp_rh_pct" if rng.random() < 0.3 else "sp_hd_g_m3")
    if zone.shell.heating_w_m2 == 0.0:
        absent |= {"heat_pipe_low_c", "sp_pipe_min_c"}
    if zone.lamps.power_w_m2 == 0.0:
        absent |= {"lamp_pct", "sp_lamp_pct"}
    if zone.recipe.screen_below_c == _NEVER_C:
        absent |= {"screen_energy_pct", "sp_screen_energy_pct"}
    if zone.shell.has_black_screen == 0.0:
        absent |= {"screen_black_pct", "sp_screen_black_pct"}
    if zone.shell.co2_capacity_mg_m2_s < 0.01:
        absent |= {"co2_dosing_pct", "sp_co2_ppm"}
    return SensorHabit(
        offset=float(rng.lognormal(0.4, 0.6)), noise=float(rng.lognormal(0.0, 0.6)),
        drift=float(rng.lognormal(-0.5, 0.7)), gaps_a_week=float(rng.gamma(1.0, 0.8)), absent=frozenset(absent),
    )  # fmt: skip


def _plans(rng: np.random.Generator) -> PlanHabit:
    return PlanHabit(
        forecasts=bool(rng.random() < 0.85), forecast_error=float(np.clip(rng.lognormal(-0.1, 0.35), 0.3, 2.0)),
        outages=float(rng.choice([0.0, rng.uniform(0.0, 0.15)])),
        setpoints=str(rng.choice(["grower", "repeated", "none"], p=[0.65, 0.12, 0.23])),
        issue_hour=int(rng.choice([0, 0, 6, 12, 18])), known=float(rng.uniform(0.5, 1.0)),
        broken=float(rng.choice([0.0, rng.uniform(0.0, 0.2)])),
    )  # fmt: skip
