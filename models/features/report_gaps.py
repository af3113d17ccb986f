"""Step 9 of the way of a reading: how often sensors report, learned from rows, and from when on they are silent.

Nothing is kept for it: the rows of the newest day say it. What ``SensorFaults`` knows is the longest gap of weeks,
which a single bad night makes longer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["MOST_S", "report_gaps_s", "silent_after_s"]

I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

MISSED = 2.5
"""A sensor is silent once it has said nothing for so many of its usual gaps ..."""

MOST_S = 3 * 3600
"""... or for so long: of a greenhouse three hours ago nobody can say how it is."""

LONGEST_S = 2 * 3600
"""A longer gap is a silence, and tells nothing of how often a sensor reports."""

FEWEST = 3
"""From fewer gaps nothing is learned."""


def report_gaps_s(known: Bool, step_s: int) -> I64:
    """The usual time from one row with a reading to the next, in seconds; ``known [..., T]`` says of rows in their
    order which have one. 0 where it is one step, or not known yet.

    Half of the time lies in gaps of this length or shorter ones. The plain median of their lengths would be 10 minutes
    for two sensors of a zone that report each hour, ten minutes apart, and call the zone silent for half of each hour.

    >>> report_gaps_s(np.array([[1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0], [1] * 11, [0, 0, 1] + [0] * 8], dtype=bool), 300)
    array([900,   0,   0])
    """
    place = np.arange(known.shape[-1])
    newest = np.maximum.accumulate(np.where(known, place, -1), axis=-1)
    before = np.roll(newest, 1, axis=-1)
    gaps = np.where(known & (before >= 0) & (place > 0), place - before, 0)
    gaps[gaps * step_s > LONGEST_S] = 0
    gaps.sort(axis=-1)
    reached = gaps.cumsum(axis=-1)
    half = (2 * reached < reached[..., -1:]).sum(axis=-1, keepdims=True)
    usual = np.take_along_axis(gaps, half, axis=-1)[..., 0]
    is_learned = ((gaps > 0).sum(axis=-1) >= FEWEST) & (usual > 1)
    return np.where(is_learned, usual * step_s, 0)


def silent_after_s(gap_s: float, least_s: float) -> float:
    """How old a newest reading may get that usually comes each ``gap_s``, and at least ``least_s``.

    >>> silent_after_s(0, 1800), silent_after_s(3600, 1800), silent_after_s(7200, 1800)
    (1800, 9000.0, 10800)
    """
    return max(least_s, min(MISSED * gap_s, MOST_S))
