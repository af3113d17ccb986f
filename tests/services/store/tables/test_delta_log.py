"""The log of a table: what it says is durable, and is asked for with few requests and without waiting for others."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from services.errors import HistoryError
from services.store.history import ZONE_ROWS
from services.store.storage import FolderStorage, open_storage
from services.store.tables import delta_log
from services.store.tables.delta_log import DeltaLog
from tests.contracts.faulty_proxy import FaultyProxy
from tests.s3 import s3_address
from tests.services.store.tables.written_rows import rows, table, there

LOG = "history/zone_rows/_delta_log"


class Synced:
    """What was made durable, file or folder, and when it had changed last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._at, fsync = dict[str, int](), os.fsync

        def noted(descriptor: int) -> None:
            fsync(descriptor)
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            self._at[str(path)] = os.fstat(descriptor).st_mtime_ns

        monkeypatch.setattr(os, "fsync", noted)

    def missing(self, *paths: Path) -> list[str]:
        """Those that a power cut may take away."""
        return [path.name for path in paths if self._at.get(str(path), 0) < path.stat().st_mtime_ns]


def test_all_that_a_commit_stands_on_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first version, new columns, checkpoints, the log's last one, and the folders that they are in."""
    monkeypatch.setitem(delta_log._CONFIGURATION, "delta.checkpointInterval", "4")
    synced, root = Synced(monkeypatch), tmp_path / "data" / "storage"
    writer = table(FolderStorage(root))
    for n in range(10):
        writer.append(0, 300, rows(n, rh_pct=1.0) if n > 5 else rows(n))
        log = root / LOG
        assert synced.missing(*log.iterdir()) == []
        assert (
            synced.missing(log, *(folder for folder in log.parents if root.parent in (folder, *folder.parents))) == []
        )
        assert synced.missing(*root.glob("history/zone_rows/p0")) == []
    assert {"_last_checkpoint", f"{0:020}.json"} <= {path.name for path in log.iterdir()}
    assert len(list(log.glob("*.json"))) > 11  # one added a column


def test_what_a_killed_writer_left_is_made_durable_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that was done, and whose writer died before it was durable: the next writer finds its rows there."""
    with monkeypatch.context() as patch:
        patch.setattr(DeltaLog, "_make_durable", lambda *_: None)
        table(FolderStorage(tmp_path)).append(0, 300, rows(1))
    synced = Synced(monkeypatch)
    table(FolderStorage(tmp_path)).append(0, 300, rows(1))
    assert synced.missing(*(tmp_path / LOG).iterdir(), tmp_path / LOG) == []


def test_commits_that_a_checkpoint_stands_for_go_once_it_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before a checkpoint, when they are old; none without one."""
    monkeypatch.setitem(delta_log._CONFIGURATION, "delta.checkpointInterval", "8")
    storage, log = FolderStorage(tmp_path), tmp_path / LOG
    writer = table(storage)
    for last, left in ((5, 7), (20, 6)):
        for n in range(last):
            writer.append(0, 300, rows(n))
        for path in log.glob("*.json"):
            os.utime(path, (1e9, 1e9))
        for path in log.glob("*.checkpoint.parquet"):
            os.utime(path, (1e9, 1e9))
        writer._log.vacuum()
        assert len(list(log.glob("*.json"))) <= left
        assert there(storage) == list(range(last))
    writer.append(0, 300, rows(20))
    assert there(storage) == list(range(21))


@pytest.mark.s3
def test_a_flush_asks_little_of_a_bucket(tmp_path: Path) -> None:
    """However many commits there were since the last checkpoint; also where another writer commits beside."""
    address = s3_address(tmp_path)
    with FaultyProxy(address.endpoint, chance=0.0) as proxy:
        ours = table(open_storage(replace(address, endpoint=proxy.endpoint)))
        beside = table(open_storage(address))
        for n in range(25):
            beside.append(1, 300, rows(n, site="other"))
        for n in range(25):
            proxy.begin(chance=0.0)
            ours.append(0, 300, rows(n))
            if n not in (0, 7, 15, 23):  # the first opens the table, the others merge
                assert proxy.count() <= 10
        beside.append(1, 300, rows(25, site="other"))
        proxy.begin(chance=0.0)
        ours.append(0, 300, rows(25))
        assert proxy.count() <= 15
    assert there(beside.storage) == list(range(26))


def test_two_writers_that_add_columns_at_once(tmp_path: Path) -> None:
    """The second one tries again; no flush fails."""
    ours, beside = table(FolderStorage(tmp_path)), table(FolderStorage(tmp_path))
    ours.append(0, 300, rows(1))
    looks = 0

    def meanwhile() -> None:
        nonlocal looks
        looks += 1
        if looks == 2:  # our file is being written, and our look at the table is over
            beside.append(1, 300, rows(1, site="other", co2_ppm=400.0))

    ours.append(0, 300, rows(2, rh_pct=50.0), meanwhile)
    found = table(FolderStorage(tmp_path)).read()
    assert found is not None
    assert {"rh_pct", "co2_ppm"} <= set(found.column_names)
    assert len(found) == 6


def test_a_look_with_old_credentials_does_not_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is opened anew, with those of now; once: what fails again is told."""
    writer = table(FolderStorage(tmp_path))
    writer.append(0, 300, rows(1))
    failures = [DeltaError("ExpiredToken")]
    update, opened = DeltaTable.update_incremental, DeltaLog._open

    def expired(log: DeltaTable) -> Any:
        if failures:
            raise failures.pop()
        return update(log)

    monkeypatch.setattr(DeltaTable, "update_incremental", expired)
    assert len(writer.files()) == 1
    failures.append(DeltaError("ExpiredToken"))

    def refused(log: DeltaLog) -> Any:
        raise DeltaError("still expired")

    monkeypatch.setattr(DeltaLog, "_open", refused)
    with pytest.raises(HistoryError, match="still expired"):
        writer.files()
    monkeypatch.setattr(DeltaLog, "_open", opened)
    assert len(writer.files()) == 1


def test_nobody_waits_for_the_removal_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take minutes on a bucket."""
    writer, begun, go_on = table(FolderStorage(tmp_path)), threading.Event(), threading.Event()
    writer.append(0, 300, rows(1))
    vacuum = DeltaTable.vacuum

    def slow(log: DeltaTable, *said: Any, **more: Any) -> Any:
        begun.set()
        go_on.wait(60)
        return vacuum(log, *said, **more)

    monkeypatch.setattr(DeltaTable, "vacuum", slow)
    removing = threading.Thread(target=writer._log.vacuum)
    reading = threading.Thread(target=writer.files)
    try:
        removing.start()
        assert begun.wait(60)
        reading.start()
        reading.join(30)
        assert not reading.is_alive()
    finally:
        go_on.set()
    removing.join()
    reading.join()


def test_readers_that_wait_share_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that began after they asked; none is told of what was there before it asked."""
    table(FolderStorage(tmp_path)).append(0, 300, rows(1))
    log, refresh, looks = (
        DeltaLog(FolderStorage(tmp_path), ZONE_ROWS.folder, "end_ms"),
        DeltaLog._refresh,
        list[float](),
    )

    def slow(one: DeltaLog) -> bool:
        looks.append(time.monotonic())
        time.sleep(0.2)
        return refresh(one)

    monkeypatch.setattr(DeltaLog, "_refresh", slow)
    first = threading.Thread(target=log.state)
    first.start()
    while not looks:
        time.sleep(0.01)
    readers = [threading.Thread(target=log.state) for _ in range(8)]
    for thread in readers:
        thread.start()
    for thread in (first, *readers):
        thread.join()
    assert len(looks) <= 3
    table(FolderStorage(tmp_path)).append(0, 300, rows(2))
    looks.clear()
    assert len(log.state().files) == 2
    assert looks


@pytest.mark.s3
def test_the_cause_of_an_error_is_told(tmp_path: Path) -> None:
    """In one line, and without colours."""
    address = replace(s3_address(tmp_path), endpoint="http://127.0.0.1:9", retry_s=0.1)
    with pytest.raises(HistoryError, match=r"Generic S3 error: .*Connection refused \(os error 111\)$") as refused:
        table(open_storage(address)).files()
    assert refused.value.message.isprintable()
