"""Means over known values; NaN and infinity count as missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["masked_mean"]

_Array = npt.NDArray[Any]


def masked_mean(x: _Array, axis: int, dtype: type[np.floating[Any]] | None = None) -> _Array:
    """Mean of the finite values along ``axis``; NaN where there is none.

    Sums, and so the result, have ``dtype``; without one that of ``x``, float32 at least. Unlike ``numpy.nanmean`` it
    warns of nothing, and its sum is numpy's own in the order of ``axis``: the same values give the same bits.

    >>> masked_mean(np.array([[1.0, np.nan, 3.0], [np.nan, np.inf, np.nan]]), axis=1)
    array([ 2., nan])
    """
    known = np.isfinite(x)
    short = np.uint16 if x.shape[axis] < 2**16 else np.int64
    count = known.view(np.uint8).sum(axis=axis, dtype=short)
    total = np.where(known, x, np.float32(0)).sum(axis=axis, dtype=dtype)
    # With a long count in float64, and then rounded: a quotient of two float32 comes out the same.
    mean = (total / np.maximum(count, 1)).astype(total.dtype, copy=False)
    return np.where(count > 0, mean, np.nan)
