"""Step 6 of the way of a reading: plans as Parquet, beside the rows, durable before the snapshot that names them.

``history/plans/{site}/{YYYY-MM-DD}-p{partition}-plans.parquet`` holds the plans that could first be used on that UTC
day, a row a value: when it was issued, from when on it could be used, and the time that it is valid at. What the files
say is a function of the log alone, whatever the number of flushes and crashes on the way. Small files of past days
become larger ones, as those of rows do (:mod:`services.store.compaction`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from models.features.plans import Plan
from services.store.compaction import Span, compact, current, key_for, remove_retired
from services.store.parquet import day_of, read_table, version_of, write_table
from services.store.storage import Storage, always, stored_in

__all__ = ["KeptPlan", "PlanHistory"]

_PLANS = "history/plans"
_KEYS = ("zone", "source", "issued_ms")
_SCHEMA = pa.schema(
    {
        "site": pa.string(), "zone": pa.string(), "source": pa.string(), "kind": pa.string(),
        "issued_ms": pa.int64(), "known_ms": pa.int64(), "offset": pa.int64(), "metric": pa.string(),
        "valid_ms": pa.int64(), "value": pa.float32(),
    }
)  # fmt: skip


class KeptPlan(NamedTuple):
    """A plan of a site, and the offset of the record that it came in. A plan's zone is empty for the whole site."""

    site: str
    offset: int
    plan: Plan


class PlanHistory:
    """Reads and writes the plans of a storage; one writer a partition, any number of readers."""

    def __init__(self, storage: Storage | Path) -> None:
        self._storage = stored_in(storage)
        self._switching = Lock()  # of the thread that writes and the one that compacts

    def put(self, partition: int, plans: Sequence[KeptPlan], check: Callable[[], None] = always) -> None:
        """Make plans durable; those that are there already stay as they are. Raises :class:`HistoryError`.

        ``check`` raises when the partition belongs to another writer by now.
        """
        by_day: dict[tuple[str, str], list[KeptPlan]] = {}
        for kept in plans:
            by_day.setdefault((kept.site, day_of(kept.plan.known_ms)), []).append(kept)
        for (site, day), found in by_day.items():
            with self._switching:
                _add(self._storage, key_for(self._storage, _folder(site), Span(partition, 0, day, day)), found, check)

    def compact(
        self, before_ms: int, partitions: Collection[int], check: Callable[[], None] = always,
        wall_s: Callable[[], float] = time.time,
    ) -> int:  # fmt: skip
        """Make larger files of the small ones of days before that of ``before_ms``; returns how many it replaced.

        As :meth:`services.store.history.History.compact`, and beside :meth:`put` in the same object alone.
        """
        replaced = 0
        for folder in map(_folder, self._storage.list_folder(_PLANS).folders):
            replaced += compact(self._storage, folder, day_of(before_ms), partitions, check, self._switching)
            remove_retired(self._storage, folder, partitions, wall_s())
        return replaced

    def sites(self, partition: int | None = None) -> list[str]:
        """The sites that have plans; only those that a partition wrote, where one is given."""
        return [site for site in self._storage.list_folder(_PLANS).folders if self._spans(site, partition)]

    def read(self, site: str, after_ms: int, until_ms: int, partition: int | None = None) -> list[KeptPlan]:
        """A site's plans that could first be used after ``after_ms`` and at ``until_ms`` at the latest, in the order of
        their records. Raises :class:`HistoryError` for a damaged file.
        """
        first, last = day_of(max(after_ms, 0)), day_of(min(until_ms, 253_402_300_799_000))
        found: list[KeptPlan] = []
        for span in self._spans(site, partition):
            if first <= span.last and span.first <= last:
                table = read_table(self._storage, f"{_folder(site)}/{span.name}")
                found += (kept for kept in _plans(table) if after_ms < kept.plan.known_ms <= until_ms)
        return sorted(found, key=lambda kept: (kept.plan.known_ms, kept.offset))

    def _spans(self, site: str, partition: int | None) -> list[Span]:
        return [span for span in current(self._storage, _folder(site)) if partition in (None, span.partition)]


def _folder(site: str) -> str:
    return f"{_PLANS}/{site}"


def _add(storage: Storage, key: str, plans: Sequence[KeptPlan], check: Callable[[], None]) -> None:
    """Add to a file the plans that are not there yet; what was read is replaced, nothing newer."""
    version = version_of(storage, key)
    before = read_table(storage, key) if version else _SCHEMA.empty_table()
    known = set(_keys(before))
    new = [kept for kept in plans if (kept.plan.zone, kept.plan.source, kept.plan.issued_ms) not in known]
    if new:
        order = [(name, "ascending") for name in ("known_ms", *_KEYS, "metric", "valid_ms")]
        table = pa.concat_tables([before, *map(_table, new)]).combine_chunks().sort_by(order)
        write_table(storage, key, table, check, version)


def _keys(table: pa.Table) -> list[tuple[str, str, int]]:
    return list(zip(*(table[name].to_pylist() for name in _KEYS), strict=True))


def _table(kept: KeptPlan) -> pa.Table:
    plan = kept.plan
    lengths = [len(times) for times, _ in plan.series.values()]
    count = sum(lengths)
    same = {
        "site": kept.site, "zone": plan.zone, "source": plan.source, "kind": plan.kind, "issued_ms": plan.issued_ms,
        "known_ms": plan.known_ms, "offset": kept.offset,
    }  # fmt: skip
    columns = {name: pa.array([value] * count, _SCHEMA.field(name).type) for name, value in same.items()}
    columns["metric"] = pa.array([m for m, n in zip(plan.series, lengths, strict=True) for _ in range(n)], pa.string())
    columns["valid_ms"] = pa.array(np.concatenate([times for times, _ in plan.series.values()]))
    columns["value"] = pa.array(np.concatenate([values for _, values in plan.series.values()]))
    return pa.table(columns, schema=_SCHEMA)


def _plans(table: pa.Table) -> Iterator[KeptPlan]:
    """The plans of a file, whose rows stand plan by plan, and in each by metric and time."""
    columns = {name: table[name].to_numpy() for name in table.column_names}
    differs = np.zeros(max(len(table) - 1, 0), bool)
    for name in _KEYS:
        differs |= columns[name][1:] != columns[name][:-1]
    for begin, end in pairwise([0, *(np.flatnonzero(differs) + 1), len(table)]):
        metric = columns["metric"][begin:end]
        cuts = [0, *(np.flatnonzero(metric[1:] != metric[:-1]) + 1), end - begin]
        series = {
            metric[a]: (columns["valid_ms"][begin + a : begin + b], columns["value"][begin + a : begin + b])
            for a, b in pairwise(cuts)
        }
        said = {name: columns[name][begin] for name in ("source", "kind", "zone")}
        issued_ms, known_ms = int(columns["issued_ms"][begin]), int(columns["known_ms"][begin])
        plan = Plan(series=series, issued_ms=issued_ms, known_ms=known_ms, **said)
        yield KeptPlan(columns["site"][begin], int(columns["offset"][begin]), plan)
