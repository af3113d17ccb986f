"""Step 9 of the way of a reading: how often sensors report, learned from rows, and from when on they are silent.

Nothing is kept for it: the rows of the newest 26 hours say it. What ``SensorFaults`` knows is the longest gap of weeks,
which a single bad night makes longer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["LOOK_S", "MOST_S", "report_gaps_s", "silent_after_s"]

I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

MISSED = 2.5
"""A sensor is silent once it has said nothing for so many of its usual gaps, but see ``SOON_S``."""

SOON_S = 3 * 3600
"""It need not be longer: of a greenhouse three hours ago nobody can say how it is. But see ``LATE``."""

LATE = 1.25
"""Before a reading is late by a quarter of its usual gap, its sensor is not silent."""

LONGEST_S = 6 * 3600
"""A longer gap is a silence, and tells nothing of how often a sensor reports."""

MOST_S = LATE * LONGEST_S
"""After so long every sensor is silent."""

FEWEST = 3
"""As many gaps must be as long as the usual one, or longer: two silences say nothing."""

LOOK_S = 26 * 3600
"""Rows of so long are looked at. That is as many as are kept at least, and enough for a sensor that reports every six
hours: while it is a little late, the four readings before are among them.
"""


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
    gaps[(gaps - 1) * step_s > LONGEST_S] = 0  # a reading that is seconds later may lie in the next row
    gaps.sort(axis=-1)
    reached = gaps.cumsum(axis=-1)
    half = (2 * reached < reached[..., -1:]).sum(axis=-1, keepdims=True)
    usual = np.take_along_axis(gaps, half, axis=-1)[..., 0]
    usual = np.minimum(usual, gaps[..., -min(FEWEST, gaps.shape[-1])])
    return np.where(usual > 1, np.minimum(usual * step_s, LONGEST_S), 0)


def silent_after_s(gap_s: float, least_s: float) -> float:
    """How old a newest reading may get that usually comes each ``gap_s``, and at least ``least_s``.

    >>> [silent_after_s(hours * 3600, 1800) / 3600 for hours in (0, 1, 2, 4)]
    [0.5, 2.5, 3.0, 5.0]
    """
    return max(least_s, min(MISSED * gap_s, max(SOON_S, LATE * gap_s)))
