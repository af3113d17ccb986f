"""Step 7 of the way of a reading: the newest rows of every zone in memory, from which model input is cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from models.half_precision import cut

__all__ = ["Rings"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


_FIRST_BLOCK, _LARGEST_BLOCK = 8, 256  # zones


class Rings:
    """``capacity`` steps of ``C`` channels a zone; a row's slot is its step number modulo the capacity.

    Zones lie in blocks, so that a new zone never moves the rows of the others: they are most of a shard's memory.
    Channels that no zone ever had take no room, because most sites measure only a few. ``kind`` is how values are kept:
    half precision is finer than most sensors. What it cannot hold is cut.
    """

    def __init__(self, step_ms: int, capacity: int, channels: int, kind: type = np.float32) -> None:
        self.step_ms, self.capacity, self.channels, self._kind = step_ms, capacity, channels, kind
        self._zones: dict[tuple[str, str], int] = {}
        self._columns: I64 = np.empty(0, np.int64)  # the channels that were ever there, in the order in which they came
        self._blocks: list[F32] = []  # [zones of the block, capacity, columns] each
        self._block: I64 = np.empty(0, np.int64)  # of each zone, and
        self._place: I64 = np.empty(0, np.int64)  # its place there
        self._newest: I64 = np.empty(0, np.int64)  # step number of each zone's newest row

    @property
    def zones(self) -> tuple[tuple[str, str], ...]:
        """(site, zone) in the order of their indices."""
        return tuple(self._zones)

    def index(self, site: str, zone: str) -> int:
        """The index of a zone, which is added when it is new; indices count up from 0 and never change."""
        found = self._zones.get((site, zone))
        if found is not None:
            return found
        index = self._zones[site, zone] = len(self._zones)
        if index == len(self._newest):
            room = min(max(_FIRST_BLOCK, index), _LARGEST_BLOCK)
            self._block = np.append(self._block, np.full(room, len(self._blocks)))
            self._place = np.append(self._place, np.arange(room))
            self._newest = np.append(self._newest, np.full(room, -1))
            self._blocks.append(np.full((room, self.capacity, len(self._columns)), np.nan, self._kind))
        return index

    def known(self, site: str, zone: str) -> int | None:
        """The index of a zone that was there before, else ``None``."""
        return self._zones.get((site, zone))

    def write(self, indices: I64, end_ms: int, values: F32) -> None:
        """Keep ``values`` [Z, C] as the rows that end at ``end_ms``; skipped steps become NaN.

        Raises ``ValueError`` for a row that is not newer than the zone's newest.
        """
        step = end_ms // self.step_ms
        newest = self._newest[indices]
        if (newest >= step).any():
            raise ValueError(f"row {end_ms} is not newer than {int(newest.max()) * self.step_ms}")
        self._make_room(values)
        for number, of_block in self._by_block(indices):
            block, places = self._blocks[number], self._place[indices[of_block]]
            for before, place in zip(newest[of_block].tolist(), places.tolist(), strict=True):
                if 0 <= before < step - 1:
                    skipped = np.arange(max(before + 1, step - self.capacity + 1), step)
                    block[place, skipped % self.capacity] = np.nan
            block[places, step % self.capacity] = self._cut(values[of_block][:, self._columns])
        self._newest[indices] = step

    def window(self, indices: I64, origin_ms: I64, length: int) -> F32:
        """[N, length, C]: the rows up to and with each origin, oldest first; NaN where there is none (any more)."""
        steps = (origin_ms // self.step_ms)[:, None] + np.arange(1 - length, 1)[None, :]
        newest = self._newest[indices][:, None]
        known = (steps <= newest) & (steps > newest - self.capacity) & (steps >= 0)
        held: F32 = np.empty((len(indices), length, len(self._columns)), np.float32)
        for number, of_block in self._by_block(indices):
            places = self._place[indices[of_block]]
            held[of_block] = self._blocks[number][places[:, None], steps[of_block] % self.capacity]
        held[~known] = np.nan
        window: F32 = np.full((len(indices), length, self.channels), np.nan, np.float32)
        window[:, :, self._columns] = held
        return window

    def newest_ms(self, index: int) -> int | None:
        """The end of a zone's newest row."""
        step = int(self._newest[index])
        return None if step < 0 else step * self.step_ms

    def recent(self, index: int, length: int) -> tuple[I64, F32]:
        """The last ``length`` steps of a zone that have any value: their ends [n] and values [n, C]."""
        newest = self.newest_ms(index)
        if newest is None:
            return np.empty(0, np.int64), np.empty((0, self.channels), np.float32)
        length = min(length, self.capacity)
        rows = self.window(np.array([index]), np.array([newest]), length)[0]
        ends = newest + self.step_ms * np.arange(1 - length, 1, dtype=np.int64)
        known = ~np.isnan(rows).all(axis=1)
        return ends[known], rows[known]

    def state(self) -> dict[str, Any]:
        """Plain values and arrays for a snapshot."""
        zones = [list(zone) for zone in self._zones]
        return {
            "zones": zones, "channels": self.channels, "columns": self._columns, "blocks": list(self._blocks),
            "newest": self._newest,
        }  # fmt: skip

    def load(self, state: dict[str, Any]) -> None:
        """Inverse of :meth:`state`, which then belongs to the rings; raises ``ValueError`` when the shapes are of
        other settings.
        """
        expected = (self.capacity, len(state["columns"]))
        wrong = [block.shape[1:] for block in state["blocks"] if block.shape[1:] != expected]
        if wrong or state["channels"] != self.channels:
            found = wrong[0] if wrong else (self.capacity, state["channels"])
            raise ValueError(f"rings of shape {found}, expected {(self.capacity, self.channels)}")
        self._zones = {(site, zone): index for index, (site, zone) in enumerate(state["zones"])}
        self._columns = state["columns"].copy()
        blocks = state["blocks"]
        self._blocks = [b if b.dtype == self._kind else self._cut(b).astype(self._kind) for b in blocks]
        self._newest = state["newest"].copy()
        self._block = np.repeat(np.arange(len(self._blocks)), [len(block) for block in self._blocks])
        self._place = np.concatenate([np.empty(0, np.int64), *(np.arange(len(block)) for block in self._blocks)])

    def _cut(self, values: F32) -> F32:
        return cut(values) if self._kind is np.float16 else values

    def _make_room(self, values: F32) -> None:
        """Add a column for each channel of ``values`` [Z, C] that is new."""
        there = np.flatnonzero(~np.isnan(values).all(axis=0))
        new = np.setdiff1d(there, self._columns)
        if len(new):
            self._columns = np.append(self._columns, new)
            for number, block in enumerate(self._blocks):  # one after another: never all of them twice
                missing = np.full((*block.shape[:2], len(new)), np.nan, self._kind)
                self._blocks[number] = np.concatenate([block, missing], axis=2)

    def _by_block(self, indices: I64) -> Iterator[tuple[int, I64]]:
        """Each block that some of ``indices`` lie in, and where among them those stand."""
        blocks = self._block[indices]
        for number in np.unique(blocks).tolist():
            yield number, np.flatnonzero(blocks == number)
