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
import pyarrow as pa
import pyarrow.compute as pc

from models.durations import DAY_MS
from services.errors import FirstError, HistoryError
from services.store.imports.missing_rows import COUNTERS, age_column, differing, filled, of_pauses, without_pauses
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


LOOK_BACK_MS = 31 * DAY_MS
"""So much at once an import reads to look for a zone's row before: a file of a month, which is read whole anyway."""
FLUSHED_ROWS = 100_000
"""About as many rows, of zones and devices, are written at once: they are in memory several times then."""


class MissingAdded(NamedTuple):
    """What became of rows that were to be added where there was none."""

    added: int
    there: int
    conflicts: int  # rows that say something else than was read
    filled: int  # rows that were there, and got values that nobody had read


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
        site whose gateway was away; else of metrics that were unread for over an hour (``BRIDGED_S``), as of a zone
        whose devices were away while the site's weather station sent on. What a counter gained meanwhile stands in the
        row of its next reading. So it is not filled in, nor added in a pause that a running system has passed over.
        ``rows`` has the columns of :func:`zone_table`. For the partition's writer, who flushes before: rows that wait
        for a flush are not looked at. Raises as :meth:`flush`.
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
        beside = before.take(pa.array([n for n in known if n is not None], pa.int64()))
        both, fills, changes = filled(beside, old, self.channels, self.step_s)
        conflicts = differing(old, both, self.channels, self.step_s)
        if len(new):
            new = self._without_counted(site, new, before)
            self.zones.append(partition, self.step_s, _each_once(new, ZONE_ROWS.identity), check)
        if changes.any():
            whole = both.filter(pa.array(changes))
            self.zones.replace(partition, self.step_s, _each_once(whole, ZONE_ROWS.identity), check)
        return MissingAdded(len(new), int((~fills).sum()), conflicts, int(fills.sum()))

    def _without_counted(self, site: str, new: pa.Table, there: pa.Table) -> pa.Table:
        """New rows of a site without what counters gained that they do not count: see :func:`without_pauses`.
        ``there`` has the site's rows of that time.
        """
        counters = sorted(COUNTERS & set(new.column_names))
        columns = ["zone", "end_ms", *counters, *map(age_column, counters)]
        there = there.select([name for name in columns if name in there.column_names])
        ends = new["end_ms"].to_numpy()
        first_ms, last_ms = int(ends.min()), int(ends.max())
        around, unknown = [there], set(pc.unique(new["zone"]).to_pylist())
        until_ms, back_ms = first_ms - 1, DAY_MS  # most zones have rows of the day before
        while unknown and self.zones.files(None, until_ms, [site], unknown):  # the pause may have begun months ago
            before = self.zones.read(until_ms - back_ms, until_ms, [site], unknown, columns=columns)
            assert before is not None  # as there is a file
            around.append(before)
            unknown -= set(pc.unique(before["zone"]).to_pylist())
            until_ms, back_ms = until_ms - back_ms, LOOK_BACK_MS
        paused = new.filter(pa.array(of_pauses(new, pa.concat_tables(around, promote_options="default"), self.step_s)))
        if not len(paused):
            return new
        missed, after_ms, length_ms = set(paused["zone"].to_pylist()), last_ms, DAY_MS
        while missed and self.zones.files(after_ms, None, [site], missed):  # the pause's end may be months away
            after = self.zones.read(after_ms, after_ms + length_ms, [site], missed, columns=columns)
            assert after is not None
            around.append(after)
            missed -= set(pc.unique(after["zone"]).to_pylist())
            after_ms, length_ms = after_ms + length_ms, 2 * length_ms
        return without_pauses(new, pa.concat_tables(around, promote_options="default"), self.step_s)

    def rewritten_until_ms(self, site: str, first_ms: int, last_ms: int) -> int:
        """The end of the newest row in the files that may hold rows of a site from ``first_ms`` to ``last_ms``, which
        :meth:`add_missing` may write anew; ``last_ms`` without any.
        """
        return self.zones.reach_ms(first_ms - 1, last_ms, [site]) or last_ms

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
        if span is None or span[1] <= now_ms + DAY_MS:
            return span
        newest = self.zones.newest_of_sites_ms(self.step_s).values()
        return span[0], max((each for each in newest if each <= now_ms + DAY_MS), default=span[1])

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
