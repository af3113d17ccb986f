"""What the sensors of a simulated site make of its true climate, as rows: with offset, noise, drift and gaps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.recordings.sample_source import CLIMATE, device_of
from edge.simulator.fleet.draws import SensorHabit, SiteDraw, chance
from edge.simulator.greenhouse import ZONE_METRICS
from edge.simulator.simulated_site import STATION_SENSORS, WEATHER_METRICS, ZONE_SENSORS, Sensor
from edge.wire.vocabulary import VOCABULARY
from models.psychrometrics import absolute_humidity_g_m3

__all__ = ["FLEET_METRICS", "humidity_deficit_g_m3", "sense_station", "sense_zone"]

_Array = NDArray[np.float32]

FLEET_METRICS = (*ZONE_METRICS, "hd_g_m3", "sp_hd_g_m3")
"""The columns of a zone's rows; the last two follow from the others."""

_PART = 40
_DRIFT_KEEPS = np.exp(-1.0 / 6.0)  # a day, of the drift
_GAP_MIN = (5.0, 600.0)
_LOST = 0.001  # of the rows, one at a time


def humidity_deficit_g_m3(temp_c: _Array, rh_pct: _Array) -> _Array:
    """How much vapour air lacks to saturation; never negative."""
    lack = absolute_humidity_g_m3(temp_c, 100.0) - absolute_humidity_g_m3(temp_c, rh_pct)
    return np.asarray(np.maximum(lack, 0.0), np.float32)


def sense_zone(site: SiteDraw, zone: int, true: _Array, minutes_a_row: int) -> _Array:
    """A zone's rows (rows, FLEET_METRICS) from the means of its true climate (rows, ZONE_METRICS)."""
    rng = chance(site.seed, site.index, _PART, zone)
    seen = np.empty((len(true), len(FLEET_METRICS)), np.float32)
    seen[:, : len(ZONE_METRICS)] = _seen(rng, ZONE_SENSORS, ZONE_METRICS, site.sensors, true, minutes_a_row)
    columns = {name: place for place, name in enumerate(FLEET_METRICS)}
    for metric, temp, rh in (("hd_g_m3", "air_temp_c", "rh_pct"), ("sp_hd_g_m3", "sp_heat_c", "sp_rh_pct")):
        seen[:, columns[metric]] = humidity_deficit_g_m3(seen[:, columns[temp]], seen[:, columns[rh]])
    climate = np.array([not name.startswith("sp_") and device_of(name) == CLIMATE for name in FLEET_METRICS])
    for device in (climate, ~climate):  # a device falls silent as a whole
        seen[np.ix_(_silent(rng, site.sensors, len(true), minutes_a_row), device)] = np.nan
    _take_out(seen, FLEET_METRICS, site.sensors)
    return seen


def sense_station(site: SiteDraw, true: _Array, minutes_a_row: int) -> _Array:
    """The station's rows (rows, WEATHER_METRICS) from the true weather's."""
    rng = chance(site.seed, site.index, _PART)
    seen = _seen(rng, STATION_SENSORS, WEATHER_METRICS, site.sensors, true, minutes_a_row)
    seen[:, WEATHER_METRICS.index("wind_dir_deg")] %= 360.0
    seen[_silent(rng, site.sensors, len(true), minutes_a_row)] = np.nan
    _take_out(seen, WEATHER_METRICS, site.sensors)
    return seen


def _seen(
    rng: np.random.Generator, sensors: Sequence[Sensor], metrics: Sequence[str], habit: SensorHabit, true: _Array,
    minutes_a_row: int,
) -> _Array:  # fmt: skip
    """A row is the mean of a reading a minute, so its noise is smaller."""
    offset = np.array([sensor.offset for sensor in sensors]) * habit.offset
    noise = np.array([sensor.noise for sensor in sensors], np.float32) * np.float32(habit.noise / minutes_a_row**0.5)
    days = len(true) * minutes_a_row // 1440 + 2
    kicks = rng.standard_normal((days, len(sensors)))
    for day in range(1, days):
        kicks[day] = _DRIFT_KEEPS * kicks[day - 1] + np.sqrt(1.0 - _DRIFT_KEEPS**2) * kicks[day]
    place = np.arange(len(true)) * (minutes_a_row / 1440.0)
    before = place.astype(np.int64)
    share = (place - before)[:, None]
    drift = (1.0 - share) * kicks[before] + share * kicks[before + 1]
    off = offset * (rng.standard_normal(len(sensors)) + habit.drift * drift)
    seen = true + off.astype(np.float32) + noise * rng.standard_normal(true.shape, dtype=np.float32)
    low, high = np.array([_limits(*one) for one in zip(sensors, metrics, strict=True)], np.float32).T
    return np.asarray(np.clip(seen, low, high))


def _limits(sensor: Sensor, name: str) -> tuple[float, float]:
    metric = VOCABULARY[name]
    if metric.kind == "angle":
        return -np.inf, np.inf
    return max(sensor.low, metric.low), min(sensor.high, metric.high)


def _silent(rng: np.random.Generator, habit: SensorHabit, rows: int, minutes_a_row: int) -> NDArray[np.bool_]:
    silent = rng.random(rows) < _LOST
    for _ in range(int(rng.poisson(habit.gaps_a_week * rows * minutes_a_row / 10_080.0))):
        begin = int(rng.integers(rows))
        silent[begin : begin + int(np.exp(rng.uniform(*np.log(_GAP_MIN)))) // minutes_a_row + 1] = True
    return silent


def _take_out(seen: _Array, metrics: Sequence[str], habit: SensorHabit) -> None:
    for place, name in enumerate(metrics):
        if name in habit.absent:
            seen[:, place] = np.nan
