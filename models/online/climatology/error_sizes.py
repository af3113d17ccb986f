"""Step 7 of the way of a reading: the climatology's own intervals, from how wrong its forecasts were.

Networks are trained on what these intervals leave over, and they answer where nothing else does. What is issued has
other ones (:mod:`models.online.intervals`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.half_precision import LARGEST
from models.masked import masked_mean
from models.running_mean import counted, moved_mean
from models.spec import QUANTILES, ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["ErrorSizes"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

MEMORY_DAYS = 7.0
"""How long the size of the errors is remembered, by hour of day."""

QUANTILE_STEP = 0.009
"""Step of the stochastic approximation of p10 and p90 after an example, in units of the mean absolute error."""

LAPLACE_P90 = 1.609
"""p90 of a Laplace distribution in units of its mean absolute deviation (ln 5): where p10 and p90 start."""

_HOURS = 24


class ErrorSizes:
    """How wrong forecasts from examples were, by hour of day and horizon, vectorised over zones."""

    def __init__(self, spec: ForecastSpec, stride: int, capacity: int) -> None:
        """``stride`` rows lie between examples."""
        self._day, self._stride = spec.steps_per_day, stride
        self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        self._slots = -(-self._steps // stride)  # a forecast waits in one of so many until its truth comes
        self._first = np.concatenate([[0], np.cumsum(self._slots)[:-1]])
        self._slowest = np.float32(_HOURS / (MEMORY_DAYS * (self._day // stride)))
        targets = len(spec.targets)
        cells = (len(self._steps), targets)
        self.zones = ZoneArrays(
            capacity,
            issued=((int(self._slots.sum()), targets), np.float16, np.nan),
            error=(cells, np.float32, np.nan),
            matured=((_HOURS, *cells), np.uint8, 0),
            spread=((_HOURS, *cells), np.float16, np.nan),
            upper=(cells, np.float32, LAPLACE_P90),
            lower=(cells, np.float32, LAPLACE_P90),
        )

    def issue(self, indices: I64, example: I64, median: F32) -> None:
        """Keep the forecasts ``[Z, H, M]`` from examples of numbers ``example [Z]`` until their truth comes."""
        self.zones["issued"][indices[:, None], self._at(example)] = np.clip(median, -LARGEST, LARGEST)

    def leave_out(self, indices: I64, example: I64) -> None:
        """Let these examples be such as were never seen."""
        self.zones["issued"][indices[:, None], self._at(example)] = np.nan

    def learn(self, indices: I64, h: I64, origins: I64, due: Bool, y: F32, day_bin: I64) -> None:
        """Truths ``y [Z, M]`` of forecasts of horizons ``h [P]`` from rows ``origins [Z, P]``, where one is ``due``."""
        s, zone = self.zones, indices[:, None]
        error = y[:, None] - s["issued"][zone, self._first[h] + origins // self._stride % self._slots[h]]
        s["error"][zone, h] = np.where(due[..., None], error, s["error"][zone, h])
        error = np.where(due[..., None], error, np.float32(np.nan))
        hour = (day_bin * _HOURS // self._day)[:, None]
        known = np.isfinite(error)
        usual = self._spread(indices, np.repeat(hour, len(self._steps), axis=1))[:, h]
        for name, beyond in (("upper", error), ("lower", -error)):
            held = s[name][zone, h]
            step = np.float32(QUANTILE_STEP) * ((beyond > held * usual) - np.float32(QUANTILES[0]))
            s[name][zone, h] = np.where(known & (usual > 0), np.maximum(held + step, 0), held)
        count, held = s["matured"][zone, hour, h], s["spread"][zone, hour, h].astype(np.float32)
        size = np.where(known, np.minimum(np.abs(error), np.float32(LARGEST)), np.float32(np.nan))
        s["spread"][zone, hour, h] = moved_mean(held, count, size, self._slowest)
        s["matured"][zone, hour, h] = counted(count, known)

    def latest(self, indices: I64) -> F32:
        """Truth less forecast of the newest examples that have matured, ``[Z, H, M]``; NaN where unknown."""
        return np.asarray(self.zones["error"][indices])

    def sides(self, indices: I64, day_bin: I64) -> tuple[F32, F32]:
        """How far p10 lies below and p90 above the median, ``[Z, H, M]``, of forecasts from ``day_bin [Z]``."""
        size = self._spread(indices, (day_bin[:, None] + self._steps) % self._day * _HOURS // self._day)
        return self.zones["lower"][indices] * size, self.zones["upper"][indices] * size

    def _at(self, example: I64) -> I64:
        """The places of the forecasts from examples, ``[Z, H]``."""
        return np.asarray(self._first + example[:, None] % self._slots)

    def _spread(self, indices: I64, hour: I64) -> F32:
        """Mean absolute error around the hours of day ``[Z, H]``; at least that of a shorter horizon where unknown."""
        around = (hour[:, :, None] + np.arange(-1, 2)) % _HOURS
        near = self.zones["spread"][indices[:, None, None], around, np.arange(len(self._steps))[:, None]]
        size = masked_mean(near.astype(np.float32), axis=2)
        shorter = np.nan_to_num(np.fmax.accumulate(size, axis=1))
        return np.where(np.isnan(size), shorter, size)
