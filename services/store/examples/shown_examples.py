"""Step 6 of the way of a reading: what the network that is fine-tuned looked at, a file a partition and day.

``tuning/{YYYY-MM-DD}-p{partition}-{schema}.parquet`` holds a row an example: its features in half precision, and the
forecasts that the network corrects. What came stands in the history. A day's file is written again with each flush; it
has each example once, whatever a replay after a crash brings again. Files that are too old to be trained on are removed
as days begin, once as many days as are kept have come since: one site whose clock is ahead begins a day, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from models.network.house_features import HouseFeatures
from models.network.tuned_network import CorrectionInputs
from models.online.corrections.house_memory import channels_of
from models.online.corrections.tuned_correction import KEPT_DAYS
from models.spec import QUANTILES, ForecastSpec
from services.errors import HistoryError
from services.store.parquet import Span, day_of, read_table, span_of, unreadable, version_of, write_table
from services.store.storage import Storage, always, stored_in

__all__ = ["FOLDER", "KeptExamples", "ShownExamples", "StoredExamples"]

I64 = npt.NDArray[np.int64]

FOLDER = "tuning"
HELD_DAYS = 2
"""Days of a partition that are in memory: of the rows that come now, and of a site that is behind or ahead."""
_EVER_MS = 250_000_000_000_000  # the year 9892
_VALUES = ("origin", "ahead", "baseline")
_SCHEMA = pa.schema(
    {"site": pa.string(), "zone": pa.string(), "end_ms": pa.int64(), **dict.fromkeys(_VALUES, pa.binary())}
)


@dataclass(frozen=True, slots=True)
class KeptExamples:
    """The examples of a site's row, of ``Z`` of its zones."""

    site: str
    end_ms: int
    zones: tuple[str, ...]
    inputs: CorrectionInputs

    def __len__(self) -> int:
        return len(self.zones)


@dataclass(frozen=True, slots=True)
class StoredExamples:
    """``N`` examples by time, then zone; ``zones[zone_ids[n]]`` is the ``site/zone`` of one."""

    zones: tuple[str, ...]
    zone_ids: I64  # [N]
    end_ms: I64  # [N]
    inputs: CorrectionInputs

    def __len__(self) -> int:
        return len(self.end_ms)


class ShownExamples:
    """Reads and writes the examples of a storage that were made for ``spec``; one writer a partition."""

    def __init__(self, storage: Storage | Path, spec: ForecastSpec) -> None:
        self._storage, self._spec = stored_in(storage), spec
        self._spans: dict[str, tuple[str, Span]] = {}  # name of a file -> its version, and what it holds
        self._held: dict[int, dict[str, pa.Table]] = {}  # partition -> the days written last, and what their files hold

    def put(self, partition: int, kept: Sequence[KeptExamples], check: Callable[[], None] = always) -> None:
        """Make examples durable; those that are there already stay as they are. Raises :class:`HistoryError`.

        ``check`` raises when the partition belongs to another writer by now.
        """
        days: dict[str, list[pa.Table]] = {}
        for one in kept:
            days.setdefault(day_of(one.end_ms), []).append(_table(one))
        last = self._held.setdefault(partition, {})
        for day, tables in sorted(days.items()):
            key = self._key(partition, day)
            held = last.pop(day) if day in last else self._there(key)
            whole = _once(pa.concat_tables([held, *tables]))
            if len(whole) > len(held):
                write_table(self._storage, key, whole, check)
            if not len(held):
                self._forget(partition, day)
            last[day] = whole
            while len(last) > HELD_DAYS:
                del last[next(iter(last))]

    def read(self, after_ms: int, to_ms: int, most_zones: int) -> StoredExamples:
        """The examples with ``after_ms < end_ms <= to_ms`` of all partitions, from ``most_zones`` zones at most, spread
        evenly over all. Raises :class:`HistoryError` for a damaged file.
        """
        tables = [_SCHEMA.empty_table()]
        tables += [read_table(self._storage, f"{FOLDER}/{name}") for name in self._names(after_ms, to_ms)]
        table = pa.concat_tables(tables).combine_chunks()
        ends = table["end_ms"].to_numpy()
        names = np.array([f"{s}/{z}" for s, z in zip(*(table[n].to_pylist() for n in ("site", "zone")), strict=True)])
        zones = sorted(set(names.tolist()))
        zones = zones[:: -(-len(zones) // most_zones)] if zones else zones
        widths = self._widths
        fits = np.ones(len(table), bool)  # features are those of this release
        for name, (size, _, _) in widths.items():
            fits &= np.fromiter(map(len, table[name].to_pylist()), np.int64, len(table)) == size
        mine = np.flatnonzero(fits & (ends > after_ms) & (ends <= to_ms) & np.isin(names, zones))
        mine = mine[np.lexsort((names[mine], ends[mine]))]
        taken = table.take(pa.array(mine))
        inputs = CorrectionInputs(**{
            name: np.frombuffer(b"".join(taken[name].to_pylist()), kind).reshape(len(mine), *shape)
            for name, (_, kind, shape) in widths.items()
        })  # fmt: skip
        return StoredExamples(tuple(zones), np.searchsorted(zones, names[mine]), ends[mine], inputs)

    def extent(self) -> tuple[int, int]:
        """How many examples there are, and the time of the first, 0 without any. A file is looked at again when it has
        changed. Raises as :meth:`read`, and ``OSError`` where the storage does not answer.
        """
        entries = self._storage.entries(FOLDER)
        for name in self._names(0, _EVER_MS):
            held, entry = self._spans.get(name), entries.get(name)
            if entry is not None and (held is None or held[0] != entry.version):
                self._spans[name] = entry.version, span_of(self._storage, f"{FOLDER}/{name}", "end_ms")
        spans = [span for name, (_, span) in self._spans.items() if name in entries and span.rows]
        return sum(span.rows for span in spans), min((span.first for span in spans), default=0)

    @property
    def _widths(self) -> dict[str, tuple[int, Any, tuple[int, ...]]]:
        """Of each value its bytes, type and shape."""
        features = HouseFeatures(self._spec, channels_of(self._spec))
        h, m = len(self._spec.horizons_min), len(self._spec.targets)
        found: dict[str, tuple[Any, tuple[int, ...]]] = {
            "origin": (np.float16, (features.width,)), "ahead": (np.float16, (h, features.ahead_width)),
            "baseline": (np.float32, (h, m, len(QUANTILES))),
        }  # fmt: skip
        return {
            name: (int(np.prod(shape)) * np.dtype(kind).itemsize, kind, shape) for name, (kind, shape) in found.items()
        }

    def _key(self, partition: int, day: str) -> str:
        return f"{FOLDER}/{day}-p{partition}-{self._spec.hash}.parquet"

    def _there(self, key: str) -> pa.Table:
        return read_table(self._storage, key) if version_of(self._storage, key) else _SCHEMA.empty_table()

    def _names(self, after_ms: int, to_ms: int) -> Iterator[str]:
        first, last = day_of(max(after_ms, 0)), day_of(to_ms)
        for name in self._all_names():
            if name.endswith(f"-{self._spec.hash}.parquet") and first <= name[: len(first)] <= last:
                yield name

    def _all_names(self) -> Collection[str]:
        try:
            return sorted(self._storage.list_folder(FOLDER).names)
        except OSError as error:
            raise unreadable(self._storage.address(FOLDER), error) from error

    def _forget(self, partition: int, day: str) -> None:
        """Remove a partition's files, of any schema, that are too old by this day, and by how many days have come since
        theirs.
        """
        mine = [name for name in self._all_names() if f"-p{partition}-" in name]
        newest = sorted({name[: len(day)] for name in mine})[-KEPT_DAYS - 1 :]
        by_day = (datetime.fromisoformat(day) - timedelta(days=KEPT_DAYS)).date().isoformat()
        oldest = min([by_day, *newest[:1]])
        for name in mine:
            if name < oldest:
                try:
                    self._storage.delete(f"{FOLDER}/{name}")
                except OSError as error:
                    raise HistoryError(f"{FOLDER}/{name} cannot be removed: {error}") from error


def _table(kept: KeptExamples) -> pa.Table:
    count = len(kept)
    values = {name: [one.tobytes() for one in getattr(kept.inputs, name)] for name in _VALUES}
    same = {"site": [kept.site] * count, "zone": list(kept.zones), "end_ms": [kept.end_ms] * count}
    return pa.table(same | values, schema=_SCHEMA)


def _once(table: pa.Table) -> pa.Table:
    """The first of equal examples."""
    names = ("site", "zone", "end_ms")
    seen = dict[tuple[Any, ...], int]()
    for row, key in enumerate(zip(*(table[name].to_pylist() for name in names), strict=True)):
        seen.setdefault(key, row)
    return table if len(seen) == len(table) else table.take(pa.array(list(seen.values())))
