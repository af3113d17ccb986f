"""What the network of effects sees: how plans are moved, and in what state the zone will be.

Both are there for each time after the origin. Where nothing is changed yet, what is moved is zero, all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from models.effects.plan_change import CHANGEABLE, GRID_MIN, STEP_MIN, PlanChange
from models.effects.situation import PATH_TARGETS, SEEN, Situation

__all__ = ["MEMORIES_MIN", "MOVED", "STATE", "effect_inputs", "moved_over", "state_at"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

MEMORIES_MIN = (0.0, 25.0, 90.0, 360.0)
"""What is moved is seen as it is, and as means that forget within so many minutes: houses and crops answer slowly."""

DEMANDS = ("heat", "vent", "dry", "dose")
"""What a setpoint is moved by beyond where the climate would be anyway: a setpoint that does not bind does nothing."""

MOVED = tuple(f"{name} {int(memory)}" for memory in MEMORIES_MIN for name in (*CHANGEABLE, *DEMANDS))

STATE = (
    "air", "rh", "co2", "vpd", "sp_heat", "air off heat", "vent off air", "sp_rh off rh", "sp_co2 off co2", "pipe_min",
    "lamp", "energy", "black", "out", "air off out", "out_rh", "radiation", "wind", "sun", "lee", "windward",
    "pipe off air", "dosing", "air off heat yesterday", "ahead", "heats by night", "off heat by night", "pipe by night",
    "pipe most", "pipe for each K", "vents by day", "air spread", "rh spread", "co2 spread", "rh most",
    "air by radiation", "has heat", "has vent", "has rh", "has co2 setpoint", "has pipe", "has lee", "has co2",
    "has out",
)  # fmt: skip
"""The state at a time; the last are 1 where the setpoint or sensor is known."""

_RADIATION_DAY_W_M2 = 20.0


def effect_inputs(
    situation: Situation, changes: Sequence[Sequence[PlanChange]], minutes: I64
) -> tuple[F32, F32]:  # fmt: skip
    """``moved [N, T, MOVED]`` and ``state [N, T, STATE]`` at ``minutes [T]`` after the origin, multiples of five.

    NaN in ``moved`` where a change needs to know a setpoint that nobody says; unknown parts of the state are NaN.
    """
    return moved_over(situation, changes)[:, :, minutes // STEP_MIN - 1].reshape(
        len(MEMORIES_MIN), len(situation), len(minutes), -1
    ).transpose(1, 2, 0, 3).reshape(len(situation), len(minutes), len(MOVED)), state_at(situation, minutes)  # fmt: skip


def moved_over(situation: Situation, changes: Sequence[Sequence[PlanChange]]) -> F32:
    """By how much plans are moved over the day, ``[MEMORIES, N, G, CHANGEABLE + DEMANDS]``, in usual sizes."""
    n = len(situation)
    moved = np.zeros((n, len(GRID_MIN), len(CHANGEABLE)), np.float32)
    known = {name: situation.usual(name, GRID_MIN) for name in CHANGEABLE}
    names = list(CHANGEABLE)
    for i, mine in enumerate(changes):
        for change in mine:
            k, active = names.index(change.metric), change.active()
            usual = known[change.metric][i]
            if change.metric == "vent_lee_pct":
                usual = np.zeros_like(usual)  # how far they would have to open is for the network to say
            by = change.moved(usual)
            if change.metric == "out_radiation_w_m2":
                by = _light(by, known[change.metric][i], situation.sun[i])
            moved[i, :, k] += np.where(active > 0, active * by, np.float32(0))
    demands = _demands(situation, moved, known)
    scales = np.array([one.scale for one in CHANGEABLE.values()], np.float32)
    every = np.concatenate([moved / scales, demands], axis=-1)
    return np.stack([_remembered(every, memory) for memory in MEMORIES_MIN])


def _light(by: F32, usual: F32, sun: F32) -> F32:
    """Radiation stays between none and somewhat more than that of a clear sky."""
    bright = np.where(np.isfinite(sun), 1200 * np.maximum(sun, 0), np.where(usual > _RADIATION_DAY_W_M2, 1200, 0))
    base = np.where(np.isfinite(usual), usual, 0.3 * bright)
    return np.asarray(np.clip(base + by, 0, np.maximum(bright, base)) - base, np.float32)


def _demands(situation: Situation, moved: F32, known: dict[str, F32]) -> F32:
    air, rh, co2 = (situation.path[..., k] for k in range(3))
    names = list(CHANGEABLE)

    def more(metric: str, value: F32, sign: int, scale: float) -> F32:
        setpoint = known[metric]
        off = sign * (setpoint - value)
        by = sign * moved[..., names.index(metric)]
        found = np.maximum(off + by, 0) - np.maximum(off, 0)
        return np.asarray(np.where(np.isfinite(off), np.clip(found, -99 * scale, 99 * scale), 0) / scale, np.float32)

    return np.stack(
        [more("sp_heat_c", air, 1, 2.0), more("sp_vent_c", air, -1, 2.0), more("sp_rh_pct", rh, -1, 6.0),
         more("sp_co2_ppm", co2, 1, 250.0)], axis=-1,
    )  # fmt: skip


def _remembered(moved: F32, memory_min: float) -> F32:
    if not memory_min:
        return moved
    keep = np.float32(np.exp(-STEP_MIN / memory_min))
    held, now = np.empty_like(moved), np.zeros_like(moved[:, 0])
    for g in range(moved.shape[1]):
        now = keep * now + (1 - keep) * moved[:, g]
        held[:, g] = now
    return held


def state_at(situation: Situation, minutes: I64) -> F32:
    """The state at ``minutes [T]``: ``[N, T, STATE]``, about as large as 1; NaN where unknown."""
    at = minutes // STEP_MIN - 1
    air, rh, co2 = (situation.path[:, at, k] for k in range(len(PATH_TARGETS)))
    sun = situation.sun[:, at]
    usual = {name: situation.usual(name, minutes) for name in SEEN if name not in PATH_TARGETS}
    before = {name: situation.yesterday(name, minutes) for name in ("air_temp_c", "sp_heat_c")}
    saturation = 0.6108 * np.exp(17.27 * air / (air + 237.3))
    columns = {
        "air": (air - 19) / 6, "rh": (rh - 75) / 15, "co2": np.log(np.maximum(co2, 150) / 500) / 0.4,
        "vpd": (saturation * (1 - rh / 100) - 0.6) / 0.5, "sp_heat": (usual["sp_heat_c"] - 16) / 5,
        "air off heat": np.clip(air - usual["sp_heat_c"], -8, 15) / 4,
        "vent off air": np.clip(usual["sp_vent_c"] - air, -8, 15) / 4,
        "sp_rh off rh": np.clip(usual["sp_rh_pct"] - rh, -30, 60) / 15,
        "sp_co2 off co2": np.clip(usual["sp_co2_ppm"] - co2, -800, 1000) / 300, "pipe_min": usual["sp_pipe_min_c"] / 30,
        "lamp": _first(usual["sp_lamp_pct"], usual["lamp_pct"]) / 100,
        "energy": _first(usual["sp_screen_energy_pct"], usual["screen_energy_pct"]) / 100,
        "black": _first(usual["sp_screen_black_pct"], usual["screen_black_pct"]) / 100,
        "out": (usual["out_temp_c"] - 10) / 8, "air off out": (air - usual["out_temp_c"] - 8) / 6,
        "out_rh": (usual["out_rh_pct"] - 75) / 20, "radiation": usual["out_radiation_w_m2"] / 250,
        "wind": (usual["wind_m_s"] - 4) / 3, "sun": sun, "lee": usual["vent_lee_pct"] / 30,
        "windward": usual["vent_wind_pct"] / 30, "pipe off air": (usual["heat_pipe_low_c"] - air) / 20,
        "dosing": usual["co2_dosing_pct"] / 50,
        "air off heat yesterday": np.clip(before["air_temp_c"] - before["sp_heat_c"], -8, 15) / 4,
        "ahead": np.broadcast_to(np.log1p(minutes / 60).astype(np.float32) - 2, air.shape),
    }  # fmt: skip
    steady = _habits(situation)
    whole = [*columns.values(), *(np.broadcast_to(one[:, None], air.shape) for one in steady.values())]
    assert (*columns, *steady) == STATE
    return np.stack(whole, axis=-1).astype(np.float32)


def _first(one: F32, other: F32) -> F32:
    return np.where(np.isfinite(one), one, other)


def _habits(situation: Situation) -> dict[str, npt.NDArray[Any]]:
    """What the last day shows of how a zone is run, and of what it can do."""
    day = {name: situation.day[:, :, k] for k, name in enumerate(SEEN)}
    light = day["out_radiation_w_m2"]
    night = np.isfinite(light) & (light <= _RADIATION_DAY_W_M2)
    off = day["air_temp_c"] - day["sp_heat_c"]
    pipe = day["heat_pipe_low_c"] - day["air_temp_c"]
    needed = day["sp_heat_c"] - day["out_temp_c"]
    bright = ~night & np.isfinite(light)
    return {
        "heats by night": _mean((off < 0.4) * 1.0 + 0 * off, night),
        "off heat by night": np.clip(_mean(off, night), -8, 15) / 4, "pipe by night": _mean(pipe, night) / 20,
        "pipe most": (_most(day["heat_pipe_low_c"]) - 45) / 20,
        "pipe for each K": np.clip(_mean(pipe, night) / np.maximum(_mean(needed, night), 2.0), -1, 6) / 2,
        "vents by day": _mean(day["vent_lee_pct"], bright) / 30, "air spread": _spread(day["air_temp_c"]) / 4,
        "rh spread": _spread(day["rh_pct"]) / 10, "co2 spread": _spread(day["co2_ppm"]) / 150,
        "rh most": (_most(day["rh_pct"]) - 90) / 10,
        "air by radiation": np.clip((_mean(day["air_temp_c"], bright) - _mean(day["air_temp_c"], night)) / 6, -2, 3),
        **{f"has {word}": np.asarray(np.isfinite(day[name]).any(axis=1), np.float32) for word, name in (
            ("heat", "sp_heat_c"), ("vent", "sp_vent_c"), ("rh", "sp_rh_pct"), ("co2 setpoint", "sp_co2_ppm"),
            ("pipe", "heat_pipe_low_c"), ("lee", "vent_lee_pct"), ("co2", "co2_ppm"), ("out", "out_temp_c"),
        )},
    }  # fmt: skip


def _mean(values: F32 | F64, where: npt.NDArray[np.bool_]) -> F32:
    used = where & np.isfinite(values)
    total = np.where(used, values, 0).sum(axis=1)
    return np.asarray(np.where(used.any(axis=1), total / np.maximum(used.sum(axis=1), 1), np.nan), np.float32)


def _most(values: F32) -> F32:
    found = np.where(np.isfinite(values), values, -np.inf).max(axis=1)
    return np.asarray(np.where(np.isfinite(found), found, np.nan), np.float32)


def _spread(values: F32) -> F32:
    there = np.isfinite(values)
    mean = _mean(values, there)
    return np.sqrt(_mean((values - mean[:, None]) ** 2, there))
