"""Files that are no log, or logs of another format or partition count."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from edge.log import LogBusyError, LogCorruptError, LogError, LogFormatError, Origin
from edge.log.sqlite import SqliteLog
from tests.edge.log.sqlite_logs import PARTITION, new, to_format_1


def test_another_partition_count_is_refused(tmp_path: Path) -> None:
    """The error names the file, what it was created with and what was asked for."""
    SqliteLog(tmp_path / "log.sqlite", 4).close()
    with pytest.raises(
        LogFormatError,
        match=r"log\.sqlite was created with 4 partitions and cannot be opened with 8: set log.partitions to 4",
    ):
        SqliteLog(tmp_path / "log.sqlite", 8)


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    """Neither another SQLite database nor any other file is taken for a log, and both stay as they were."""
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    with pytest.raises(LogFormatError, match="no Hothouse log"):
        SqliteLog(other)
    text = tmp_path / "text"
    text.write_text("not a database, but long enough to look at " * 20)
    with pytest.raises(LogCorruptError):
        SqliteLog(text)
    with pytest.raises(LogError):
        SqliteLog(tmp_path)


def test_a_log_of_format_1_goes_on_as_one_of_format_2(tmp_path: Path) -> None:
    """Its records, offsets, times and sites are all there; new records get origins; a second open changes nothing."""
    path = tmp_path / "log.sqlite"
    SqliteLog(path).close()
    to_format_1(path)
    log = SqliteLog(path)
    log.append([new(5)])
    first, second, third = log.read(PARTITION, 0, 10)
    assert (first.payload, second.payload) == (b"0", b"1")
    assert (first.origin, third.origin) == (None, Origin(log.id, 0))
    assert third.receive_ms == 1001
    assert log.sites() == ["demo"]
    again = SqliteLog(path)
    assert again.id == log.id
    assert again.read(PARTITION, 0, 10) == [first, second, third]
    again.close()
    log.close()


def test_a_log_of_format_1_that_is_in_use_is_refused(tmp_path: Path) -> None:
    """While an older version appends to it, it is not migrated under its hands."""
    path = tmp_path / "log.sqlite"
    other = SqliteLog(path)
    other.append([new()])
    other.truncate(PARTITION, 1)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '1' WHERE key = 'format'")
    db.close()
    with pytest.raises(LogBusyError):
        SqliteLog(path)
    other.close()


def test_a_log_of_a_later_format_is_refused(tmp_path: Path) -> None:
    """The sentence names the format that was found and the one that is read."""
    path = tmp_path / "log.sqlite"
    SqliteLog(path).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '3' WHERE key = 'format'")
    db.close()
    with pytest.raises(LogFormatError, match="has format 3, hash crc32; this version reads format 2"):
        SqliteLog(path)
