"""Changes of setpoints by hand: drawn ones, which follow no clock, and those of a counterfactual run.

Setpoints follow the hour, and so does the climate. What a setpoint does can only be learned from setpoints that are
changed at times, by sizes and for lengths that have nothing to do with the hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edge.simulator.fleet.draws import ZoneDraw
from edge.simulator.zone_config import ZoneConfig

__all__ = [
    "FIELDS", "HOW", "FieldArrays", "How", "SetpointEdit", "SetpointEdits", "actuator_size", "bounded", "draw_edits",
    "has_setpoint",
]  # fmt: skip

_Array = NDArray[np.float64]

FIELDS = {
    "sp_heat_c": "heat_c", "sp_vent_c": "vent_c", "sp_rh_pct": "rh_pct", "sp_co2_ppm": "co2_ppm",
    "vent_min_pct": "vent_min_pct", "sp_pipe_min_c": "pipe_min_c", "sp_lamp_pct": "lamp_pct",
    "sp_screen_energy_pct": "screen_energy_pct", "sp_screen_black_pct": "screen_black_pct",
}  # fmt: skip
"""What may be changed, in the order of :class:`~edge.simulator.grower.Setpoints`; ``vent_min_pct`` is how far the lee
vents stay open at least."""

How = Literal["add", "set", "least", "most"]
HOW: tuple[How, ...] = ("add", "set", "least", "most")

_PLACE = {name: place for place, name in enumerate(FIELDS)}
_LOW = np.array([-5.0, 0.0, 30.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])[:, None]
_HIGH = np.array([45.0, 50.0, 100.0, 2000.0, 100.0, 90.0, 100.0, 100.0, 100.0])[:, None]
_LEAST_BAND_C = 0.3  # a climate computer keeps the vents' setpoint above that of the heating
_WEIGHTS = {
    "sp_heat_c": 0.32, "sp_vent_c": 0.14, "sp_rh_pct": 0.06, "sp_co2_ppm": 0.08, "vent_min_pct": 0.12,
    "sp_pipe_min_c": 0.1, "sp_lamp_pct": 0.08, "sp_screen_energy_pct": 0.08, "sp_screen_black_pct": 0.02,
}  # fmt: skip
_SHORTEST_MIN, _LONGEST_MIN = 20.0, 960.0
_LASTING = 0.12  # of the edits: for days
_VENTS_FOLLOW = 0.6  # of the edits of the heating setpoint


@dataclass(frozen=True, slots=True)
class SetpointEdit:
    """A setpoint is changed: by adding ``value``, by setting it, or by holding it at least, or at most, at it.

    After ``begin_min`` until ``end_min``, minutes since the site's start; the row that ends at ``begin_min`` is as it
    was. ``planned`` edits are in plans that are issued before them.
    """

    metric: str
    begin_min: int
    end_min: int
    how: How
    value: float
    planned: bool = False

    def __post_init__(self) -> None:
        if self.metric not in FIELDS:
            raise ValueError(f"{self.metric!r} is no setpoint; one of {', '.join(FIELDS)}")
        if self.how not in HOW:
            raise ValueError(f"{self.how!r} is no way to change a setpoint; one of {', '.join(HOW)}")
        if not self.begin_min < self.end_min:
            raise ValueError(f"the change of {self.metric} ends at minute {self.end_min}, before it has begun")


class FieldArrays:
    """What all edits together do to setpoints: shape (..., fields, zones)."""

    def __init__(self, *shape: int) -> None:
        self.add = np.zeros(shape)
        self.low = np.full(shape, -np.inf)
        self.high = np.full(shape, np.inf)

    def reset(self, at: tuple[int | slice, ...]) -> None:
        """Forget what is there."""
        self.add[at], self.low[at], self.high[at] = 0.0, -np.inf, np.inf

    def put(self, edit: SetpointEdit, at: tuple[int | slice, ...]) -> None:
        """One more edit; what was set last counts."""
        if edit.how == "add":
            self.add[at] += edit.value
        elif edit.how == "set":
            self.low[at] = self.high[at] = edit.value
        elif edit.how == "least":
            self.low[at] = np.maximum(self.low[at], edit.value)
            self.high[at] = np.maximum(self.high[at], edit.value)
        else:
            self.high[at] = np.minimum(self.high[at], edit.value)
            self.low[at] = np.minimum(self.low[at], edit.value)

    def of(self, setpoints: _Array) -> _Array:
        """The setpoints as changed."""
        return np.asarray(np.minimum(np.maximum(setpoints + self.add, self.low), self.high))


class SetpointEdits:
    """The edits of all zones, minute after minute; time only goes forward."""

    def __init__(self, edits: Sequence[Sequence[SetpointEdit]]) -> None:
        self._now = FieldArrays(len(FIELDS), len(edits))
        self._active: dict[tuple[int, int], list[SetpointEdit]] = {}
        begins = [(edit.begin_min, 1, z, n) for z, mine in enumerate(edits) for n, edit in enumerate(mine)]
        ends = [(edit.end_min, 0, z, n) for z, mine in enumerate(edits) for n, edit in enumerate(mine)]
        self._due = sorted(begins + ends, reverse=True)
        self._edits = edits

    def applied(self, setpoints: _Array, minute: int) -> _Array:
        """``setpoints`` (fields, zones) of a minute, as changed."""
        while self._due and self._due[-1][0] < minute:
            _, begins, zone, n = self._due.pop()
            edit = self._edits[zone][n]
            at = (_PLACE[edit.metric], zone)
            active = self._active.setdefault(at, [])
            if begins:
                active.append(edit)
            else:
                active.remove(edit)
            self._now.reset(at)
            for one in active:
                self._now.put(one, at)
        return self._now.of(setpoints)

    def planned(self, setpoints: _Array, issued_min: NDArray[np.int64], every_min: int) -> _Array:
        """``setpoints`` (times, fields, zones) as plans foresee them: in the middle of every ``every_min`` minutes from
        when each zone's plan was issued. The edits that are planned, or have begun.
        """
        known = FieldArrays(*setpoints.shape)
        half = every_min // 2
        for zone, (mine, issued) in enumerate(zip(self._edits, issued_min.tolist(), strict=True)):
            for edit in sorted(mine, key=lambda one: one.begin_min):
                first, last = ((at - issued - half) // every_min + 1 for at in (edit.begin_min, edit.end_min))
                if last > 0 and first < len(setpoints) and (edit.planned or edit.begin_min < issued):
                    known.put(edit, (slice(max(first, 0), last), _PLACE[edit.metric], zone))
        return known.of(setpoints)


def bounded(setpoints: _Array, allowed: _Array) -> _Array:
    """Setpoints (..., fields, zones) as a climate computer takes them; ``allowed`` (fields, zones) is 0 for what a zone
    has not.
    """
    within = np.minimum(np.maximum(setpoints, _LOW), _HIGH) * allowed
    heat, vent = within[..., 0, :], within[..., 1, :]
    np.maximum(vent, heat + _LEAST_BAND_C, out=vent)
    return np.asarray(within)


def draw_edits(rng: np.random.Generator, zone: ZoneDraw, minutes: int, known: float) -> tuple[SetpointEdit, ...]:
    """A zone's edits in the first ``minutes``; plans know that share of them beforehand."""
    names = [name for name in FIELDS if has_setpoint(zone.config, name)]
    weights = np.array([_WEIGHTS[name] for name in names])
    edits: list[SetpointEdit] = []
    for _ in range(int(rng.poisson(zone.setpoint_edits_a_day * minutes / 1440.0))):
        name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
        begin = int(rng.integers(minutes))
        length = float(np.exp(rng.uniform(np.log(_SHORTEST_MIN), np.log(_LONGEST_MIN))))
        length = float(rng.uniform(1440.0, 5760.0)) if rng.random() < _LASTING else length
        end, planned = min(begin + round(length), minutes), bool(rng.random() < known)
        how, value = _size(rng, name, zone.edit_size)
        follow = bool(rng.random() < _VENTS_FOLLOW)
        if end <= begin:
            continue
        edits.append(SetpointEdit(name, begin, end, how, value, planned))
        if name == "sp_heat_c" and follow:
            edits.append(SetpointEdit("sp_vent_c", begin, end, how, value, planned))
    return tuple(edits)


def has_setpoint(config: ZoneConfig, metric: str) -> bool:
    """Whether a zone has what the setpoint is for."""
    return {
        "sp_lamp_pct": config.lamps.power_w_m2 > 0, "sp_screen_black_pct": config.shell.has_black_screen > 0,
        "sp_screen_energy_pct": config.recipe.screen_below_c > -50.0, "sp_pipe_min_c": config.shell.heating_w_m2 > 0,
        "sp_co2_ppm": config.shell.co2_capacity_mg_m2_s > 0.01,
    }.get(metric, True)  # fmt: skip


def _size(rng: np.random.Generator, metric: str, size: float) -> tuple[How, float]:
    sign, much, draw = float(rng.choice([-1.0, 1.0])), float(rng.gamma(2.0, 0.9)) * size, float(rng.random())
    if metric in ("sp_heat_c", "sp_vent_c"):
        return "add", sign * round(min(0.3 + much, 6.0), 1)
    if metric == "sp_rh_pct":
        return "add", sign * round(min(1.0 + 3.0 * much, 20.0), 1)
    if metric == "sp_co2_ppm":
        return ("set", 400.0) if draw < 0.3 else ("add", sign * round(50.0 + 120.0 * much))
    return actuator_size(rng, metric, draw)


def actuator_size(rng: np.random.Generator, metric: str, draw: float) -> tuple[How, float]:
    """How, and how far, the vents, the pipe, the lamps or a screen are changed; ``draw`` is of 0 ... 1."""
    if metric == "vent_min_pct":
        return "least", round(float(rng.uniform(3.0, 80.0)) * (0.3 + 0.7 * draw), 1)
    if metric == "sp_pipe_min_c":
        return ("set", 0.0) if draw < 0.2 else ("least", round(float(rng.uniform(25.0, 70.0)), 1))
    share = 0.0 if draw < 0.4 else 100.0 if draw < 0.8 else round(float(rng.uniform(10.0, 90.0)), 1)
    return "set", (0.0 if draw < 0.5 else 100.0) if metric == "sp_lamp_pct" else share
