"""Step 7 of the way of a reading: what quantiles keep to. They are possible, and p10 < p90."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.online.prior import Prior
from models.spec import ForecastSpec

__all__ = ["Bounds"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

LEAST_WIDTH = 0.02
"""No interval is thinner than this share of the mean error of a zone in its first days: a sensor that says the same for
days says so because its display is coarse."""

SMALLEST = 4e-6
"""No interval is thinner than this share of the median: thinner ones are lost in single precision."""


class Bounds:
    """Keeps quantiles within what is possible: p10 <= p50 <= p90, p10 < p90.

    ``thinnest [H, M]`` are the least widths at the learned horizons.
    """

    def __init__(self, spec: ForecastSpec, prior: Prior) -> None:
        self.thinnest = LEAST_WIDTH * prior.issued.mean(axis=0)
        self._horizons_min = spec.horizons_min
        self._low, self._high = (np.array(side, dtype=np.float32) for side in zip(*spec.limits, strict=True))

    def thinnest_at(self, minutes: I64) -> F32:
        """The least widths at ``minutes [T]`` ahead, ``[T, M]``: linear between those at the horizons."""
        return np.stack([np.interp(minutes, self._horizons_min, of) for of in self.thinnest.T], -1, dtype=np.float32)

    def within(self, median: F32) -> F32:
        """A median ``[..., M]`` within what is possible."""
        return np.asarray(np.clip(median, self._low, self._high), dtype=np.float32)

    def around(self, median: F32, below: F32, above: F32, thinnest: F32) -> F32:
        """The quantiles that lie ``below`` and ``above`` a median, ``[..., M, Q]``; both sides of a thinner interval
        are as wide as ``thinnest``.
        """
        thinnest = np.maximum(thinnest, np.float32(SMALLEST) * np.abs(median))
        thin = below + above < thinnest
        below, above = (np.where(thin, thinnest, side) for side in (below, above))
        return self.keep(np.stack([median - below, median, median + above], axis=-1), thinnest)

    def keep(self, quantiles: F32, thinnest: F32) -> F32:
        """``quantiles [..., M, Q]`` within what is possible; where all of them lie at a limit or beyond it, the outer
        one is ``thinnest`` off it.
        """
        p10, p50, p90 = np.moveaxis(np.clip(quantiles, self._low[:, None], self._high[:, None]), -1, 0)
        thinnest = np.maximum(thinnest, np.float32(SMALLEST) * np.abs(p50))
        p10, p90 = np.minimum(p10, self._high - thinnest), np.maximum(p90, self._low + thinnest)
        return np.stack([np.minimum(p10, p50), p50, np.maximum(p90, p50)], axis=-1, dtype=np.float32)
