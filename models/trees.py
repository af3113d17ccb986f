"""Step 7 of the way of a reading: gradient-boosted trees as an expert, as plain arrays.

A :class:`Forest` answers for all horizons and targets at once, in NumPy alone; who grows the trees is no matter here.
It is what a training hands over: never altered, replaced whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Forest"]

F32 = npt.NDArray[np.float32]
_Array = npt.NDArray[Any]


class Forest:
    """Trees by horizon and target; an empty forest answers NaN.

    ``nodes`` are arrays of one entry a node, all trees one after another: ``feature`` (−1 in a leaf), ``threshold``
    (at most: left), ``missing_left``, ``left`` and ``right`` (places in these arrays), ``value``. ``root`` is
    ``[H, M, T]``, the trees of a cell; ``start [H, M]`` is added to their sum.
    """

    def __init__(self, horizons: int, targets: int, arrays: Mapping[str, _Array] | None = None) -> None:
        self._shape = (horizons, targets)
        self._arrays = dict(arrays or {})
        self._depth = int(self._arrays["depth"]) if self._arrays else 0

    def __len__(self) -> int:
        return int(self._arrays["root"].shape[2]) if self._arrays else 0

    def predict(self, common: F32, ahead: F32) -> F32:
        """``[Z, D]`` and ``[Z, H, E] -> [Z, H, M]``; a regressor may be NaN."""
        zones = len(common)
        if not self._arrays:
            return np.full((zones, *self._shape), np.nan, dtype=np.float32)
        a = self._arrays
        x = np.concatenate([np.repeat(common[:, None], ahead.shape[1], axis=1), ahead], axis=-1)
        node = np.broadcast_to(a["root"], (zones, *a["root"].shape))
        z = np.arange(zones)[:, None, None, None]
        h = np.arange(self._shape[0])[None, :, None, None]
        for _ in range(self._depth):
            feature = a["feature"][node]
            seen = x[z, h, np.maximum(feature, 0)]
            left = np.where(np.isnan(seen), a["missing_left"][node], seen <= a["threshold"][node])
            node = np.where(feature < 0, node, np.where(left, a["left"][node], a["right"][node]))
        return np.asarray(a["value"][node].sum(axis=-1) + a["start"], dtype=np.float32)

    def state_dict(self) -> dict[str, _Array]:
        """The arrays; copies."""
        return {name: np.array(array) for name, array in self._arrays.items()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` where it does not fit."""
        if state and state["root"].shape[:2] != self._shape:
            raise ValueError(f"root is {state['root'].shape}, wanted {self._shape} trees")
        self._arrays = {name: np.array(array) for name, array in state.items()}
        self._depth = int(self._arrays["depth"]) if self._arrays else 0
