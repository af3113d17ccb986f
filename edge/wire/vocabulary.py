"""Steps 1 and 2 of the way of a reading: the metric vocabulary, with units and plausible ranges."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "FAHRENHEIT_ABOVE",
    "SHARES",
    "SHARE_LEAST",
    "SHARE_MOST",
    "TEMPERATURES",
    "VOCABULARY",
    "Metric",
    "base_metric",
    "is_weather",
]

Kind = Literal["gauge", "angle", "state", "counter"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One entry of the vocabulary; ``label`` is what people call it.

    ``low`` and ``high`` bound what is plausible, in ``unit``; a value above ``high`` but at most ``clip_from`` is
    clipped to ``high`` (a humidity sensor that reads 101 %). ``hold_s`` says how long a value that is sent on
    change stays valid; ``None`` means that it is only valid in its own step.
    """

    name: str
    label: str
    unit: str
    low: float
    high: float
    kind: Kind = "gauge"
    hold_s: int | None = None
    clip_from: float | None = None


def _vocabulary() -> dict[str, Metric]:
    hour = 3600
    rows = [
        # inside climate
        Metric("air_temp_c", "air temperature", "°C", -20, 60),
        Metric("rh_pct", "relative humidity", "%", 0, 100, clip_from=102),
        Metric("hd_g_m3", "humidity deficit", "g/m³", 0, 100),
        Metric("co2_ppm", "CO₂", "ppm", 150, 5000),
        Metric("par_umol_m2_s", "PAR light", "µmol/m²/s", 0, 3000),
        Metric("leaf_temp_c", "leaf temperature", "°C", -20, 60),
        Metric("soil_vwc_pct", "soil water", "%", 0, 100),
        Metric("soil_temp_c", "soil temperature", "°C", -20, 60),
        Metric("soil_ec_us_cm", "soil EC", "µS/cm", 0, 20000),
        # actuators
        *(
            Metric(name, label, "%", 0, 100, hold_s=hour, clip_from=102)
            for name, label in (
                ("vent_lee_pct", "leeward vents"), ("vent_wind_pct", "windward vents"), ("lamp_pct", "lamps"),
                ("screen_energy_pct", "energy screen"), ("screen_black_pct", "blackout screen"),
                ("co2_dosing_pct", "CO₂ dosing"), ("fog_pct", "fogging"), ("fan_pct", "fans"),
            )
        ),
        Metric("heat_pipe_low_c", "lower heating pipe", "°C", -5, 110, hold_s=hour),
        Metric("heat_pipe_grow_c", "grow pipe", "°C", -5, 110, hold_s=hour),
        # setpoints
        Metric("sp_heat_c", "heating setpoint", "°C", -20, 60, hold_s=24 * hour),
        Metric("sp_vent_c", "venting setpoint", "°C", -20, 60, hold_s=24 * hour),
        Metric("sp_rh_pct", "humidity setpoint", "%", 0, 100, hold_s=24 * hour, clip_from=102),
        Metric("sp_hd_g_m3", "humidity deficit setpoint", "g/m³", 0, 100, hold_s=24 * hour),
        Metric("sp_co2_ppm", "CO₂ setpoint", "ppm", 0, 5000, hold_s=24 * hour),
        Metric("sp_pipe_min_c", "minimum pipe setpoint", "°C", -5, 110, hold_s=24 * hour),
        Metric("sp_screen_energy_pct", "energy screen setpoint", "%", 0, 100, hold_s=24 * hour, clip_from=102),
        Metric("sp_screen_black_pct", "blackout screen setpoint", "%", 0, 100, hold_s=24 * hour, clip_from=102),
        Metric("sp_lamp_pct", "lamp setpoint", "%", 0, 100, hold_s=24 * hour, clip_from=102),
        # outside
        Metric("out_temp_c", "outside temperature", "°C", -50, 60),
        Metric("out_rh_pct", "outside humidity", "%", 0, 100, clip_from=102),
        Metric("out_radiation_w_m2", "solar radiation", "W/m²", -10, 1500),
        Metric("out_longwave_net_w_m2", "net longwave radiation", "W/m²", -300, 200),
        Metric("wind_m_s", "wind speed", "m/s", 0, 60),
        Metric("wind_dir_deg", "wind direction", "°", 0, 360, kind="angle"),
        Metric("rain", "rain", "0/1", 0, 1, kind="state", hold_s=hour),
        Metric("out_rad_sum_j_cm2", "radiation sum today", "J/cm²", 0, 5000),
        Metric("irrigation_l_m2", "irrigation", "l/m²", 0, 1e6, kind="counter"),
    ]  # fmt: skip
    return {metric.name: metric for metric in rows}


VOCABULARY: Mapping[str, Metric] = _vocabulary()
"""The one table of metrics; a site's configuration adds to it."""


SHARES = ("rh_pct", "out_rh_pct", "sp_rh_pct", "soil_vwc_pct")
"""Percents that are never at 1.5 or below for long; vents, lamps and screens are, by right."""

SHARE_MOST, SHARE_LEAST = 1.5, 0.05
"""A share is never more; what is never more than 5 % of 1 is a broken sensor or one that hangs in the air."""

TEMPERATURES = ("air_temp_c", "leaf_temp_c", "soil_temp_c", "out_temp_c")
"""Those that are never above 45 °C for long; heating pipes are."""

FAHRENHEIT_ABOVE = 45.0

_WEATHER = ("out_", "wind_", "rain")

_SECOND = re.compile(r"\.[0-9]{1,2}\Z")
_LONGEST_METRIC = 64  # longer names, which a message may hold, are not kept


def base_metric(name: str) -> str:
    """The vocabulary's name of a metric that may carry a second sensor's suffix.

    >>> base_metric("air_temp_c.2"), base_metric("rh_pct")
    ('air_temp_c', 'rh_pct')
    """
    return _base_metric(name) if len(name) <= _LONGEST_METRIC else _SECOND.sub("", name)


def is_weather(metric: str) -> bool:
    """Whether a metric is measured outside, and so is the site's, not a zone's. ``models.features.weather_metrics``,
    which is not imported here, says the same.

    >>> [name for name in ("air_temp_c", "out_temp_c.2", "wind_dir_deg", "rain") if is_weather(name)]
    ['out_temp_c.2', 'wind_dir_deg', 'rain']
    """
    return metric.startswith(_WEATHER)


@functools.lru_cache(4096)
def _base_metric(name: str) -> str:
    return _SECOND.sub("", name)
