"""Step 7 of the way of a reading: symmetric systems of three equations, hundreds of thousands an hour."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["solve_symmetric"]

_Array = npt.NDArray[Any]


def solve_symmetric(system: _Array, right: _Array) -> _Array:
    """``system [..., 3, 3]`` and ``right [..., 3]``: the inverse is made of the cross products of the rows.

    >>> solve_symmetric(np.array([[2.0, 0, 1], [0, 1, 0], [1, 0, 1]]), np.array([3.0, 5, 2])).tolist()
    [1.0, 5.0, 1.0]
    """
    columns = np.empty(system.shape, system.dtype)
    for i in range(3):  # as np.cross would, in half the time
        above, below = system[..., (i + 1) % 3, :], system[..., (i + 2) % 3, :]
        for j in range(3):
            k, m = (j + 1) % 3, (j + 2) % 3
            columns[..., j, i] = above[..., k] * below[..., m] - above[..., m] * below[..., k]
    det = (system[..., 0, :] * columns[..., 0]).sum(axis=-1, keepdims=True)
    return np.asarray((columns @ right[..., None])[..., 0] / det)
