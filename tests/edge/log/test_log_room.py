"""Room for the SQLite log: a bound, a full disk, what truncation gives back."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from edge.log import LogFullError
from edge.log.sqlite import SqliteLog, check_records
from tests.edge.log.sqlite_logs import PARTITION, new, run_python
from tests.patience import patience_s


def test_the_check_of_records_needs_no_room(tmp_path: Path) -> None:
    """It writes no temporary file, which would be as large as the log: one that is sound is not called damaged."""
    path = tmp_path / "log.sqlite"
    log = SqliteLog(path)
    log.append([new(payload=bytes(100_000)) for _ in range(200)])
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
        log.append([new(payload=bytes(1_000_000))])
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
        log.append([new(payload=bytes(1_000_000))])
        assert len(reader.read(PARTITION, n, 10)) == 1
    assert path.with_name("log.sqlite-wal").stat().st_size < 15_000_000
    log.close()
    reader.close()


def test_a_full_log_takes_records_again_when_there_is_room(tmp_path: Path) -> None:
    """After LogFullError the same append succeeds as soon as the disk has room, at the same offset."""
    log = SqliteLog(tmp_path / "log.sqlite")
    log.append([new()])
    assert log._db is not None
    log._db.execute("PRAGMA max_page_count=20").fetchall()
    batch = [new(payload=bytes(100_000)) for _ in range(3)]
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
        log.append([new(1000 + taken, bytes(20_000))])
        taken += 1
    with pytest.raises(LogFullError, match="no room"):
        log.append([new(payload=bytes(60_000))])
    assert 40 < taken < 50
    full = log.usage()
    assert full.records == taken
    assert full.bytes <= 1_000_000
    assert full.free_bytes <= 40_000
    log.truncate(PARTITION, taken - 1)
    assert log.usage().free_bytes > 900_000
    for _ in range(40):
        log.append([new(payload=bytes(20_000))])
    log.close()
    assert path.stat().st_size <= 1_000_000


def test_a_disk_that_is_nearly_full_is_left_alone(tmp_path: Path) -> None:
    """With less than the reserve left on the disk nothing is appended; truncation still works: it needs some room."""
    log = SqliteLog(tmp_path / "log.sqlite")
    log.append([new(), new()])
    log.reserve_bytes = 2**62
    with pytest.raises(LogFullError, match="MiB"):
        log.append([new()])
    assert log.usage().free_bytes == 0
    log.truncate(PARTITION, 1)
    log.reserve_bytes = 1
    assert log.append([new()]) == [(PARTITION, 2)]
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
    process = run_python(code, str(tmp_path / "log.sqlite"), str(PARTITION))
    out, _ = process.communicate(timeout=patience_s(30))
    assert out.split()[1] == "1"
    log = SqliteLog(tmp_path / "log.sqlite")
    assert [r.payload for r in log.read(PARTITION, 0, 10)] == [b"x"]
    log.close()
