"""Step 9 of the way of a reading: every change of an alert, durable before anybody is told of it.

One SQLite table a partition, ``storage/alerts-p{partition}.sqlite``, which the partition's shard writes and deliveries
read in its order. A change is named by its alert's id and its number: one that is made again, after a crash, stays as
it was told.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from services.messages import ShownAlert

__all__ = ["AlertJournal", "JournalEntry", "changes_of", "journals", "newest_number", "read_journal"]

KEEP = 20_000
"""Changes of a partition that are kept; a delivery that is further behind has lost some, and says so."""

_TABLE = """CREATE TABLE IF NOT EXISTS changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, change INTEGER, offset INTEGER, alert BLOB, UNIQUE (id, change)
)"""
_INSERT = "INSERT OR IGNORE INTO changes (id, change, offset, alert) VALUES (?,?,?,?)"
_NEWEST_BEFORE = """SELECT alert FROM changes
    WHERE number IN (SELECT max(number) FROM changes GROUP BY id) AND offset < ? ORDER BY number"""
_DECODER = msgspec.json.Decoder(ShownAlert)


class JournalEntry(NamedTuple):
    """A change; ``number`` counts those of a partition up, with gaps."""

    number: int
    alert: ShownAlert


class AlertJournal:
    """The journal of a partition, for its one writer."""

    def __init__(self, root: Path, partition: int, keep: int = KEEP) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._keep = keep
        self._db = sqlite3.connect(root / f"alerts-p{partition}.sqlite", check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")  # a change that was told must be there after a power cut
        with self._db:
            self._db.execute(_TABLE)

    def put(self, changes: Sequence[tuple[int, ShownAlert]]) -> list[ShownAlert]:
        """Keep changes durably, each with the offset of its record; those that are new. Raises ``sqlite3.Error``."""
        new = []
        with self._db:
            for offset, alert in changes:
                row = alert["id"], alert["change"], offset, msgspec.json.encode(alert)
                if self._db.execute(_INSERT, row).rowcount:
                    new.append(alert)
            if new:
                newest = self._db.execute("SELECT max(number) FROM changes").fetchone()[0]
                self._db.execute("DELETE FROM changes WHERE number <= ?", (newest - self._keep,))
        return new

    def since(self, offset: int) -> list[tuple[int, ShownAlert]]:
        """The changes that came with records from ``offset`` on, in the order in which they were put."""
        rows = self._db.execute("SELECT offset, alert FROM changes WHERE offset >= ? ORDER BY number", (offset,))
        return [(at, _DECODER.decode(alert)) for at, alert in rows.fetchall()]

    def standing(self, offset: int) -> list[ShownAlert]:
        """The alerts that are not over and have not changed with records from ``offset`` on, oldest change first."""
        rows = self._db.execute(_NEWEST_BEFORE, (offset,))
        return [alert for (text,) in rows.fetchall() if (alert := _DECODER.decode(text))["state"] != "resolved"]

    def close(self) -> None:
        """Release the file."""
        self._db.close()


def journals(root: Path) -> list[Path]:
    """The journals of all partitions."""
    return sorted(root.glob("alerts-p*.sqlite"))


def read_journal(path: Path, after: int, limit: int = 500) -> tuple[list[JournalEntry], int]:
    """The changes of a journal after number ``after``, oldest first, and how many are gone that came after it.

    Raises ``sqlite3.Error``.
    """
    with closing(_open(path)) as db:
        rows = db.execute("SELECT number, alert FROM changes WHERE number > ? ORDER BY number LIMIT ?", (after, limit))
        found = [JournalEntry(number, _DECODER.decode(alert)) for number, alert in rows.fetchall()]
        first = db.execute("SELECT min(number) FROM changes").fetchone()[0]
    return found, max((first or after + 1) - after - 1, 0)


def newest_number(path: Path) -> int:
    """The number of a journal's newest change, 0 where there is none; raises ``sqlite3.Error``."""
    with closing(_open(path)) as db:
        return int(db.execute("SELECT max(number) FROM changes").fetchone()[0] or 0)


def changes_of(root: Path, id: str) -> list[ShownAlert]:
    """Every change of an alert that is kept, oldest first; raises ``sqlite3.Error``."""
    return sorted(_changes(root, id), key=lambda alert: alert["change"])


def _changes(root: Path, id: str) -> Iterator[ShownAlert]:
    for path in journals(root):
        with closing(_open(path)) as db:
            for (alert,) in db.execute("SELECT alert FROM changes WHERE id = ?", (id,)).fetchall():
                yield _DECODER.decode(alert)


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)
