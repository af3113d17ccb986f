"""Step 6 of the way of a reading: rows in two open tables, which other programs read while the system runs.

``history/zone_rows`` has a row a zone and step, ``history/device_rows`` one a device, metric and step
(:mod:`services.store.tables`). What they hold is a function of the rows alone, whatever the number of flushes and
crashes on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from edge.wire.vocabulary import VOCABULARY
from services.errors import FirstError, HistoryError
from services.store.rows import ClosedStep, DeviceRows
from services.store.storage import Storage, always, stored_in
from services.store.tables.old_files import refuse_old_files
from services.store.tables.row_table import RowTable
from services.store.tables.table_reader import TableSpec

__all__ = ["DEVICE_ROWS", "ZONE_ROWS", "History", "MissingAdded", "age_column", "zone_table"]

_DEVICE = ("site", "zone", "device", "metric", "end_ms")
ZONE_ROWS = TableSpec("history/zone_rows", "end_ms", ("site", "zone", "end_ms"), ("site", "zone", "end_ms"))
DEVICE_ROWS = TableSpec("history/device_rows", "end_ms", _DEVICE, _DEVICE)
"""The length of the step says nothing of which row it is: a zone has one row at an end. Where the step was changed, and
an import or a replay makes rows of the new step where there are old ones, those that end with an old one are left out:
readers of the new step miss them. What is there stays, and nobody counts a time twice.
"""

_DAY_MS = 86_400_000

FLUSHED_ROWS = 100_000
"""About as many rows, of zones and devices, are written at once: they are in memory several times then."""
BRIDGED_S = 3600
"""So long may a metric be unread before an import fills it in beside others that were read. Learners and rules bridge a
shorter time, and a device that sends every ten minutes keeps a series of its own.
"""
COUNTERS = frozenset(name for name, metric in VOCABULARY.items() if metric.kind == "counter")
ROUNDING = 1e-4
"""Values that differ by less than this share, or than this where they are small, are the same: files are rounded."""


class MissingAdded(NamedTuple):
    """What became of rows that were to be added where there was none."""

    added: int
    there: int
    conflicts: int  # rows that say something else than was read
    filled: int  # rows that were there, and got values that nobody had read


def age_column(channel: str) -> str:
    """The column with the age in seconds of a channel's newest reading.

    >>> age_column("rh_pct")
    'rh_pct_age_s'
    """
    return f"{channel}_age_s"


class History:
    """Reads and writes the history of a storage; one writer a partition, any number of readers.

    ``channels`` are needed to write zone rows and to read an empty range. Only rows of ``step_s`` are read, as those
    before and after a change of the step make no series; all are written.
    """

    def __init__(self, storage: Storage | Path, channels: Sequence[str], step_s: int = 300) -> None:
        self.storage = stored_in(storage)
        refuse_old_files(self.storage)
        self.step_s = step_s
        self.channels = tuple(channels)
        self.zones, self.devices = RowTable(self.storage, ZONE_ROWS), RowTable(self.storage, DEVICE_ROWS)
        self._pending: list[ClosedStep] = []
        self._pending_rows = 0

    def add(self, steps: Iterable[ClosedStep]) -> None:
        """Take rows; they are durable after the next :meth:`flush`. A row that is there already changes nothing."""
        for step in steps:
            self._pending.append(step)
            self._pending_rows += step.rows or 1

    @property
    def pending(self) -> int:
        """Steps that wait for a flush."""
        return len(self._pending)

    @property
    def pending_rows(self) -> int:
        """The rows, of zones and devices, in them; a step without any counts as one."""
        return self._pending_rows

    def flush(self, check: Callable[[int], None] = lambda partition: None) -> None:
        """Make every added row durable; raises :class:`HistoryError` and keeps them for the next flush if it cannot.

        ``check`` raises when the partition it is given belongs to another writer by now; no row of it is added then.
        """
        while self._pending:
            some = _first_of(self._pending)
            by_writer: dict[tuple[int, int], list[ClosedStep]] = {}
            for step in some:
                by_writer.setdefault((step.partition, step.step_ms // 1000 or self.step_s), []).append(step)
            for (number, step_s), steps in by_writer.items():
                still_ours = partial(check, number)
                still_ours()
                for table, rows in (
                    (self.zones, zone_table(self.channels, steps, step_s)),
                    (self.devices, _device_table(steps, step_s)),
                ):  # fmt: skip
                    if len(rows):
                        table.append(number, step_s, _each_once(rows, table.spec.identity), still_ours)
            del self._pending[: len(some)]
            self._pending_rows -= sum(step.rows or 1 for step in some)

    def add_missing(
        self, partition: int, site: str, rows: pa.Table, check: Callable[[], None] = always
    ) -> MissingAdded:
        """Make zone rows of a site durable, where there is none of that zone and end: what was read stays.

        A row that is there gets values where it has none: all that the new row knows, where nothing was read, as of a
        site whose gateway was away; else of metrics that were unread for over :data:`BRIDGED_S`, as of a zone whose
        devices were away while the site's weather station sent on. What a counter gained meanwhile stands in the row of
        its next reading, so that it is not filled in. ``rows`` has the columns of :func:`zone_table`. For the
        partition's writer, who flushes before: rows that wait for a flush are not looked at. Raises as :meth:`flush`.
        """
        ends = rows["end_ms"].to_numpy()
        # Of whatever step: a zone has one row at an end.
        before = self.zones.read(int(ends.min()) - 1, int(ends.max()), [site])
        if before is None:
            before = zone_table(self.channels, [])
        if "step_s" in rows.column_names:
            rows = rows.drop_columns("step_s")  # not in rows of an import that a version before has begun
        rows = rows.append_column("step_s", pa.array(np.full(len(rows), self.step_s, np.int32)))
        there = {
            key: n for n, key in enumerate(zip(before["end_ms"].to_pylist(), before["zone"].to_pylist(), strict=True))
        }
        known = [there.get(key) for key in zip(rows["end_ms"].to_pylist(), rows["zone"].to_pylist(), strict=True)]
        new = rows.filter(pa.array([n is None for n in known], pa.bool_()))
        old = rows.filter(pa.array([n is not None for n in known], pa.bool_()))
        before = before.take(pa.array([n for n in known if n is not None], pa.int64()))
        both, fills = _filled(before, old, self.channels, self.step_s)
        conflicts = _differing(old, both, self.channels)
        if len(new):
            self.zones.append(partition, self.step_s, _each_once(new, ZONE_ROWS.identity), check)
        if fills.any():
            filled = both.filter(pa.array(fills))
            self.zones.replace(partition, self.step_s, _each_once(filled, ZONE_ROWS.identity), check)
        return MissingAdded(len(new), int((~fills).sum()), conflicts, int(fills.sum()))

    def compact(self, before_ms: int, partitions: Collection[int], check: Callable[[], None] = always) -> int:
        """Make few files of months that ended before the day of ``before_ms``; returns how many it replaced.

        For the writer of the ``partitions``, in any thread; ``check`` raises when they belong to another one by now.
        Safe to be stopped anywhere and to be repeated. Raises :class:`HistoryError`.
        """
        replaced = 0
        with FirstError(HistoryError) as first:
            for table in (self.zones, self.devices):
                with first.kept():
                    replaced += table.compact(before_ms, partitions, check)
        return replaced

    def sites(self) -> list[str]:
        """The sites that have rows."""
        return self.zones.sites()

    def span_ms(self, now_ms: int) -> tuple[int, int] | None:
        """The ends of the oldest and the newest row of all sites; ``None`` without rows. No row is read.

        A site whose rows are more than a day ahead of ``now_ms`` has a wrong clock, and does not say which row is the
        newest as long as another site does. Where all are ahead, ``now_ms`` may be what is wrong, and all count.
        """
        span = self.zones.span_ms(self.step_s)
        if span is None or span[1] <= now_ms + _DAY_MS:
            return span
        newest = self.zones.newest_of_sites_ms(self.step_s).values()
        return span[0], max((each for each in newest if each <= now_ms + _DAY_MS), default=span[1])

    def covered_ms(self, from_ms: int, to_ms: int) -> int:
        """How much of a time there are rows of: pauses of more than a day do not count. No row is read."""
        return self.zones.covered_ms(from_ms, to_ms, self.step_s)

    def newest_ms(self, site: str) -> int:
        """The end of a site's newest row; 0 where it has none."""
        return self.zones.newest_ms(site, self.step_s)

    def files(
        self, start_ms: int | None = None, end_ms: int | None = None, sites: Sequence[str] | None = None
    ) -> list[str]:
        """Where the files are that may hold zone rows with ``start_ms < row end <= end_ms``, sorted: paths, or URLs.
        They stay for some hours, whatever comes.
        """
        return [self.storage.address(key) for key in self.zones.files(start_ms, end_ms, sites, step_s=self.step_s)]

    def read(
        self, start_ms: int | None = None, end_ms: int | None = None, sites: Sequence[str] | None = None,
        kind: str = "zones",
    ) -> pa.Table:  # fmt: skip
        """Rows (``kind`` zones or devices) with ``start_ms < row end <= end_ms``, sorted by site, zone, (device,
        metric,) end.
        """
        table, keys = (self.zones, ZONE_ROWS.order) if kind == "zones" else (self.devices, DEVICE_ROWS.order)
        rows = table.read(start_ms, end_ms, sites, step_s=self.step_s)
        if rows is None:
            rows = zone_table(self.channels, []) if kind == "zones" else _device_table([])
        return rows.combine_chunks().sort_by([(key, "ascending") for key in keys])


def _first_of(steps: Sequence[ClosedStep]) -> Sequence[ClosedStep]:
    """The first of the steps, about as many as have :data:`FLUSHED_ROWS` rows."""
    rows = 0
    for number, step in enumerate(steps):
        rows += step.rows
        if rows >= FLUSHED_ROWS:
            return steps[: number + 1]
    return steps[:]


def zone_table(channels: Sequence[str], steps: Sequence[ClosedStep], step_s: int = 300) -> pa.Table:
    """The zone rows of steps of that length, as the table has them."""
    counts = [len(step.zones) for step in steps]
    width = len(channels)
    empty = np.empty((0, width), np.float32)
    values = np.concatenate([empty, *(step.values for step in steps)])
    ages = np.concatenate([empty, *(step.ages_s for step in steps)])
    columns = {
        "site": pa.array([s.site for s in steps for _ in s.zones], pa.string()),
        "zone": pa.array([zone for s in steps for zone in s.zones], pa.string()),
        "end_ms": pa.array(np.repeat(np.array([s.end_ms for s in steps], np.int64), counts)),
        "schema_version": pa.array(np.repeat(np.array([s.schema_version for s in steps], np.int32), counts)),
        "step_s": pa.array(np.full(sum(counts), step_s, np.int32)),
    }
    for index, channel in enumerate(channels):
        columns[channel] = pa.array(np.ascontiguousarray(values[:, index]))
    for index, channel in enumerate(channels):
        columns[age_column(channel)] = pa.array(np.ascontiguousarray(ages[:, index]))
    return pa.table(columns)


def _differing(new: pa.Table, old: pa.Table, channels: Sequence[str]) -> int:
    """How many rows say something else than the old row beside them, of a channel that both know. Rows of an import
    that an earlier release has begun may lack one.
    """
    differs = np.zeros(len(new), bool)
    for name in channels:
        if name in old.column_names and name in new.column_names:
            said, there = new[name].to_numpy(), old[name].to_numpy()
            differs |= np.abs(said - there) > ROUNDING * np.maximum(np.abs(there), 1)  # not so of NaN
    return int(differs.sum())


def _were_read(rows: pa.Table, channels: Sequence[str], step_s: int) -> npt.NDArray[np.bool_]:
    """In which rows of this length anything was read, also of a metric that is none of the ``channels`` any more: a
    value may also be one that holds from a reading before.
    """
    read = np.zeros(len(rows), bool)
    for name in {*channels, *(name for name in rows.column_names if age_column(name) in rows.column_names)}:
        age_s, value = _numbers(rows, age_column(name)), _numbers(rows, name)
        read |= (age_s < step_s) | (np.isnan(age_s) & ~np.isnan(value))
    return read


def _filled(
    there: pa.Table, rows: pa.Table, channels: Sequence[str], step_s: int
) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """The rows that are ``there``, with values of the ``rows`` beside them as :meth:`History.add_missing` says; and
    which of them got any.
    """
    rows = _without_counted(rows, there)
    same_step = _numbers(there, "step_s") == step_s
    unread = same_step & ~_were_read(there, channels, step_s) & _were_read(rows, channels, step_s)
    fills = unread.copy()
    for name in channels:
        value, age_s = _numbers(there, name), _numbers(there, age_column(name))
        new, new_age_s = _numbers(rows, name), _numbers(rows, age_column(name))
        missing = same_step & np.isnan(value) & ~(age_s < BRIDGED_S) & ~np.isnan(new)
        takes = missing | (unread & ~(np.isnan(new) & np.isnan(new_age_s)))
        fills |= missing
        for column, old, other in ((name, value, new), (age_column(name), age_s, new_age_s)):
            kept = there.drop_columns(column) if column in there.column_names else there
            there = kept.append_column(column, pa.array(np.where(takes, other, old)))
    return there, fills


def _without_counted(rows: pa.Table, there: pa.Table) -> pa.Table:
    """The rows without what counters gained that were read before the row ``there``: the row of their next reading has
    it.
    """
    for name in COUNTERS:
        counts_on = ~np.isnan(_numbers(there, age_column(name)))
        for column in (name, age_column(name)):
            if column in rows.column_names:
                left = pa.array(np.where(counts_on, np.float32(np.nan), _numbers(rows, column)))
                rows = rows.drop_columns(column).append_column(column, left)
    return rows


def _numbers(rows: pa.Table, column: str) -> npt.NDArray[np.float32]:
    """A column's values [n]; NaN where older rows do not have it."""
    if column not in rows.column_names:
        return np.full(len(rows), np.nan, np.float32)
    return np.asarray(rows[column].to_numpy(), np.float32)


def _each_once(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Sorted by the keys; of rows with equal keys only the last."""
    places = table.append_column("_place", pa.array(np.arange(len(table))))
    order = pc.sort_indices(places, sort_keys=[(key, "ascending") for key in (*keys, "_place")])
    table = table.take(order).combine_chunks()
    after, until = table.slice(1), table.slice(0, max(len(table) - 1, 0))
    differs = np.zeros(len(until), bool)
    for key in keys:
        differs |= np.asarray(pc.not_equal(after[key], until[key]))
    return table.filter(pa.array(np.append(differs, len(table) > 0)[: len(table)]))


def _device_table(steps: Sequence[ClosedStep], step_s: int = 300) -> pa.Table:
    tables = [DeviceRows.of(step.devices) for step in steps]
    counts = [len(table) for table in tables]

    def column(name: str, kind: Any) -> pa.Array:
        parts = [np.empty(0, object if kind is None else kind), *(getattr(table, name) for table in tables)]
        whole = np.concatenate(parts)
        return pa.array(whole, pa.string()) if kind is None else pa.array(whole.astype(kind))

    return pa.table({
        "site": pa.array(np.repeat(np.array([step.site for step in steps], object), counts), pa.string()),
        "zone": column("zone", None), "device": column("device", None), "metric": column("metric", None),
        "end_ms": pa.array(np.repeat(np.array([step.end_ms for step in steps], np.int64), counts)),
        "schema_version": pa.array(np.repeat(np.array([step.schema_version for step in steps], np.int32), counts)),
        "step_s": pa.array(np.full(sum(counts), step_s, np.int32)),
        "count": column("n", np.int32),
        **{name: column(name, np.float32) for name in ("mean", "min", "max", "last")},
    })  # fmt: skip
