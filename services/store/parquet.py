"""Step 6 of the way of a reading: Parquet tables that are written whole or not at all, and how folders are cut."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from services.errors import HistoryError, StorageError
from services.store.storage import Storage, always

__all__ = [
    "NOTHING", "Span", "day_of", "read_between", "read_table", "source_of", "span_of",
    "unreadable", "version_of", "write_table", "write_tables",
]  # fmt: skip

NOTHING = ""
"""The version of a table that is not there yet."""


def day_of(ms: int) -> str:
    """The UTC day.

    >>> day_of(1_646_092_800_000)
    '2022-03-01'
    """
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d")


def source_of(storage: Storage, key: str) -> Any:
    """What Arrow reads a table from. An object is fetched at once: it may be replaced between two requests, and pieces
    of two tables are none.
    """
    path = storage.local(key)
    return pa.BufferReader(storage.read(key).content) if path is None else path


def read_table(storage: Storage, key: str) -> pa.Table:
    """Raises :class:`HistoryError` for a table that is damaged or cannot be read."""
    try:
        return pq.ParquetFile(source_of(storage, key)).read()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(storage.address(key), error) from error


def read_between(
    storage: Storage, key: str, column: str, after: int, until: int, columns: Sequence[str] | None = None,
    names: Sequence[str] = (), site: str | None = None,
) -> pa.Table:  # fmt: skip
    """A table, or some columns of it, without row groups in which no ``column`` is above ``after`` and at most
    ``until``, as the footer says, or in which no row is of the ``site``. Text of the columns ``names`` stays numbers of
    a dictionary, which are read and compared faster. Raises as :func:`read_table`.
    """
    try:
        file = pq.ParquetFile(source_of(storage, key), read_dictionary=list(names))
        wanted = [
            group
            for group, ends in enumerate(_ends(file.metadata, column))
            if ends is None or (ends[1] > after and ends[0] <= until)
        ]
        if site is not None:  # its column alone is a hundredth of the group
            wanted = [n for n in wanted if pc.any(pc.equal(file.read_row_group(n, ["site"])["site"], site)).as_py()]
        return file.read_row_groups(wanted, columns)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(storage.address(key), error) from error


def version_of(storage: Storage, key: str) -> str:
    """Which version of a table is there, or :data:`NOTHING`; raises :class:`HistoryError` where nobody can say."""
    try:
        found = storage.entry(key)
    except OSError as error:
        raise unreadable(storage.address(key), error) from error
    return NOTHING if found is None else found.version


class Span(NamedTuple):
    """How many rows a table has, and the smallest and largest whole number of a column, 0 without any."""

    rows: int
    first: int
    last: int


def span_of(storage: Storage, key: str, column: str) -> Span:
    """Of a table that may have no rows, as the footer says; no row is read. Raises :class:`HistoryError`."""
    try:
        metadata = pq.read_metadata(source_of(storage, key))
    except (pa.ArrowException, OSError) as error:
        raise unreadable(storage.address(key), error) from error
    ends = list(filter(None, _ends(metadata, column)))
    first, last = min((a for a, _ in ends), default=0), max((b for _, b in ends), default=0)
    return Span(metadata.num_rows, first, last)


def _ends(metadata: pq.FileMetaData, column: str) -> list[tuple[int, int] | None]:
    """The smallest and the largest whole number of a column in each row group; ``None`` where the footer has none."""
    at = metadata.schema.names.index(column)
    found = [metadata.row_group(n).column(at).statistics for n in range(metadata.num_row_groups)]
    return [(int(s.min), int(s.max)) if s is not None and s.has_min_max else None for s in found]


def write_table(
    storage: Storage, key: str, table: pa.Table, check: Callable[[], None] = always, version: str | None = None,
    group_rows: int = 1 << 20,
) -> int:  # fmt: skip
    """Put a table in place of that ``version``, :data:`NOTHING` or ``None`` for any; ``check`` as in :class:`Storage`.

    Returns the bytes written. Raises :class:`HistoryError` if it cannot, also where another writer was faster.
    """
    return write_tables(storage, key, table.schema, [table.combine_chunks()], check, version, group_rows)


def write_tables(
    storage: Storage, key: str, schema: pa.Schema, tables: Iterable[pa.Table], check: Callable[[], None] = always,
    version: str | None = None, group_rows: int = 1 << 20,
) -> int:  # fmt: skip
    """Like :func:`write_table`, one table after the other, so that only one need be in memory."""
    size = 0

    def write(beside: Path) -> None:
        nonlocal size
        with pq.ParquetWriter(beside, schema, compression="zstd", store_schema=False) as writer:
            for table in tables:
                writer.write_table(table, row_group_size=group_rows)
        size = beside.stat().st_size

    try:
        if version is None:
            storage.put(key, write, check)
        elif version == NOTHING:
            storage.put_new(key, write, check)
        else:
            storage.swap(key, write, version, check)
    except (pa.ArrowException, OSError) as error:
        hint = error.hint if isinstance(error, StorageError) else "Free space or fix the folder's rights."
        system = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else ""  # Arrow says it twice
        raise HistoryError(f"{storage.address(key)} cannot be written: {system or error}", hint) from error
    return size


def unreadable(where: str, error: Exception) -> HistoryError:
    """What is raised for a table that is damaged or cannot be read."""
    hint = error.hint if isinstance(error, StorageError) else ""
    return HistoryError(f"{where} cannot be read: {error}", hint or "Restore it, or remove it and replay the log.")
