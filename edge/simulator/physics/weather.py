"""The weather outside a simulated greenhouse: fronts, clouds and memory from day to day.

Air masses change when a front passes; between fronts cloud, wind, humidity and temperature drift with memories of
minutes to days. Radiation follows cloud, and the daily course of temperature follows radiation, so a clear day is
warm by day and cold by night, as outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edge.simulator.physics.fronts import FrontTrack, FrontWeather
from edge.simulator.physics.sun import MINUTES_A_DAY, clear_sky_w_m2, sine_of_elevation
from models.durations import DAY_MS, MINUTE_MS
from models.psychrometrics import saturation_vapour_pressure_pa

__all__ = [
    "PROCESSES", "Climate", "Outside", "SyntheticWeather", "Weather", "drift_over", "kicks_of",
    "net_longwave_w_m2", "weather_day",
]  # fmt: skip

_Array = NDArray[np.float64]
_SIGMA = 5.67e-8
_SPIN_UP_DAYS = 3
_KEEP_DAYS = 3


class Outside(NamedTuple):
    """The weather at one minute; ``sky_temp_c`` is the temperature of a black sky with the same longwave.

    Each field is a number, or an array where several places are simulated together.
    """

    temp_c: Any
    vapour_pa: Any
    radiation_w_m2: Any
    sky_temp_c: Any
    wind_m_s: Any
    wind_dir_deg: Any
    rain: Any
    co2_ppm: Any
    deep_soil_c: Any


class Weather(Protocol):
    """Anything that knows the weather at a minute."""

    def at(self, ts_ms: int) -> Outside:
        """The weather at ``ts_ms`` (Unix ms, UTC)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Climate:
    """What a place's weather varies around; the defaults resemble the Dutch coast (KNMI normals 1991-2020)."""

    mean_c: float = 10.2
    season_c: float = 5.2
    coldest_day: int = 25
    air_mass_sd_c: float = 2.8
    hours_between_fronts: float = 46.0
    wind_m_s: float = 4.3
    co2_ppm: float = 424.0
    dew_depression_c: float = 3.6
    """How far the dew point is below the temperature of the air mass."""
    cloudiness: float = 0.5
    """From -1 (mostly clear) to 1 (mostly overcast)."""


# Memory (minutes) of each drifting process, all of unit variance.
_MEMORY_MIN = {
    "cloud": 16 * 60, "flicker": 9, "shower": 45, "wind": 12 * 60, "gust": 3, "direction": 8 * 60,
    "dew": 28 * 60, "temp": 60 * 60, "co2": 12 * 60,
}  # fmt: skip
PROCESSES = len(_MEMORY_MIN)
_DECAY = np.exp(-1.0 / np.array(list(_MEMORY_MIN.values()), dtype=float))
_KICK = np.sqrt(1.0 - _DECAY**2)


class SyntheticWeather:
    """Random weather of a place, one minute at a time; the same seed and start always give the same weather. Without a
    ``climate`` it is that of :class:`Climate`; south of the equator its winter is in July.

    It only runs forward: :meth:`at` answers from ``start_ms`` on and keeps the last three days it has made. Raises
    ``ValueError`` for an earlier minute.
    """

    def __init__(
        self, seed: int, start_ms: int, latitude: float, longitude: float, climate: Climate | None = None
    ) -> None:
        self._seed = seed
        self._place = (latitude, longitude)
        self._climate = climate or Climate(coldest_day=25 if latitude >= 0 else 207)
        self._next_day = start_ms // DAY_MS - _SPIN_UP_DAYS
        self._days: dict[int, list[Outside]] = {}
        rng = np.random.default_rng([seed, 0])
        self._drift = rng.standard_normal(PROCESSES)
        self._surface_c = 0.0
        track_start = self._next_day * DAY_MS
        self._fronts = FrontTrack(seed, track_start, self._climate.hours_between_fronts, self._climate.air_mass_sd_c)

    def at(self, ts_ms: int) -> Outside:
        """The weather at the minute that holds ``ts_ms``."""
        day, rest = divmod(ts_ms, DAY_MS)
        while self._next_day <= day:
            self._days[self._next_day] = self._make_day(self._next_day)
            self._days.pop(self._next_day - _KEEP_DAYS, None)
            self._next_day += 1
        if day not in self._days:
            raise ValueError(f"the weather at {ts_ms} is past; it only runs forward")
        return self._days[day][rest // MINUTE_MS]

    def _make_day(self, day: int) -> list[Outside]:
        minutes = day * DAY_MS + np.arange(MINUTES_A_DAY) * MINUTE_MS
        front, sine = self._fronts.over(minutes), sine_of_elevation(day, *self._place)
        drift = self._drift_day(day)
        columns, self._surface_c = weather_day(self._climate, day, drift, front, sine, self._surface_c)
        return [Outside(*row) for row in np.column_stack(columns).tolist()]

    def _drift_day(self, day: int) -> NDArray[np.float64]:
        kicks = kicks_of(self._seed, day)
        self._drift = drift_over(kicks, self._drift)
        return kicks


def kicks_of(seed: int, day: int) -> NDArray[np.float64]:
    """The chance of a day (since 1970): shape (minutes, processes)."""
    rng = np.random.default_rng([seed, 1, day + 100_000])
    return np.asarray(_KICK * rng.standard_normal((MINUTES_A_DAY, _KICK.size)))


def drift_over(kicks: NDArray[np.float64], state: NDArray[np.float64]) -> NDArray[np.float64]:
    """Makes of ``kicks`` (minutes, ..., processes) the drifting processes, in place: each an Ornstein-Uhlenbeck process
    that goes on from ``state`` (..., processes). Returns the last state.
    """
    for minute in range(MINUTES_A_DAY):
        state = _DECAY * state + kicks[minute]
        kicks[minute] = state
    return state


def weather_day(
    climate: Climate | SimpleNamespace, day: int | _Array, drift: _Array, front: FrontWeather, sine: _Array,
    surface_c: float | _Array,
) -> tuple[tuple[_Array, ...], Any]:  # fmt: skip
    """The weather of a day, minute by minute, in the order of :class:`Outside`; and the surface at its end.

    Of one place, all arrays of shape (minutes,) and ``drift`` (minutes, processes). Or of many: the climate's values
    and ``day`` (places,), the others (minutes, places), ``drift`` (minutes, places, processes).
    """
    x = dict(zip(_MEMORY_MIN, np.moveaxis(drift, -1, 0), strict=True))
    year_phase = 2 * np.pi * ((day + 0.5) % 365.2425 - climate.coldest_day) / 365.2425

    cloud = 1 / (1 + np.exp(-(1.8 * x["cloud"] + climate.cloudiness + 2.6 * front.near)))
    clear = clear_sky_w_m2(sine)
    flicker = np.exp(0.5 * 4 * cloud * (1 - cloud) * np.minimum(x["flicker"], 1.2))
    # Kasten and Czeplak 1980: global radiation under cloud; broken cloud adds minutes of sun and shade.
    radiation = np.minimum(clear * (1 - 0.75 * cloud**3.4) * flicker, 1.08 * clear)
    breeze = np.exp(0.42 * x["wind"] + 0.1 * x["gust"] + 0.45 * front.near) * (0.85 + 0.4 * np.maximum(sine, 0))
    wind = climate.wind_m_s * breeze
    air_mass = climate.mean_c - climate.season_c * np.cos(year_phase) + front.air_mass_c + 0.8 * x["temp"]
    dew_point = air_mass - climate.dew_depression_c + 2.2 * x["dew"] + 1.2 * front.near
    vapour = saturation_vapour_pressure_pa(dew_point)
    longwave = net_longwave_w_m2(air_mass, vapour, cloud)
    departure, surface_c = _surface_day(radiation, longwave, wind, surface_c)
    temp = air_mass + departure
    vapour = np.minimum(vapour, 0.995 * saturation_vapour_pressure_pa(temp))
    sky = temp + _sky_depression(temp, vapour, cloud)
    direction = np.mod(front.direction_deg + 25 * x["direction"] + 6 * x["gust"], 360.0)
    rain = (cloud > 0.75) & (0.9 * x["shower"] + 2.4 * front.near > 1.3)
    # A calm night keeps what soil and crops breathe out near the ground.
    co2 = climate.co2_ppm + 5 * x["co2"] + 45 * np.clip(0.1 - sine, 0, 0.4) * np.exp(-wind / 2.5)
    soil = np.zeros(radiation.shape) + (climate.mean_c - 0.4 * climate.season_c * np.cos(year_phase - 0.8))
    columns = (temp, vapour, radiation, sky, wind, direction, rain.astype(float), co2, soil)
    return columns, surface_c


def _surface_day(radiation: _Array, longwave: _Array, wind: _Array, state: float | _Array) -> tuple[_Array, Any]:
    """How far the air near the ground departs from its air mass: sun warms it, the sky cools it, wind mixes it."""
    push = (6.0e-3 * radiation + 9.0e-3 * longwave) / 60.0  # K a minute
    hold = np.exp(-(0.4 + wind / 5.0) / (5.0 * 60.0))
    departure = np.empty(radiation.shape)
    # Of one place in plain numbers, which are faster than arrays of one.
    rows = zip(hold.tolist(), push.tolist(), strict=True) if radiation.ndim == 1 else zip(hold, push, strict=True)
    for minute, (keep, gain) in enumerate(rows):
        state = keep * state + gain
        departure[minute] = state
    return departure, state


def _emissivity(
    temp_c: NDArray[np.float64], vapour_pa: NDArray[np.float64], cloud: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Emissivity of the sky: Brutsaert 1975 (Water Resour. Res. 11:742); cloud: Unsworth and Monteith 1975 (QJRMS
    101:13).
    """
    clear = 1.24 * (vapour_pa / 100.0 / (temp_c + 273.15)) ** (1 / 7)
    return np.minimum((1 - 0.84 * cloud) * clear + 0.84 * cloud, 1.0)


def _sky_depression(
    temp_c: NDArray[np.float64], vapour_pa: NDArray[np.float64], cloud: NDArray[np.float64]
) -> NDArray[np.float64]:
    return (temp_c + 273.15) * (_emissivity(temp_c, vapour_pa, cloud) ** 0.25 - 1.0)


def net_longwave_w_m2(
    temp_c: NDArray[np.float64], vapour_pa: NDArray[np.float64], cloud: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What a black surface at air temperature gains from the sky, W/m² (negative under a clear sky)."""
    return (_emissivity(temp_c, vapour_pa, cloud) - 1.0) * _SIGMA * (temp_c + 273.15) ** 4
