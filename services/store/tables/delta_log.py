"""Step 6 of the way of a reading: the log of a Delta Lake table, through ``deltalake``, which says what files it has.

Files of rows are written by the storage, durable and under names that are never used twice; a commit names those that
come and those that they replace, all at once. A *writer* has a name, and a commit under it is refused where another
one under that name came in between: so two processes that take themselves for the same writer cannot both succeed.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa

from services.errors import HistoryError, NotStoredError, StorageError
from services.store.files import sync_folder
from services.store.storage import Storage

__all__ = ["DeltaLog", "TableChangedError", "TableFile", "TableState"]

KEPT_H = 6
"""Hours that a replaced file stays: trainings and queries may have listed it before."""
LOG_H = 24
"""Hours that single commits before a checkpoint stay, at least: the next :meth:`DeltaLog.vacuum` removes them."""
READ_AT_ONCE = 50
"""At most this many commits of others are read to see whose they are; the library is asked about more."""
_CONFIGURATION = {
    "delta.logRetentionDuration": f"interval {LOG_H} hours",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_H} hours",
    "delta.checkpointInterval": "100",
}
MOST_SAID = 600
"""Characters of what the library says of an error; the cause is at the end."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LAST_CHECKPOINT = "_last_checkpoint"


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
    """The table in ``folder`` of a storage, with times in ms in ``time_column``. Any thread may call any method."""

    def __init__(self, storage: Storage, folder: str, time_column: str) -> None:
        self._storage, self._folder, self._time = storage, folder, time_column
        self._lock = Lock()
        self._table: Any = None
        self._files: tuple[int, dict[str, TableFile], pa.Schema | None] = (-1, {}, None)  # of which version
        self._turns: tuple[int, dict[str, int | None]] = (-1, {})  # likewise
        self._looked_s = 0.0
        self._durable: frozenset[str] = frozenset()  # files of the log

    def state(self, writer: str = "") -> TableState:
        """What the table has now; no files where there is none. What a writer is told of is durable.

        Raises :class:`HistoryError`.
        """
        asked_s = time.monotonic()
        with self._lock:
            if not writer and self._looked_s > asked_s and self._table is not None:
                return TableState(*self._read_files())  # somebody has looked since, while we waited
            opened = self._table is not None
            try:
                return self._look(writer)
            except HistoryError:
                if not opened:
                    raise
            return self._look(writer)  # opened anew: credentials may have expired

    def _look(self, writer: str) -> TableState:
        with self._told():
            began_s = time.monotonic()
            if not self._refresh():
                return TableState({}, None)
            files, schema = self._read_files()
            turn = None
            if writer:
                self._make_durable()
                turn = self._turn(writer)
            self._looked_s = began_s
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
            self._commit(adds, removes, {writer: 0 if turn is None else turn + 1} if writer else {})
            self._make_durable()

    def vacuum(self, kept_h: int = KEPT_H) -> int:
        """Remove files that left the table ``kept_h`` hours ago or were never in it, and commits that a checkpoint
        replaces; returns how many files. No other call waits for it: it opens the table for itself.
        """
        from deltalake.exceptions import TableNotFoundError

        with self._translated():
            try:
                table = self._open()
            except TableNotFoundError:
                return 0
            gone = table.vacuum(
                kept_h, dry_run=False, enforce_retention_duration=False, full=True, post_commithook_properties=_hooks()
            )
            with self._lock:  # a checkpoint is durable before what it stands for goes
                self._make_durable()
            table.cleanup_metadata()
            return len(gone)

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
            self._table.create_write_transaction(
                actions, "append", self._table.schema(), commit_properties=properties,
                post_commithook_properties=_hooks(),
            )  # fmt: skip
        except CommitFailedError as error:
            raise TableChangedError(str(error)) from error

    def _stats(self, file: TableFile) -> str:
        low = {"site": file.sites[0], "zone": file.zones[0], self._time: file.first_ms}
        high = {"site": file.sites[1], "zone": file.zones[1], self._time: file.last_ms}
        return json.dumps({"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": {}})

    def _refresh(self) -> bool:
        """Look at newer commits; whether there is a table."""
        from deltalake.exceptions import TableNotFoundError

        if self._table is not None:
            self._table.update_incremental()
            return True
        try:
            self._table = self._open()
        except TableNotFoundError:
            return False
        return True

    def _open(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._where, storage_options=self._storage.delta_options())

    def _turn(self, writer: str) -> int | None:
        """The number of the writer's newest commit. Only commits since the last look are read; the library would read
        all since the checkpoint.
        """
        version = self._table.version()
        known, turns = self._turns
        if known < 0 or not 0 <= version - known <= READ_AT_ONCE:
            turns = {}
        for number in range(known + 1, version + 1) if turns else ():
            try:
                content = self._storage.read(f"{self._folder}/_delta_log/{number:020}.json").content
            except NotStoredError:  # a checkpoint stands for it
                turns = {}
                break
            said = [json.loads(line).get("txn") for line in content.splitlines()]
            turns = turns | {one["appId"]: one["version"] for one in said if one is not None}
        if writer not in turns:
            turns = turns | {writer: self._table.transaction_version(writer)}
        self._turns = version, turns
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
        from deltalake.exceptions import CommitFailedError

        there = {field.name for field in self._table.schema().fields}
        new = [field for field in Schema.from_arrow(schema).fields if field.name not in there]
        if new:
            try:
                self._table.alter.add_columns(new, post_commithook_properties=_hooks())
            except CommitFailedError as error:  # another writer adds columns, too
                raise TableChangedError(str(error)) from error
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

    def _make_durable(self) -> None:
        """Sync all new files of a log in a folder, whoever wrote them: the library leaves that to the operating
        system, and a commit is worth nothing where one before it is lost.
        """
        log, root = self._storage.local(f"{self._folder}/_delta_log"), self._storage.local("")
        if log is None or root is None:
            return
        names = set(os.listdir(log))  # noqa: PTH208 - a thousand names, at each flush
        if _LAST_CHECKPOINT in names:  # is written again and again: its time is a part of its name here
            names.add(f"{_LAST_CHECKPOINT} {(log / _LAST_CHECKPOINT).stat().st_mtime_ns}")
            names.discard(_LAST_CHECKPOINT)
        new = names - self._durable
        if not new:
            return
        for name in sorted(new):
            with suppress(FileNotFoundError), (log / name.partition(" ")[0]).open("rb") as file:
                os.fsync(file.fileno())  # one of the library's own may be renamed meanwhile
        sync_folder(log)
        if not self._durable:  # the table may be new
            for folder in itertools.takewhile(root.parent.__ne__, log.parents):
                sync_folder(folder)
            with suppress(PermissionError):
                sync_folder(root.parent)
        self._durable = frozenset(names)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """As :meth:`_translated`; after any error the table is opened anew, with credentials read again."""
        try:
            with self._translated():
                yield
        except BaseException as error:
            self._turns = -1, {}
            if isinstance(error, HistoryError):
                self._table, self._files = None, (-1, {}, None)
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """What the library raises, as ours."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
            if isinstance(error, HistoryError):
                raise
            hint = error.hint if isinstance(error, StorageError) else "Free space, or see to the storage's server."
            raise HistoryError(
                f"the table {self._where} cannot be read or written: {_in_a_line(error)}", hint
            ) from error

    @property
    def _where(self) -> str:
        found = self._storage.local(self._folder)
        return self._storage.address(self._folder) if found is None else str(Path(found).absolute())

    @property
    def _name(self) -> str:
        return self._folder.rpartition("/")[2]


def _hooks() -> Any:
    """A commit writes a checkpoint when it is time, and removes nothing: that is for :meth:`DeltaLog.vacuum`."""
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(cleanup_expired_logs=False)


def _in_a_line(error: Exception) -> str:
    """The library writes a cause below what it has caused, behind an arrow in colour."""
    lines = (line.strip(" \t↳") for line in _COLOUR.sub("", str(error)).splitlines())
    said = ": ".join(line for line in lines if line) or type(error).__name__
    return said if len(said) <= MOST_SAID else f"{said[: MOST_SAID // 3]} ... {said[-2 * MOST_SAID // 3 :]}"
