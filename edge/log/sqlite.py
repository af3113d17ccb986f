"""Step 3 of the way of a reading: the log in one SQLite file, the default and the edge buffer.

One table holds all partitions; a record's key is ``partition << 40 | offset``, so a partition lies together on disk
and a read is one range scan. Write-ahead logging lets any number of processes read while one appends, and
``synchronous=FULL`` makes every commit one fsync.
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
from typing import IO, NamedTuple

from edge.log.contract import (
    LogBusyError,
    LogClosedError,
    LogCorruptError,
    LogError,
    LogFullError,
    LogReplacedError,
    LogTruncatedError,
    NewRecord,
    Origin,
    Record,
    partition_of,
)
from edge.log.sqlite_file import check_format, connect, create, fetch, migrate, needs_migration, transaction, translated
from edge.wire.events import site_retirement

__all__ = ["SqliteLog", "Usage", "check_records"]

_SHIFT = 40
_FREE_PAGES_KEPT = 1000
"""Pages that truncation leaves in the file for the next appends (4 MB)."""


class Usage(NamedTuple):
    """How much a log holds, and how much more it would take."""

    records: int
    bytes: int
    free_bytes: int


class _Site(NamedTuple):
    """What the log knows of a site: newest receive time, records that were first here, whether its samples are."""

    receive_ms: int
    records: int
    sampled: bool

    def after(self, new: NewRecord) -> _Site:
        """What is known once ``new`` is in the log; a receive time is never before that of the record before it."""
        is_ours = new.origin is None
        sampled = is_ours if new.kind == "samples" else self.sampled and site_retirement(new) is None
        return _Site(max(new.receive_ms, self.receive_ms), self.records + is_ours, sampled)


class SqliteLog:
    """A durable partitioned log in the file ``path``, created with ``partitions`` if it is not there.

    The first ``append`` takes the writer's lock (``path`` + ``.lock``), which ``close`` or the end of the process
    releases; so an import may append first and a gateway after it. Beyond ``max_bytes`` of records, and while the
    disk has less than ``reserve_bytes`` left, ``append`` raises ``LogFullError``; truncation makes room. While another
    file is at ``path``, or none, every call raises ``LogReplacedError``: what is appended to a file that was removed is
    gone with the process. ``id`` is the log's permanent name. Raises ``LogFormatError`` when the file was created with
    another number of partitions or is no log, ``LogBusyError`` when it must be migrated while another process appends,
    ``LogError`` when it cannot be opened.
    """

    def __init__(
        self, path: str | Path, partitions: int = 4, *, max_bytes: int | None = None, reserve_bytes: int = 0
    ) -> None:
        self.path = Path(path)
        self.max_bytes, self.reserve_bytes = max_bytes, reserve_bytes
        self._lock = threading.RLock()
        self._writer: IO[bytes] | None = None
        self._sites: dict[str, _Site] = {}  # the writer's
        self._partitions = partitions
        self._db: sqlite3.Connection | None = None
        try:
            if not self.path.exists():
                create(self.path, partitions)
            self._db = connect(self.path)
            if needs_migration(self._db):
                self._migrate(self._db)
            self.id = check_format(self._db, self.path, partitions)
            self._file = self._file_there()
            self._page_bytes = int(fetch(self._db, "PRAGMA page_size")[0][0])
            if max_bytes is not None:
                self._db.execute(f"PRAGMA max_page_count={max(1, max_bytes // self._page_bytes)}").fetchall()
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise translated(error, self.path) from error
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
            self._become_writer(db)
            self._check_disk()
            changed: dict[str, _Site] = {}
            with transaction(db):
                sql = "SELECT partition, end_offset, receive_ms FROM heads"
                heads = {partition: (end, newest) for partition, end, newest in fetch(db, sql)}
                places = []
                rows = []
                for new in records:
                    partition = partition_of(new.site, self._partitions)
                    offset, newest = heads[partition]
                    site = changed.get(new.site) or self._sites.get(new.site) or _Site(new.receive_ms, 0, False)
                    changed[new.site] = site.after(new)
                    receive_ms = changed[new.site].receive_ms
                    origin: tuple[str | None, int] = new.origin or (None, site.records)
                    heads[partition] = (offset + 1, receive_ms if newest is None else max(receive_ms, newest))
                    places.append((partition, offset))
                    key, crc = partition << _SHIFT | offset, zlib.crc32(new.payload)
                    rows.append((key, new.site, new.kind, receive_ms, new.topic, new.payload, crc, *origin))
                db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
                db.executemany(
                    "UPDATE heads SET end_offset = ?, receive_ms = ? WHERE partition = ?",
                    [(*heads[partition], partition) for partition in {place[0] for place in places}],
                )
                of_sites = [(name, *site) for name, site in changed.items()]
                db.executemany("INSERT OR REPLACE INTO sites VALUES (?, ?, ?, ?)", of_sites)
            self._sites |= changed
            return places

    def read(self, partition: int, offset: int, limit: int) -> list[Record]:
        """At most ``limit`` records from ``offset`` on; see ``edge.log.Log``."""
        first = (partition << _SHIFT) + offset
        with self._session(partition) as db:
            sql = "SELECT id, site, kind, receive_ms, payload, topic, crc, origin_log, origin_number FROM records"
            last = (partition + 1) << _SHIFT
            rows = fetch(
                db,
                f"{sql} WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
                (max(first, partition << _SHIFT), last, limit),
            )
            if not rows or rows[0][0] != first:
                begin = self._head(partition)[0]
                if offset < begin:
                    raise LogTruncatedError(partition, offset, begin)
        records = []
        for index, (key, site, kind, receive_ms, payload, topic, crc, log, number) in enumerate(rows):
            if key != first + index or zlib.crc32(payload) != crc:
                raise LogCorruptError(f"{self.path}: partition {partition} is damaged at offset {offset + index}")
            origin = None if number is None else Origin(log or self.id, number)
            records.append(Record(partition, offset + index, site, kind, receive_ms, payload, topic, origin))
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
        """The greatest receive time that the partition ever had."""
        with self._session(partition):
            return self._head(partition)[2]

    def sites(self) -> list[str]:
        """Every site whose newest ``samples`` record came without an origin."""
        with self._session() as db:
            return [site for (site,) in fetch(db, "SELECT site FROM sites WHERE sampled ORDER BY site")]

    def truncate(self, partition: int, before: int) -> None:
        """Forget records with an offset smaller than ``before`` and give most of their room back."""
        with self._session(partition) as db:
            with transaction(db):
                begin, end, _ = self._head(partition)
                begin = max(begin, min(before, end))
                db.execute(
                    "DELETE FROM records WHERE id >= ? AND id < ?",
                    (partition << _SHIFT, partition << _SHIFT | begin),
                )
                db.execute("UPDATE heads SET begin_offset = ? WHERE partition = ?", (begin, partition))
            free = int(fetch(db, "PRAGMA freelist_count")[0][0])
            if free > _FREE_PAGES_KEPT:
                # `execute` would free one page: the pragma frees one a step and gives no rows to fetch.
                db.executescript(f"PRAGMA incremental_vacuum({free - _FREE_PAGES_KEPT})")

    def usage(self) -> Usage:
        """How full the log is: the room of its records, and the free room of its disk or up to ``max_bytes``."""
        with self._session() as db:
            pages, free = (int(fetch(db, f"PRAGMA {name}")[0][0]) for name in ("page_count", "freelist_count"))
            used = (pages - free) * self._page_bytes
            room = self._disk_free() - self.reserve_bytes + free * self._page_bytes
            room = room if self.max_bytes is None else min(room, self.max_bytes - used)
            records = int(fetch(db, "SELECT sum(end_offset - begin_offset) FROM heads")[0][0])
            return Usage(records, used, max(0, room))

    def commit(self, partition: int, offset: int) -> None:
        """Do nothing: only readers of the log look into the file."""
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
                if self._file_there() != self._file:
                    raise LogReplacedError(
                        f"{self.path} is another file than the one that was opened: bring that one back, or restart "
                        "Hothouse to go on with what is there"
                    )
                yield self._db
            except (sqlite3.Error, OSError) as error:
                raise translated(error, self.path) from error

    def _file_there(self) -> tuple[int, int]:
        """Which file is at the path, on which disk; zeros where there is none."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return 0, 0
        return found.st_dev, found.st_ino

    def _head(self, partition: int) -> tuple[int, int, int | None]:
        assert self._db is not None
        sql = "SELECT begin_offset, end_offset, receive_ms FROM heads WHERE partition = ?"
        begin, end, receive_ms = fetch(self._db, sql, (partition,))[0]
        return begin, end, receive_ms

    def _become_writer(self, db: sqlite3.Connection) -> None:
        if self._writer is not None:
            return
        # flock belongs to the open file, not to the process: two logs in one process exclude each other too.
        lock = self.path.with_name(self.path.name + ".lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.close()
            raise LogBusyError(
                f"another process appends to {self.path}; only one may: stop it, or this one (`hothouse up` has a "
                "gateway of its own)"
            ) from error
        try:
            # Only now: until we have the lock, an import by another process may append.
            found = fetch(db, "SELECT site, receive_ms, records, sampled FROM sites") if not needs_migration(db) else []
        except BaseException:
            lock.close()  # who does not know the sites would count their records from 0 again
            raise
        self._sites = {site: _Site(receive_ms, records, bool(sampled)) for site, receive_ms, records, sampled in found}
        self._writer = lock

    def _migrate(self, db: sqlite3.Connection) -> None:
        self._become_writer(db)
        if needs_migration(db):  # unless another process has just done it
            migrate(db)
        assert self._writer is not None
        self._writer.close()
        self._writer = None

    def _check_disk(self) -> None:
        if self.reserve_bytes and (free := self._disk_free()) < self.reserve_bytes:
            raise LogFullError(
                f"no room is left for {self.path}: the disk has {free >> 20} MiB, {self.reserve_bytes >> 20} stay free"
            )

    def _disk_free(self) -> int:
        disk = os.statvfs(self.path.parent)
        return disk.f_bavail * disk.f_frsize


def check_records(path: Path) -> None:
    """Look at every record of a file that nobody writes: each is there, as it was appended; 2 s for a million.

    Raises ``LogCorruptError`` with the first damaged one, or where partitions are missing.
    """
    # A partition at a time: GROUP BY would sort, and write all payloads into a temporary file for that.
    sql = """SELECT count(*), min(id), max(id), min(CASE WHEN crc32(payload) <> crc THEN id END)
             FROM records WHERE id >= ? AND id < ?"""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.create_function("crc32", 1, zlib.crc32, deterministic=True)
            [(partitions,)] = fetch(db, "SELECT (SELECT value FROM meta WHERE key = 'partitions')")
            heads = fetch(db, "SELECT partition, begin_offset, end_offset FROM heads ORDER BY partition")
            numbers = [partition for partition, _, _ in heads]
            if str(len(numbers)) != partitions or numbers != list(range(len(numbers))):
                raise LogCorruptError(f"its table heads has partitions {numbers} of {partitions}")
            for partition, begin, end in heads:
                place = partition << _SHIFT
                count, lowest, highest, damaged = fetch(db, sql, (place, (partition + 1) << _SHIFT))[0]
                if damaged is not None:
                    raise LogCorruptError(f"partition {partition} is damaged at offset {damaged - place}")
                if count != end - begin or (count and (lowest, highest) != (place + begin, place + end - 1)):
                    raise LogCorruptError(f"partition {partition} has {count} records of {begin} to {end}")
    except sqlite3.Error as error:
        raise translated(error, path) from error
