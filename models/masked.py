"""Means over known values, and values that count on for a while; NaN and infinity count as missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["held_along", "masked_mean", "mean_of_known", "newest_known"]

_Array = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]


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


def mean_of_known(parts: Sequence[_Array]) -> _Array:
    """:func:`masked_mean` over a few float32 arrays of one shape, bit for bit; several times as fast as over a short
    axis of one array.

    >>> mean_of_known([np.float32([1, np.nan]), np.float32([2, np.nan])])
    array([1.5, nan], dtype=float32)
    """
    known = [np.isfinite(part) for part in parts]
    count = sum(one.view(np.uint8).astype(np.uint16) for one in known)
    total = np.where(known[0], parts[0], np.float32(0))
    for one, part in zip(known[1:], parts[1:], strict=True):
        total += np.where(one, part, np.float32(0))
    mean = (total / np.maximum(count, 1)).astype(total.dtype, copy=False)
    return np.where(count > 0, mean, np.float32(np.nan))


def held_along(values: _Array, most: int) -> _Array:
    """``values [Z, T, C]``, where a missing one is the newest of up to ``most`` rows before it; NaN where none is.

    >>> held_along(np.array([[[np.nan], [3.0], [np.nan], [np.nan]]]), 1)[0, :, 0]
    array([nan,  3.,  3., nan])
    """
    place = np.arange(values.shape[1])[:, None]
    newest = np.maximum.accumulate(np.where(np.isfinite(values), place, -1), axis=1)
    held = np.take_along_axis(values, np.maximum(newest, 0), axis=1)
    return np.where((newest >= 0) & (place - newest <= most), held, np.array(np.nan, values.dtype))


def newest_known(values: _Array, most: int) -> tuple[_Array, I64]:
    """The newest known of the last ``1 + most`` rows of ``values [Z, T, C]``, and how many rows before the last it is.

    Both are ``[Z, C]``; NaN, and 0 rows, where none is known.

    >>> newest_known(np.array([[[3.0, 4.0], [np.nan, np.nan], [5.0, np.nan]]]), 1)
    (array([[ 5., nan]]), array([[0, 0]]))
    """
    back = values[:, -1 : -2 - most : -1]
    rows = np.isfinite(back).argmax(axis=1)
    newest = np.take_along_axis(back, rows[:, None], axis=1)[:, 0]
    return np.where(np.isfinite(newest), newest, np.array(np.nan, values.dtype)), rows
