"""Step 7 of the way of a reading: what is read from scenarios.

Whatever is said of a whole night or day (its minimum, hours outside a band, the chance of crossing a limit) is found in
each scenario and then counted. Single quantiles cannot say it: the worst hours of a night do not all come true at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.durations import HOUR_MS

__all__ = ["chance_of_crossing", "dense", "extreme", "hours_outside", "mean_ahead", "next_span", "quantiles_of"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

LEVELS = (0.1, 0.5, 0.9)


def next_span(inside: Bool, is_now: bool) -> tuple[int, int, bool] | None:
    """The next span of times that are ``inside [T]``: first time, end (excluded), and whether it lies ahead as a whole.

    A span that goes on beyond the last time is none; one that goes on now (``is_now``) counts from the first time.

    >>> next_span(np.array([False, True, True, False]), is_now=False)
    (1, 3, True)
    >>> next_span(np.array([True, False, False, True]), is_now=True)
    (0, 1, False)
    >>> next_span(np.array([False, True]), is_now=False) is None
    True
    """
    found = np.flatnonzero(inside)
    if not len(found):
        return None
    start = int(found[0])
    ends = np.flatnonzero(~inside[start:])
    if not len(ends):
        return None
    return start, start + int(ends[0]), not (start == 0 and (is_now or bool(inside[0])))


def extreme(values: F32, sign: int, beyond: F32) -> tuple[F32, I64]:
    """The largest (``sign`` 1) or smallest (-1) value of each scenario ``[S, ..., T]``, and which time that is.

    ``beyond [..., T]`` is how far values between a time and the one before it usually go beyond both.
    """
    turned = np.asarray(sign * values)
    before = np.concatenate([turned[..., :1], turned[..., :-1]], axis=-1)
    between = np.maximum(turned, before) + np.where(np.arange(values.shape[-1]) > 0, beyond, np.float32(0))
    at = np.argmax(between, axis=-1)
    largest = np.take_along_axis(between, at[..., None], axis=-1)[..., 0]
    return np.asarray(sign * largest, dtype=np.float32), np.asarray(at, dtype=np.int64)


def quantiles_of(values: npt.NDArray[np.floating]) -> F64:
    """p10, p50 and p90 over scenarios: ``[S, ...] -> [3, ...]``."""
    return np.asarray(np.quantile(values, LEVELS, axis=0), dtype=np.float64)


def dense(values: F32, now: F32, steps: I64) -> F32:
    """Scenarios ``[S, T]`` at every step from the origin, where they are ``now``, on lines: ``[S, steps[-1] + 1]``."""
    known = np.concatenate([[0], steps])
    grid = np.arange(known[-1] + 1)
    after = np.clip(np.searchsorted(known, grid), 1, len(steps))
    share = ((grid - known[after - 1]) / (known[after] - known[after - 1])).astype(np.float32)
    held = np.concatenate([np.broadcast_to(now, (len(values), 1)), values], axis=1)
    line = held[:, after - 1] + share * (held[:, after] - held[:, after - 1])
    return np.asarray(np.where(share == 1, held[:, after], line), dtype=np.float32)  # what is now may be unknown


def mean_ahead(course: F32) -> F32:
    """The mean of each scenario over the way ahead; ``course [S, N]`` as of :func:`dense`."""
    return np.asarray(((course[:, :-1] + course[:, 1:]) / 2).mean(axis=1), dtype=np.float32)


def hours_outside(course: F32, low: float, high: float, step_ms: int) -> F32:
    """Hours of each scenario outside of the band; the value at a step's end stands for the step.

    >>> hours_outside(np.array([[20.0, 17.0, 16.0, 20.0]]), 18.0, 25.0, 1_800_000).tolist()
    [1.0]
    """
    outside = (course[:, 1:] < low) | (course[:, 1:] > high)
    return np.asarray(outside.sum(axis=1) * step_ms / HOUR_MS, dtype=np.float32)


def chance_of_crossing(course: F32, limit: float, sign: int, for_steps: int) -> float:
    """The share of scenarios above (``sign`` 1) or below (-1) the limit for so many steps on end, at least one.

    >>> course = np.array([[20.0, 17.0, 16.0, 20.0], [20.0, 17.0, 19.0, 17.0]])
    >>> chance_of_crossing(course, 18.0, -1, 1), chance_of_crossing(course, 18.0, -1, 2)
    (1.0, 0.5)
    """
    beyond = sign * course[:, 1:] > sign * limit
    run = np.zeros(len(course), dtype=np.int64)
    longest = run.copy()
    for column in beyond.T:
        run = np.where(column, run + 1, 0)
        longest = np.maximum(longest, run)
    return float((longest >= max(for_steps, 1)).mean())
