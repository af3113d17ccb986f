"""Times of day at which something is kept of every zone: fewer than rows, and between two of them lies a line."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from models.spec import ForecastSpec

__all__ = ["DayKnots", "on_line"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


class DayKnots:
    """A knot every ``stride`` steps (``ForecastSpec.example_steps``), ``count`` a day.

    What a zone usually does at a time of day changes little within a quarter of an hour: a zone whose rows come every
    minute takes as much room as one whose rows come every quarter.

    >>> knots = DayKnots(ForecastSpec(channels=("air_temp_c",)))
    >>> knots.stride, knots.count
    (3, 96)
    >>> held = np.arange(96, dtype=np.float32)[None, :, None]  # [Z, count, M]
    >>> knots.at(held, np.array([[0]]), np.array([[0, 1, 3, 286]])).astype(float).round(2).tolist()
    [[[0.0], [0.33], [1.0], [63.33]]]
    """

    def __init__(self, spec: ForecastSpec) -> None:
        self.day = spec.steps_per_day
        self.stride = spec.example_steps
        self.count = self.day // self.stride

    def at(self, held: npt.NDArray[Any], zones: I64, day_bin: I64) -> F32:
        """``held [Z, count, ...]`` at the steps of the day ``day_bin``, which broadcasts with ``zones``; where one of
        the two knots around it is unknown, the other's.
        """
        before, rest = np.divmod(day_bin, self.stride)
        low = held[zones, before].astype(np.float32, copy=False)
        if not np.any(rest):
            return low
        high = held[zones, (before + 1) % self.count].astype(np.float32, copy=False)
        return on_line(low, high, rest / self.stride)


def on_line(low: F32, high: F32, share: npt.NDArray[Any]) -> F32:
    """What lies a ``share`` of the way from ``low`` to ``high``; where one of both is unknown, the other, but at
    ``low`` itself what is known there. ``share`` has the first axes of both.

    >>> on_line(np.float32([[1, 2], [1, np.nan]]), np.float32([[3, np.nan], [5, 7]]), np.array([0.5, 0.25])).tolist()
    [[2.0, 2.0], [2.0, 7.0]]
    """
    share = share.astype(np.float32).reshape(*share.shape, *(1,) * (low.ndim - share.ndim))
    line = low + share * (high - low)
    between = np.where(np.isnan(line), np.where(np.isnan(low), high, low), line)
    return np.where(share > 0, between, low)
