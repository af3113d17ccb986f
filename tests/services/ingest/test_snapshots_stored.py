"""Snapshots on storages of any kind: what a kill, a second writer and a server that loses answers leave behind."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.errors import StorageAwayError
from services.ingest.snapshots.parts import PARTS
from services.ingest.snapshots.snapshot import FencedError, Snapshots
from services.store.storage import FolderStorage, MemoryServer, ObjectStorage, Pauses, Storage
from tests.contracts.faulty_server import FaultyServer
from tests.storages import KINDS, Open, opener


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Each kind."""
    return opener(request.param, tmp_path)


def parts(values: Any) -> dict[str, Any]:
    """All parts, of which one holds something large."""
    return {name: {"v": values, "n": int(values[0])} if name == "watch" else {} for name in PARTS}


def test_each_start_goes_on_from_the_newest(opened: Open) -> None:
    """Saved and begun again ten times: the state is that of the newest save, and old ones leave nothing behind."""
    values = np.arange(20_000)
    for offset in range(10):
        snapshots = Snapshots(opened(), 3, "snapshots")
        found = snapshots.load()
        assert (found.offset if found else 0) == offset
        assert snapshots.epoch == offset + 1
        values[offset * 1_000] = -offset
        for again in range(2):
            values[0] = again
            snapshots.save(offset + again, parts(values))
        loaded = Snapshots(opened(), 4, "snapshots").load()
        assert loaded is None
        assert found is None or found.damage == ()
    names = opened().list_folder("snapshots").names
    assert [name for name in names if name.endswith(".snapshot")] == [
        f"p3-{offset:020d}.snapshot" for offset in (9, 10)
    ]  # fmt: skip
    newest = Snapshots(opened(), 3, "snapshots").load()
    assert newest is not None
    assert np.array_equal(newest.parts["watch"]["v"], values)


def test_of_two_writers_one_is_fenced(opened: Open) -> None:
    """In one sentence, at its next look; what the newer one saves stays."""
    older = Snapshots(opened(), 0, "snapshots")
    older.save(1, parts(np.full(9_999, 1)))
    newer = Snapshots(opened(), 0, "snapshots")
    newer.save(1, parts(np.full(9_999, 2)))
    for act in (older.check, lambda: older.save(2, parts(np.full(9_999, 3)))):
        with pytest.raises(FencedError, match=r"^partition 0 was taken over by another writer \(epoch 2\)$"):
            act()
    newer.check()
    found = Snapshots(opened(), 0, "snapshots").load()
    assert found is not None
    assert (found.offset, found.parts["watch"]["n"]) == (1, 2)


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_of_many_that_claim_at_once_one_is_left(kind: str, tmp_path: Path) -> None:
    """Each has an epoch of its own, and all but the last are fenced."""
    server = MemoryServer()
    claimed = list[Snapshots]()

    def claim() -> None:
        storage: Storage = FolderStorage(tmp_path) if kind == "folder" else ObjectStorage(server)
        claimed.append(Snapshots(storage, 0))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.epoch for one in claimed) == list(range(1, 9))
    left = []
    for one in claimed:
        try:
            one.check()
            left.append(one.epoch)
        except FencedError:
            pass
    assert left == [8]


def test_a_claim_whose_answer_was_lost_is_still_ours() -> None:
    """The storage says that somebody has made the epoch; it was us."""
    server = FaultyServer(MemoryServer(), chance=0)
    storage = ObjectStorage(server, Pauses(sleep=lambda _: None))
    for epoch in (1, 2):
        server.next = ["", "answer lost"]
        snapshots = Snapshots(storage, 0)
        assert server.happened.pop() == "answer lost"
        snapshots.check()
        assert snapshots.epoch == epoch


def test_a_list_that_lags_gives_no_number_twice() -> None:
    """What is unchanged lies in a segment of before, which is told from the new one by its number."""
    server, values = MemoryServer(), np.arange(20_000)
    first = Snapshots(ObjectStorage(server), 0)
    for offset in (1, 2):
        values[-1] = offset
        first.save(offset, parts(values))
    faults = FaultyServer(server, chance=0)
    faults.next = ["", "", "lagging"]  # the epoch is read and written, the folder listed
    second = Snapshots(ObjectStorage(faults), 0)
    assert faults.happened == ["lagging"]
    second.load()
    values[-1] = 3
    second.save(3, parts(values))
    found = Snapshots(ObjectStorage(server), 0).load()
    assert found is not None
    assert (found.offset, found.damage) == (3, ())
    assert np.array_equal(found.parts["watch"]["v"], values)


def test_the_epoch_of_a_release_before_is_read(tmp_path: Path) -> None:
    """It was a number alone."""
    (tmp_path / "p0.epoch").write_text("7")
    assert Snapshots(tmp_path, 0).epoch == 8


def test_a_storage_that_is_away_is_no_damage() -> None:
    """A start that cannot read is told so, and does not go on without what it cannot see."""
    server = MemoryServer()
    Snapshots(ObjectStorage(server), 0).save(1, parts(np.arange(9_999)))
    faults = FaultyServer(server, chance=0)
    snapshots = Snapshots(ObjectStorage(faults, Pauses(total_s=0)), 0)
    for request in range(3):  # the list, the snapshot, its segment
        faults.next = [*[""] * request, "lost"]
        with pytest.raises(StorageAwayError):
            snapshots.load()
    found = snapshots.load()
    assert found is not None
    assert found.damage == ()


def test_a_server_that_is_away_loses_no_snapshot() -> None:
    """What could not be saved is saved the next time, whole."""
    server, values = FaultyServer(MemoryServer(), chance=0), np.arange(9_999)
    snapshots = Snapshots(ObjectStorage(server, Pauses(total_s=0)), 0)
    for request in range(6):
        values[request] = -1
        server.next = [*[""] * request, "answer lost"]
        try:
            snapshots.save(request, parts(values))
        except StorageAwayError:
            snapshots.save(request, parts(values))
        found = Snapshots(ObjectStorage(server), 0).load()
        assert found is not None
        assert (found.offset, found.damage) == (request, ())
        assert np.array_equal(found.parts["watch"]["v"], values)
        snapshots = Snapshots(ObjectStorage(server, Pauses(total_s=0)), 0)
        assert snapshots.load() is not None
