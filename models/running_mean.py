"""A mean that moves with each new value, and slower the more it has seen, down to a rate at which it forgets."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["counted", "moved_mean"]

_Array = npt.NDArray[Any]


def moved_mean(held: _Array, count: _Array, new: _Array, slowest: _Array | np.floating[Any]) -> _Array:
    """The mean ``held`` of ``count`` values, once it has moved towards ``new``: by ``1 / (count + 1)`` of the way, and
    by ``slowest`` at least.

    ``held`` is NaN until the first value, which it then is; where ``new`` is NaN, nothing moves.

    >>> moved_mean(np.float32([np.nan, 20, 20]), np.uint8([0, 3, 3]), np.float32([21, 24, np.nan]), np.float32(0.1))
    array([21., 21., 20.], dtype=float32)
    """
    gain = np.maximum(slowest, 1 / (count + np.float32(1)))
    moved = np.where(np.isnan(held), new, held + gain * (new - held))
    return np.where(np.isnan(new), held, moved)


def counted(count: npt.NDArray[np.uint8], known: npt.NDArray[np.bool_] | bool) -> npt.NDArray[np.uint8]:
    """One more where a value is ``known``. A count has eight bits and stays at 255, where means no longer look at it.

    >>> counted(np.uint8([0, 0, 255]), np.array([False, True, True]))
    array([  0,   1, 255], dtype=uint8)
    """
    return np.asarray(np.minimum(count, 254) + known, np.uint8)
