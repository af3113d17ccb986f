"""Pairs of runs of the same houses: as they were, and with changes of setpoints or weather that are drawn by chance.

The changes begin at any time after an origin, have any length, and have nothing to do with the hour. So what follows
from them is what they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge.simulator.fleet.draws import SiteDraw, ZoneDraw, chance
from edge.simulator.fleet.edits import FIELDS, How, SetpointEdit, actuator_size, has_setpoint
from edge.simulator.fleet.fleet_recording import FleetRecording
from edge.simulator.fleet.simulation import simulate_fleet
from edge.simulator.fleet.weather_changes import WEATHER_CHANGED, WeatherChange

__all__ = ["Pair", "draw_changes", "draw_weather_change", "simulate_pairs"]

_PART = 60
_DAY_MIN = 1440
_STEP_MIN = 5
_WEIGHTS = {
    "sp_heat_c": 0.34, "sp_vent_c": 0.12, "sp_rh_pct": 0.08, "sp_co2_ppm": 0.09, "vent_min_pct": 0.13,
    "sp_pipe_min_c": 0.08, "sp_lamp_pct": 0.07, "sp_screen_energy_pct": 0.07, "sp_screen_black_pct": 0.02,
}  # fmt: skip
_WEATHER, _ONLY_WEATHER = 0.3, 0.6  # of the copies of a site; of its zones then
_TWO = 0.2  # of the zones with a change
_VENTS_FOLLOW = 0.4  # of the changes of the heating setpoint
_AT_ONCE = 0.25  # begin at the origin
_SHORTEST_MIN, _LONGEST_MIN, _LATEST_MIN = 30.0, 1440.0, 1260.0

Change = SetpointEdit | WeatherChange


@dataclass(frozen=True, slots=True)
class Pair:
    """A zone as it was, and as changed: their numbers in the recording of both; times since the site's start."""

    as_was: int
    as_changed: int
    origin_min: int
    changes: tuple[Change, ...]


def simulate_pairs(
    sites: Sequence[SiteDraw], days: int, copies: int, earliest_day: int = 1
) -> tuple[FleetRecording, list[Pair]]:
    """``copies`` changed runs of each site beside the one as it was, over ``days``.

    Changes begin in the day after an origin, which lies anywhere between ``earliest_day`` and a day before the end.
    """
    rngs = [chance(site.seed, site.index, _PART) for site in sites]
    last = (days - 1) * _DAY_MIN
    origins = [int(rng.integers(earliest_day * _DAY_MIN, last + 1)) // _STEP_MIN * _STEP_MIN for rng in rngs]
    changes: dict[tuple[int, int], Sequence[SetpointEdit]] = {}
    weather: dict[int, Sequence[WeatherChange]] = {}
    drawn: list[tuple[int, int, tuple[Change, ...]]] = []  # place, zone, changes
    for s, (site, rng, origin) in enumerate(zip(sites, rngs, origins, strict=True)):
        for copy in range(1, copies + 1):
            place = copy * len(sites) + s
            outside = (draw_weather_change(rng, origin),) if rng.random() < _WEATHER else ()
            if outside:
                weather[place] = outside
            for z, zone in enumerate(site.zones):
                inside = () if outside and rng.random() < _ONLY_WEATHER else draw_changes(rng, zone, origin)
                changes[place, z] = inside
                drawn.append((place, z, (*inside, *outside)))
    recording = simulate_fleet(
        [*sites] * (copies + 1), days, 60 * _STEP_MIN, changes=changes, weather_changes=weather
    )  # fmt: skip
    first = np.concatenate([[0], np.cumsum([len(site.zones) for site in [*sites] * (copies + 1)])])
    count = len(sites)
    return recording, [
        Pair(int(first[place % count] + z), int(first[place] + z), origins[place % count], made)
        for place, z, made in drawn
    ]


def draw_changes(rng: np.random.Generator, zone: ZoneDraw, origin_min: int) -> tuple[SetpointEdit, ...]:
    """One or two changes of a zone's setpoints in the day after an origin; heating and venting often go together."""
    names = [name for name in FIELDS if has_setpoint(zone.config, name)]
    weights = np.array([_WEIGHTS[name] for name in names])
    count = 1 + int(rng.random() < _TWO)
    chosen = rng.choice(len(names), size=count, replace=False, p=weights / weights.sum())
    made: list[SetpointEdit] = []
    for at in chosen.tolist():
        begin, end = _span(rng, origin_min)
        how, value = _size(rng, names[at], zone)
        made.append(SetpointEdit(names[at], begin, end, how, value))
        if names[at] == "sp_heat_c" and how == "add" and count == 1 and rng.random() < _VENTS_FOLLOW:
            made.append(SetpointEdit("sp_vent_c", begin, end, how, value))
    return tuple(made)


def draw_weather_change(rng: np.random.Generator, origin_min: int) -> WeatherChange:
    """A change of the weather in the day after an origin."""
    metric = str(rng.choice(WEATHER_CHANGED, p=[0.5, 0.3, 0.2]))
    begin, end = _span(rng, origin_min)
    most = {"out_temp_c": 8.0, "out_radiation_w_m2": 400.0, "wind_m_s": 6.0}[metric]
    size = most * float(rng.uniform(0.06, 1.0))
    return WeatherChange(metric, begin, end, float(np.round(float(rng.choice([-1.0, 1.0])) * size, 1)))


def _span(rng: np.random.Generator, origin_min: int) -> tuple[int, int]:
    begin = 0.0 if rng.random() < _AT_ONCE else float(rng.uniform(0.0, _LATEST_MIN))
    length = float(np.exp(rng.uniform(np.log(_SHORTEST_MIN), np.log(_LONGEST_MIN))))
    first = origin_min + round(begin / _STEP_MIN) * _STEP_MIN
    return first, first + max(round(length / _STEP_MIN), 1) * _STEP_MIN


def _size(rng: np.random.Generator, metric: str, zone: ZoneDraw) -> tuple[How, float]:
    recipe, sign, draw = zone.config.recipe, float(rng.choice([-1.0, 1.0])), float(rng.random())
    much = float(rng.gamma(2.0, 0.9))
    if metric in ("sp_heat_c", "sp_vent_c"):
        add = sign * round(min(0.3 + much, 6.0), 1)
        if draw < 0.7:
            return "add", add
        level = add + recipe.heat_night_c + float(rng.random()) * (recipe.heat_day_c - recipe.heat_night_c)
        level += recipe.vent_above_heat_c if metric == "sp_vent_c" else 0.0
        how: tuple[How, ...] = ("set", "least", "most")
        return how[min(int((draw - 0.7) / 0.1), 2)], round(level, 1)
    if metric == "sp_rh_pct":
        if draw < 0.6:
            return "add", sign * round(min(1.0 + 3.0 * much, 20.0), 1)
        return ("set" if draw < 0.8 else "most"), round(float(rng.uniform(60.0, 95.0)), 1)
    if metric == "sp_co2_ppm":
        if draw < 0.6:
            return "add", sign * round(50.0 + 120.0 * much)
        return ("set", 400.0) if draw < 0.8 else ("set", round(float(rng.uniform(400.0, 1200.0))))
    return actuator_size(rng, metric, draw)
