"""Step 6 of the way of a reading: compaction, that is which files of a table are merged, and how long files get.

New rows begin as a small file. The eighth small file of a day is merged with the seven before it, and the eighth file
that came of such a merge is merged again, as long as they make one file together. When a day is over, all its files
become one; when a month is over, so do its days.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from models.durations import DAY_MS
from services.store.tables.delta_log import TableFile
from services.store.tables.file_name import FileName

__all__ = [
    "FILE_ROWS",
    "SMALL_FILES",
    "between",
    "cut",
    "has_many_files",
    "merge_period",
    "small_files",
    "tidies",
    "zone_runs",
]

SMALL_FILES = 8
"""Files of a day, all of about the same size, that are merged into one."""
FILE_ROWS = 250_000
"""No file gets much longer: a reader that wants one zone of it fetches little that it does not need."""
LIVELY_MS = 2 * DAY_MS
"""A partition is written to if its newest row is no further behind the newest row of all."""


def tidies(named: Sequence[tuple[FileName, TableFile]], partitions: Collection[int]) -> bool:
    """Whether the writer of these ``partitions`` removes files that were replaced.

    One writer alone does: that of the first partition that is still written to.
    """
    newest_ms = max((file.last_ms for _, file in named), default=0)
    lively = [name.partition for name, file in named if file.last_ms > newest_ms - LIVELY_MS]
    return bool(lively) and min(lively) in partitions


def merge_period(name: FileName, today: str) -> str:
    """The period whose files are merged with this one: its month once that is over, else its day."""
    return name.period[:7] if name.period[:7] < today[:7] else name.period


def has_many_files(files: Sequence[TableFile]) -> bool:
    """Whether the files of a day or month are more than they would be after a merge, by enough to be worth one."""
    return len(files) > 1 + 2 * (sum(file.rows for file in files) // FILE_ROWS)


def small_files(files: Sequence[TableFile], rows: int) -> list[TableFile]:
    """The files of a day that ``rows`` new rows are merged with; none while there are too few of about that size.

    A merge makes a larger file. If there are enough of its size, it is merged with them at once. No more are merged
    than make one file: all their rows are in memory.
    """
    left, merged = sorted(files, key=lambda file: file.rows), list[TableFile]()
    while True:
        totals = accumulate(file.rows for file in left)
        small = [
            file
            for file, total in zip(left, totals, strict=True)
            if file.rows < SMALL_FILES * rows and rows + total <= FILE_ROWS
        ]
        if len(small) < SMALL_FILES - 1:
            return merged
        merged, left = merged + small, left[len(small) :]
        rows += sum(file.rows for file in small)


def cut(rows: pa.Table) -> Iterable[pa.Table]:
    """The rows in pieces of equal length, of at most :data:`FILE_ROWS`."""
    pieces = -(-len(rows) // FILE_ROWS)
    size = -(-len(rows) // max(pieces, 1))
    return (rows.slice(begin, size).combine_chunks() for begin in range(0, len(rows), size)) if len(rows) else ()


def zone_runs(counts: pa.Table) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Cut zones into runs of at most two files' rows, so that few rows are in memory; a larger zone is its own run.

    ``counts`` has the columns ``site``, ``zone`` and ``count_all``, in the order of the first two. Gives the first and
    the last (site, zone) of each run.
    """
    places = zip(*(counts[name].to_pylist() for name in ("site", "zone", "count_all")), strict=True)
    run: list[tuple[str, str]] = []
    total = 0
    for site, zone, count in places:
        if run and total + count > 2 * FILE_ROWS:
            yield run[0], run[-1]
            run, total = [], 0
        run.append((site, zone))
        total += count
    if run:
        yield run[0], run[-1]


def between(low: tuple[str, str], high: tuple[str, str]) -> pc.Expression:
    """The rows of a run of zones, from the first to the last (site, zone)."""
    at_least = (pc.field("site") > low[0]) | ((pc.field("site") == low[0]) & (pc.field("zone") >= low[1]))
    at_most = (pc.field("site") < high[0]) | ((pc.field("site") == high[0]) & (pc.field("zone") <= high[1]))
    return at_least & at_most
