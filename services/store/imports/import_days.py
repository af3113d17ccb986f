"""Step 6 of the way of a reading: the rows of an import, day by day."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from models.durations import DAY_MS
from services.store.parquet import source_of, unreadable
from services.store.storage import Storage

__all__ = ["ImportDays"]


class ImportDays:
    """The rows in a file by UTC day, oldest first; they are sorted by ``end_ms`` there.

    A day is read when it is asked for: a shard has no room for years of rows, and no time to look through all of them
    for each day. Some thousand rows are in memory, and of a bucket the object as it is packed. Raises
    :class:`HistoryError` for a file that is damaged or gone.
    """

    def __init__(self, storage: Storage, key: str) -> None:
        self._where = storage.address(key)
        self._groups: dict[int, list[int]] = {}  # day -> the row groups that have rows of it
        self._held: tuple[list[int], pa.Table] | None = None  # the row groups that were read last
        with self._readable():
            self._file = pq.ParquetFile(source_of(storage, key))
            for group in range(self._file.num_row_groups):
                ends = self._file.read_row_group(group, ["end_ms"])["end_ms"].to_numpy()
                for day in np.unique(ends // DAY_MS).tolist():
                    self._groups.setdefault(day, []).append(group)
        self._days = sorted(self._groups)

    def __len__(self) -> int:
        return len(self._days)

    def __getitem__(self, index: int) -> pa.Table:
        day = self._days[index]
        groups = self._groups[day]
        if self._held is None or self._held[0] != groups:  # days that follow each other are mostly in the same
            with self._readable():
                self._held = groups, self._file.read_row_groups(groups)
        rows = self._held[1]
        return rows.filter(pa.array(rows["end_ms"].to_numpy() // DAY_MS == day))

    def begun_until(self, index: int, until_ms: int) -> int:
        """The index after the last day from ``index`` on that has begun by ``until_ms``; at least that after it."""
        return max(bisect_right(self._days, until_ms // DAY_MS), index + 1)

    def __iter__(self) -> Iterator[pa.Table]:
        return (self[index] for index in range(len(self)))

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self._where, error) from error
