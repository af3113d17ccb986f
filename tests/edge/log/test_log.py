"""What only the SQLite log promises: files, processes, crashes, a full disk."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edge.log import (
    LogBusyError,
    LogCorruptError,
    LogError,
    LogFormatError,
    LogFullError,
    LogReplacedError,
    NewRecord,
    Origin,
    partition_of,
    sqlite,
)
from edge.log.sqlite import SqliteLog, check_records
from tests.edge.gateway.test_uplink import to_format_1
from tests.patience import patience_s

PARTITION = partition_of("demo", 4)
ROOT = Path(__file__).parents[3]


def _new(receive_ms: int = 1, payload: bytes = b"x") -> NewRecord:
    return NewRecord("demo", "samples", receive_ms, payload)


def _python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_reopened_log_goes_on(tmp_path: Path) -> None:
    """Records, offsets, times and sites survive close and open, also after all was truncated."""
    path = tmp_path / "new" / "log.sqlite"
    log = SqliteLog(path)
    log.append([_new(5), _new(7)])
    log.truncate(PARTITION, 2)
    log.close()
    log = SqliteLog(path)
    assert log.append([_new(6)]) == [(PARTITION, 2)]
    assert (log.begin_offset(PARTITION), log.last_receive_ms(PARTITION), log.sites()) == (2, 7, ["demo"])
    log.close()


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


def test_one_appends_at_a_time(tmp_path: Path) -> None:
    """A second appender is refused until the first closes; a log that only reads is never in the way."""
    importer, gateway = SqliteLog(tmp_path / "log.sqlite"), SqliteLog(tmp_path / "log.sqlite")
    importer.append([_new()])
    assert len(gateway.read(PARTITION, 0, 10)) == 1
    with pytest.raises(LogBusyError, match=r"another process appends.* stop it, or this one"):
        gateway.append([_new()])
    importer.close()
    assert gateway.append([_new()]) == [(PARTITION, 1)]
    gateway.close()


def test_what_was_appended_survives_a_kill(tmp_path: Path) -> None:
    """A process killed right after append returned has lost nothing, and its lock is free."""
    code = (
        "import os, signal, sys; from edge.log import *; from edge.log.sqlite import *\n"
        "log = SqliteLog(sys.argv[1])\n"
        "log.append([NewRecord('demo', 'samples', n, b'x') for n in range(50)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    process = _python(code, str(tmp_path / "log.sqlite"))
    process.communicate()
    log = SqliteLog(tmp_path / "log.sqlite")
    assert len(log.read(PARTITION, 0, 100)) == 50
    assert log.append([_new()]) == [(PARTITION, 50)]
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
    process = _python(code, str(tmp_path / "log.sqlite"), str(PARTITION))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for n in range(300):
        log.append([_new(payload=str(n).encode())])
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
    logs[0].append([_new()])
    assert [log.end_offset(PARTITION) for log in logs] == [1, 1, 1, 1]
    for log in logs:
        log.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.sqlite", "log.sqlite.lock"]


def test_a_damaged_record_is_not_handed_on(tmp_path: Path) -> None:
    """A payload that does not match its checksum, or a missing record, raises LogCorruptError at its offset."""
    log = SqliteLog(tmp_path / "log.sqlite")
    log.append([_new(payload=b"abc"), _new(payload=b"def"), _new(payload=b"ghi")])
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
    log.append([_new(payload=b"%d" % n) for n in range(5)])
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


def test_the_check_of_records_needs_no_room(tmp_path: Path) -> None:
    """It writes no temporary file, which would be as large as the log: one that is sound is not called damaged."""
    path = tmp_path / "log.sqlite"
    log = SqliteLog(path)
    log.append([_new(payload=bytes(100_000)) for _ in range(200)])
    log.close()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        check_records(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_truncation_gives_room_back(tmp_path: Path) -> None:
    """The file shrinks after most of it was truncated, while a reader has the log open."""
    path = tmp_path / "log.sqlite"
    log, reader = SqliteLog(path), SqliteLog(path)
    for _ in range(20):
        log.append([_new(payload=bytes(1_000_000))])
    reader.read(PARTITION, 0, 1)
    log.truncate(PARTITION, 19)
    reader.close()
    log.close()
    assert path.stat().st_size < 8_000_000


def test_the_write_ahead_log_stays_small_under_a_polling_reader(tmp_path: Path) -> None:
    """A reader that polls holds no checkpoint back: 60 MB of appends leave a write-ahead log under 15 MB."""
    path = tmp_path / "log.sqlite"
    log, reader = SqliteLog(path), SqliteLog(path)
    for n in range(60):
        log.append([_new(payload=bytes(1_000_000))])
        assert len(reader.read(PARTITION, n, 10)) == 1
    assert path.with_name("log.sqlite-wal").stat().st_size < 15_000_000
    log.close()
    reader.close()


def test_a_full_log_takes_records_again_when_there_is_room(tmp_path: Path) -> None:
    """After LogFullError the same append succeeds as soon as the disk has room, at the same offset."""
    log = SqliteLog(tmp_path / "log.sqlite")
    log.append([_new()])
    assert log._db is not None
    log._db.execute("PRAGMA max_page_count=20").fetchall()
    batch = [_new(payload=bytes(100_000)) for _ in range(3)]
    for _ in range(2):
        with pytest.raises(LogFullError, match="no room"):
            log.append(batch)
    log._db.execute("PRAGMA max_page_count=100000").fetchall()
    assert log.append(batch) == [(PARTITION, n) for n in (1, 2, 3)]
    log.close()


def test_max_bytes_bound_the_file_and_truncation_makes_room(tmp_path: Path) -> None:
    """At its bound a log refuses; usage says how much it holds and takes; what is truncated is room again, at once."""
    path = tmp_path / "log.sqlite"
    log = SqliteLog(path, max_bytes=1_000_000)
    taken = 0
    while log.usage().free_bytes > 40_000:
        log.append([_new(1000 + taken, bytes(20_000))])
        taken += 1
    with pytest.raises(LogFullError, match="no room"):
        log.append([_new(payload=bytes(60_000))])
    assert 40 < taken < 50
    full = log.usage()
    assert full.records == taken
    assert full.bytes <= 1_000_000
    assert full.free_bytes <= 40_000
    log.truncate(PARTITION, taken - 1)
    assert log.usage().free_bytes > 900_000
    for _ in range(40):
        log.append([_new(payload=bytes(20_000))])
    log.close()
    assert path.stat().st_size <= 1_000_000


def test_a_disk_that_is_nearly_full_is_left_alone(tmp_path: Path) -> None:
    """With less than the reserve left on the disk nothing is appended; truncation still works: it needs some room."""
    log = SqliteLog(tmp_path / "log.sqlite")
    log.append([_new(), _new()])
    log.reserve_bytes = 2**62
    with pytest.raises(LogFullError, match="MiB"):
        log.append([_new()])
    assert log.usage().free_bytes == 0
    log.truncate(PARTITION, 1)
    log.reserve_bytes = 1
    assert log.append([_new()]) == [(PARTITION, 2)]
    log.close()


def test_a_log_of_format_1_goes_on_as_one_of_format_2(tmp_path: Path) -> None:
    """Its records, offsets, times and sites are all there; new records get origins; a second open changes nothing."""
    path = tmp_path / "log.sqlite"
    SqliteLog(path).close()
    to_format_1(path)
    log = SqliteLog(path)
    log.append([_new(5)])
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
    other.append([_new()])
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


def test_origins_count_a_sites_records_through_restarts_and_truncation(tmp_path: Path) -> None:
    """Numbers have no gap and none comes twice, whatever was appended, refused, truncated or closed meanwhile."""
    path, numbers = tmp_path / "log.sqlite", []
    for round_number in range(3):
        log = SqliteLog(path)
        assert log._db is not None
        log.append([NewRecord("demo", "tick", round_number, b""), NewRecord("east", "tick", round_number, b"")])
        log._db.execute("PRAGMA max_page_count=1").fetchall()
        with pytest.raises(LogFullError):
            log.append([_new(payload=bytes(300_000))])
        log._db.execute("PRAGMA max_page_count=100000").fetchall()
        log.append([_new()])
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
    log.append([_new()])
    for file in tmp_path.glob("log.sqlite*"):
        file.rename(away / file.name)
    with pytest.raises(LogReplacedError, match=r"log\.sqlite is another file than the one that was opened"):
        log.read(PARTITION, 0, 10)
    other = SqliteLog(path)
    for call in (lambda: log.append([_new()]), lambda: log.read(PARTITION, 0, 10), lambda: log.end_offset(PARTITION)):
        with pytest.raises(LogReplacedError):
            call()
    other.close()
    for file in away.iterdir():
        file.rename(path.parent / file.name)
    assert log.append([_new()]) == [(PARTITION, 1)]
    assert len(log.read(PARTITION, 0, 10)) == 2
    log.close()


def test_a_failing_disk_appends_nothing(tmp_path: Path) -> None:
    """A write that the system refuses raises LogError, and what was there before is whole."""
    code = (
        "import resource, signal, sys; from edge.log import *; from edge.log.sqlite import *\n"
        "log = SqliteLog(sys.argv[1])\n"
        "log.append([NewRecord('demo', 'samples', 1, b'x')])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))\n"
        "try:\n"
        "    log.append([NewRecord('demo', 'samples', 2, bytes(100_000)) for _ in range(5)])\n"
        "except LogError as error:\n"
        "    print(type(error).__name__, log.end_offset(int(sys.argv[2])))"
    )
    process = _python(code, str(tmp_path / "log.sqlite"), str(PARTITION))
    out, _ = process.communicate(timeout=patience_s(30))
    assert out.split()[1] == "1"
    log = SqliteLog(tmp_path / "log.sqlite")
    assert [r.payload for r in log.read(PARTITION, 0, 10)] == [b"x"]
    log.close()


def test_who_could_not_read_the_sites_is_no_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk error there, and the numbers of origins would begin again: what has a number twice counts as a copy."""
    with closing(SqliteLog(tmp_path / "log.sqlite")) as first:
        first.append([_new(), _new()])
    log = SqliteLog(tmp_path / "log.sqlite")
    read = sqlite.fetch

    def failing(db: Any, sql: str, *rest: Any) -> Any:
        if "FROM sites" in sql:
            raise sqlite3.OperationalError("disk I/O error")
        return read(db, sql, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(sqlite, "fetch", failing)
        with pytest.raises(LogError, match="disk I/O error"):
            log.append([_new()])
    log.append([_new()])
    numbers = [r.origin.number for r in log.read(PARTITION, 0, 10) if r.origin is not None]
    log.close()
    assert numbers == [0, 1, 2]
