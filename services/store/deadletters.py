"""Step 6 of the way of a reading: dead letters with their reasons, in one SQLite table a partition."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from services.store.rows import DeadLetter

__all__ = [
    "DeadLetterCount",
    "DeadLetters",
    "count_dead_letters",
    "dead_letter_ends",
    "dead_letters_after",
    "read_dead_letters",
]

_TABLE = """CREATE TABLE IF NOT EXISTS dead_letters (
    partition INTEGER, offset INTEGER, item INTEGER, receive_ms INTEGER,
    topic TEXT, reason TEXT, detail TEXT, payload BLOB, PRIMARY KEY (partition, offset, item)
) WITHOUT ROWID"""

_INSERT = "INSERT OR IGNORE INTO dead_letters VALUES (?,?,?,?,?,?,?,?)"
_REMOVE_OLDEST = """DELETE FROM dead_letters WHERE (partition, offset, item) IN
    (SELECT partition, offset, item FROM dead_letters ORDER BY partition, offset, item LIMIT ?)"""


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """How many letters of one reason and topic are kept, and the newest of them."""

    reason: str
    topic: str
    count: int
    partition: int
    offset: int
    receive_ms: int
    detail: str


class DeadLetters:
    """``storage/deadletters-p{partition}.sqlite``; keeps the newest ``keep`` letters. A context manager."""

    def __init__(self, root: Path, partition: int, keep: int = 100_000) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._keep = keep
        self._db = sqlite3.connect(root / f"deadletters-p{partition}.sqlite", check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        with self._db:
            self._db.execute(_TABLE)
        self._count: int = self._db.execute("SELECT count(*) FROM dead_letters").fetchone()[0]

    def put(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Keep letters durably; a letter that exists already, after a replay, stays as it is.

        The cost depends on these letters only, not on those in the table, where the oldest come first.
        """
        if not dead_letters:
            return
        before = self._db.total_changes
        with self._db:
            self._db.executemany(_INSERT, dead_letters)
            new = self._db.total_changes - before
            surplus = max(self._count + new - self._keep, 0)
            self._db.execute(_REMOVE_OLDEST, (surplus,))
        self._count += new - surplus

    def newest(self, limit: int = 100) -> list[DeadLetter]:
        """The newest letters, newest first."""
        rows = self._db.execute("SELECT * FROM dead_letters ORDER BY offset DESC, item DESC LIMIT ?", (limit,))
        return [DeadLetter(*row) for row in rows.fetchall()]

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def __enter__(self) -> DeadLetters:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def count_dead_letters(root: Path, reason: str | None = None) -> list[DeadLetterCount]:
    """Counts of the letters in all partitions of ``root`` by reason and topic, the most frequent first; changes
    nothing.
    """
    # Of a group with one max(), SQLite takes the other columns from the row that holds it.
    sql = """SELECT reason, topic, count(*), partition, offset, max(receive_ms), detail FROM dead_letters
             WHERE ?1 IS NULL OR reason = ?1 GROUP BY reason, topic"""
    merged: dict[tuple[str, str], DeadLetterCount] = {}
    for found in (DeadLetterCount(*row) for row in _ask(root, sql, (reason,))):
        before = merged.get((found.reason, found.topic))
        if before is not None:
            newer = max(before, found, key=lambda letter: letter.receive_ms)
            found = replace(newer, count=before.count + found.count)
        merged[found.reason, found.topic] = found
    return sorted(merged.values(), key=lambda found: (-found.count, found.reason, found.topic))


def read_dead_letters(root: Path, limit: int, reason: str | None = None) -> list[DeadLetter]:
    """The newest letters of all partitions by receive time, newest first; changes nothing."""
    sql = """SELECT * FROM dead_letters WHERE ?1 IS NULL OR reason = ?1
             ORDER BY receive_ms DESC, offset DESC, item DESC LIMIT ?2"""
    dead_letters = [DeadLetter(*row) for row in _ask(root, sql, (reason, limit))]
    return sorted(dead_letters, key=lambda letter: (-letter.receive_ms, -letter.offset, -letter.item))[:limit]


def dead_letter_ends(root: Path) -> dict[int, tuple[int, int]]:
    """The place (offset and item) of the newest letter of each partition that has any."""
    rows = _ask(root, "SELECT partition, offset, item FROM dead_letters ORDER BY offset DESC, item DESC LIMIT 1", ())
    return {partition: (offset, item) for partition, offset, item in rows}


def dead_letters_after(root: Path, after: dict[int, tuple[int, int]], limit: int) -> list[DeadLetter]:
    """Letters behind the place ``after`` in each partition, at most so many of each, in the order of receive times;
    ``after`` is moved behind them. A partition without a place begins with its first letter.
    """
    found = []
    for path in sorted(root.glob("deadletters-p*.sqlite")):
        partition = int(path.stem.removeprefix("deadletters-p"))
        sql = "SELECT * FROM dead_letters WHERE (offset, item) > (?, ?) ORDER BY offset, item LIMIT ?"
        letters = [DeadLetter(*row) for row in _ask(root, sql, (*after.get(partition, (-1, -1)), limit), path)]
        if letters:
            after[partition] = letters[-1].offset, letters[-1].item
        found += letters
    return sorted(found, key=lambda letter: (letter.receive_ms, letter.offset, letter.item))


def _ask(root: Path, sql: str, values: tuple[object, ...], only: Path | None = None) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for path in sorted(root.glob("deadletters-p*.sqlite")) if only is None else [only]:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)
        try:
            rows += db.execute(sql, values).fetchall()
        finally:
            db.close()
    return rows
