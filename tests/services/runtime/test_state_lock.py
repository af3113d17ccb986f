"""One running system a state, also where the kernels of two machines do not share their locks."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.errors import ChangedError, StartError, StorageAwayError
from services.runtime.state_lock import OWNERS, SILENT_S, StateLock, this_machine
from services.store.storage import MemoryServer, ObjectStorage, Pauses
from services.store.storage.object_server import Body
from services.store.storage.owners import OwnersInStorage
from tests.patience import until


class World:
    """Machines whose clocks run together; what happens while one waits is up to the test."""

    def __init__(self, storage: Path, server: MemoryServer | None = None) -> None:
        self.storage, self.server, self.now_s = storage, server, 0.0
        self.meanwhile: Callable[[], Any] = lambda: None
        self.lost: list[str] = []

    def lock(self, machine: str) -> StateLock:
        place: Path | OwnersInStorage = self.storage
        if self.server is not None:
            place = OwnersInStorage(ObjectStorage(self.server), machine, self.storage)
        return StateLock(
            place, lambda: self.lost.append(machine), machine=machine, say=lambda _: None,
            monotonic_s=lambda: self.now_s, sleep=self.sleep,
        )  # fmt: skip

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.meanwhile()

    def abandoned(self, machine: str) -> StateLock:
        """An owner that was killed: it writes nothing any more, and gives nothing back."""
        lock = self.lock(machine)
        lock._thread.start, lock._thread.join = lambda: None, lambda _: None  # type: ignore[method-assign]
        return lock.__enter__()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One shared folder."""
    return World(tmp_path / "storage")


def test_an_owner_that_lives_on_another_machine_is_left_alone(world: World) -> None:
    """The second is refused as soon as the first shows a sign of life, and names it."""
    with world.lock("a") as first:
        world.meanwhile = first.beat
        with pytest.raises(StartError, match=r"another Hothouse runs on the state in .*storage: process \d+ on "):
            world.lock("b").__enter__()
        assert first.beat()
    assert world.now_s < SILENT_S


def test_an_owner_that_was_killed_on_another_machine_is_waited_for(world: World) -> None:
    """Its state is taken over once it has been silent for long enough, not before."""
    world.abandoned("a")
    with world.lock("b") as second:
        assert (world.now_s >= SILENT_S, second.epoch) == (True, 2)


def test_an_owner_that_was_killed_here_is_not_waited_for(world: World) -> None:
    """The kernel's lock, which the caller holds, says that it is dead."""
    world.abandoned("a")
    with world.lock("a") as second:
        assert (world.now_s, second.epoch) == (0, 2)


def test_a_state_that_was_given_back_is_free_at_once(world: World) -> None:
    """An orderly stop makes nobody wait, also while somebody waits already."""
    with world.lock("a"):
        pass
    with world.lock("b"):
        assert world.now_s == 0
    owner = world.abandoned("c")
    world.meanwhile = lambda: owner._write(released=True)
    with world.lock("d"):
        assert 0 < world.now_s < SILENT_S


def test_an_owner_that_was_taken_for_dead_finds_out(world: World) -> None:
    """Stopped for longer than the patience of others, it is told that it must end, and takes nothing back."""
    asleep = world.abandoned("a")
    with world.lock("b") as owner:
        assert not asleep.beat()
        asleep.__exit__()
        assert owner.beat()


def test_a_folder_that_is_away_is_no_takeover(world: World) -> None:
    """A mount that drops out looks like a folder without owners. The owner goes on, and is seen when it is back."""
    away = world.storage.with_name("away")
    with world.lock("a") as owner:
        world.storage.rename(away)
        with pytest.raises(OSError, match="No such file"):
            owner.beat()
        (world.storage / OWNERS).mkdir(parents=True)  # the mount point, empty
        with pytest.raises(OSError, match="No such file"):
            owner.beat()
        (world.storage / OWNERS).rmdir()
        world.storage.rmdir()
        away.rename(world.storage)
        assert owner.beat()
    assert world.lost == []


def test_the_thread_tells_of_a_takeover(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, without anybody asking."""
    monkeypatch.setattr("services.runtime.state_lock.BEAT_S", 0.01)
    with world.lock("a"):
        (world.storage / OWNERS / f"{2:012d}.json").write_bytes(b"{}")
        until(lambda: world.lost == ["a"], "the owner is told")


def test_signs_of_life_in_a_bucket_are_few(bucket: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is paid for. After one that failed the next comes sooner; still an owner that lives never seems dead."""
    lock, waits, answers = bucket.abandoned("a"), list[float](), iter([True, OSError("away"), True, False])

    def beat() -> bool:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(lock, "beat", beat)
    monkeypatch.setattr(lock._ended, "wait", lambda seconds: waits.append(seconds))
    lock._run()
    assert waits == [5.0, 5.0, 2.0, 5.0]
    assert bucket.lost == ["a"]
    assert 3 * max(waits) < SILENT_S


def test_of_two_that_wait_one_gets_the_state(world: World) -> None:
    """Both have seen the same silence; the file of the next epoch can be made once."""
    world.abandoned("a")
    other = world.lock("c")
    claim = other._claim

    def claim_late() -> None:
        await_silence = other._await_silence

        def silence_then_another() -> None:
            await_silence()
            world.abandoned("b")

        other._await_silence = silence_then_another  # type: ignore[method-assign]
        newest = other._place.newest
        other._place.newest = lambda: min(newest(), 1)  # type: ignore[method-assign]  # as it was seen before
        claim()

    other._claim = claim_late  # type: ignore[method-assign]
    with pytest.raises(StartError, match="another Hothouse runs"):
        other.__enter__()


def test_a_torn_record_is_waited_for(world: World) -> None:
    """A crash in the middle of writing says neither that its owner lives nor that it left."""
    (world.storage / OWNERS).mkdir(parents=True)
    (world.storage / OWNERS / f"{7:012d}.json").write_bytes(b'{"host": ')
    with world.lock("b") as second:
        assert (world.now_s >= SILENT_S, second.epoch) == (True, 8)


def test_a_full_disk_leaves_no_owner_that_the_next_start_waits_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start says what to look at; once there is room, the next one takes the state at once."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StartError, match="No space left") as refused:
            world.lock("a").__enter__()
    assert "has room" in refused.value.hint
    with world.lock("a"):
        assert world.now_s == 0


def test_a_machine_is_known_by_its_boot_and_its_mount(tmp_path: Path) -> None:
    """Two looks at one folder agree: else every start after a crash would wait."""
    assert this_machine(tmp_path) == this_machine(tmp_path)


@pytest.fixture
def bucket(tmp_path: Path) -> World:
    """One bucket, and a data folder on each machine."""
    return World(tmp_path / "storage", MemoryServer("s3://b"))


def test_an_owner_of_a_bucket_is_left_alone_while_it_lives(bucket: World) -> None:
    """As in a folder: refused at a sign of life, waited for once it is silent, and not after an orderly stop."""
    with bucket.lock("a") as first:
        bucket.meanwhile = first.beat
        with pytest.raises(StartError, match=r"another Hothouse runs on the state in s3://b: process \d+ on "):
            bucket.lock("b").__enter__()
        assert first.beat()
    assert bucket.now_s < SILENT_S
    bucket.meanwhile = lambda: None
    with bucket.lock("b"):
        assert bucket.now_s < SILENT_S
    bucket.abandoned("b")
    with bucket.lock("a") as second:
        assert (bucket.now_s >= SILENT_S, second.epoch) == (True, 4)
    assert bucket.server is not None
    assert list(bucket.server.objects) == ["owner/000000000004.json"]


def test_an_owner_of_a_bucket_that_was_taken_over_finds_out(bucket: World) -> None:
    """One that was stopped for so long that it seemed dead ends when it wakes up; of two that waited one has it."""
    sleeper = bucket.abandoned("a")
    bucket.meanwhile = lambda: None
    with bucket.lock("b"):
        assert not sleeper.beat()
    third, fourth = bucket.lock("c"), bucket.lock("d")
    place = fourth._place
    with third:
        assert isinstance(place, OwnersInStorage)
        with pytest.raises(FileExistsError):
            place.make(third.epoch, b"another")


class Late(MemoryServer):
    """Keeps the next put, which arrives when it is told to; or does something before it."""

    def __init__(self) -> None:
        super().__init__()
        self.keeps, self.kept = False, list[Callable[[], Any]]()
        self.before_put: Callable[[], Any] = lambda: None

    def put(self, key: str, body: Body, version: str | None) -> str:
        first, self.before_put = self.before_put, lambda: None
        first()
        if self.keeps:
            self.keeps = False
            self.kept.append(lambda: super(Late, self).put(key, body, version))
            raise StorageAwayError(f"{self.url} does not answer")
        return super().put(key, body, version)


@pytest.mark.parametrize("comes", ["before", "after"])
def test_a_beat_that_hung_does_not_take_back_a_state_that_was_given_back(tmp_path: Path, comes: str) -> None:
    """It arrives after its owner has left, or just before: either way the next owner waits for nobody."""
    server = Late()
    world = World(tmp_path / "storage")
    place = OwnersInStorage(ObjectStorage(server, Pauses(total_s=0)), "a", tmp_path)
    lock = StateLock(place, lambda: None, machine="a", say=lambda _: None)
    lock._thread.start, lock._thread.join = lambda: None, lambda _: None  # type: ignore[method-assign]
    with lock:
        assert lock.beat()
        server.keeps = True
        with pytest.raises(StorageAwayError):
            lock.beat()
        if comes == "before":
            server.kept[0]()
            assert lock.beat()  # and goes on
    if comes == "after":
        with pytest.raises(ChangedError):
            server.kept[0]()
    assert b'"released": true' in place.read(lock.epoch)
    world.server = server
    with world.lock("b"):
        assert world.now_s == 0.0


def test_a_beat_that_is_overtaken_by_its_owners_end_is_not_written(tmp_path: Path) -> None:
    """The owner leaves while its beat is on the way: the beat is refused, and not tried anew on what is there then."""
    server = Late()
    place = OwnersInStorage(ObjectStorage(server, Pauses(total_s=0)), "a", tmp_path)
    lock = StateLock(place, lambda: None, machine="a", say=lambda _: None)
    lock._thread.start, lock._thread.join = lambda: None, lambda _: None  # type: ignore[method-assign]
    lock.__enter__()
    assert lock.beat()
    server.before_put = lock.__exit__
    with pytest.raises(ChangedError):
        lock.beat()
    assert b'"released": true' in place.read(lock.epoch)
