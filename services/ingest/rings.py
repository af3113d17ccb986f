"""Step 7 of the way of a reading: the newest rows of every zone in memory, from which model input is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Rings"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


class Rings:
    """``capacity`` steps of ``C`` channels a zone; a row's slot is its step number modulo the capacity."""

    def __init__(self, step_ms: int, capacity: int, channels: int) -> None:
        self.step_ms, self.capacity, self.channels = step_ms, capacity, channels
        self._zones: dict[tuple[str, str], int] = {}
        self._data: F32 = np.empty((0, capacity, channels), np.float32)
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
        if index == len(self._data):
            room = max(8, index // 4)
            self._data = np.concatenate([self._data, np.full((room, self.capacity, self.channels), np.nan, np.float32)])
            self._newest = np.concatenate([self._newest, np.full(room, -1, np.int64)])
        return index

    def write(self, indices: I64, end_ms: int, values: F32) -> None:
        """Keep ``values`` [Z, C] as the rows that end at ``end_ms``; skipped steps become NaN.

        Raises ``ValueError`` for a row that is not newer than the zone's newest.
        """
        step = end_ms // self.step_ms
        for index, row in zip(indices.tolist(), values, strict=True):
            newest = int(self._newest[index])
            if step <= newest:
                raise ValueError(f"row {end_ms} is not newer than {newest * self.step_ms}")
            if newest >= 0:
                skipped = np.arange(max(newest + 1, step - self.capacity + 1), step)
                self._data[index, skipped % self.capacity] = np.nan
            self._data[index, step % self.capacity] = row
            self._newest[index] = step

    def window(self, indices: I64, origin_ms: I64, length: int) -> F32:
        """[N, length, C]: the rows up to and with each origin, oldest first; NaN where there is none (any more)."""
        steps = (origin_ms // self.step_ms)[:, None] + np.arange(1 - length, 1)[None, :]
        newest = self._newest[indices][:, None]
        known = (steps <= newest) & (steps > newest - self.capacity) & (steps >= 0)
        window: F32 = self._data[indices[:, None], steps % self.capacity]
        window[~known] = np.nan
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
        count = len(self._zones)
        return {"zones": [list(z) for z in self._zones], "data": self._data[:count], "newest": self._newest[:count]}

    def load(self, state: dict[str, Any]) -> None:
        """Inverse of :meth:`state`; raises ``ValueError`` when the shapes are of other settings."""
        if state["data"].shape[1:] != (self.capacity, self.channels):
            raise ValueError(f"rings of shape {state['data'].shape[1:]}, expected {(self.capacity, self.channels)}")
        self._zones = {(site, zone): index for index, (site, zone) in enumerate(state["zones"])}
        self._data, self._newest = state["data"].copy(), state["newest"].copy()
