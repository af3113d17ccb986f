"""What is kept in half precision: three digits, which is more than sensors have, in half the room."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LARGEST", "cut"]

LARGEST = 60_000.0
"""Values are cut here before they are kept; from 65,520 on they would be infinite."""


def cut(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values as they can be kept; missing ones stay missing.

    >>> cut(np.array([20.5, 1e9, -np.inf, np.nan])).tolist()
    [20.5, 60000.0, -60000.0, nan]
    """
    return np.asarray(np.clip(values, -LARGEST, LARGEST))
