"""Step 9 of the way of a reading: when something is the case, and when it only flickers.

A course has crossed its limit where its margin is above 0. What lasts less than ``for_steps`` is no event; what comes
back within ``keep_steps``, or is back by less than the hysteresis, never ended.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["occurring", "spans_of"]

Bool = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]


def occurring(margin: _Array, hysteresis: float, for_steps: int, keep_steps: int) -> Bool:
    """``margin [..., N]`` -> whether an event goes on at each step, in hindsight; NaN is no event.

    >>> occurring(np.array([-1.0, 2.0, -0.1, 2.0, -1.0, -1.0, 2.0, -1.0]), 0.5, 2, 1).astype(int).tolist()
    [0, 1, 1, 1, 0, 0, 0, 0]
    """
    if not (margin > 0).any():  # as in most half hours; the work below is most of what a rule costs
        return np.zeros(margin.shape, dtype=np.bool_)
    index = np.arange(margin.shape[-1])
    # Between the limit and the hysteresis it stays as it was before.
    decided = (margin > 0) | ~(margin >= -hysteresis)
    newest = np.maximum.accumulate(np.where(decided, index, -1), axis=-1)
    on = np.take_along_axis(margin, np.maximum(newest, 0), axis=-1) > 0
    on &= newest >= 0
    if keep_steps > 1:
        start, end = _runs(on)
        # What was before the first step, and what comes after the last, is unknown: there nothing is filled.
        on = on | ((end - start < keep_steps) & (start > 0) & (end < len(index)))
    if for_steps > 1:
        start, end = _runs(on)
        on = on & (end - start >= for_steps)
    return np.asarray(on, dtype=np.bool_)


def spans_of(on: Bool) -> list[tuple[int, int]]:
    """First step and end (excluded) of each event of ``on [N]``.

    >>> spans_of(np.array([True, False, True, True]))
    [(0, 1), (2, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], on, [False]]).astype(np.int8)))
    return [(int(first), int(end)) for first, end in edges.reshape(-1, 2)]


def _runs(on: Bool) -> tuple[I64, I64]:
    """First step and end (excluded) of the run that each step is in."""
    count = on.shape[-1]
    index = np.arange(count)
    change = on[..., 1:] != on[..., :-1]
    first = np.zeros(on.shape, dtype=np.int64)
    first[..., 1:] = np.where(change, index[1:], 0)
    last = np.full(on.shape, count, dtype=np.int64)
    last[..., :-1] = np.where(change, index[1:], count)
    start = np.maximum.accumulate(first, axis=-1)
    end = np.minimum.accumulate(last[..., ::-1], axis=-1)[..., ::-1]
    return start, end
