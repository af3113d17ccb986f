"""Step 6 of the way of a reading: rows of partitions in a table, each of them once, in files that suit their readers.

``p{partition}/{period}-{step}s-{word}.parquet`` holds rows of a UTC day, or of a month that is over, in the table's
order. Which files become one, and when, is in :mod:`services.store.tables.compaction`. What replaces and what is
replaced change places in one commit: a reader sees every row once, at any moment. A writer that starts, or that another
one came between, looks which of its rows are there already.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.durations import DAY_MS
from services.errors import FirstError, HistoryError
from services.store.parquet import NOTHING, day_of, write_table
from services.store.storage import Storage, always
from services.store.tables.compaction import between, cut, has_many_files, merge_period, small_files, tidies, zone_runs
from services.store.tables.delta_log import KEPT_H, TableChangedError, TableFile, TableState
from services.store.tables.file_name import FileName
from services.store.tables.read_files import read_files, rows_within
from services.store.tables.table_reader import TableReader, TableSpec

__all__ = ["RowTable"]

ROW_GROUP = 20_000
"""Rows that a reader may pass over together, as their zones and times are known."""
TRIES = 10
Change = tuple[list[TableFile], list[TableFile]]
"""The files that a commit adds, and those that it takes out."""
BROUGHT_OVER = "brought-over"
"""The name under which the files of an older release are brought over."""


class RowTable(TableReader):
    """Writes a table, too; one writer a partition, any number of readers, in any threads."""

    def __init__(self, storage: Storage, spec: TableSpec) -> None:
        super().__init__(storage, spec)
        self._newest: dict[tuple[int, str], int] = {}  # of a partition's site: no row after it is in the table
        self._turns: dict[int, int | None] = {}  # of a partition's writer: as we left it

    def append(self, partition: int, step_s: int, rows: pa.Table, check: Callable[[], None] = always) -> None:
        """Make rows durable, but for those that are there already.

        Each row is written once. The log numbers the commits of a partition's writer: its turns. A commit is made for
        the turn that its rows were thought out on. The log refuses it if the writer's name was used since. So two
        commits never follow from the same look at the table. At each look a writer compares the turn with that of its
        own last commit. Where it is another, somebody else wrote, or an answer was lost: it forgets what it knew of the
        table. A row is new if it is later than any row of its site, by what the writer wrote itself since then, or by
        the spans of files in the log. Any other row is looked for in the files that may hold it. A commit adds all its
        rows or none. So after a crash, a lost answer or a takeover the same rows can be appended again.

        ``check`` raises when the partition belongs to another writer by now; nothing is changed then. Raises
        :class:`HistoryError` if nobody knows whether it was done: then the same rows are to be appended again.
        """

        def thought_out(state: TableState) -> Change:
            new = self._missing(state, partition, rows)
            return self._days(state, partition, step_s, new, check) if len(new) else ([], [])

        if self._commit(partition, thought_out, rows.schema, check):
            self._note(partition, rows)

    def replace(self, partition: int, step_s: int, rows: pa.Table, check: Callable[[], None] = always) -> None:
        """Put rows in the place of those with the same identity, all of them or none: every file with such a row is
        written anew. A row that is not there is not added. Otherwise as :meth:`append`.
        """
        ends = pc.min_max(rows[self.spec.time]).as_py()
        sites = pc.unique(rows["site"]).to_pylist()

        def thought_out(state: TableState) -> Change:
            adds, removes = list[TableFile](), list[TableFile]()
            for file in self._chosen(state, ends["min"] - 1, ends["max"], sites, step_s=step_s):
                assert state.schema is not None  # as there is a file
                there = read_files(self.storage, self._sizes([file]), state.schema, state.schema.names, None)
                found = rows.join(there.select(self.spec.identity), self.spec.identity, join_type="left semi")
                if len(found):
                    kept = there.join(rows.select(self.spec.identity), self.spec.identity, join_type="left anti")
                    name, both = FileName.of(file.path), pa.concat_tables([kept, found], promote_options="default")
                    for part in cut(self._in_order(both)):
                        adds.append(self._write(name.path(uuid.uuid4().hex), part, check))
                    removes.append(file)
            return adds, removes

        self._commit(partition, thought_out, rows.schema, check)

    def _commit(
        self, partition: int, thought_out: Callable[[TableState], Change], schema: pa.Schema, check: Callable[[], None]
    ) -> bool:  # fmt: skip
        """Commit what is thought out on the newest state, as :meth:`append` says; whether there was anything."""
        writer = f"p{partition}"
        for _ in range(TRIES):
            check()
            state = self._log.state(writer)
            if self._turns.get(partition) != state.turn:  # another one has written, or we begin
                self._forget(partition)
                self._turns[partition] = state.turn
            try:
                adds, removes = thought_out(state)
                if not adds:
                    return False
                self._log.commit(adds, removes, schema, writer, state.turn, check)
            except TableChangedError:
                self._forget(partition)
                continue
            except BaseException:
                self._forget(partition)
                raise
            self._turns[partition] = 0 if state.turn is None else state.turn + 1
            return True
        raise HistoryError(
            f"{self.storage.address(self.spec.folder)} was changed by others at every one of {TRIES} tries",
            "It is tried again. If this stays, another system writes into the same storage: stop one of them.",
        )

    def append_once(
        self, partition: int, step_s: int, rows: pa.Table, what: str, begun: str, check: Callable[[], None] = always
    ) -> None:
        """Make rows durable, unless that was done before under the same name ``what``, and month ``begun``.

        Rows of other months may be among them, and rows of such a month come again with another ``begun``. Nothing else
        may write to the table meanwhile. Should another process do the same, one of them is refused: the log numbers
        these commits, too, and ``check``, which is called after the log was looked at, raises where the other one has
        ended already. Raises :class:`HistoryError`.
        """
        self._forget(partition)
        days, at_day = np.unique(rows[self.spec.time].to_numpy() // DAY_MS, return_inverse=True)
        months, month_of = np.unique([day_of(int(day) * DAY_MS)[:7] for day in days], return_inverse=True)
        state, adds = self._log.state(BROUGHT_OVER), []
        for index, month in enumerate(months):
            name = FileName(partition, step_s, str(month))
            said = f"{what} {name}" if month == begun else f"{what} {name} begun in {begun}"
            word = hashlib.sha256(said.encode()).hexdigest()[:24]
            there = rows.filter(pa.array(month_of[at_day] == index))
            for number, part in enumerate(cut(self._in_order(there))):
                path = name.path(f"{word}{number:08x}")
                if path in state.files:  # done before; but an older version may have written again since
                    self.append(partition, step_s, rows)
                    return
                adds.append(self._write(path, part, always, version=None))
        try:
            self._log.commit(adds, [], rows.schema, BROUGHT_OVER, state.turn, check)
        except TableChangedError as error:
            if self._done(adds):
                return
            raise HistoryError(f"{self.storage.address(self.spec.folder)} was changed by another process") from error

    def compact(self, before_ms: int, partitions: Collection[int], check: Callable[[], None] = always) -> int:
        """Make one file of a day before that of ``before_ms``, and few of a month; returns how many it replaced.

        For the writer of the ``partitions``, in any thread. Safe to be stopped anywhere and to be repeated. The writer
        of the first partition that has had rows of late also removes files that the table has not had for some hours.
        Raises :class:`HistoryError`, once all is done that can be.
        """
        today, replaced = day_of(before_ms), 0
        named = [(FileName.of(file.path), file) for file in self._log.state().files.values()]
        ours = sorted(
            ((name.partition, name.step_s, merge_period(name, today)), file.path, file)
            for name, file in named
            if name.partition in partitions and merge_period(name, today) < today
        )
        with FirstError(HistoryError) as first:  # a damaged file keeps no others from being merged
            for name, group in groupby(ours, key=lambda one: one[0]):
                files = [file for _, _, file in group]
                if not has_many_files(files):
                    continue
                check()
                with first.kept():
                    replaced += self._merge(FileName(*name), files, check)
            if tidies(named, partitions):
                self._log.vacuum(KEPT_H)
        return replaced

    def _merge(self, name: FileName, files: Sequence[TableFile], check: Callable[[], None]) -> int:
        """Few files in the place of many; returns how many were replaced, none where rows came meanwhile."""
        adds = list(self._sorted(name, files, check))
        before, after = (sum(file.rows for file in some) for some in (files, adds))
        if before != after:
            raise HistoryError(
                f"files of {self.storage.address(self.spec.folder)} have {after:,} rows, its log says {before:,} "
                f"(p{name.partition}, {name.period}): they are left as they are", "Keep a copy of it, and report this.",
            )  # fmt: skip
        schema = self._log.state().schema
        assert schema is not None
        try:
            self._log.commit(adds, files, schema, check=check)
        except TableChangedError:
            return len(files) if self._done(adds) else 0
        return len(files)

    def _missing(self, state: TableState, partition: int, rows: pa.Table) -> pa.Table:
        """Those rows that are not in the table. Only rows are looked for that are not newer than the site's newest."""
        oldest = pa.TableGroupBy(rows, "site").aggregate([(self.spec.time, "min")])
        newest = [
            self._no_row_after(state, partition, site, first_ms)
            for site, first_ms in zip(*(column.to_pylist() for column in oldest.columns), strict=True)
        ]
        last_ms = pc.take(pa.array(newest, pa.int64()), pc.index_in(rows["site"], oldest["site"].combine_chunks()))
        doubted = pc.less_equal(rows[self.spec.time], last_ms)
        doubtful = rows.filter(doubted)
        if not len(doubtful) or state.schema is None:
            return rows
        ends = pc.min_max(doubtful[self.spec.time]).as_py()
        start_ms, end_ms = ends["min"] - 1, ends["max"]
        sites = pc.unique(doubtful["site"]).to_pylist()
        keys = self._sizes(self._chosen(state, start_ms, end_ms, sites))
        identity = pa.schema([rows.schema.field(name) for name in self.spec.identity])
        within = rows_within(self.spec.time, start_ms, end_ms, sites)
        there = read_files(self.storage, keys, state.schema, identity.names, within).cast(identity)
        new = doubtful.join(there, identity.names, join_type="left anti").select(rows.column_names)
        return pa.concat_tables([rows.filter(pc.invert(doubted)), new])

    def _no_row_after(self, state: TableState, partition: int, site: str, first_ms: int) -> int:
        """A time after which the table has no row of the site: by what we wrote, or by the log if that is before
        ``first_ms``, else by the files.
        """
        at = partition, site
        if at not in self._newest:
            files = state.files.values()
            last_ms = max((one.last_ms for one in files if one.sites[0] <= site <= one.sites[1]), default=-1)
            self._newest[at] = last_ms if last_ms < first_ms else self._newest_in(state, site, None)
        return self._newest[at]

    def _days(
        self, state: TableState, partition: int, step_s: int, rows: pa.Table, check: Callable[[], None]
    ) -> Change:  # fmt: skip
        """New files of each UTC day, and the small ones that they take the place of."""
        adds: list[TableFile] = []
        removes: list[TableFile] = []
        days = rows[self.spec.time].to_numpy() // DAY_MS
        by_name: dict[FileName, list[TableFile]] = {}
        for file in state.files.values():
            by_name.setdefault(FileName.of(file.path), []).append(file)
        for day in np.unique(days):
            name = FileName(partition, step_s, day_of(int(day) * DAY_MS))
            new = rows.filter(pa.array(days == day))
            small = small_files(by_name.get(name, []), len(new))
            if small and state.schema is not None:
                keys = self._sizes(small)
                before = read_files(self.storage, keys, state.schema, state.schema.names, None)
                new = pa.concat_tables([before, new], promote_options="default")
                removes += small
            for part in cut(self._in_order(new)):
                adds.append(self._write(name.path(uuid.uuid4().hex), part, check))
        return adds, removes

    def _sorted(self, name: FileName, files: Sequence[TableFile], check: Callable[[], None]) -> Iterator[TableFile]:
        """The rows of a month's files, written anew in the table's order; only some zones' are in memory at a time."""
        state = self._log.state()
        assert state.schema is not None
        keys = self._sizes(files)
        zones = read_files(self.storage, keys, state.schema, ["site", "zone"], None).group_by(["site", "zone"])
        counts = zones.aggregate([([], "count_all")]).sort_by([("site", "ascending"), ("zone", "ascending")])
        for low, high in zone_runs(counts):
            rows = read_files(self.storage, keys, state.schema, state.schema.names, between(low, high))
            for part in cut(self._in_order(rows)):
                check()
                yield self._write(name.path(uuid.uuid4().hex), part, check)

    def _done(self, adds: Sequence[TableFile]) -> bool:
        """Whether a commit that was refused is there: its first answer was lost, and it was asked for again."""
        files = self._log.state().files
        return all(file.path in files for file in adds)

    def _in_order(self, rows: pa.Table) -> pa.Table:
        return rows.sort_by([(name, "ascending") for name in self.spec.order])

    def _write(self, path: str, rows: pa.Table, check: Callable[[], None], version: str | None = NOTHING) -> TableFile:
        size = write_table(self.storage, f"{self.spec.folder}/{path}", rows, check, version, ROW_GROUP)
        sites, zones, times = (pc.min_max(rows[column]).as_py() for column in ("site", "zone", self.spec.time))
        return TableFile(
            path, size, len(rows), times["min"], times["max"], (sites["min"], sites["max"]),
            (zones["min"], zones["max"]),
        )  # fmt: skip

    def _note(self, partition: int, rows: pa.Table) -> None:
        newest = pa.TableGroupBy(rows, "site").aggregate([(self.spec.time, "max")]).to_pydict()
        for site, last_ms in zip(newest["site"], newest[f"{self.spec.time}_max"], strict=True):
            at = partition, site
            self._newest[at] = max(self._newest.get(at, 0), last_ms)

    def _forget(self, partition: int) -> None:
        self._newest = {at: newest for at, newest in self._newest.items() if at[0] != partition}
