"""Step 6 of the way of a reading: plans as Parquet, beside the rows, durable before the snapshot that names them.

``history/plans/{site}/{YYYY-MM-DD}-p{partition}.parquet`` holds the plans that could first be used on that UTC day, a
row a value: when it was issued, from when on it could be used, and the time that it is valid at. The files are a
function of the log alone, whatever the number of flushes and crashes on the way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from models.features.plans import Plan
from services.store.files import always
from services.store.parquet import day_of, names, read_table, write_table

__all__ = ["KeptPlan", "PlanHistory"]

_NAME = re.compile(r"(\d{4}-\d\d-\d\d)-p(\d+)\.parquet")
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
    """Reads and writes the plans under ``root``; one writer a partition, any number of readers."""

    def __init__(self, root: Path) -> None:
        self._root = root / "history" / "plans"

    def put(self, partition: int, plans: Sequence[KeptPlan], check: Callable[[], None] = always) -> None:
        """Make plans durable; those that are there already stay as they are. Raises :class:`HistoryError`.

        ``check`` raises when the partition belongs to another writer by now.
        """
        by_file: dict[Path, list[KeptPlan]] = {}
        for kept in plans:
            name = f"{day_of(kept.plan.known_ms)}-p{partition}.parquet"
            by_file.setdefault(self._root / kept.site / name, []).append(kept)
        for path, found in by_file.items():
            before = read_table(path) if path.exists() else _SCHEMA.empty_table()
            known = set(_keys(before))
            new = [kept for kept in found if (kept.plan.zone, kept.plan.source, kept.plan.issued_ms) not in known]
            if new:
                order = [(name, "ascending") for name in ("known_ms", *_KEYS, "metric", "valid_ms")]
                table = pa.concat_tables([before, *map(_table, new)]).combine_chunks().sort_by(order)
                write_table(path, table, check)

    def sites(self, partition: int | None = None) -> list[str]:
        """The sites that have plans; only those that a partition wrote, where one is given."""
        return [site for site in names(self._root) if any(True for _ in self._files(site, partition))]

    def read(self, site: str, after_ms: int, until_ms: int, partition: int | None = None) -> list[KeptPlan]:
        """A site's plans that could first be used after ``after_ms`` and at ``until_ms`` at the latest, in the order of
        their records. Raises :class:`HistoryError` for a damaged file.
        """
        first, last = day_of(max(after_ms, 0)), day_of(min(until_ms, 253_402_300_799_000))
        found: list[KeptPlan] = []
        for day, path in self._files(site, partition):
            if first <= day <= last:
                found += (kept for kept in _plans(read_table(path)) if after_ms < kept.plan.known_ms <= until_ms)
        return sorted(found, key=lambda kept: (kept.plan.known_ms, kept.offset))

    def _files(self, site: str, partition: int | None) -> Iterator[tuple[str, Path]]:
        for name in names(self._root / site):
            match = _NAME.fullmatch(name)
            if match is not None and partition in (None, int(match[2])):
                yield match[1], self._root / site / name


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
