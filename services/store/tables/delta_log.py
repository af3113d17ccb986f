"""Step 6 of the way of a reading: the log of a Delta Lake table, through ``deltalake``, which says what files it has.

Files of rows are written by the storage, durable and under names that are never used twice; a commit names those that
come and those that they replace, all at once. A *writer* has a name, and a commit under it is refused where another
one under that name came in between: so two processes that take themselves for the same writer cannot both succeed.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa

from services.errors import HistoryError, StorageError
from services.store.files import sync_folder
from services.store.storage import Storage

__all__ = ["DeltaLog", "TableChangedError", "TableFile", "TableState"]

KEPT_H = 6
"""So long a file that was replaced stays, for who listed it before: trainings and queries."""
LOG_H = 24
"""So long the single commits before a checkpoint stay."""
_CONFIGURATION = {
    "delta.logRetentionDuration": f"interval {LOG_H} hours",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_H} hours",
    "delta.checkpointInterval": "100",
}


class TableChangedError(Exception):
    """Another commit came in between: look again."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table: where it is in it, and what its rows span (both ends count)."""

    path: str
    size: int
    rows: int
    first_ms: int
    last_ms: int
    sites: tuple[str, str]
    zones: tuple[str, str]


@dataclass(frozen=True, slots=True)
class TableState:
    """The files of a table at a moment, by path, its columns, and the number of its writer's newest commit."""

    files: dict[str, TableFile]
    schema: pa.Schema | None
    turn: int | None = None


class DeltaLog:
    """The table in ``folder`` of a storage, whose column ``time`` is in ms. Any thread may call any method."""

    def __init__(self, storage: Storage, folder: str, time_column: str) -> None:
        self._storage, self._folder, self._time = storage, folder, time_column
        self._lock = Lock()
        self._table: Any = None
        self._files: tuple[int, dict[str, TableFile], pa.Schema | None] = (-1, {}, None)  # of which version
        self._turns: tuple[int, dict[str, int | None]] = (-1, {})  # likewise

    def state(self, writer: str = "") -> TableState:
        """What the table has now; no files where there is none. Raises :class:`HistoryError`."""
        with self._lock, self._told():
            if not self._refresh():
                return TableState({}, None)
            files, schema = self._read_files()
            turn = self._turn(writer) if writer else None
            return TableState(files, schema, turn)

    def commit(
        self, adds: Sequence[TableFile], removes: Sequence[TableFile], schema: pa.Schema, writer: str = "",
        turn: int | None = None, check: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Add files and take others out, together. ``turn`` is that of the state that this was thought out on.

        ``check`` is called at the last moment. Raises :class:`TableChangedError` where files to be taken out are gone,
        or the writer's name was used meanwhile; :class:`HistoryError` where nobody knows whether it was done.
        """
        with self._lock, self._told():
            self._open_or_make(schema)
            self._widen(schema)
            there, _ = self._read_files()
            if any(file.path not in there for file in removes):
                raise TableChangedError
            if writer and self._turn(writer) != turn:
                raise TableChangedError
            check()
            before = self._table.version()
            self._commit(adds, removes, {writer: 0 if turn is None else turn + 1} if writer else {})
            self._make_durable(before)

    def vacuum(self, kept_h: int = KEPT_H) -> int:
        """Remove files that the table has not had for so long, or never had; returns how many."""
        with self._lock, self._told():
            if not self._refresh():
                return 0
            return len(self._table.vacuum(kept_h, dry_run=False, enforce_retention_duration=False, full=True))

    def _commit(self, adds: Sequence[TableFile], removes: Sequence[TableFile], turns: dict[str, int]) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        now_ms = time.time_ns() // 1_000_000
        actions = [
            *(AddAction(one.path, one.size, {}, now_ms, True, self._stats(one)) for one in adds),
            *(RemoveAction(one.path, True, now_ms, one.size, {}) for one in removes),
        ]
        properties = CommitProperties(app_transactions=[Transaction(name, turn) for name, turn in turns.items()])
        try:
            self._table.create_write_transaction(actions, "append", self._table.schema(), commit_properties=properties)
        except CommitFailedError as error:
            raise TableChangedError(str(error)) from error

    def _stats(self, file: TableFile) -> str:
        low = {"site": file.sites[0], "zone": file.zones[0], self._time: file.first_ms}
        high = {"site": file.sites[1], "zone": file.zones[1], self._time: file.last_ms}
        return json.dumps({"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": {}})

    def _refresh(self) -> bool:
        """Look at newer commits; whether there is a table."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        if self._table is not None:
            self._table.update_incremental()
            return True
        try:
            self._table = DeltaTable(self._where, storage_options=self._storage.delta_options())
        except TableNotFoundError:
            return False
        return True

    def _turn(self, writer: str) -> int | None:
        version = self._table.version()
        if self._turns[0] != version:
            self._turns = version, {}
        turns = self._turns[1]
        if writer not in turns:
            turns[writer] = self._table.transaction_version(writer)
        return turns[writer]

    def _open_or_make(self, schema: pa.Schema) -> None:
        """What is newer than the last look is not looked for: the commit itself finds out."""
        from deltalake import DeltaTable

        if self._table is not None or self._refresh():
            return
        local = self._storage.local(self._folder)
        if local is not None:
            local.mkdir(parents=True, exist_ok=True)
        options = self._storage.delta_options()
        DeltaTable.create(
            self._where, schema, mode="ignore", configuration=_CONFIGURATION, storage_options=options, name=self._name
        )
        self._refresh()

    def _widen(self, schema: pa.Schema) -> None:
        """Give the table the columns that it does not have yet: rows before have nothing in them."""
        from deltalake import Schema

        there = {field.name for field in self._table.schema().fields}
        new = [field for field in Schema.from_arrow(schema).fields if field.name not in there]
        if new:
            self._table.alter.add_columns(new)
            self._table.update_incremental()

    def _read_files(self) -> tuple[dict[str, TableFile], pa.Schema]:
        version = self._table.version()
        if self._files[0] != version:
            found = pa.table(self._table.get_add_actions(flatten=True)).to_pydict()
            ends = f"min.{self._time}", f"max.{self._time}"
            columns = ("path", "size_bytes", "num_records", *ends, "min.site", "max.site", "min.zone", "max.zone")
            rows = zip(*(found.get(name, ()) for name in columns), strict=True)
            files = {
                path: TableFile(path, size, count, first, last, (low, high), (from_zone, to_zone))
                for path, size, count, first, last, low, high, from_zone, to_zone in rows
            }
            self._files = version, files, pa.schema(self._table.schema().to_arrow())
        _, files, schema = self._files
        assert schema is not None
        return files, schema

    def _make_durable(self, before: int) -> None:
        """Of a folder: the library leaves that to the operating system."""
        log = self._storage.local(f"{self._folder}/_delta_log")
        if log is None:
            return
        for version in itertools.count(before + 1):
            try:
                with (log / f"{version:020}.json").open("rb") as file:
                    os.fsync(file.fileno())
            except FileNotFoundError:  # behind the newest commit
                break
        sync_folder(log)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What the library raises, as ours; the table is opened anew after it, with credentials read again."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except TableChangedError:
            raise
        except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
            self._table, self._files = None, (-1, {}, None)
            if isinstance(error, HistoryError):
                raise
            hint = error.hint if isinstance(error, StorageError) else "Free space, or see to the storage's server."
            raise HistoryError(
                f"the table {self._where} cannot be read or written: {_first_line(error)}", hint
            ) from error

    @property
    def _where(self) -> str:
        found = self._storage.local(self._folder)
        return self._storage.address(self._folder) if found is None else str(Path(found).absolute())

    @property
    def _name(self) -> str:
        return self._folder.rpartition("/")[2]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
