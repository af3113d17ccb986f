"""Step 7 of the way of a reading: what no sensor measures counts as missing, before anything is learned of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["LARGEST_MEASURED", "measured"]

F32 = npt.NDArray[np.float32]

LARGEST_MEASURED = 1e9
"""Larger values are what a program writes where it has none, such as 9.97e36. Learners add up squares: they would not
forget one, or become infinite.
"""


def measured(values: F32) -> F32:
    """The values; NaN where one is infinite, or larger than :data:`LARGEST_MEASURED`.

    >>> measured(np.array([20.5, np.inf, -9.97e36, np.nan], np.float32)).tolist()
    [20.5, nan, nan, nan]
    """
    return np.where(np.abs(values) <= np.float32(LARGEST_MEASURED), values, np.float32(np.nan))
