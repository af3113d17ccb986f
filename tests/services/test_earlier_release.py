"""What an earlier release kept in SQLite files is on the storage after a start, once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from services.alert.delivery import Deliverer
from services.alert.retained_alerts import AlertMessage, RetainedAlerts
from services.earlier_release import bring_files_over
from services.errors import StartError, StorageAwayError
from services.ingest.alerts.alert_journal import AlertJournal, JournalReader, changes_of
from services.messages import ShownAlert
from services.store.deadletters import DeadLetters, count_dead_letters
from services.store.rows import DeadLetter
from services.store.storage import MemoryServer, ObjectStorage, Storage, stored_in
from tests.services.alert.told import Clock, Keeper, change

LETTERS = [
    DeadLetter(3, n, 0, 1_646_092_800_000 + n, "hothouse/v1/s/z/d/sample", "late", "why", b"\xff\x00") for n in range(7)
]
CHANGES = [change("a1", 1), change("a1", 2, "resolved"), change("b1", 1), change("c1", 1)]
TOPIC = "hothouse/v1/demo/z1/_alerts/a1"


def earlier(folder: Path, told: int = 12) -> None:
    """The files that release 0.1 left: numbers of changes have gaps, and the first ones are gone."""
    folder.mkdir()
    with sqlite3.connect(folder / "deadletters-p3.sqlite") as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(
            "CREATE TABLE dead_letters (partition INTEGER, offset INTEGER, item INTEGER, receive_ms INTEGER,"
            " topic TEXT, reason TEXT, detail TEXT, payload BLOB, PRIMARY KEY (partition, offset, item)) WITHOUT ROWID"
        )
        db.executemany("INSERT INTO dead_letters VALUES (?,?,?,?,?,?,?,?)", LETTERS)
    with sqlite3.connect(folder / "alerts-p3.sqlite") as db:
        db.execute(
            "CREATE TABLE changes (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT, change INTEGER, offset INTEGER,"
            " alert BLOB, UNIQUE (id, change))"
        )
        rows = zip((10, 12, 13, 17), CHANGES, strict=True)
        db.executemany(
            "INSERT INTO changes VALUES (?,?,?,?,?)",
            [(n, one["id"], one["change"], 100 + n, msgspec.json.encode(one)) for n, one in rows],
        )
    with sqlite3.connect(folder / "alert-delivery-keeper.sqlite") as db:
        db.execute("CREATE TABLE places (journal TEXT PRIMARY KEY, number INTEGER)")
        db.execute("INSERT INTO places VALUES ('alerts-p3.sqlite', ?)", (told,))
    with sqlite3.connect(folder / "alert-topics.sqlite") as db:
        db.execute("CREATE TABLE topics (topic TEXT PRIMARY KEY, payload BLOB, clear_s REAL)")
        db.execute("INSERT INTO topics VALUES (?, ?, NULL)", (TOPIC, b'{"id": "a1"}'))


@pytest.fixture(params=["folder", "bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """The same folder, or a bucket."""
    return stored_in(tmp_path / "storage") if request.param == "folder" else ObjectStorage(MemoryServer())


def told(storage: Storage) -> list[tuple[str, int]]:
    """What a channel is told that goes on."""
    keeper = Keeper()
    Deliverer(storage, keeper, Clock()).look()
    return keeper.told


def test_everything_is_brought_over_once(tmp_path: Path, storage: Storage) -> None:
    """Letters, changes with their offsets, what was told of them, and topics; no file is left."""
    earlier(tmp_path / "storage")
    bring_files_over(tmp_path / "storage", storage)
    assert DeadLetters(storage, 3).newest() == LETTERS[::-1]
    assert [one.alert for one in JournalReader(storage, "p3").read(0)[0]] == CHANGES
    assert [offset for offset, _ in AlertJournal(storage, 3).since(113)] == [113, 117]
    assert told(storage) == [("b1", 1), ("c1", 1)]
    sent: list[AlertMessage] = []

    def publish(messages: Sequence[AlertMessage]) -> None:
        sent.extend(messages)

    RetainedAlerts(storage, publish, 60, Clock()).begin()
    assert sent == [(TOPIC, b'{"id": "a1"}')]
    assert not list((tmp_path / "storage").glob("*.sqlite*"))
    bring_files_over(tmp_path / "storage", storage)
    assert [one.count for one in count_dead_letters(storage)] == [7]
    assert told(storage) == []


@pytest.mark.parametrize("fails_at", range(1, 5))
def test_a_start_that_was_killed_on_the_way_begins_anew(
    tmp_path: Path, fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost or there twice, whatever was written before."""
    earlier(tmp_path / "storage")
    storage, written = ObjectStorage(MemoryServer()), 0

    def write(*arguments: object) -> str:
        nonlocal written
        written += 1
        if written == fails_at:
            raise StorageAwayError("it is away")
        return original(*arguments)  # type: ignore[arg-type]

    original = storage._write
    monkeypatch.setattr(storage, "_write", write)
    with pytest.raises(StorageAwayError):
        bring_files_over(tmp_path / "storage", storage)
    assert len(list((tmp_path / "storage").glob("*.sqlite"))) == 4
    bring_files_over(tmp_path / "storage", storage)
    assert DeadLetters(storage, 3).newest() == LETTERS[::-1]
    assert _changes(storage, "a1") == CHANGES[:2]
    assert told(storage) == [("b1", 1), ("c1", 1)]


def test_nothing_that_was_told_or_not_is_mixed_up(tmp_path: Path, storage: Storage) -> None:
    """A channel that had heard nothing of what is left hears all of it; one that had heard everything, nothing."""
    earlier(tmp_path / "storage", told=9)
    bring_files_over(tmp_path / "storage", storage)
    assert len(told(storage)) == 4


def test_a_file_that_is_damaged_stops_the_start(tmp_path: Path) -> None:
    """It is named, and stays."""
    (tmp_path / "deadletters-p0.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(StartError, match=r"deadletters-p0\.sqlite cannot be brought over"):
        bring_files_over(tmp_path, stored_in(tmp_path))
    assert (tmp_path / "deadletters-p0.sqlite").exists()


def _changes(storage: Storage, id: str) -> list[ShownAlert]:
    return changes_of(storage, id)
