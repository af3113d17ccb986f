"""What only the SQLite log promises: one file, several processes, crashes, damage."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edge.log import LogBusyError, LogCorruptError, LogError, LogFullError, LogReplacedError, NewRecord, sqlite
from edge.log.sqlite import SqliteLog, check_records
from tests.edge.log.sqlite_logs import PARTITION, new, run_python, to_format_1
from tests.patience import patience_s


def test_a_reopened_log_goes_on(tmp_path: Path) -> None:
    """Records, offsets, times and sites survive close and open, also after all was truncated."""
    path = tmp_path / "new" / "log.sqlite"
    log = SqliteLog(path)
    log.append([new(5), new(7)])
    log.truncate(PARTITION, 2)
    log.close()
    log = SqliteLog(path)
    assert log.append([new(6)]) == [(PARTITION, 2)]
    assert (log.begin_offset(PARTITION), log.last_receive_ms(PARTITION), log.sites()) == (2, 7, ["demo"])
    log.close()


def test_one_appends_at_a_time(tmp_path: Path) -> None:
    """A second appender is refused until the first closes; a log that only reads is never in the way."""
    importer, gateway = SqliteLog(tmp_path / "log.sqlite"), SqliteLog(tmp_path / "log.sqlite")
    importer.append([new()])
    assert len(gateway.read(PARTITION, 0, 10)) == 1
    with pytest.raises(LogBusyError, match=r"another process appends.* stop it, or this one"):
        gateway.append([new()])
    importer.close()
    assert gateway.append([new()]) == [(PARTITION, 1)]
    gateway.close()


def test_what_was_appended_survives_a_kill(tmp_path: Path) -> None:
    """A process killed right after append returned has lost nothing, and its lock is free."""
    code = (
        "import os, signal, sys; from edge.log import *; from edge.log.sqlite import *\n"
        "log = SqliteLog(sys.argv[1])\n"
        "log.append([NewRecord('demo', 'samples', n, b'x') for n in range(50)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    process = run_python(code, str(tmp_path / "log.sqlite"))
    process.communicate()
    log = SqliteLog(tmp_path / "log.sqlite")
    assert len(log.read(PARTITION, 0, 100)) == 50
    assert log.append([new()]) == [(PARTITION, 50)]
    log.close()


def test_another_process_reads_while_one_appends(tmp_path: Path) -> None:
    """A reader in another process sees every record once, in order, while they are being appended."""
    code = (
        "import sys, time; from edge.log import *; from edge.log.sqlite import *\n"
        "log, at = SqliteLog(sys.argv[1]), 0\n"
        "print('ready', flush=True)\n"
        "while at < 300:\n"
        "    records = log.read(int(sys.argv[2]), at, 50)\n"
        "    assert [r.payload for r in records] == [str(at + i).encode() for i in range(len(records))]\n"
        "    at += len(records)\n"
        "print(at)"
    )
    log = SqliteLog(tmp_path / "log.sqlite")
    process = run_python(code, str(tmp_path / "log.sqlite"), str(PARTITION))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for n in range(300):
        log.append([new(payload=str(n).encode())])
    out, _ = process.communicate(timeout=patience_s(30))
    assert out == "300\n"
    log.close()


def test_logs_made_at_the_same_time_are_one(tmp_path: Path) -> None:
    """Several openers of a log that is not there get the same log; no half-made file is left."""
    logs: list[SqliteLog] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        logs.append(SqliteLog(tmp_path / "log.sqlite"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logs[0].append([new()])
    assert [log.end_offset(PARTITION) for log in logs] == [1, 1, 1, 1]
    for log in logs:
        log.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.sqlite", "log.sqlite.lock"]


def test_a_damaged_record_is_not_handed_on(tmp_path: Path) -> None:
    """A payload that does not match its checksum, or a missing record, raises LogCorruptError at its offset."""
    log = SqliteLog(tmp_path / "log.sqlite")
    log.append([new(payload=b"abc"), new(payload=b"def"), new(payload=b"ghi")])
    log.close()
    with sqlite3.connect(tmp_path / "log.sqlite") as db:
        db.execute("UPDATE records SET payload = x'00' WHERE payload = ?", (b"def",))
    db.close()
    log = SqliteLog(tmp_path / "log.sqlite")
    assert len(log.read(PARTITION, 0, 1)) == 1
    with pytest.raises(LogCorruptError, match="offset 1"):
        log.read(PARTITION, 0, 3)
    log.close()
    with sqlite3.connect(tmp_path / "log.sqlite") as db:
        db.execute("DELETE FROM records WHERE payload = x'00'")
    db.close()
    log = SqliteLog(tmp_path / "log.sqlite")
    with pytest.raises(LogCorruptError, match="offset 1"):
        log.read(PARTITION, 0, 3)
    log.close()


def test_every_record_of_a_file_is_checked(tmp_path: Path) -> None:
    """A log whose first records were truncated is sound, and one of format 1; a changed or missing record is named, and
    partitions that are missing with all their records.
    """
    path = tmp_path / "log.sqlite"
    log = SqliteLog(path)
    log.append([new(payload=b"%d" % n) for n in range(5)])
    log.truncate(PARTITION, 2)
    log.close()
    check_records(path)
    (tmp_path / "1").mkdir()
    SqliteLog(old := tmp_path / "1" / "log.sqlite").close()
    to_format_1(old)
    check_records(old)
    for sql, said in (
        ("UPDATE records SET id = id + 1 WHERE payload = x'34'", f"partition {PARTITION} has 3 records of 2 to 5"),
        ("DELETE FROM records WHERE payload = x'34'", f"partition {PARTITION} has 2 records of 2 to 5"),
        ("UPDATE records SET payload = x'00' WHERE payload = x'33'", f"partition {PARTITION} is damaged at offset 3"),
        ("DELETE FROM heads WHERE partition = 1", r"heads has partitions \[0, 2, 3\] of 4"),
        ("DELETE FROM heads", r"heads has partitions \[\] of 4"),
        ("DELETE FROM meta", r"heads has partitions \[\] of None"),
    ):
        with sqlite3.connect(path) as db:
            db.execute(sql)
        db.close()
        with pytest.raises(LogCorruptError, match=said):
            check_records(path)


def test_origins_count_a_sites_records_through_restarts_and_truncation(tmp_path: Path) -> None:
    """Numbers have no gap and none comes twice, whatever was appended, refused, truncated or closed meanwhile."""
    path, numbers = tmp_path / "log.sqlite", []
    for round_number in range(3):
        log = SqliteLog(path)
        assert log._db is not None
        log.append([NewRecord("demo", "tick", round_number, b""), NewRecord("east", "tick", round_number, b"")])
        log._db.execute("PRAGMA max_page_count=1").fetchall()
        with pytest.raises(LogFullError):
            log.append([new(payload=bytes(300_000))])
        log._db.execute("PRAGMA max_page_count=100000").fetchall()
        log.append([new()])
        end = log.end_offset(PARTITION)
        records = [r for r in log.read(PARTITION, log.begin_offset(PARTITION), 10) if r.site == "demo"]
        numbers += [r.origin.number for r in records if r.origin is not None]
        log.truncate(PARTITION, end)
        log.close()
    assert numbers == list(range(6))


def test_a_file_that_was_replaced_takes_and_gives_nothing(tmp_path: Path) -> None:
    """What is appended to a file that nobody finds any more would be lost; all goes on once that file is back."""
    path, away = tmp_path / "log.sqlite", tmp_path / "away"
    away.mkdir()
    log = SqliteLog(path)
    log.append([new()])
    for file in tmp_path.glob("log.sqlite*"):
        file.rename(away / file.name)
    with pytest.raises(LogReplacedError, match=r"log\.sqlite is another file than the one that was opened"):
        log.read(PARTITION, 0, 10)
    other = SqliteLog(path)
    for call in (lambda: log.append([new()]), lambda: log.read(PARTITION, 0, 10), lambda: log.end_offset(PARTITION)):
        with pytest.raises(LogReplacedError):
            call()
    other.close()
    for file in away.iterdir():
        file.rename(path.parent / file.name)
    assert log.append([new()]) == [(PARTITION, 1)]
    assert len(log.read(PARTITION, 0, 10)) == 2
    log.close()


def test_who_could_not_read_the_sites_is_no_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk error there, and the numbers of origins would begin again: what has a number twice counts as a copy."""
    with closing(SqliteLog(tmp_path / "log.sqlite")) as first:
        first.append([new(), new()])
    log = SqliteLog(tmp_path / "log.sqlite")
    read = sqlite.fetch

    def failing(db: Any, sql: str, *rest: Any) -> Any:
        if "FROM sites" in sql:
            raise sqlite3.OperationalError("disk I/O error")
        return read(db, sql, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(sqlite, "fetch", failing)
        with pytest.raises(LogError, match="disk I/O error"):
            log.append([new()])
    log.append([new()])
    numbers = [r.origin.number for r in log.read(PARTITION, 0, 10) if r.origin is not None]
    log.close()
    assert numbers == [0, 1, 2]
