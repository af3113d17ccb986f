"""Means of directions, which no mean of numbers is: of 350° and 10° it is 0°."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["mean_direction"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


def mean_direction(row: I64, degrees: F64, size: int) -> F64:
    """The direction of the sum of those in each row ``[size]``, 0 to 360; NaN where there are none, or they cancel out.

    ``row [N]`` says of each of ``degrees [N]``, all of them known, which row it belongs to.

    >>> mean_direction(np.array([0, 0, 2, 2]), np.array([80.0, 100.0, 0.0, 180.0]), 3).round(6)
    array([90., nan, nan])
    """
    east, north = (np.bincount(row, turn(np.radians(degrees)), size) for turn in (np.sin, np.cos))
    count = np.bincount(row, minlength=size)
    mean = np.degrees(np.arctan2(east, north)) % 360.0
    return np.where(np.hypot(east, north) <= 1e-9 * count, np.nan, mean)
