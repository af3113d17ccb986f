"""The growers of many simulated zones: setpoints minute after minute, and what they plan."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge.simulator.fleet.draws import SiteDraw, ZoneDraw, chance
from edge.simulator.fleet.edits import FIELDS, SetpointEdit, SetpointEdits, bounded, draw_edits
from edge.simulator.grower import EDITS, Setpoints, aim
from edge.simulator.zone_config import Recipe, as_arrays

__all__ = ["PLAN_BINS", "PLAN_EVERY_MIN", "Growers"]

_Array = NDArray[np.float64]

PLAN_EVERY_MIN = 30
PLAN_BINS = 96
"""A plan says what is aimed at in the middle of each half-hour, for two days."""

_DAY_MIN = 1440
_BRIEF, _RETURN = 0.7, 0.35  # as those of a single site's grower
_LAST_DAY, _USUAL = (1.0 - np.exp(-1.0 / (60.0 * hours)) for hours in (18.0, 240.0))
_EDITS_PART = 20
_FIELDS = tuple(Recipe.__dataclass_fields__)


class _RecipeEdit(NamedTuple):
    minute: int
    zone: int
    field: str
    change: float
    back: float
    planned: bool
    begun: int
    """When what it ends had begun; who sees it then knows the end, too."""


class Growers:
    """The setpoints of all zones of ``sites``, for minutes that rise, counted from each site's start.

    ``changes`` are further edits of zones, by their number, on top of all others: those of a counterfactual run.
    Where a plan is issued the growers' state is noted, so that :meth:`foresee` can say later what they planned then.
    """

    def __init__(
        self, sites: Sequence[SiteDraw], minutes: int, changes: dict[int, Sequence[SetpointEdit]] | None = None
    ) -> None:
        zones = [(site, z, zone) for site in sites for z, zone in enumerate(site.zones)]
        configs = [zone.config for _, _, zone in zones]
        self._now, self._base = (as_arrays([config.recipe for config in configs]) for _ in range(2))
        self._offset_min = np.array([60 * site.utc_offset_h for site, _, _ in zones])
        self._issue_min = np.array([60 * site.plans.issue_hour for site, _, _ in zones])
        self._black = np.array([config.shell.has_black_screen for config in configs])
        self._lamps_on = np.zeros(len(zones), dtype=bool)
        self._light: tuple[_Array, _Array] | None = None  # of the last day, and what is usual
        self.edits: list[tuple[SetpointEdit, ...]] = []
        recipes: list[_RecipeEdit] = []
        for number, (site, z, zone) in enumerate(zones):
            rng, known = chance(site.seed, site.index, _EDITS_PART, z), site.plans.known
            recipes += _recipe_edits(rng, number, zone, minutes, site.utc_offset_h, known)
            drawn = draw_edits(chance(site.seed, site.index, _EDITS_PART, z, 1), zone, minutes, known)
            self.edits.append(drawn)
        self._recipe_edits = sorted(recipes)
        self._recipe_minutes = [edit.minute for edit in self._recipe_edits]
        self._done = 0
        self._edits = SetpointEdits(self.edits)
        self._changes = SetpointEdits([tuple((changes or {}).get(number, ())) for number in range(len(zones))])
        self._allowed = np.ones((len(FIELDS), len(zones)))
        self._allowed[list(FIELDS).index("sp_lamp_pct")] = [config.lamps.power_w_m2 > 0 for config in configs]
        self._allowed[list(FIELDS).index("sp_screen_black_pct")] = self._black > 0
        self.noted_min = np.zeros(len(zones), dtype=np.int64)  # when each zone's newest plan was issued
        self._noted = {name: np.zeros(len(zones)) for name in (*_FIELDS, "lamps_on", "last", "usual")}

    def setpoints(self, minute: int, radiation_w_m2: _Array, out_temp_c: _Array) -> Setpoints:
        """The setpoints of a minute, of weather of shape (zones,)."""
        while self._done < len(self._recipe_edits) and self._recipe_minutes[self._done] <= minute:
            _edit(self._now, self._base, self._recipe_edits[self._done])
            self._done += 1
        last, usual = self._light or (np.full(radiation_w_m2.shape, 80.0), np.full(radiation_w_m2.shape, 80.0))
        self._light = last, usual = _seen(last, usual, radiation_w_m2, 1)
        local = (minute + self._offset_min) % _DAY_MIN
        wanted = aim(
            self._now, local / 60.0, _brightness(last, usual), radiation_w_m2, out_temp_c, self._lamps_on, self._black
        )
        self._lamps_on = wanted.lamp_pct > 0.0
        if minute % 60 == 0:
            self._note(minute, local == self._issue_min)
        edited = self._changes.applied(self._edits.applied(_stacked(wanted), minute), minute)
        return Setpoints(*bounded(edited, self._allowed))

    def foresee(self, radiation_w_m2: _Array, out_temp_c: _Array) -> tuple[NDArray[np.int64], _Array]:
        """When each zone's newest plan was issued, and what it says: shape (PLAN_BINS, fields, zones). Of the weather
        as it was foreseen then, (PLAN_BINS, zones).

        Edits that nobody had thought of yet are not in it.
        """
        issued, half = self.noted_min, PLAN_EVERY_MIN // 2
        now = SimpleNamespace(**{name: self._noted[name].copy() for name in _FIELDS})
        lamps_on = self._noted["lamps_on"] > 0
        last, usual = self._noted["last"], self._noted["usual"]
        due: list[list[_RecipeEdit]] = [[] for _ in range(PLAN_BINS)]
        first = bisect_right(self._recipe_minutes, int(issued.min()))
        stop = bisect_right(self._recipe_minutes, int(issued.max()) + PLAN_BINS * PLAN_EVERY_MIN)
        for edit in self._recipe_edits[first:stop]:
            place = -(-(edit.minute - int(issued[edit.zone]) - half) // PLAN_EVERY_MIN)
            known = edit.planned or edit.begun <= issued[edit.zone]
            if known and edit.minute > issued[edit.zone] and place < PLAN_BINS:
                due[max(place, 0)].append(edit)
        planned = np.empty((PLAN_BINS, len(FIELDS), len(issued)))
        for place in range(PLAN_BINS):
            for edit in due[place]:
                _edit(now, self._base, edit)
            last, usual = _seen(last, usual, radiation_w_m2[place], PLAN_EVERY_MIN)
            hour = (issued + self._offset_min + place * PLAN_EVERY_MIN + half) % _DAY_MIN / 60.0
            wanted = aim(
                now, hour, _brightness(last, usual), radiation_w_m2[place], out_temp_c[place], lamps_on, self._black
            )
            lamps_on = wanted.lamp_pct > 0.0
            planned[place] = _stacked(wanted)
        edited = self._edits.planned(planned, issued, PLAN_EVERY_MIN)
        return issued.copy(), bounded(self._changes.planned(edited, issued, PLAN_EVERY_MIN), self._allowed)

    def _note(self, minute: int, here: NDArray[np.bool_]) -> None:
        assert self._light is not None
        state = {**vars(self._now), "lamps_on": self._lamps_on, "last": self._light[0], "usual": self._light[1]}
        self.noted_min[here] = minute
        for name, noted in self._noted.items():
            noted[here] = state[name][here]


def _seen(last: _Array, usual: _Array, radiation: _Array, minutes: int) -> tuple[_Array, _Array]:
    return last + minutes * _LAST_DAY * (radiation - last), usual + minutes * _USUAL * (radiation - usual)


def _brightness(last: _Array, usual: _Array) -> _Array:
    return np.asarray(np.minimum(last / (usual + 1.0) - 1.0, 1.0))


def _stacked(setpoints: Setpoints) -> _Array:
    return np.array([getattr(setpoints, field) for field in FIELDS.values()])


def _edit(now: SimpleNamespace, base: SimpleNamespace, edit: _RecipeEdit) -> None:
    values, usual = getattr(now, edit.field), getattr(base, edit.field)
    values[edit.zone] += edit.change - edit.back * (values[edit.zone] - usual[edit.zone])


def _recipe_edits(
    rng: np.random.Generator, number: int, zone: ZoneDraw, minutes: int, utc_offset_h: int, known: float
) -> list[_RecipeEdit]:
    """Edits of the recipe in working hours, as :class:`~edge.simulator.grower.Grower` makes them."""
    config, fields = zone.config, dict(EDITS)
    if config.lamps.power_w_m2 == 0:
        del fields["lamps_off_above_w_m2"]
    if config.recipe.screen_below_c < -50.0:
        del fields["screen_below_c"]
    names, edits = list(fields), list[_RecipeEdit]()
    for day in range(minutes // _DAY_MIN + 1):
        for _ in range(int(rng.poisson(zone.recipe_edits_a_day))):
            name = names[int(rng.integers(len(names)))]
            at = day * _DAY_MIN + int(rng.uniform(7.5, 17.0) * 60.0) - 60 * utc_offset_h
            change, planned = float(rng.normal(0.0, fields[name])), bool(rng.random() < known)
            if rng.random() < _BRIEF:
                edits.append(_RecipeEdit(at, number, name, change, 0.0, planned, at))
                edits.append(_RecipeEdit(at + _DAY_MIN, number, name, -change, 0.0, planned, at))
            else:
                edits.append(_RecipeEdit(at, number, name, change, _RETURN, planned, at))
    return edits
