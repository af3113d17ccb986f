"""Step 7 of the way of a reading: gradient-boosted trees as an expert, as plain arrays.

A :class:`Forest` answers in NumPy alone, whichever library grew the trees. A training makes it; it is never altered,
only replaced as a whole. Trees are small and answered without walking them: every test of a tree is made at once, each
that fails takes the leaves on its left away, and the first leaf that remains is the answer (QuickScorer, Lucchese and
others 2015).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["GROW_DAYS", "LEAVES", "Forest"]

F32 = npt.NDArray[np.float32]
_Array = npt.NDArray[Any]

GROW_DAYS = 5
"""The trees are grown again this often."""

LEAVES = 16
"""A tree has at most this many leaves: what remains of them is a number of 16 bits."""

_CHUNK = 64
"""This many zones at a time stay in the processor's cache."""

_FIRST = np.array([max((leaves & -leaves).bit_length() - 1, 0) for leaves in range(1 << LEAVES)], dtype=np.intp)
"""The lowest leaf of those that remain."""

_FIELDS = ("shape", "cell", "column", "threshold", "taken", "value", "start")


class Forest:
    """Trees of some cells (horizon and target); a cell without trees answers 0, an empty forest NaN.

    Arrays for ``C`` cells of ``T`` trees each, with ``LEAVES - 1`` tests and ``LEAVES`` leaves from left to right:
    ``shape [2]`` horizons and targets; ``cell [C, 2]`` those of each cell, in order; ``column [C, T, 15]`` of the
    regressors, twice as many as there are: the first half sees a missing value as less than everything, the second as
    more; ``threshold [C, T, 15]`` (greater: the test fails; infinite where a tree has fewer tests);
    ``taken [C, T, 15]`` the leaves that remain where it fails; ``value [C, T, 16]``; ``start [C]`` is added to the sum.
    """

    def __init__(self, horizons: int, targets: int, arrays: Mapping[str, _Array] | None = None) -> None:
        self._shape = (horizons, targets)
        self._arrays: dict[str, _Array] = {}
        self.load_state_dict(arrays or {})

    def __len__(self) -> int:
        return int(self._arrays["value"].shape[1]) if self._arrays else 0

    def predict(self, common: F32, ahead: F32) -> F32:
        """``[Z, D]`` and ``[Z, H, E] -> [Z, H, M]``; a regressor may be NaN."""
        zones = len(common)
        if not self._arrays:
            return np.full((zones, *self._shape), np.nan, dtype=np.float32)
        out = np.zeros((zones, *self._shape), dtype=np.float32)
        for h, targets, trees in self._of_horizon:
            for at in range(0, zones, _CHUNK):
                part = slice(at, at + _CHUNK)
                out[part, h, targets] = trees.answer(np.concatenate([common[part], ahead[part, h]], axis=1))
        return out

    def state_dict(self) -> dict[str, _Array]:
        """The arrays; copies."""
        return {name: np.array(array) for name, array in self._arrays.items()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        if state and set(state) != set(_FIELDS):
            raise ValueError(f"this forest lacks or adds {sorted(set(state) ^ set(_FIELDS))}")
        if state and tuple(state["shape"]) != self._shape:
            raise ValueError(f"trees for {state['shape'].tolist()} horizons and targets, wanted {self._shape}")
        # In one order, whatever order a file gives them in: equal trees are equal bytes in a snapshot.
        self._arrays = {name: np.array(state[name]) for name in _FIELDS if state}
        self._of_horizon: list[tuple[int, npt.NDArray[np.int64], _Trees]] = []
        horizon = self._arrays["cell"][:, 0] if state else np.empty(0, np.int64)
        for h in np.unique(horizon).tolist():
            cells = np.flatnonzero(horizon == h)
            of_cells = {name: self._arrays[name][cells] for name in _FIELDS[2:]}
            self._of_horizon.append((h, self._arrays["cell"][cells, 1], _Trees(**of_cells)))


class _Trees:
    """The trees of some cells, laid out for :meth:`answer`: the tests of all trees first, then the trees."""

    def __init__(self, column: _Array, threshold: _Array, taken: _Array, value: _Array, start: _Array) -> None:
        self._shape = column.shape[:2]  # C, T
        self._column, self._threshold = (np.moveaxis(a, 2, 0).ravel() for a in (column, threshold))
        self._threshold = self._threshold[:, None]
        self._gone = ~np.moveaxis(taken, 2, 0).reshape(LEAVES - 1, -1, 1)  # leaves that a failed test takes away
        self._value, self._start = value.ravel(), start
        self._first = np.arange(value.size // LEAVES, dtype=np.intp)[:, None] * LEAVES

    def answer(self, x: F32) -> F32:
        """Their sums, ``x [Z, D] -> [Z, C]``."""
        missing = np.isnan(x)
        both = np.concatenate([np.where(missing, -np.inf, x), np.where(missing, np.inf, x)], axis=1, dtype=np.float32)
        fails = both.T.take(self._column, axis=0) > self._threshold  # [15 C T, Z]
        gone = np.multiply(fails.reshape(LEAVES - 1, -1, len(x)), self._gone, dtype=np.uint16)
        leaf: npt.NDArray[np.intp] = _FIRST[~np.bitwise_or.reduce(gone, axis=0)]  # [C T, Z]
        leaf += self._first
        sums = self._value.take(leaf).reshape(*self._shape, len(x)).sum(axis=1)
        return np.asarray(sums.T + self._start)
