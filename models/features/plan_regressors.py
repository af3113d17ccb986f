"""Step 7 of the way of a reading: what plans foresee becomes regressors of what forecasts leave over.

A forecast knows what was usual and what yesterday was. So what a plan adds is how far the weather to come, and the
setpoints to come, are off that: at the horizon, and in the mean on the way there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import DAY_MS
from models.features.eight_bits import from_steps, in_steps
from models.features.plans import (
    BIN_MS,
    BINS_BACK,
    PLANNED,
    add_planned,
    bin_of,
    bins_ahead,
    planned_columns,
    planned_now,
)
from models.masked import masked_mean
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays, ZoneState, part_of

__all__ = ["Foreseen", "KnownAheadFeatures", "regressors", "width"]

F32 = npt.NDArray[np.float32]
I8 = npt.NDArray[np.int8]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

USUAL_DAYS = 1.5
"""What is usual in a half-hour of the day remembers this long: between yesterday and the mean of some days, as the
forecasts that are corrected do."""

SCALE_DAYS = 14.0
"""How long the usual size of a metric's deviations is remembered; all zones together."""

WRONG, WRONG_C = 2.5, 6.0
"""Plans that were wrong about the temperature outside by more than so many usual deviations, and so many degrees, in
the mean of the last three hours are no forecast, but another unit, zeros, or another place. In the lettuce recording of
2022 the largest that is seen is 2.0 usual deviations.
"""
_OUTSIDE = PLANNED.index("out_temp_c")

_DAY = DAY_MS // BIN_MS
_KEPT = _DAY + BINS_BACK + 2


@dataclass(frozen=True, slots=True)
class Foreseen:
    """How far what is foreseen is off what is known, in steps (:func:`~models.features.eight_bits.in_steps`) of usual
    deviations of a metric; 0 where one of both is missing. What is not measured is known as it was foreseen then.
    ``any`` says of which zones anything is foreseen that has sense.
    """

    ahead: I8  # [Z, H, 3, K]: at the horizon off the usual, there off yesterday, on the way there off the usual
    now: I8  # [Z, 2, K]: what was measured in this half-hour off the usual, and in the last hours off the plan
    any: npt.NDArray[np.bool_]  # [Z]


def width() -> int:
    """How many regressors :func:`regressors` makes.

    >>> width()
    118
    """
    return 1 + 9 * len(PLANNED)


def regressors(ahead: _Array, now: _Array, light: _Array, clock: _Array) -> F32:
    """``ahead [..., 3, K]`` and ``now [..., 2, K]`` (see :class:`Foreseen`) ``-> [..., D]``.

    ``light [...]`` is the sine of the sun's elevation at the horizon, not below 0, ``clock [..., 2]`` sine and cosine
    of the hour there.

    What the weather does to a greenhouse depends on the sun, and what setpoints do on the hour.
    """
    lead = ahead.shape[:-2]
    off = from_steps(ahead)
    here = np.broadcast_to(from_steps(now), (*lead, 2, len(PLANNED)))
    usual, yesterday, mean = off[..., 0, :], off[..., 1, :], off[..., 2, :]
    sun, hour = np.float32(1) * light[..., None], clock.astype(np.float32)
    parts = (
        np.ones((*lead, 1), np.float32), usual, yesterday, sun * usual, sun * yesterday, hour[..., :1] * usual,
        hour[..., 1:] * usual, mean, here[..., 0, :], here[..., 1, :],
    )  # fmt: skip
    return np.concatenate(parts, axis=-1, dtype=np.float32)


class KnownAheadFeatures(ZoneState):
    """Means of the metrics of plans over the half-hours of the last day, and how far plans are off them.

    :meth:`learn` once a step and zone, with the row that closed and what was foreseen at its end.
    """

    def __init__(self, spec: ForecastSpec, capacity: int = 16) -> None:
        self._columns = planned_columns(spec)
        self._step_ms = spec.step_ms
        self._horizons_ms = np.array(spec.horizon_steps, dtype=np.int64) * spec.step_ms
        self._whole_days = self._horizons_ms % DAY_MS == 0
        self._bins = bins_ahead(spec)
        k = len(PLANNED)
        self._zones = ZoneArrays(
            capacity,
            bin=((), np.int64, -1),
            sum=((k,), np.float32, 0.0),
            count=((k,), np.float32, 0.0),
            mean=((_KEPT, k), np.float16, np.nan),
            mean_bin=((_KEPT,), np.int32, -1),
            usual=((_DAY, k), np.float16, np.nan),
        )
        self._square = np.full(k, np.nan)
        self._seen = np.zeros(k, dtype=np.int64)

    def learn(self, indices: I64, step: int, values: F32, foreseen: F32) -> Foreseen:
        """Take the rows of one step: ``values [Z, C]``, and ``foreseen [Z, T, K]`` as :meth:`Plans.ahead` gives it."""
        end_ms = step * self._step_ms
        now_bin = bin_of(end_ms)
        self._measure(indices, now_bin, planned_now(values, self._columns), foreseen)
        s, back = self._zones, BINS_BACK
        place = (end_ms + self._horizons_ms) / BIN_MS - 0.5 - now_bin + back
        last = np.minimum(np.floor(place).astype(np.int64), self._bins - 2)
        share = (place - last).astype(np.float32)[:, None]
        newest = self._mean(indices)
        usual = s["usual"][indices][:, (now_bin - back + np.arange(self._bins)) % _DAY].astype(np.float32)
        for day in range(back + _DAY, self._bins, _DAY):  # on the first day this half-hour is all that is known of it
            usual[:, day] = np.where(np.isnan(usual[:, day]), newest, usual[:, day])
        scale = np.sqrt(np.where(self._square > 1e-9, self._square, 1.0)).astype(np.float32)
        off_usual = (foreseen - usual) / scale
        on_the_way = _means_until(off_usual[:, back:], np.maximum(last - back, 0))
        # A setpoint steps where its yesterday's mean slopes: the difference also tells that it has just moved.
        nearest = foreseen[:, np.where(share[:, 0] < 0.5, last, last + 1)]
        measured = self._measured(indices, now_bin, now_bin - back + np.arange(back + 1), newest)
        before, after = (self._day_before(indices, now_bin, at, newest) for at in (last, last + 1))
        yesterday = _between(before, after, share)
        yesterday[:, self._whole_days] = newest[:, None]  # is now, and now is the newest that is known
        off_yesterday = (nearest - yesterday) / scale
        ahead = np.stack([_between(off_usual[:, last], off_usual[:, last + 1], share), off_yesterday, on_the_way], 2)
        wrong = masked_mean(measured - foreseen[:, : back + 1], axis=1)
        now = np.stack([newest - usual[:, back], wrong], axis=1) / scale
        has_sense = ~(np.abs(wrong[:, _OUTSIDE]) > max(WRONG_C, WRONG * scale[_OUTSIDE]))  # also where nobody knows
        anything = np.isfinite(foreseen[:, back:]).any(axis=(1, 2)) & has_sense
        return Foreseen(in_steps(ahead), in_steps(now), np.asarray(anything))

    def state_dict(self, copy: bool = True) -> dict[str, _Array]:
        """Everything that was learned (see :meth:`ZoneArrays.state_dict`)."""
        return {**self._zones.state_dict(copy), "square": self._square.copy(), "seen": self._seen.copy()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` where it does not fit."""
        self._zones.load_state_dict({k: v for k, v in state.items() if k not in ("square", "seen")})
        self._square, self._seen = state["square"].copy(), state["seen"].copy()

    def _measured(self, indices: I64, now_bin: int, bins: I64, newest: F32) -> F32:
        """What was measured in half-hours ``bins [T]``, ``[Z, T, K]``; NaN where unknown, ``newest`` of this one."""
        s, at = self._zones, bins % _KEPT
        known = s["mean_bin"][indices[:, None], at] == bins
        found = np.where(known[..., None], s["mean"][indices[:, None], at], np.float32(np.nan))
        found[:, bins == now_bin] = newest[:, None]
        return found

    def _day_before(self, indices: I64, now_bin: int, at: I64, newest: F32) -> F32:
        """The same a day before the half-hours at ``at [T]`` of those that are foreseen, or where that is to come yet,
        two.
        """
        days = np.maximum(-(-(at - BINS_BACK) // _DAY), 1)
        return self._measured(indices, now_bin, now_bin - BINS_BACK + at - days * _DAY, newest)

    def _mean(self, indices: I64) -> F32:
        """Of the newest half-hour so far; what is foreseen of it where nothing was measured."""
        return np.asarray(self._zones["sum"][indices] / np.maximum(self._zones["count"][indices], 1))

    def _measure(self, indices: I64, now_bin: int, row: F32, foreseen: F32) -> None:
        """Add a row to its half-hour's means; those of one that is over are kept, and the usual learns from them."""
        s = self._zones
        over = indices[s["bin"][indices] != now_bin]
        if len(over):
            if len(ended := over[s["bin"][over] >= 0]):
                self._close(ended, now_bin)
            s["bin"][over], s["sum"][over], s["count"][over] = now_bin, np.nan, 0
        s["sum"][indices] = add_planned(s["sum"][indices], s["count"][indices], row, foreseen)
        s["count"][indices] += np.isfinite(row)

    def _close(self, over: I64, now_bin: int) -> None:
        s, bins = self._zones, self._zones["bin"][over]
        mean = self._mean(over)
        there = np.isfinite(mean)
        s["mean"][over, bins % _KEPT], s["mean_bin"][over, bins % _KEPT] = mean, bins
        held = s["usual"][over, bins % _DAY]
        gain = np.float32(1 - np.exp(-1 / USUAL_DAYS))
        off = mean - held
        moved = np.where(np.isnan(held), mean, held + gain * off)
        s["usual"][over, bins % _DAY] = np.where(there, moved, held)
        square = masked_mean(off**2, axis=0, dtype=np.float64)
        count = np.isfinite(off).sum(axis=0)
        self._seen += count
        part = part_of(len(over), s["bin"][: len(s)] >= max(now_bin - _DAY, 0))
        slowest = part * count / (len(over) * SCALE_DAYS * _DAY)
        share = np.maximum(count / np.maximum(self._seen, 1), slowest)
        held = np.where(np.isnan(self._square), square, self._square)
        self._square = np.where(count > 0, held + share * (square - held), self._square)


def _between(before: F32, after: F32, share: F32) -> F32:
    """What lies between two ``[Z, H, K]``; where one of both is missing the other."""
    before, after = np.where(np.isnan(before), after, before), np.where(np.isnan(after), before, after)
    return np.asarray(before + share * (after - before))


def _means_until(x: F32, places: I64) -> F32:
    """Means of ``x [Z, T, K]`` from the first to each of ``places [H]``, of what is known: ``[Z, H, K]``."""
    known = np.isfinite(x)
    x = np.where(known, x, np.float32(0))
    total, count = np.zeros_like(x[:, 0]), np.zeros(x[:, 0].shape, np.int32)
    found = np.empty((len(x), len(places), x.shape[2]), np.float32)
    for t in range(int(places.max()) + 1):  # five times as fast as sums along the middle axis
        total += x[:, t]
        count += known[:, t]
        here = places == t
        if here.any():
            found[:, here] = np.where(count > 0, total / np.maximum(count, 1), np.nan)[:, None]
    return found
