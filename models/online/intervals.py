"""Step 7 of the way of a reading: the width of each forecast's interval, learned from matured forecasts.

A width is the size of a zone's errors by hour of day, times a factor. Adaptive conformal inference (Gibbs and Candès
2021) moves the factor up after a miss and down after a hit. So in the long run the wanted share lies inside, whatever
the errors' distribution is. Factors belong to a zone, target, horizon and quarter of the day.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.half_precision import LARGEST
from models.masked import masked_mean, mean_of_known
from models.running_mean import counted, moved_mean
from models.spec import QUANTILES
from models.zone_arrays import ZoneArrays, ZoneState

__all__ = ["Intervals"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

SPREAD_DAYS = 5.0
"""How long the size of errors is remembered, by hour of day."""

STEP = 0.004
"""How far a factor moves after an example, in units of the mean absolute error."""

POOLED_STEP = 0.002
"""The same for the factor that all zones share; new zones start from it."""

START = 1.609
"""p90 of a Laplace distribution in units of its mean absolute deviation (ln 5)."""

BLOCKS = 4
_HOURS = 24


class Intervals(ZoneState):
    """Offsets of p10 and p90 from the median, per zone, horizon, target and hour of day (of the forecast's target)."""

    def __init__(self, horizons: int, targets: int, per_hour: int, capacity: int = 16) -> None:
        cells = (horizons, targets)
        self._per_hour = per_hour
        self._zones = ZoneArrays(
            capacity,
            spread=((_HOURS, *cells), np.float16, np.nan),
            count=((_HOURS, *cells), np.uint8, 0),
            factor=((2, BLOCKS, *cells), np.float32, 0.0),
        )
        self._factor = np.full((2, *cells), START, dtype=np.float64)

    def predict(self, indices: I64, hour: I64, horizons: I64 | None = None) -> tuple[F32, F32]:
        """How far p10 lies below and p90 above the median: ``hour [Z, H] -> 2 x [Z, H, M]``, never negative.

        ``horizons`` says which horizon each column of ``hour`` belongs to; by default each to its own.
        """
        horizons = np.arange(hour.shape[1]) if horizons is None else horizons
        size = self._size(indices, hour, horizons)
        factor = self._factors(indices, hour * BLOCKS // _HOURS, horizons)
        return factor[0] * size, factor[1] * size

    def learn(self, indices: I64, horizons: I64, hour: I64, residual: F32, part: float = 1.0) -> F32:
        """Truths less medians of forecasts of ``horizons [P]`` that matured at ``hour [Z]`` of the day, ``[Z, P, M]``,
        NaN where unknown; these zones are ``part`` (0 to 1) of those of a step. Returns the sizes as multiples of what
        was usual at that hour until now.
        """
        s, known = self._zones, np.isfinite(residual)
        hours = np.repeat(hour[:, None], len(horizons), axis=1)
        block = hours * BLOCKS // _HOURS
        size = self._size(indices, hours, horizons)
        usable = known & (size > 0)
        zone, shared = indices[:, None], np.maximum(usable.sum(axis=0), 1)
        for side, (factor, beyond) in enumerate(
            zip(self._factors(indices, block, horizons), (-residual, residual), strict=True)
        ):
            miss = np.where(usable, (beyond > factor * size) - QUANTILES[0], 0)
            # Below zero a side that is never missed would fall further and further, and take as long to come back.
            pooled = self._factor[side, horizons] + part * POOLED_STEP * miss.sum(axis=0) / shared
            self._factor[side, horizons] = pooled = np.maximum(pooled, 0)
            own = s["factor"][zone, side, block, horizons] + np.float32(STEP) * miss
            s["factor"][zone, side, block, horizons] = np.maximum(own, -pooled)
        count, held = s["count"][zone, hours, horizons], s["spread"][zone, hours, horizons].astype(np.float32)
        error = np.where(known, np.minimum(np.abs(residual), np.float32(LARGEST)), np.float32(np.nan))
        slowest = np.float32(1 / (SPREAD_DAYS * self._per_hour))
        s["spread"][zone, hours, horizons] = moved_mean(held, count, error, slowest)
        s["count"][zone, hours, horizons] = counted(count, known)
        return np.where(usable, np.abs(residual) / np.where(usable, size, 1), np.float32(np.nan))

    def take(self, indices: I64, other: Intervals, pooled: bool = False) -> None:
        """Begin at these zones with what ``other`` has learned of them, and with its factors of all zones if
        ``pooled``.
        """
        for name in ("spread", "count", "factor"):
            self._zones[name][indices] = other._zones[name][indices]
        if pooled:
            self._factor = other._factor.copy()

    def state_dict(self, copy: bool = True) -> dict[str, _Array]:
        """Everything that was learned (see :meth:`ZoneArrays.state_dict`)."""
        return {**self._zones.state_dict(copy), "pooled": self._factor.copy()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        self._zones.load_state_dict({name: held for name, held in state.items() if name != "pooled"})
        self._factor = state["pooled"].copy()

    def _factors(self, indices: I64, block: I64, horizons: I64) -> F32:
        """``[2, Z, H, M]``."""
        own = self._zones["factor"][indices[:, None], :, block, horizons]  # [Z, H, 2, M]
        shared = np.moveaxis(self._factor[:, horizons], 0, 1)
        return np.asarray(np.maximum(np.moveaxis(own + shared, 2, 0), 0), dtype=np.float32)

    def _size(self, indices: I64, hour: I64, horizons: I64) -> F32:
        """Mean absolute error around the hours ``[Z, H]``; that of the whole day where those are unknown."""
        spread, zone = self._zones["spread"], indices[:, None]
        size = mean_of_known([spread[zone, (hour + near) % _HOURS, horizons].astype(np.float32) for near in (-1, 0, 1)])
        unknown = np.flatnonzero(np.isnan(size).any(axis=(0, 2)))
        if len(unknown):
            whole = self._zones["spread"][indices[:, None], :, horizons[unknown]]  # [Z, U, 24, M]
            day = np.nan_to_num(masked_mean(whole, axis=2))
            size[:, unknown] = np.where(np.isnan(size[:, unknown]), day, size[:, unknown])
        return size
