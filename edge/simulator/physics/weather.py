"""The weather outside a simulated greenhouse: fronts, clouds and memory from day to day.

Air masses change when a front passes; between fronts cloud, wind, humidity and temperature drift with memories of
minutes to days. Radiation follows cloud, and the daily course of temperature follows radiation, so a clear day is
warm by day and cold by night, as outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from edge.simulator.physics.fronts import FrontTrack
from edge.simulator.physics.sun import MINUTES_A_DAY, clear_sky_w_m2, sine_of_elevation
from models.psychrometrics import saturation_vapour_pressure_pa

__all__ = ["Climate", "Outside", "SteadyWeather", "SyntheticWeather", "Weather", "net_longwave_w_m2"]

_SIGMA = 5.67e-8
_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_SPIN_UP_DAYS = 3
_KEEP_DAYS = 3


class Outside(NamedTuple):
    """The weather at one minute; ``sky_temp_c`` is the temperature of a black sky with the same longwave."""

    temp_c: float
    vapour_pa: float
    radiation_w_m2: float
    sky_temp_c: float
    wind_m_s: float
    wind_dir_deg: float
    rain: float
    co2_ppm: float
    deep_soil_c: float


class Weather(Protocol):
    """Anything that knows the weather at a minute."""

    def at(self, ts_ms: int) -> Outside:
        """The weather at ``ts_ms`` (Unix ms, UTC)."""
        ...


@dataclass(frozen=True, slots=True)
class SteadyWeather:
    """Constant weather, for experiments."""

    outside: Outside

    def at(self, ts_ms: int) -> Outside:
        """The one weather there is."""
        return self.outside


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


# Memory (minutes) of each drifting process, all of unit variance.
_MEMORY_MIN = {
    "cloud": 16 * 60, "flicker": 9, "shower": 45, "wind": 12 * 60, "gust": 3, "direction": 8 * 60,
    "dew": 28 * 60, "temp": 60 * 60, "co2": 12 * 60,
}  # fmt: skip
_DECAY = np.exp(-1.0 / np.array(list(_MEMORY_MIN.values()), dtype=float))
_KICK = np.sqrt(1.0 - _DECAY**2)


class SyntheticWeather:
    """Random weather of a place, one minute at a time; the same seed and start always give the same weather.

    It only runs forward: :meth:`at` answers from ``start_ms`` on and keeps the last three days it has made. Raises
    ``ValueError`` for an earlier minute.
    """

    def __init__(
        self, seed: int, start_ms: int, latitude: float, longitude: float, climate: Climate | None = None
    ) -> None:
        self._seed = seed
        self._place = (latitude, longitude)
        self._climate = climate or Climate()
        self._next_day = start_ms // _DAY_MS - _SPIN_UP_DAYS
        self._days: dict[int, list[Outside]] = {}
        rng = np.random.default_rng([seed, 0])
        self._drift = rng.standard_normal(len(_MEMORY_MIN))
        self._surface_c = 0.0
        track_start = self._next_day * _DAY_MS
        self._fronts = FrontTrack(seed, track_start, self._climate.hours_between_fronts, self._climate.air_mass_sd_c)

    def at(self, ts_ms: int) -> Outside:
        """The weather at the minute that holds ``ts_ms``."""
        day, rest = divmod(ts_ms, _DAY_MS)
        while self._next_day <= day:
            self._days[self._next_day] = self._make_day(self._next_day)
            self._days.pop(self._next_day - _KEEP_DAYS, None)
            self._next_day += 1
        if day not in self._days:
            raise ValueError(f"the weather at {ts_ms} is past; it only runs forward")
        return self._days[day][rest // _MINUTE_MS]

    def _make_day(self, day: int) -> list[Outside]:
        climate = self._climate
        x = dict(zip(_MEMORY_MIN, self._drift_day(day).T, strict=True))
        minutes = day * _DAY_MS + np.arange(MINUTES_A_DAY) * _MINUTE_MS
        front = self._fronts.over(minutes)
        sine = sine_of_elevation(day, *self._place)
        year_phase = 2 * np.pi * ((day + 0.5) % 365.2425 - climate.coldest_day) / 365.2425

        cloud = 1 / (1 + np.exp(-(1.8 * x["cloud"] + 0.5 + 2.6 * front.near)))
        clear = clear_sky_w_m2(sine)
        flicker = np.exp(0.5 * 4 * cloud * (1 - cloud) * np.minimum(x["flicker"], 1.2))
        # Kasten and Czeplak 1980: global radiation under cloud; broken cloud adds minutes of sun and shade.
        radiation = np.minimum(clear * (1 - 0.75 * cloud**3.4) * flicker, 1.08 * clear)
        breeze = np.exp(0.42 * x["wind"] + 0.1 * x["gust"] + 0.45 * front.near) * (0.85 + 0.4 * np.maximum(sine, 0))
        wind = climate.wind_m_s * breeze
        air_mass = climate.mean_c - climate.season_c * np.cos(year_phase) + front.air_mass_c + 0.8 * x["temp"]
        dew_point = air_mass - 3.6 + 2.2 * x["dew"] + 1.2 * front.near
        vapour = saturation_vapour_pressure_pa(dew_point)
        temp = air_mass + self._surface_day(radiation, net_longwave_w_m2(air_mass, vapour, cloud), wind)
        vapour = np.minimum(vapour, 0.995 * saturation_vapour_pressure_pa(temp))
        sky = temp + _sky_depression(temp, vapour, cloud)
        direction = np.mod(front.direction_deg + 25 * x["direction"] + 6 * x["gust"], 360.0)
        rain = (cloud > 0.75) & (0.9 * x["shower"] + 2.4 * front.near > 1.3)
        # A calm night keeps what soil and crops breathe out near the ground.
        co2 = climate.co2_ppm + 5 * x["co2"] + 45 * np.clip(0.1 - sine, 0, 0.4) * np.exp(-wind / 2.5)
        soil = np.full(MINUTES_A_DAY, climate.mean_c - 0.4 * climate.season_c * np.cos(year_phase - 0.8))
        columns = (temp, vapour, radiation, sky, wind, direction, rain.astype(float), co2, soil)
        return [Outside(*row) for row in np.column_stack(columns).tolist()]

    def _drift_day(self, day: int) -> NDArray[np.float64]:
        """The drifting processes, shape (minutes, processes): each an Ornstein-Uhlenbeck process."""
        kicks = _KICK * np.random.default_rng([self._seed, 1, day + 100_000]).standard_normal(
            (MINUTES_A_DAY, _KICK.size)
        )
        state = self._drift
        for minute in range(MINUTES_A_DAY):
            state = _DECAY * state + kicks[minute]
            kicks[minute] = state
        self._drift = state
        return kicks

    def _surface_day(
        self, radiation: NDArray[np.float64], longwave: NDArray[np.float64], wind: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """How far the air near the ground departs from its air mass: sun warms it, the sky cools it, wind mixes it."""
        push = (6.0e-3 * radiation + 9.0e-3 * longwave) / 60.0  # K a minute
        hold = np.exp(-(0.4 + wind / 5.0) / (5.0 * 60.0))
        departure = np.empty(MINUTES_A_DAY)
        state = self._surface_c
        for minute, (keep, gain) in enumerate(zip(hold.tolist(), push.tolist(), strict=True)):
            state = keep * state + gain
            departure[minute] = state
        self._surface_c = state
        return departure


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
