"""Step 3 of the way of a reading: the log in one SQLite file, the default and the edge buffer.

One table holds all partitions; a record's key is ``partition << 40 | offset``, so a partition lies together on disk
and a read is one range scan. Write-ahead logging lets any number of processes read while one appends, and
``synchronous=FULL`` makes every commit one fsync. Reads fetch everything at once: a cursor left open would keep the
write-ahead log from being checkpointed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from edge.log_contract import (
    LogBusyError,
    LogClosedError,
    LogCorruptError,
    LogError,
    LogFormatError,
    LogFullError,
    LogTruncatedError,
    NewRecord,
    Record,
    partition_of,
)

__all__ = ["SqliteLog"]

_FORMAT = "1"
_HASH = "crc32"
_SHIFT = 40
_BUSY_S = 10.0
_FREE_PAGES_KEPT = 1000
"""Pages that truncation leaves in the file for the next appends (4 MB)."""

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE heads (partition INTEGER PRIMARY KEY, begin_offset INTEGER NOT NULL, end_offset INTEGER NOT NULL,
                    receive_ms INTEGER);
CREATE TABLE sites (site TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE records (id INTEGER PRIMARY KEY, site TEXT NOT NULL, kind TEXT NOT NULL, receive_ms INTEGER NOT NULL,
                      topic TEXT NOT NULL, payload BLOB NOT NULL, crc INTEGER NOT NULL);
"""


class SqliteLog:
    """A durable partitioned log in the file ``path``, created with ``partitions`` if it is not there.

    The first ``append`` takes the writer's lock (``path`` + ``.lock``), which ``close`` or the end of the process
    releases; so an import may append first and a gateway after it. Raises ``LogFormatError`` when the file was
    created with another number of partitions or is no log, ``LogError`` when it cannot be opened.
    """

    def __init__(self, path: str | Path, partitions: int = 4) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._writer: IO[bytes] | None = None
        self._known_sites: set[str] = set()
        self._partitions = partitions
        self._db: sqlite3.Connection | None = None
        try:
            if not self.path.exists():
                _create(self.path, partitions)
            self._db = _connect(self.path)
            self._check_format(partitions)
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise _translated(error, self.path) from error
        except LogError:
            self.close()
            raise

    @property
    def partitions(self) -> int:
        """How many partitions the log was created with."""
        return self._partitions

    def append(self, records: Sequence[NewRecord]) -> list[tuple[int, int]]:
        """Append all records or none, in one transaction with one fsync; see ``edge.log.Log``."""
        if not records:
            return []
        with self._session() as db:
            self._become_writer()
            with _transaction(db):
                # Heads are read again each time: an import by another process may have appended before.
                sql = "SELECT partition, end_offset, receive_ms FROM heads"
                heads = {partition: (end, newest) for partition, end, newest in _all(db, sql)}
                places = []
                rows = []
                for new in records:
                    partition = partition_of(new.site, self._partitions)
                    offset, newest = heads[partition]
                    receive_ms = new.receive_ms if newest is None else max(new.receive_ms, newest)
                    heads[partition] = (offset + 1, receive_ms)
                    places.append((partition, offset))
                    key, crc = partition << _SHIFT | offset, zlib.crc32(new.payload)
                    rows.append((key, new.site, new.kind, receive_ms, new.topic, new.payload, crc))
                db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
                db.executemany(
                    "UPDATE heads SET end_offset = ?, receive_ms = ? WHERE partition = ?",
                    [(*heads[partition], partition) for partition in {place[0] for place in places}],
                )
                new_sites = {new.site for new in records if new.kind == "samples"} - self._known_sites
                db.executemany("INSERT OR IGNORE INTO sites VALUES (?)", [(site,) for site in new_sites])
            self._known_sites |= new_sites
            return places

    def read(self, partition: int, offset: int, limit: int) -> list[Record]:
        """At most ``limit`` records from ``offset`` on; see ``edge.log.Log``."""
        first = (partition << _SHIFT) + offset
        with self._session(partition) as db:
            sql = "SELECT id, site, kind, receive_ms, payload, topic, crc FROM records WHERE id >= ? AND id < ?"
            last = (partition + 1) << _SHIFT
            rows = _all(db, f"{sql} ORDER BY id LIMIT ?", (max(first, partition << _SHIFT), last, limit))
            if not rows or rows[0][0] != first:
                begin = self._head(partition)[0]
                if offset < begin:
                    raise LogTruncatedError(partition, offset, begin)
        records = []
        for index, (key, site, kind, receive_ms, payload, topic, crc) in enumerate(rows):
            if key != first + index or zlib.crc32(payload) != crc:
                raise LogCorruptError(f"{self.path}: partition {partition} is damaged at offset {offset + index}")
            records.append(Record(partition, offset + index, site, kind, receive_ms, payload, topic))
        return records

    def end_offset(self, partition: int) -> int:
        """The offset that the next record of the partition will get."""
        with self._session(partition):
            return self._head(partition)[1]

    def begin_offset(self, partition: int) -> int:
        """The smallest offset that can still be read."""
        with self._session(partition):
            return self._head(partition)[0]

    def last_receive_ms(self, partition: int) -> int | None:
        """The receive time of the newest record ever appended to the partition."""
        with self._session(partition):
            return self._head(partition)[2]

    def sites(self) -> list[str]:
        """Every site that ever had a ``samples`` record."""
        with self._session() as db:
            return [site for (site,) in _all(db, "SELECT site FROM sites ORDER BY site")]

    def truncate(self, partition: int, before: int) -> None:
        """Forget records with an offset smaller than ``before`` and give most of their room back."""
        with self._session(partition) as db:
            with _transaction(db):
                begin, end, _ = self._head(partition)
                begin = max(begin, min(before, end))
                db.execute(
                    "DELETE FROM records WHERE id >= ? AND id < ?",
                    (partition << _SHIFT, partition << _SHIFT | begin),
                )
                db.execute("UPDATE heads SET begin_offset = ? WHERE partition = ?", (begin, partition))
            free = int(_all(db, "PRAGMA freelist_count")[0][0])
            if free > _FREE_PAGES_KEPT:
                # `execute` would free one page: the pragma frees one a step and gives no rows to fetch.
                db.executescript(f"PRAGMA incremental_vacuum({free - _FREE_PAGES_KEPT})")

    def commit(self, partition: int, offset: int) -> None:
        """Nothing: nobody but its readers looks into the file."""
        with self._session(partition):
            pass

    def close(self) -> None:
        """Release the file and the writer's lock."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    @contextlib.contextmanager
    def _session(self, partition: int = 0) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time; SQLite's errors become the log's."""
        if not 0 <= partition < self._partitions:
            raise ValueError(f"partition {partition} is not in 0 ... {self._partitions - 1}")
        with self._lock:
            if self._db is None:
                raise LogClosedError(f"the log {self.path} is closed")
            try:
                yield self._db
            except (sqlite3.Error, OSError) as error:
                raise _translated(error, self.path) from error

    def _head(self, partition: int) -> tuple[int, int, int | None]:
        assert self._db is not None
        sql = "SELECT begin_offset, end_offset, receive_ms FROM heads WHERE partition = ?"
        begin, end, receive_ms = _all(self._db, sql, (partition,))[0]
        return begin, end, receive_ms

    def _become_writer(self) -> None:
        if self._writer is not None:
            return
        # flock belongs to the open file, not to the process: two logs in one process exclude each other too.
        lock = self.path.with_name(self.path.name + ".lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise LogBusyError(f"another process appends to {self.path}; only one may") from error
        self._writer = lock

    def _check_format(self, partitions: int) -> None:
        assert self._db is not None
        try:
            meta = dict(_all(self._db, "SELECT key, value FROM meta"))
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            raise LogFormatError(f"{self.path} is an SQLite file but no Hothouse log") from error
        if meta.get("format") != _FORMAT or meta.get("hash") != _HASH:
            found = f"format {meta.get('format')}, hash {meta.get('hash')}"
            raise LogFormatError(f"{self.path} has {found}; this version reads format {_FORMAT}, hash {_HASH}")
        if int(meta["partitions"]) != partitions:
            raise LogFormatError(
                f"{self.path} was created with {meta['partitions']} partitions and cannot be opened with {partitions}"
            )


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(
        path.absolute().as_uri() + "?mode=rw", uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
    )
    db.execute("PRAGMA synchronous=FULL")
    return db


def _create(path: Path, partitions: int) -> None:
    """Make the file beside and link it into place, so that a half-made log is never opened and the first one wins."""
    if partitions < 1:
        raise ValueError(f"a log needs at least one partition, not {partitions}")
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    made.unlink(missing_ok=True)
    db = sqlite3.connect(made, isolation_level=None)
    try:
        db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # only takes effect before the first table
        db.executescript(_SCHEMA)
        meta = {"format": _FORMAT, "partitions": str(partitions), "hash": _HASH}
        db.executemany("INSERT INTO meta VALUES (?, ?)", list(meta.items()))
        db.executemany("INSERT INTO heads VALUES (?, 0, 0, NULL)", [(p,) for p in range(partitions)])
        db.execute("PRAGMA journal_mode=WAL")
    finally:
        db.close()
    try:
        os.link(made, path)
    except FileExistsError:
        pass  # another process was first
    finally:
        made.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite has already rolled back on some errors
            db.execute("ROLLBACK")
        raise


def _all(db: sqlite3.Connection, sql: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    return db.execute(sql, values).fetchall()


def _translated(error: sqlite3.Error | OSError, path: Path) -> LogError:
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary == sqlite3.SQLITE_FULL:
        return LogFullError(f"no room is left for {path}: {error}")
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return LogCorruptError(f"{path} is damaged or no log: {error}")
    return LogError(f"{path}: {error}")
