"""Step 3 of the way of a reading: the SQLite file of a log: its tables, how it is made, opened and migrated.

Format 2 gives every record an origin and every site its own newest receive time. A file of format 1 is migrated when it
is opened: at once, because no record is touched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edge.log.contract import LogCorruptError, LogError, LogFormatError, LogFullError, partition_of

__all__ = ["check_format", "connect", "create", "fetch", "migrate", "needs_migration", "transaction", "translated"]

_FORMAT = "2"
_MIGRATED = "1"
_HASH = "crc32"
_BUSY_S = 10.0

# Of a record that was not in another log before, origin_log is NULL: it is this one.
_SITES = """
CREATE TABLE sites (site TEXT PRIMARY KEY, receive_ms INTEGER NOT NULL, records INTEGER NOT NULL,
                    sampled INTEGER NOT NULL) WITHOUT ROWID;
"""
_SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE heads (partition INTEGER PRIMARY KEY, begin_offset INTEGER NOT NULL, end_offset INTEGER NOT NULL,
                    receive_ms INTEGER);
{_SITES}
CREATE TABLE records (id INTEGER PRIMARY KEY, site TEXT NOT NULL, kind TEXT NOT NULL, receive_ms INTEGER NOT NULL,
                      topic TEXT NOT NULL, payload BLOB NOT NULL, crc INTEGER NOT NULL,
                      origin_log TEXT, origin_number INTEGER);
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open an existing file; every commit on the connection is one fsync."""
    db = sqlite3.connect(
        path.absolute().as_uri() + "?mode=rw", uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
    )
    db.execute("PRAGMA synchronous=FULL")
    return db


def create(path: Path, partitions: int) -> None:
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
        meta = {"format": _FORMAT, "partitions": str(partitions), "hash": _HASH, "id": _new_id()}
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


def needs_migration(db: sqlite3.Connection) -> bool:
    """Whether the file is of the format before this one."""
    with contextlib.suppress(sqlite3.OperationalError):  # no log at all: check_format says so
        return fetch(db, "SELECT value FROM meta WHERE key = 'format'") == [(_MIGRATED,)]
    return False


def migrate(db: sqlite3.Connection) -> None:
    """Bring a file of format 1 to format 2; the caller holds the writer's lock.

    Its records keep no origin. Its sites begin with their partition's newest receive time: format 1 lifted them to it.
    """
    with transaction(db):
        partitions = int(fetch(db, "SELECT value FROM meta WHERE key = 'partitions'")[0][0])
        newest = dict(fetch(db, "SELECT partition, receive_ms FROM heads"))
        sites = [site for (site,) in fetch(db, "SELECT site FROM sites")]
        db.execute("ALTER TABLE records ADD COLUMN origin_log TEXT")
        db.execute("ALTER TABLE records ADD COLUMN origin_number INTEGER")
        db.execute("DROP TABLE sites")
        db.execute(_SITES)
        rows = [(site, newest[partition_of(site, partitions)]) for site in sites]
        db.executemany("INSERT INTO sites VALUES (?, ?, 0, 1)", rows)
        db.execute("INSERT INTO meta VALUES ('id', ?)", (_new_id(),))
        db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (_FORMAT,))


def check_format(db: sqlite3.Connection, path: Path, partitions: int) -> str:
    """The id of the log in the file; raises ``LogFormatError`` if it is another format or number of partitions."""
    try:
        meta = dict(fetch(db, "SELECT key, value FROM meta"))
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        raise LogFormatError(f"{path} is an SQLite file but no Hothouse log") from error
    if meta.get("format") != _FORMAT or meta.get("hash") != _HASH:
        found = f"format {meta.get('format')}, hash {meta.get('hash')}"
        raise LogFormatError(f"{path} has {found}; this version reads format {_FORMAT}, hash {_HASH}")
    if int(meta["partitions"]) != partitions:
        raise LogFormatError(
            f"{path} was created with {meta['partitions']} partitions and cannot be opened with {partitions}: set "
            f"log.partitions to {meta['partitions']}"
        )
    return str(meta["id"])


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it durable, or nothing of it."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite has already rolled back on some errors
            db.execute("ROLLBACK")
        raise


def fetch(db: sqlite3.Connection, sql: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    """All rows at once: a cursor left open would keep the write-ahead log from being checkpointed."""
    return db.execute(sql, values).fetchall()


def translated(error: sqlite3.Error | OSError, path: Path) -> LogError:
    """SQLite's error as the log's."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary == sqlite3.SQLITE_FULL:
        return LogFullError(f"no room is left for {path}: {error}")
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return LogCorruptError(f"{path} is damaged or no log: {error}")
    return LogError(f"{path}: {error}")


def _new_id() -> str:
    return secrets.token_hex(8)
