"""Step 7 of the way of a reading: what plans foresee, as differences from what is and what was.

A forecast knows what is measured now and what was a day ago. What a plan adds is how far it is off both: at each
horizon off now, off the day before at the same time, and in the mean on the way there off the same part of the day
before.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.features.plans import BIN_MS, BINS_BACK, PLANNED, bins_ahead, planned_columns, planned_now
from models.spec import ForecastSpec

__all__ = ["foreseen_off", "plan_differences"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

AROUND_MS = 900_000
"""The day before is a mean over so much on either side: setpoints are not moved at the same minute each day."""


def plan_differences(ahead: F32, values: F32, origin_ms: I64, spec: ForecastSpec) -> F32:
    """``ahead [N, T, P]``, what was foreseen at each origin as :meth:`~models.features.plans.Plans.ahead` gives it, and
    the rows ``values [N, L, C]`` ``-> [N, H, 3 * P]``, in the metrics' units; NaN where one of both is missing.
    """
    if ahead.shape != (len(origin_ms), bins_ahead(spec), len(PLANNED)):
        raise ValueError(
            f"plans have shape {ahead.shape}, this schema wants {(len(origin_ms), bins_ahead(spec), len(PLANNED))}"
        )
    steps = np.array(spec.horizon_steps, dtype=np.int64)
    length, day = values.shape[1], spec.steps_per_day
    measured = planned_now(values, planned_columns(spec))
    rows, count = _sums(measured)
    then = length - 1 + steps - day * -(-steps // day)
    around = AROUND_MS // spec.step_ms
    day_before = _mean(rows, count, then - around, then + around + 1)
    day_before[:, then < 0] = np.nan
    first = length - day
    way_before = _mean(rows, count, np.full_like(then, first), np.maximum(then, first) + 1)
    if first < 0:
        way_before[:] = np.nan
    return foreseen_off(ahead, measured[:, -1], day_before, way_before, origin_ms, spec)


def foreseen_off(ahead: F32, now: F32, day_before: F32, way_before: F32, origin_ms: I64, spec: ForecastSpec) -> F32:
    """What was foreseen, ``ahead [N, T, P]``, off what is known of ``PLANNED``, ``-> [N, H, 3 * P]``: ``now [N, P]``, a
    day before each horizon, and in the mean on the way there a day before, both ``[N, H, P]``.
    """
    steps = np.array(spec.horizon_steps, dtype=np.int64)
    at = BINS_BACK + (origin_ms[:, None] + steps * spec.step_ms - 1) // BIN_MS - (origin_ms[:, None] - 1) // BIN_MS
    one = np.arange(len(origin_ms))[:, None]
    foreseen = ahead[one, at]
    total, known = _sums(ahead)
    until = np.maximum(at, BINS_BACK + 1) + 1
    many = known[one, until] - known[:, None, BINS_BACK + 1]
    way = np.where(many > 0, (total[one, until] - total[:, None, BINS_BACK + 1]) / np.maximum(many, 1), np.nan)
    parts = (foreseen - now[:, None], foreseen - day_before, way - way_before)
    return np.concatenate(parts, axis=-1).astype(np.float32)


def _sums(x: F32) -> tuple[F64, I64]:
    """Sums and counts of ``x [N, T, P]`` before each place, ``[N, T + 1, P]``."""
    known = np.isfinite(x)
    zero = np.zeros((len(x), 1, x.shape[2]))
    total = np.concatenate([zero, np.where(known, x, 0).cumsum(axis=1, dtype=np.float64)], axis=1)
    return total, np.concatenate([zero.astype(np.int64), known.cumsum(axis=1, dtype=np.int64)], axis=1)


def _mean(total: F64, count: I64, low: I64, high: I64) -> F32:
    """Means of rows ``low [H]`` to before ``high [H]``, ``[N, H, P]``; NaN where none is known."""
    last = total.shape[1] - 1
    low, high = np.clip(low, 0, last), np.clip(high, 0, last)
    many = count[:, high] - count[:, low]
    return np.where(many > 0, (total[:, high] - total[:, low]) / np.maximum(many, 1), np.nan).astype(np.float32)
