"""The weather of many simulated sites, a day of all of them at a time."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from edge.simulator.fleet.draws import SiteDraw
from edge.simulator.physics.fronts import FrontTrack, FrontWeather
from edge.simulator.physics.sun import MINUTES_A_DAY, clear_sky_w_m2, sines_of_elevation
from edge.simulator.physics.weather import PROCESSES, Climate, drift_over, kicks_of, weather_day
from models.durations import DAY_MS, MINUTE_MS

__all__ = ["CLEAR_SKY", "SiteWeathers"]

_Array = NDArray[np.float64]

CLEAR_SKY = 9
"""The column, behind the fields of :class:`Outside`, of what the radiation would be without clouds."""


class SiteWeathers:
    """Days of the weather of ``sites``, each counted from its own start; they are made once, in their order."""

    def __init__(self, sites: Sequence[SiteDraw], first_day: int) -> None:
        climates = [site.climate for site in sites]
        self._climate = SimpleNamespace(
            **{name: np.array([getattr(one, name) for one in climates], float) for name in Climate.__dataclass_fields__}
        )
        self._starts = np.array([site.start_ms // DAY_MS for site in sites])
        self._latitudes = np.array([site.latitude for site in sites])
        self._longitudes = np.array([site.longitude for site in sites])
        self._seeds = [_seed(site) for site in sites]
        first = [np.random.default_rng([seed, 0]).standard_normal(PROCESSES) for seed in self._seeds]
        self._drift = np.array(first)
        self._surface_c = np.zeros(len(sites))
        self._fronts = [
            FrontTrack(seed, int(start + first_day) * DAY_MS, one.hours_between_fronts, one.air_mass_sd_c)
            for seed, start, one in zip(self._seeds, self._starts, climates, strict=True)
        ]
        self._next = first_day

    def next_day(self) -> _Array:
        """The next day's minutes: shape (minutes, ``CLEAR_SKY`` + 1 columns, sites)."""
        days = self._starts + self._next
        self._next += 1
        kicks = np.stack([kicks_of(seed, int(day)) for seed, day in zip(self._seeds, days, strict=True)], axis=1)
        self._drift = drift_over(kicks, self._drift)
        minutes = np.arange(MINUTES_A_DAY, dtype=np.int64) * MINUTE_MS
        fronts = [track.over(int(day) * DAY_MS + minutes) for track, day in zip(self._fronts, days, strict=True)]
        front = FrontWeather(
            np.stack([one.near for one in fronts], axis=1), np.stack([one.air_mass_c for one in fronts], axis=1),
            np.stack([one.direction_deg for one in fronts], axis=1),
        )  # fmt: skip
        sine = sines_of_elevation(days, self._latitudes, self._longitudes)
        columns, self._surface_c = weather_day(self._climate, days, kicks, front, sine, self._surface_c)
        return np.stack([*columns, clear_sky_w_m2(sine)], axis=1)


def _seed(site: SiteDraw) -> int:
    return int(np.random.default_rng([site.seed, 12, site.index]).integers(2**62))
