"""Arrays with one entry a zone that grow as zones come; what the online models keep their state in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Growing"]

_Array = npt.NDArray[Any]


class Growing:
    """Named arrays ``[zones, ...]``; each keyword gives shape of an entry, type and what a new zone's holds, a number
    or an array that is spread over the entry.

    >>> state = Growing(1, count=((2,), np.int64, 0))
    >>> state.add(), state.add()
    (0, 1)
    >>> state["count"][1] += 3
    >>> state.state_dict()["count"].tolist()
    [[0, 0], [3, 3]]
    """

    def __init__(self, capacity: int, **fields: tuple[tuple[int, ...], Any, float | _Array]) -> None:
        self._fields, self._zones = fields, 0
        self._held = self._room(max(capacity, 1))

    def __len__(self) -> int:
        return self._zones

    def __getitem__(self, name: str) -> _Array:
        return self._held[name]

    def add(self, count: int = 1) -> int:
        """Make room for more zones and return the index of the first; many at once cost little more than one."""
        first, stop = self._zones, self._zones + count
        for name, (shape, kind, fill) in self._fields.items():  # one after another: never all of them twice
            held = self._held[name]
            if stop > len(held):
                self._held[name] = np.empty((max(stop, 2 * first), *shape), dtype=kind)
                self._held[name][:first] = held[:first]
            self._held[name][first:stop] = fill
        self._zones = stop
        return first

    def state_dict(self, copy: bool = True) -> dict[str, _Array]:
        """The entries of the zones there are; without ``copy`` they are only good until the next change."""
        return {name: np.array(held[: self._zones], copy=copy or None) for name, held in self._held.items()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave, bit for bit; raises ``ValueError`` where it does not fit."""
        if set(state) != set(self._fields):
            raise ValueError(f"this state lacks or adds {sorted(set(self._fields) ^ set(state))}")
        zones = len(next(iter(state.values())))
        fresh = self._room(max(zones, 1))
        for name, held in fresh.items():
            given = state[name]
            if given.shape != (zones, *held.shape[1:]) or given.dtype != held.dtype:
                raise ValueError(f"state {name} is {given.dtype}{given.shape}, wanted {held.dtype}{held.shape}")
            held[:zones] = given
        self._held, self._zones = fresh, zones

    def _room(self, zones: int) -> dict[str, _Array]:
        # Not filled: memory that no zone uses yet is not taken from the machine.
        return {name: np.empty((zones, *shape), dtype=kind) for name, (shape, kind, _) in self._fields.items()}
