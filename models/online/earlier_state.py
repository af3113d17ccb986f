"""Step 7 of the way of a reading: learners as releases before ADR 70 kept them, in the form of now.

They kept profiles of the day, yesterday's rows, and forecasts that wait for their truth, of every row; now they are
those of knots and examples (:mod:`models.day_knots`). What is between is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.day_knots import DayKnots
from models.features.eight_bits import in_steps
from models.features.regressors import Features
from models.half_precision import cut
from models.online.climatology.climatology import Climatology
from models.online.climatology.deviation_regression import PAIRS
from models.online.expert_mix import LIMIT
from models.spec import ForecastSpec

__all__ = ["state_of_now"]

I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]
_State = Mapping[str, Any]


def state_of_now(state: _State, spec: ForecastSpec) -> _State:
    """The state of an ``OnlineForecaster``; one that is in the form of now is given back."""
    if "row" in state["features"]:
        return state
    known = {"known": {**state["known"], "intervals": _halved(state["known"]["intervals"])}} if "known" in state else {}
    return {
        **state, **known, "zones": _examples(state["zones"]), "intervals": _halved(state["intervals"]),
        "climatology": _climatology(state["climatology"], state["features"]["step"], spec),
        "features": _features(state["features"], spec),
    }  # fmt: skip


def _climatology(state: _State, newest: I64, spec: ForecastSpec) -> _State:
    """``newest [Z]`` are the steps of the newest rows, which say where quarters of an hour begin among them."""
    fresh, stride = Climatology(spec, len(newest)), DayKnots(spec).stride
    fresh.add_zones(len(newest))
    new = fresh.state_dict()
    made = {name: held for name, held in state.items() if name in new}
    rows = state["rows"]
    shift = np.where(rows > 0, (newest - (rows - 1)) % stride, 0)
    made["rows"] = rows + shift
    zone = np.arange(len(rows))[:, None]
    example = (rows + shift - 1) // stride

    def ring(name: str, size: int, within: int, old: int = 0) -> tuple[I64, _Array]:
        """Where the newest ``size`` examples lie in a ring of now, and what a ring of ``within`` rows held of them."""
        number, there = _back(example, size)
        row = number * stride - shift[:, None]
        there &= (row >= 0) & (row > rows[:, None] - 1 - within)
        held = state[name][zone, old + row % within]
        there = there.reshape(*there.shape, *(1,) * (held.ndim - there.ndim))
        return number % size, np.where(there, held, np.float16(np.nan))

    for name in ("past", "deviation"):
        made[name] = new[name]
        place, held = ring(name, made[name].shape[1], state[name].shape[1])
        made[name][zone, place] = held
    made["issued"], old, first = new["issued"], 0, 0
    for steps in spec.horizon_steps:
        count = -(-steps // stride)
        place, held = ring("issued", count, steps, old)
        made["issued"][zone, first + place] = held
        old, first = old + steps, first + count
    made["profile"], made["count"] = state["profile"][:, ::stride], state["count"][:, ::stride]
    made["spread"] = _half(state["spread"])
    made["matured"] = np.minimum(state["matured"] // stride, 254).astype(np.uint8)
    made["moment"] = state["moment"][..., PAIRS[:, 0], PAIRS[:, 1]]
    return made


def _features(state: _State, spec: ForecastSpec) -> _State:
    stride, day, newest = DayKnots(spec).stride, spec.steps_per_day, state["step"]
    fresh = Features(spec, len(newest))
    fresh.add_zones(len(newest))
    new = fresh.state_dict()
    made = {name: held for name, held in state.items() if name in new}
    zone = np.arange(len(newest))[:, None]

    def of(steps: I64) -> tuple[_Array, _Array]:
        there = (steps >= 0) & (state["past_step"][zone, steps % day] == steps)
        rows = np.where(there[..., None], state["past"][zone, steps % day], np.float16(np.nan))
        return rows, np.where(there, steps, -1)

    for name, every in (("past", stride), ("row", 1)):
        made[name], made[f"{name}_step"] = new[name], new[f"{name}_step"]
        size = made[name].shape[1]
        number, _ = _back(newest // every, size)
        rows, steps = of(number * every)
        made[name][zone, number % size], made[f"{name}_step"][zone, number % size] = rows, steps
    made["row_known"] = np.isfinite(made["row"])
    made["profile"] = state["profile"][:, ::stride]
    made["deviation"] = _half(state["deviation"])
    return made


def _examples(state: _State) -> _State:
    return {
        **state, "stamp": state["stamp"].astype(np.int32), "common": in_steps(state["common"]),
        "ahead": in_steps(state["ahead"]), "experts": in_steps(state["experts"], LIMIT),
    }  # fmt: skip


def _halved(intervals: _State) -> _State:
    return {**intervals, "spread": _half(intervals["spread"])}


def _half(values: _Array) -> _Array:
    return cut(values).astype(np.float16)


def _back(newest: I64, count: int) -> tuple[I64, npt.NDArray[np.bool_]]:
    """The newest ``count`` numbers of each zone, ``[Z, count]``, and which of them are none below 0."""
    numbers = newest[:, None] - np.arange(count)
    return numbers, numbers >= 0
