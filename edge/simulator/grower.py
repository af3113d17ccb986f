"""Setpoints of simulated zones: recipes that follow clock and light, and a grower who edits them now and then."""

from __future__ import annotations

import copy
import math
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge.simulator.zone_config import Recipe, ZoneConfig, as_arrays
from models.durations import DAY_MS, HOUR_MS

__all__ = ["EDITS", "Grower", "Setpoints", "aim"]

_Array = NDArray[np.float64]
_RAMP_H = 1.5

EDITS = {
    "heat_day_c": 1.2, "heat_night_c": 1.5, "vent_above_heat_c": 1.2, "rh_max_pct": 3.0, "co2_day_ppm": 180.0,
    "pipe_min_c": 6.0, "day_from_h": 1.0, "day_to_h": 1.0, "lamps_off_above_w_m2": 80.0, "screen_below_c": 3.0,
    "vent_min_pct": 4.0,
}  # fmt: skip
"""What a grower edits, and by how much (standard deviation)."""

_PLANNED = 0.8
"""Share of the edits that the grower knows at the midnight before."""

_EDITS_A_DAY = 1.5
_BRIEF = 0.7  # of the edits, undone after a day
_RETURN = 0.35  # a lasting edit also goes back this share of the way to the recipe
_FIRST_LIGHT_W_M2 = 80.0
_LAST_DAY_H, _USUAL_H = 18.0, 240.0  # memories of light


class _Edit(NamedTuple):
    """At a local time a value of a zone changes, and goes ``back`` this share of the way to the recipe."""

    local_ms: int
    zone: int
    field: str
    change: float
    back: float


@dataclass(frozen=True, slots=True)
class Setpoints:
    """What the climate control aims at now; each of shape (zones,), percentages 0...100."""

    heat_c: _Array
    vent_c: _Array
    rh_pct: _Array
    co2_ppm: _Array
    vent_min_pct: _Array
    pipe_min_c: _Array
    lamp_pct: _Array
    screen_energy_pct: _Array
    screen_black_pct: _Array


class Grower:
    """The setpoints of all zones, minute after minute; time only goes forward.

    Each zone's recipe is edited on most days, in working hours: one value changes, for a day or for good, so that a
    week is like the last one, but not the same. Temperature follows the light of the last day, as a crop with more
    sugar bears more warmth. Reproducible by ``seed`` and first day.
    """

    def __init__(self, zones: Sequence[ZoneConfig], start_ms: int, timezone: str, seed: int) -> None:
        self._zone_info = zoneinfo.ZoneInfo(timezone)
        self._seed = seed
        self._base = as_arrays([zone.recipe for zone in zones])
        self._now = as_arrays([zone.recipe for zone in zones])
        self._count = len(zones)
        self._black = np.array([zone.shell.has_black_screen for zone in zones])
        self._lamps_on = np.zeros(self._count, dtype=bool)
        self._offset = (-1, 0)
        self._day = self.local_ms(start_ms) // DAY_MS - 1
        self._due: list[_Edit] = []
        self._light_last = self._light_usual = _FIRST_LIGHT_W_M2
        self._light_ms = start_ms
        self._knows: Callable[[_Edit], bool] = lambda edit: True

    def local_ms(self, ts_ms: int) -> int:
        """The site's civil clock, in milliseconds of a day-aligned line; its offset is looked up each 15 minutes."""
        quarter = ts_ms // (HOUR_MS // 4)
        if quarter != self._offset[0]:
            offset = datetime.fromtimestamp(ts_ms / 1000, UTC).astimezone(self._zone_info).utcoffset()
            self._offset = (quarter, int(offset.total_seconds() * 1000) if offset else 0)
        return ts_ms + self._offset[1]

    def recipe(self, field: str) -> _Array:
        """A recipe value of all zones, as edited so far."""
        return np.asarray(getattr(self._now, field))

    def setpoints(self, ts_ms: int, radiation_w_m2: float, out_temp_c: float) -> Setpoints:
        """The setpoints at ``ts_ms``, which never goes back."""
        local = self.local_ms(ts_ms)
        self._edit_until(local)
        hour = (local % DAY_MS) / HOUR_MS
        bright = self._brightness(ts_ms, radiation_w_m2)
        wanted = aim(self._now, hour, bright, radiation_w_m2, out_temp_c, self._lamps_on, self._black)
        self._lamps_on = wanted.lamp_pct > 0.0
        return wanted

    def foresee(
        self, times_ms: Sequence[int], outside: Callable[[int], tuple[float, float]]
    ) -> list[Setpoints]:  # fmt: skip
        """The setpoints that the grower plans for coming times; ``outside`` gives radiation and temperature at one.

        Times rise. Edits that nobody has thought of yet are not in it. What :meth:`setpoints` gives stays the same.
        """
        other = copy.copy(self)
        other._now, other._knows = copy.copy(self._now), self._is_planned
        other._due = list(filter(self._is_planned, self._due))
        return [other.setpoints(ts_ms, *outside(ts_ms)) for ts_ms in times_ms]

    def _is_planned(self, edit: _Edit) -> bool:
        """Whether the grower plans an edit beforehand; the same for the edit and for its end a day later."""
        key = [self._seed, 7, edit.zone, edit.local_ms % DAY_MS, list(EDITS).index(edit.field)]
        return bool(np.random.default_rng(key).random() < _PLANNED)

    def _brightness(self, ts_ms: int, radiation_w_m2: float) -> float:
        """-1 (the last day was dark) ... 1 (twice as bright as usual)."""
        hours = (ts_ms - self._light_ms) / HOUR_MS
        self._light_ms = ts_ms
        self._light_last += (1.0 - math.exp(-hours / _LAST_DAY_H)) * (radiation_w_m2 - self._light_last)
        self._light_usual += (1.0 - math.exp(-hours / _USUAL_H)) * (radiation_w_m2 - self._light_usual)
        return min(self._light_last / (self._light_usual + 1.0) - 1.0, 1.0)

    def _edit_until(self, local_ms: int) -> None:
        while self._day < local_ms // DAY_MS:
            self._day += 1
            self._due = sorted([*self._due, *filter(self._knows, self._edits_of(self._day))])
        while self._due and self._due[0].local_ms <= local_ms:
            edit = self._due.pop(0)
            values, base = getattr(self._now, edit.field), getattr(self._base, edit.field)
            changed = values.copy()
            changed[edit.zone] += edit.change - edit.back * (values[edit.zone] - base[edit.zone])
            setattr(self._now, edit.field, changed)

    def _edits_of(self, day: int) -> list[_Edit]:
        edits = []
        for zone in range(self._count):
            rng = np.random.default_rng([self._seed, 4, zone, day])
            for _ in range(int(rng.poisson(_EDITS_A_DAY))):
                field = list(EDITS)[int(rng.integers(len(EDITS)))]
                at = day * DAY_MS + int(rng.uniform(7.5, 17.0) * HOUR_MS)
                change = float(rng.normal(0.0, EDITS[field]))
                if rng.random() < _BRIEF:
                    edits += [_Edit(at, zone, field, change, 0.0), _Edit(at + DAY_MS, zone, field, -change, 0.0)]
                else:
                    edits.append(_Edit(at, zone, field, change, _RETURN))
        return edits


def aim(
    now: SimpleNamespace, hour: float | _Array, brightness: float | _Array, radiation_w_m2: float | _Array,
    out_temp_c: float | _Array, lamps_on: NDArray[np.bool_], has_black: NDArray[np.bool_] | _Array,
) -> Setpoints:  # fmt: skip
    """What a recipe ``now`` asks for at a local ``hour``; what is not an array holds for all zones.

    ``brightness`` is that of the last day: -1 (dark) ... 1 (twice as bright as usual); ``lamps_on`` says which lamps
    were on until now.
    """
    day = np.minimum(np.minimum(hour - now.day_from_h, now.day_to_h - hour) / _RAMP_H + 0.5, 1.0)
    day = np.maximum(day, 0.0)
    heat_follow = now.light_follow_c * brightness
    heat = now.heat_night_c + day * (now.heat_day_c - now.heat_night_c) + heat_follow
    vent = heat + now.vent_above_heat_c + now.light_raise_c * _share((radiation_w_m2 - 100.0) / 400.0)
    # Lamps go off in bright light and come back 40 % below that, so that one cloud does not switch them.
    in_hours = (hour > now.day_from_h) & (hour < now.day_to_h)
    limit = now.lamps_off_above_w_m2 * np.where(lamps_on, 1.0, 0.6)
    lamps_on = in_hours & (radiation_w_m2 < limit)
    light = np.minimum(0.6 + radiation_w_m2 / 500.0 + 0.2 * lamps_on, 1.0)
    bright = (radiation_w_m2 > 30.0) | lamps_on
    cold = np.minimum(np.maximum(now.screen_below_c + 1.0 - out_temp_c, 0.0), 1.0)
    dim = radiation_w_m2 < now.screen_below_w_m2
    # Light must not leave a lit greenhouse at night.
    dark = lamps_on & (radiation_w_m2 < 5.0)
    return Setpoints(
        heat_c=heat,
        vent_c=vent,
        rh_pct=now.rh_max_pct,
        co2_ppm=np.where(bright & in_hours, 400.0 + (now.co2_day_ppm - 400.0) * light, 400.0),
        vent_min_pct=np.maximum(now.vent_min_pct, 0.0) * (bright & in_hours),
        pipe_min_c=np.where(day > 0, now.pipe_min_c, 0.0),
        lamp_pct=np.where(lamps_on, 100.0, 0.0),
        screen_energy_pct=100.0 * cold * dim,
        screen_black_pct=np.asarray(98.0 * has_black * dark, np.float64),
    )


def _share(value: float | _Array) -> Any:
    return min(max(value, 0.0), 1.0) if isinstance(value, float) else np.minimum(np.maximum(value, 0.0), 1.0)


assert set(EDITS) <= set(Recipe.__dataclass_fields__)
