"""Step 6 of the way of a reading: plans in an open table, durable before the snapshot that names them.

``history/plan_values`` has a row a value: when its plan was issued, from when on it could be used, and the time that it
is valid at (:mod:`services.store.tables`). What it holds is a function of the log alone, whatever the number of flushes
and crashes on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from models.features.plans import Plan
from services.store.storage import Storage, always, stored_in
from services.store.tables.row_table import RowTable
from services.store.tables.table_reader import TableSpec

__all__ = ["PLANS", "KeptPlan", "PlanHistory"]

_KEYS = ("zone", "source", "issued_ms")
_ORDER = ("known_ms", *_KEYS, "metric", "valid_ms")
PLANS = TableSpec("history/plan_values", "known_ms", ("site", *_KEYS), ("site", *_ORDER))
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
        self._plans = RowTable(stored_in(storage), PLANS)

    def put(self, partition: int, plans: Sequence[KeptPlan], check: Callable[[], None] = always) -> None:
        """Make plans durable; those that are there already stay as they are. Raises :class:`HistoryError`.

        ``check`` raises when the partition belongs to another writer by now.
        """
        first: dict[tuple[str, str, str, int], KeptPlan] = {}
        for kept in plans:
            first.setdefault((kept.site, kept.plan.zone, kept.plan.source, kept.plan.issued_ms), kept)
        if first:
            self._plans.append(partition, 0, pa.concat_tables(map(_table, first.values())), check)

    def compact(self, before_ms: int, partitions: Collection[int], check: Callable[[], None] = always) -> int:
        """Make few files of months that ended before the day of ``before_ms``; returns how many it replaced.

        As :meth:`services.store.history.History.compact`.
        """
        return self._plans.compact(before_ms, partitions, check)

    def sites(self, partition: int | None = None) -> list[str]:
        """The sites that have plans; only those that a partition wrote, where one is given."""
        return self._plans.sites(partition)

    def read(self, site: str, after_ms: int, until_ms: int, partition: int | None = None) -> list[KeptPlan]:
        """A site's plans that could first be used after ``after_ms`` and at ``until_ms`` at the latest, in the order of
        their records. Raises :class:`HistoryError` for a damaged file.
        """
        rows = self._plans.read(after_ms, until_ms, [site], partition=partition)
        if rows is None or not len(rows):
            return []
        rows = rows.combine_chunks().sort_by([(name, "ascending") for name in _ORDER])
        return sorted(_plans(rows), key=lambda kept: (kept.plan.known_ms, kept.offset))


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
    """The plans of rows that stand plan by plan, and in each by metric and time."""
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
