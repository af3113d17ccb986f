"""Other weather than a site had: the counterfactual of a colder night, a windy one, or a dull day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.simulator.fleet.weathers import CLEAR_SKY
from edge.simulator.physics.sun import MINUTES_A_DAY
from models.psychrometrics import saturation_vapour_pressure_pa

__all__ = ["WEATHER_CHANGED", "WeatherChange", "change_weather"]

_Array = NDArray[np.float64]

WEATHER_CHANGED = ("out_temp_c", "out_radiation_w_m2", "wind_m_s")
"""What may be changed of the weather."""

_TEMP, _VAPOUR, _RADIATION, _SKY, _WIND = range(5)
_BRIGHTEST = 1.1  # of a clear sky: clouds beside the sun add to it


@dataclass(frozen=True, slots=True)
class WeatherChange:
    """``value`` is added after ``begin_min`` until ``end_min``, minutes since the site's start.

    Colder air is as humid (in per cent) as the warmer was, under a sky as much colder. Radiation stays between none and
    a little more than that of a clear sky; wind stays above none.
    """

    metric: str
    begin_min: int
    end_min: int
    value: float

    def __post_init__(self) -> None:
        if self.metric not in WEATHER_CHANGED:
            raise ValueError(f"{self.metric!r} of the weather cannot be changed; one of {', '.join(WEATHER_CHANGED)}")
        if not self.begin_min < self.end_min:
            raise ValueError(f"the change of {self.metric} ends at minute {self.end_min}, before it has begun")


def change_weather(weather: _Array, day: int, changes: Mapping[int, Sequence[WeatherChange]]) -> _Array:
    """A day's minutes ``(minutes, columns, sites)`` of number ``day`` as changed; ``changes`` by the site's place."""
    if not changes:
        return weather
    changed = weather.copy()
    first = day * MINUTES_A_DAY
    for site, mine in changes.items():
        for change in mine:
            begin, end = max(change.begin_min + 1 - first, 0), min(change.end_min + 1 - first, MINUTES_A_DAY)
            if begin < end:
                _add(changed[begin:end, :, site], change)
    return changed


def _add(minutes: _Array, change: WeatherChange) -> None:
    if change.metric == "out_temp_c":
        before = minutes[:, _TEMP].copy()
        minutes[:, _TEMP] += change.value
        minutes[:, _SKY] += change.value
        minutes[:, _VAPOUR] *= saturation_vapour_pressure_pa(minutes[:, _TEMP]) / saturation_vapour_pressure_pa(before)
    elif change.metric == "out_radiation_w_m2":
        most = np.maximum(_BRIGHTEST * minutes[:, CLEAR_SKY], minutes[:, _RADIATION])
        minutes[:, _RADIATION] = np.clip(minutes[:, _RADIATION] + change.value, 0.0, most)
    else:
        minutes[:, _WIND] = np.maximum(minutes[:, _WIND] + change.value, 0.0)
