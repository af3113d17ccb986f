"""Arrays with one entry a zone, which grow as zones come. The online models keep their state in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ZoneArrays", "ZoneState", "part_of", "whose_turn"]

_Array = npt.NDArray[Any]

_A_CALL = 16


class ZoneArrays:
    """Named arrays ``[zones, ...]``; each keyword gives an entry's shape, its type and its initial value: a number, or
    an array that is broadcast.

    >>> state = ZoneArrays(1, count=((2,), np.int64, 0))
    >>> state.add(), state.add()
    (0, 1)
    >>> state["count"][1] += 3
    >>> state.state_dict()["count"].tolist()
    [[0, 0], [3, 3]]
    """

    def __init__(self, capacity: int, **fields: tuple[tuple[int, ...], Any, float | _Array]) -> None:
        self._fields, self._zones = fields, 0
        self._filled = 0  # entries that hold what a zone's do, or a new one's
        self._held = self._room(max(capacity, 1))

    def __len__(self) -> int:
        return self._zones

    def __getitem__(self, name: str) -> _Array:
        return self._held[name]

    def add(self, count: int = 1) -> int:
        """Make room for more zones and return the index of the first; many at once cost little more than one."""
        first = self._zones
        self._fill(first + count)
        self._zones += count
        return first

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all, a few more with each call, because the machine takes longer to give
        new memory than a step takes to learn. No visible state changes.
        """
        self._fill(min(zones, self._filled + _A_CALL))

    def _fill(self, stop: int) -> None:
        """Let the entries up to ``stop`` hold what a new zone's do, unless they do."""
        if stop <= self._filled:
            return
        for name, (shape, kind, fill) in self._fields.items():  # one after another: never all of them twice
            held = self._held[name]
            if stop > len(held):
                self._held[name] = np.empty((max(stop, 2 * len(held)), *shape), dtype=kind)
                self._held[name][: self._filled] = held[: self._filled]
            self._held[name][self._filled : stop] = fill
        self._filled = stop

    def state_dict(self, copy: bool = True) -> dict[str, _Array]:
        """The entries of the zones there are; without ``copy`` they are only good until the next change."""
        return {name: np.array(held[: self._zones], copy=copy or None) for name, held in self._held.items()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave, bit for bit; raises ``ValueError`` if it does not fit."""
        if set(state) != set(self._fields):
            raise ValueError(f"this state lacks or adds {sorted(set(self._fields) ^ set(state))}")
        zones = len(next(iter(state.values())))
        fresh = self._room(max(zones, 1))
        for name, held in fresh.items():
            given = state[name]
            if given.shape != (zones, *held.shape[1:]) or given.dtype != held.dtype:
                raise ValueError(f"state {name} is {given.dtype}{given.shape}, wanted {held.dtype}{held.shape}")
            held[:zones] = given
        self._held, self._zones, self._filled = fresh, zones, zones

    @staticmethod
    def load_together(held: Sequence[ZoneArrays], state: Mapping[str, _Array]) -> None:
        """Take over a state that holds what several gave together, of the same zones; raises ``ValueError`` if it does
        not fit.
        """
        names = {name for one in held for name in one._fields}
        if set(state) != names:
            raise ValueError(f"this state lacks or adds {sorted(names ^ set(state))}")
        for one in held:
            one.load_state_dict({name: state[name] for name in one._fields})
        if len({len(one) for one in held}) > 1:
            raise ValueError(f"this state has {sorted({len(one) for one in held})} zones at once")

    def _room(self, zones: int) -> dict[str, _Array]:
        # Not filled: memory that no zone uses yet is not taken from the machine.
        return {name: np.empty((zones, *shape), dtype=kind) for name, (shape, kind, _) in self._fields.items()}


class ZoneState:
    """What a model keeps of each zone, in ``_zones``; a model that keeps more adds it to the state."""

    _zones: ZoneArrays

    def add_zones(self, count: int = 1) -> int:
        """Make room for more zones and return the index of the first."""
        return self._zones.add(count)

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see :meth:`ZoneArrays.prepare`."""
        self._zones.prepare(zones)

    def state_dict(self, copy: bool = True) -> dict[str, _Array]:
        """Everything that was learned (see :meth:`ZoneArrays.state_dict`)."""
        return self._zones.state_dict(copy)

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        self._zones.load_state_dict(state)


def part_of(count: int, taking_part: npt.NDArray[np.bool_]) -> float:
    """How large a part ``count`` zones are of those that take part in a step, 0 to 1.

    A step comes as a call for each site. What all zones share forgets by this part of a step in each, so that it is not
    forgotten faster where there are more sites.

    >>> part_of(2, np.array([True, False, True, True, True])), part_of(1, np.array([False]))
    (0.5, 1.0)
    """
    return count / max(int(taking_part.sum()), count)


def whose_turn(zones: int, most: int, number: int) -> slice:
    """Which of ``zones`` zones have their turn at call ``number``: at most ``most`` at once, and each in its turn.

    >>> [list(range(5)[whose_turn(5, most=2, number=number)]) for number in range(4)]
    [[0, 3], [1, 4], [2], [0, 3]]
    """
    turns = max(-(-zones // most), 1)
    return slice(number % turns, None, turns)
