"""What is kept in half precision: three digits, which is more than sensors have, in half the room."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LARGEST", "cut", "in_decimals"]

LARGEST = 60_000.0
"""Values are cut here before they are kept; from 65,520 on they would be infinite."""


def cut(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values as they can be kept; missing ones stay missing.

    >>> cut(np.array([20.5, 1e9, -np.inf, np.nan])).tolist()
    [20.5, 60000.0, -60000.0, nan]
    """
    return np.asarray(np.clip(values, -LARGEST, LARGEST))


def in_decimals(value: float) -> float:
    """What was kept, in the fewest decimals that are kept as the same: as the sensor gave it, if in three digits.

    >>> kept = float(np.float16(21.4))
    >>> kept, in_decimals(kept)
    (21.40625, 21.4)
    """
    return float(str(np.float16(value)))
