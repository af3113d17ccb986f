"""Step 12 of the way of a reading: the Parquet history as training rows, through Ray Data.

Ray Data reads the files of a range in parallel and streams each row once to each worker, which keeps its zones as
one float32 array, sorted by site, zone and time. So epochs cost no I/O, and the same range gives the same array bit
for bit, in whatever order blocks arrive. ``where`` is the address of the storage that files are URLs of; without one
they are paths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from services.errors import HistoryError
from services.messages import TrainedOn
from services.store.storage import StorageAddress, open_storage

if TYPE_CHECKING:
    import ray.data

__all__ = ["DataRange", "Rows", "collect", "describe", "gather", "newest_ms", "oldest_ms", "read", "share_out"]

KEYS = ("site", "zone", "end_ms")
READ_CPUS = 0.25
"""What a reading task asks of Ray: little, so that it finds room beside the actors of a machine with two CPUs."""
SMALL_BYTES = 64_000_000
"""Rows that take no more than this are read where they are asked for: 380,000 rows of 39 channels."""


@dataclass(frozen=True, slots=True)
class DataRange:
    """Rows from the one that ends at ``from_ms`` to that at ``to_ms``, counted a zone (``site/zone``)."""

    from_ms: int
    to_ms: int
    rows: Mapping[str, int]

    @property
    def total(self) -> int:
        """Rows of all zones."""
        return sum(self.rows.values())

    def as_dict(self) -> TrainedOn:
        """For manifest and registry: times also as ISO 8601 in UTC."""
        return {
            "from": _iso(self.from_ms), "to": _iso(self.to_ms), "from_ms": self.from_ms, "to_ms": self.to_ms,
            "rows": self.total, "zones": len(self.rows),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of some zones, sorted by zone and time; ``zones[zone_ids[r]]`` is the ``site/zone`` of row ``r``."""

    zones: tuple[str, ...]
    zone_ids: npt.NDArray[np.int32]  # [R]
    end_ms: npt.NDArray[np.int64]  # [R]
    values: npt.NDArray[np.float32]  # [R, C], NaN where missing

    @property
    def sites(self) -> tuple[str, ...]:
        """The site of each zone."""
        return tuple(zone.split("/", 1)[0] for zone in self.zones)


def newest_ms(files: Sequence[str], where: StorageAddress | None = None) -> int | None:
    """The newest ``end_ms`` of all sites, read from each site's last day alone; ``None`` without rows."""
    return max((_bounds(path, where)[1] for path in _of_the_day(files, max)), default=None)


def oldest_ms(files: Sequence[str], where: StorageAddress | None = None) -> int | None:
    """The oldest ``end_ms`` of all sites, like :func:`newest_ms`."""
    return min((_bounds(path, where)[0] for path in _of_the_day(files, min)), default=None)


def _of_the_day(files: Sequence[str], which: Callable[[Iterable[str]], str]) -> list[str]:
    """The files of each site's first or last day."""
    days: dict[str, list[str]] = {}
    for folder, _, name in (path.rpartition("/") for path in files):
        days.setdefault(folder, []).append(name[:10])
    chosen = {(folder, which(of)) for folder, of in days.items()}
    return [path for path in files if (path.rpartition("/")[0], path.rpartition("/")[2][:10]) in chosen]


def describe(files: Sequence[str], after_ms: int, to_ms: int, where: StorageAddress | None = None) -> DataRange:
    """Count the rows with ``after_ms < end_ms <= to_ms`` from the key columns alone.

    Raises :class:`HistoryError` without any.
    """
    rows: Counter[str] = Counter()
    low, high = to_ms, after_ms
    for batch in _batches(files, KEYS, after_ms, to_ms, where):
        if batch.num_rows:
            ends = batch.column("end_ms").to_numpy()
            low, high = min(low, int(ends.min())), max(high, int(ends.max()))
            counts = pc.value_counts(_zone_names(batch)).to_pylist()
            rows.update({pair["values"]: pair["counts"] for pair in counts})
    if not rows:
        raise HistoryError(f"no rows between {_iso(after_ms)} and {_iso(to_ms)}")
    return DataRange(low, high, dict(sorted(rows.items())))


def read(
    files: Sequence[str], channels: Sequence[str], found: DataRange, where: StorageAddress | None = None
) -> ray.data.Dataset:
    """The rows that :func:`describe` found, lazy: the columns site, zone, end_ms and ``channels``.

    A small history is read here and now, into the object store: Ray Data's reader starts half a dozen processes.
    """
    import ray.data
    from ray.data.expressions import col

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    if found.total * len(channels) * 4 <= SMALL_BYTES:
        batches = _batches(files, [*KEYS, *channels], found.from_ms - 1, found.to_ms, where)
        return ray.data.from_arrow(pa.Table.from_batches(batches))
    if where is None:
        rows = ray.data.read_parquet(list(files), num_cpus=READ_CPUS).select_columns([*KEYS, *channels])
        within = (col("end_ms") >= found.from_ms) & (col("end_ms") <= found.to_ms)
        return rows.filter(expr=within, num_cpus=READ_CPUS)
    names = ray.data.from_items([{"file": name} for name in files], override_num_blocks=len(files))
    part = partial(_named, columns=[*KEYS, *channels], found=found, where=where)
    return names.map_batches(part, batch_size=1, batch_format="pyarrow", num_cpus=READ_CPUS)


def gather(
    files: Sequence[str], channels: Sequence[str], after_ms: int, to_ms: int, zones: Iterable[str],
    where: StorageAddress | None = None,
) -> Rows:  # fmt: skip
    """The rows of ``zones`` with ``after_ms < end_ms <= to_ms``, read in this process. Raises :class:`HistoryError`."""
    batches = _batches(files, [*KEYS, *channels], after_ms, to_ms, where)
    return collect((pa.Table.from_batches([batch]) for batch in batches), channels, zones)


def share_out(rows: Mapping[str, int], workers: int) -> list[frozenset[str]]:
    """Deal whole zones to at most ``workers`` workers, the largest zones first, each to the worker that has least.

    Windows need unbroken rows of a zone, so a zone is never cut; with fewer zones than workers, fewer take part.

    >>> [sorted(share) for share in share_out({"s/a": 9, "s/b": 5, "s/c": 4}, 2)]
    [['s/a'], ['s/b', 's/c']]
    """
    shares: list[list[str]] = [[] for _ in range(max(1, min(workers, len(rows))))]
    for zone in sorted(rows, key=lambda name: (-rows[name], name)):
        min(shares, key=lambda share: sum(rows[name] for name in share)).append(zone)
    return [frozenset(share) for share in shares]


def collect(tables: Iterable[pa.Table], channels: Sequence[str], zones: Iterable[str]) -> Rows:
    """Gather streamed tables, in any order, into the sorted rows of ``zones``; other zones are dropped on the way."""
    names = tuple(sorted(zones))
    wanted = pa.array(names, pa.string())
    blocks: list[npt.NDArray[np.float32]] = []
    ids: list[npt.NDArray[np.int32]] = []
    ends: list[npt.NDArray[np.int64]] = []
    for table in tables:
        found = pc.index_in(_zone_names(table), value_set=wanted)
        table = table.append_column("_zone", found).filter(pc.is_valid(found))
        if table.num_rows:
            block = np.empty((table.num_rows, len(channels)), np.float32)
            for index, channel in enumerate(channels):
                block[:, index] = table.column(channel).to_numpy()
            blocks.append(block)
            ids.append(table.column("_zone").to_numpy().astype(np.int32))
            ends.append(table.column("end_ms").to_numpy().astype(np.int64))
    zone_ids = np.concatenate(ids) if ids else np.empty(0, np.int32)
    end_ms = np.concatenate(ends) if ends else np.empty(0, np.int64)
    order = np.lexsort((end_ms, zone_ids))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    values = np.empty((len(order), len(channels)), np.float32)
    start = 0
    while blocks:  # each block is freed as soon as its rows stand where they belong: the peak stays under twice
        block = blocks.pop(0)
        values[place[start : start + len(block)]] = block
        start += len(block)
    return Rows(names, zone_ids[order], end_ms[order], values)


def _zone_names(table: pa.Table | pa.RecordBatch) -> Any:
    site, zone = (table.column(name).cast(pa.string()) for name in ("site", "zone"))
    return pc.binary_join_element_wise(site, zone, "/")


def _batches(
    files: Sequence[str], columns: Sequence[str], after_ms: int, to_ms: int, where: StorageAddress | None
) -> Iterator[pa.RecordBatch]:
    within = (pc.field("end_ms") > after_ms) & (pc.field("end_ms") <= to_ms)
    try:
        if where is None:
            yield from pads.dataset(list(files), format="parquet").to_batches(columns=list(columns), filter=within)
            return
        for name in files:
            yield from _fetched(name, columns, where).filter(within).to_batches()
    except (OSError, pa.ArrowException) as error:
        raise HistoryError(f"the history cannot be read: {error}") from error


def _fetched(name: str, columns: Sequence[str], where: StorageAddress) -> pa.Table:
    """Columns of a table in a bucket; those that it does not have are missing in every row. It is fetched at once, as
    it may be replaced between two requests.
    """
    key = name.removeprefix(where.url.rstrip("/") + "/")
    file = pq.ParquetFile(pa.BufferReader(open_storage(where).read(key).content))
    there = file.read([column for column in columns if column in file.schema_arrow.names])
    for column in columns:
        if column not in there.column_names:
            there = there.append_column(column, pa.nulls(len(there), pa.float32()))
    return there.select(list(columns))


def _named(names: pa.Table, columns: Sequence[str], found: DataRange, where: StorageAddress) -> pa.Table:
    """The rows that were found of the tables with these names: a task of Ray Data."""
    batches = _batches(names["file"].to_pylist(), columns, found.from_ms - 1, found.to_ms, where)
    return pa.Table.from_batches(list(batches))


def _bounds(path: str, where: StorageAddress | None) -> tuple[int, int]:
    try:
        table = pq.read_table(path, columns=["end_ms"]) if where is None else _fetched(path, ["end_ms"], where)
        column = table.column("end_ms")
    except (OSError, pa.ArrowException) as error:
        raise HistoryError(f"{path.rpartition('/')[2]} cannot be read: {error}") from error
    span = pc.min_max(column).as_py()
    return (span["min"], span["max"]) if len(column) else (2**53, 0)


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z")
