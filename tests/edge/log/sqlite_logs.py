"""Records for a SQLite log, programs that use one, and a file of the first format, for tests."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path

from edge.log import NewRecord, partition_of

__all__ = ["PARTITION", "new", "run_python", "to_format_1"]

PARTITION = partition_of("demo", 4)
"""Where the site of :func:`new` lies in a log of four partitions."""


def new(receive_ms: int = 1, payload: bytes = b"x") -> NewRecord:
    """A record of "demo"."""
    return NewRecord("demo", "samples", receive_ms, payload)


def run_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python that runs ``code``, with our modules at hand."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=Path(__file__).parents[3], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def to_format_1(path: Path) -> None:
    """Turn an empty log into what the first version wrote, with two records of "demo"."""
    with sqlite3.connect(path) as db:
        db.executescript(
            "DROP TABLE records; DROP TABLE sites; DELETE FROM meta WHERE key = 'id';"
            "UPDATE meta SET value = '1' WHERE key = 'format';"
            "CREATE TABLE sites (site TEXT PRIMARY KEY) WITHOUT ROWID;"
            "CREATE TABLE records (id INTEGER PRIMARY KEY, site TEXT NOT NULL, kind TEXT NOT NULL, receive_ms INTEGER"
            " NOT NULL, topic TEXT NOT NULL, payload BLOB NOT NULL, crc INTEGER NOT NULL);"
        )
        db.execute("INSERT INTO sites VALUES ('demo')")
        for n in range(2):
            row = (PARTITION << 40 | n, "demo", "samples", 1000 + n, "t", b"%d" % n, zlib.crc32(b"%d" % n))
            db.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        db.execute("UPDATE heads SET end_offset = 2, receive_ms = 1001 WHERE partition = ?", (PARTITION,))
    db.close()
