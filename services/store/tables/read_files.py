"""Step 6 of the way of a reading: rows of some files of a table, from a folder or a bucket."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from services.store.parquet import unreadable
from services.store.storage import Storage

__all__ = ["FETCHED_AT_ONCE", "fetchers", "read_files", "rows_within"]

FETCHED_AT_ONCE = 8
"""Objects are waited for together: each takes its time to come."""
FEW_COLUMNS, LARGE_BYTES, FOOTER_BYTES = 3, 1_000_000, 65_536
"""At most ``FEW_COLUMNS`` columns of an object of more than ``LARGE_BYTES`` are fetched by themselves, after its last
``FOOTER_BYTES``, which say where they are. Otherwise a request each is not worth it.
"""


def read_files(
    storage: Storage, sizes: Mapping[str, int], schema: pa.Schema, columns: Sequence[str], within: pc.Expression | None
) -> pa.Table:
    """The rows that are ``within`` of files, by name with their sizes, one file after the other. A column of the
    ``schema`` that a file does not have is null there. Raises :class:`HistoryError` for a damaged file.
    """
    wanted = pa.schema([schema.field(name) for name in columns])
    if not sizes:
        return wanted.empty_table()
    keys = list(sizes)
    local = [storage.local(key) for key in keys]
    if None not in local:
        paths = [str(path) for path in local]
        try:
            return pads.dataset(paths, schema=schema, format="parquet").to_table(columns=list(columns), filter=within)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(_damaged(paths, schema, columns) or paths[0], error) from error

    def read(key: str) -> pa.Table:
        try:
            if len(columns) <= FEW_COLUMNS and sizes[key] > LARGE_BYTES and set(columns) <= {"site", "zone", "end_ms"}:
                with _Ranges(storage, key, sizes[key]) as ranges:
                    table = pq.ParquetFile(ranges, pre_buffer=False).read(list(columns), use_threads=False)
                return (table if within is None else table.filter(within)).cast(wanted)
            content: Any = pa.BufferReader(storage.read(key).content)
            fragment = pads.ParquetFileFormat().make_fragment(content)
            return fragment.to_table(schema=schema, columns=list(columns), filter=within, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(storage.address(key), error) from error

    return pa.concat_tables(fetchers().map(read, keys) if len(keys) > 1 else [read(keys[0])])


def rows_within(
    time_column: str, start_ms: int | None, end_ms: int | None, sites: Collection[str] | None,
    zones: Collection[str] | None = None,
) -> pc.Expression | None:  # fmt: skip
    """The rows with ``start_ms < time <= end_ms`` of sites and zones; ``None`` where all are wanted."""
    wanted: list[pc.Expression] = []
    if start_ms is not None:
        wanted.append(pc.field(time_column) > start_ms)
    if end_ms is not None:
        wanted.append(pc.field(time_column) <= end_ms)
    if sites is not None:
        wanted.append(pc.field("site").isin(list(sites)))
    if zones is not None:
        wanted.append(pc.field("zone").isin(list(zones)))
    return reduce(and_, wanted) if wanted else None


def _damaged(paths: Sequence[str], schema: pa.Schema, columns: Sequence[str]) -> str | None:
    """The first of the files that cannot be read by itself: of many at once Arrow does not always say which it was."""
    for path in paths:
        try:
            for _ in pads.dataset(path, schema=schema, format="parquet").to_batches(columns=list(columns)):
                pass
        except (pa.ArrowException, OSError):
            return path
    return None


class _Ranges(io.RawIOBase):
    """An object as a file, of which each piece that is read is fetched by itself; its end is fetched once."""

    def __init__(self, storage: Storage, key: str, size: int) -> None:
        self._storage, self._key, self._size, self._at = storage, key, size, 0
        self._end_at = max(size - FOOTER_BYTES, 0)
        self._end = storage.read_range(key, self._end_at, size - self._end_at)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        length = self._size - self._at if size < 0 else min(size, self._size - self._at)
        if self._at >= self._end_at:
            found = self._end[self._at - self._end_at :][:length]
        else:
            found = self._storage.read_range(self._key, self._at, length)
        self._at += len(found)
        return found


@cache
def fetchers() -> ThreadPoolExecutor:
    """For all tables of a process. What reads one file may run in it: that waits for none of its threads."""
    return ThreadPoolExecutor(FETCHED_AT_ONCE, thread_name_prefix="history")
