"""Step 12 of the way of a reading: the history's rows as training rows, through Ray Data.

Ray Data reads the files of a range in parallel and streams each row once to each worker, which keeps its zones as
one float32 array, sorted by site, zone and time. So epochs cost no I/O, and the same range gives the same array bit
for bit, in whatever order blocks arrive. ``where`` is the address of the storage that files are URLs of; without one
they are paths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from services.errors import HistoryError
from services.messages import TrainedOn
from services.store.storage import StorageAddress, open_storage

if TYPE_CHECKING:
    import ray.data

__all__ = ["DataRange", "Rows", "collect", "describe", "gather", "read", "share_out"]

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

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    if found.total * len(channels) * 4 <= SMALL_BYTES:
        batches = _batches(files, [*KEYS, *channels], found.from_ms - 1, found.to_ms, where)
        return ray.data.from_arrow(pa.Table.from_batches(batches))
    # Not Ray Data's own reader, which takes the first file's columns for those of all: newer files may have more.
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


def share_out(rows: Mapping[str, int], workers: int, too_few: int = 0) -> list[frozenset[str]]:
    """Deal whole zones to at most ``workers`` workers, the largest zones first, each to the worker that has least.

    Windows need unbroken rows of a zone, so a zone is never cut; with fewer zones than workers, fewer take part. A zone
    of ``too_few`` rows or less has nothing to train on: it makes no share, but is in one with others.

    >>> [sorted(share) for share in share_out({"s/a": 9, "s/b": 5, "s/c": 4}, 2)]
    [['s/a'], ['s/b', 's/c']]
    >>> [sorted(share) for share in share_out({"s/a": 9, "s/b": 5, "s/c": 4}, 2, too_few=5)]
    [['s/a', 's/b', 's/c']]
    """
    long_enough = sum(count > too_few for count in rows.values())
    # The largest come first, and shares are no more than these: so each share gets one of them.
    shares: list[list[str]] = [[] for _ in range(max(1, min(workers, long_enough)))]
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
    """Rows of the files, one after the other; a column that a file does not have is missing in every row."""
    within = (pc.field("end_ms") > after_ms) & (pc.field("end_ms") <= to_ms)
    schema = _schema(columns)
    try:
        if where is None:
            rows = pads.dataset(list(files), schema=schema, format="parquet")
            yield from rows.to_batches(columns=list(columns), filter=within)
            return
        storage = open_storage(where)
        for name in files:
            content: Any = pa.BufferReader(storage.read(name.removeprefix(where.url.rstrip("/") + "/")).content)
            rows = pads.ParquetFileFormat().make_fragment(content)
            yield from rows.to_table(schema=schema, columns=list(columns), filter=within).to_batches()
    except (OSError, pa.ArrowException) as error:
        raise HistoryError(f"the history cannot be read: {error}") from error


def _schema(columns: Sequence[str]) -> pa.Schema:
    kinds = {"site": pa.string(), "zone": pa.string(), "end_ms": pa.int64()}
    return pa.schema([(name, kinds.get(name, pa.float32())) for name in columns])


def _named(names: pa.Table, columns: Sequence[str], found: DataRange, where: StorageAddress | None) -> pa.Table:
    """The rows that were found of the tables with these names, of which some have none: a task of Ray Data."""
    batches = _batches(names["file"].to_pylist(), columns, found.from_ms - 1, found.to_ms, where)
    return pa.Table.from_batches(list(batches), _schema(columns))


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z")
