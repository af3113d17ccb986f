"""Step 6 of the way of a reading: what was kept out, with its reason, in one SQLite table a partition."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from services.store.rows import DeadLetter

__all__ = ["DeadLetters"]

_TABLE = """CREATE TABLE IF NOT EXISTS dead_letters (
    partition INTEGER, offset INTEGER, item INTEGER, receive_ms INTEGER,
    topic TEXT, reason TEXT, detail TEXT, payload BLOB, PRIMARY KEY (partition, offset, item)
) WITHOUT ROWID"""


class DeadLetters:
    """``storage/deadletters-p{partition}.sqlite``; keeps the newest ``keep`` letters. A context manager."""

    def __init__(self, root: Path, partition: int, keep: int = 100_000) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._keep = keep
        self._db = sqlite3.connect(root / f"deadletters-p{partition}.sqlite", check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        with self._db:
            self._db.execute(_TABLE)

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Keep letters durably; a letter that is there already, after a replay, stays as it is."""
        if not letters:
            return
        with self._db:
            self._db.executemany("INSERT OR IGNORE INTO dead_letters VALUES (?,?,?,?,?,?,?,?)", letters)
            self._db.execute(
                "DELETE FROM dead_letters WHERE (partition, offset, item) IN (SELECT partition, offset, item"
                " FROM dead_letters ORDER BY offset DESC, item DESC LIMIT -1 OFFSET ?)",
                (self._keep,),
            )

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
