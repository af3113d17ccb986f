"""Step 6 of the way of a reading: Parquet files that are written whole or not at all, and how their folders are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from services.errors import HistoryError
from services.store.files import always, write_atomically

__all__ = ["day_of", "largest", "names", "read_table", "unreadable", "write_table", "write_tables"]


def day_of(ms: int) -> str:
    """The UTC day.

    >>> day_of(1_646_092_800_000)
    '2022-03-01'
    """
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d")


def names(folder: Path) -> list[str]:
    """The names in a folder, sorted; without files that are still being written, whose names begin with a dot."""
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith(".")) if folder.is_dir() else []


def read_table(path: Path) -> pa.Table:
    """Raises :class:`HistoryError` for a file that is damaged or cannot be read."""
    try:
        return pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error


def largest(path: Path, column: str) -> int:
    """The largest whole number of a column, as the file's footer says; no row is read. Raises :class:`HistoryError`."""
    try:
        metadata = pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from error
    at = metadata.schema.names.index(column)
    found = [metadata.row_group(n).column(at).statistics for n in range(metadata.num_row_groups)]
    return max(int(statistics.max) for statistics in found)


def write_table(path: Path, table: pa.Table, check: Callable[[], None] = always) -> None:
    """Replace the file; for ``check`` see ``write_atomically``. Raises :class:`HistoryError` if it cannot."""
    write_tables(path, table.schema, [table.combine_chunks()], check)


def write_tables(path: Path, schema: pa.Schema, tables: Iterable[pa.Table], check: Callable[[], None] = always) -> None:
    """Like :func:`write_table`, one table after the other, so that only one need be in memory."""

    def write(tmp: Path) -> None:
        with pq.ParquetWriter(tmp, schema, compression="zstd", store_schema=False) as writer:
            for table in tables:
                writer.write_table(table, row_group_size=1 << 20)

    try:
        write_atomically(path, write, check)
    except (pa.ArrowException, OSError) as error:
        raise HistoryError(f"{path} cannot be written: {error}", "Free space or fix the folder's rights.") from error


def unreadable(path: Path, error: Exception) -> HistoryError:
    """What is raised for a file that is damaged or cannot be read."""
    return HistoryError(f"{path} cannot be read: {error}", "Restore it, or remove it and replay the log.")
