"""An object store whose requests are lost, answered late or refused: each write still counts once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.errors import AlreadyStoredError, ChangedError, NotStoredError, StorageAwayError, StorageError
from services.store.storage import MemoryServer, ObjectStorage, Pauses, Storage
from services.store.storage.object_server import Body
from tests.contracts.faulty_server import FaultyServer
from tests.storages import FakeTime, faulty


class Register:
    """Names in one object, each added by a swap, until it is there."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def add(self, name: str) -> None:
        while True:
            try:
                found = self._storage.read("register")
            except NotStoredError:
                with suppress(AlreadyStoredError):
                    self._storage.put_new("register", name.encode())
                continue
            names = found.content.decode().split()
            if name in names:
                return
            with suppress(ChangedError):
                self._storage.swap("register", " ".join([*names, name]).encode(), found.version)


@given(
    order=st.lists(st.integers(0, 3), min_size=1, max_size=40), seed=st.integers(0, 2**32),
    chance=st.sampled_from([0.0, 0.2, 0.5]),
)  # fmt: skip
def test_whatever_goes_wrong_each_swap_counts_once(order: list[int], seed: int, chance: float) -> None:
    """Writers add names through connections of their own: each is there once, and none is lost again."""
    server = MemoryServer()
    writers = [
        Register(ObjectStorage(FaultyServer(server, seed + n, chance), FakeTime().pauses())) for n in range(4)
    ]  # fmt: skip
    for number, writer in enumerate(order):
        writers[writer].add(f"{writer}-{number}")
        names = server.objects["register"].content.decode().split()
        assert names == [f"{w}-{n}" for n, w in enumerate(order[: number + 1])]


@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["read", "new", "swap"])), max_size=40),
    seed=st.integers(0, 2**32),
)  # fmt: skip
def test_a_swap_that_succeeds_followed_what_it_replaced(steps: list[tuple[int, str]], seed: int) -> None:
    """Of any history: the contents that writers say they wrote form one chain, each on the version that it names."""
    server = MemoryServer()
    clients = [ObjectStorage(FaultyServer(server, seed + n), FakeTime().pauses()) for n in range(3)]
    known: list[Any] = [None] * 3
    written: dict[bytes, bytes | None] = {}  # content -> what it replaced
    for number, (who, what) in enumerate(steps):
        content = b"%d of %d" % (number, who)
        with suppress(StorageError):
            if what == "read":
                known[who] = clients[who].read("a")
            elif what == "new":
                clients[who].put_new("a", content)
                written[content] = None
            elif known[who] is not None:
                clients[who].swap("a", content, known[who].version)
                written[content] = known[who].content
    replaced = [before for before in written.values() if before is not None]
    assert len(set(replaced)) == len(replaced)
    assert sum(before is None for before in written.values()) <= 1
    chain, at = set[bytes](), server.objects["a"].content if "a" in server.objects else None
    while at is not None:
        chain.add(at)
        at = written[at]
    assert chain == set(written)


@given(contents=st.lists(st.binary(max_size=4), min_size=1, max_size=20), seed=st.integers(0, 2**32))
def test_whatever_goes_wrong_the_newest_put_is_there(contents: list[bytes], seed: int) -> None:
    """A put that arrives again, after newer ones, undoes none of them."""
    storage, _ = faulty(seed)
    for number, content in enumerate(contents):
        storage.put("a", b"%d " % number + content)
        assert storage.read("a").content == b"%d " % number + content


@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30), seed=st.integers(0, 2**32)
)  # fmt: skip
def test_whatever_lags_a_writer_lists_what_it_left(steps: list[tuple[str, bool]], seed: int) -> None:
    """After any order of puts and deletes, for as long as lists may lag."""
    storage = ObjectStorage(FaultyServer(MemoryServer(), seed), Pauses(total_s=1, sleep=lambda _: None, clock_s=float))
    there = set[str]()
    for name, deletes in steps:
        if deletes:
            storage.delete(f"f/{name}")
            there.discard(name)
        else:
            storage.put(f"f/{name}", b"1")
            there.add(name)
        assert set(storage.list_folder("f").names) == there


@pytest.mark.parametrize("fault", ["lost", "answer lost", "busy", "expired"])
def test_a_fault_is_not_seen(fault: str) -> None:
    """Asked again the request is done, once."""
    storage, server = faulty(chance=0)
    version = storage.put("a", b"1")
    server.next = [fault]
    version = storage.swap("a", b"2", version)
    assert server.happened == [fault]
    assert storage.read("a").content == b"2"
    server.next = [fault]
    assert storage.put_new("b", b"mine")
    assert storage.read("b").content == b"mine"


def test_a_server_that_stays_away_is_told(tmp_path: Path) -> None:
    """After the time that requests are asked again for, and not before; pauses grow."""
    clock = FakeTime()
    server = FaultyServer(MemoryServer("s3://bucket"), chance=1, faults=["lost"])
    storage = ObjectStorage(server, clock.pauses(10))
    with pytest.raises(StorageAwayError, match="s3://bucket does not answer"):
        storage.put("a", b"1")
    assert 5 < clock.now_s <= 10
    assert clock.slept[0] <= 0.1 < 1 <= max(clock.slept) <= 2


def test_a_server_that_stays_away_is_asked_little() -> None:
    """Once it did not answer for all the time that is given, callers hear so at once; it is asked every two seconds,
    once, and as ever from its first answer on.
    """
    clock = FakeTime()
    server = FaultyServer(MemoryServer("s3://bucket"), chance=1, faults=["lost"])
    pauses = Pauses(total_s=10, rest_s=2, sleep=clock.sleep, clock_s=lambda: clock.now_s)
    storage = ObjectStorage(server, pauses)
    for least_asked, most_asked in ((6, 30), (0, 0)):
        before = len(server.happened)
        with pytest.raises(StorageAwayError, match="s3://bucket does not answer"):
            storage.read("a")
        assert least_asked <= len(server.happened) - before <= most_asked
    before, began_s = len(server.happened), clock.now_s
    for _ in range(100):
        clock.now_s += 0.1
        with pytest.raises(StorageAwayError):
            storage.put("a", b"1")
    assert clock.now_s - began_s < 10.1  # nobody waited
    assert 4 <= len(server.happened) - before <= 5
    server.chance = 0
    clock.now_s += 2
    storage.put("a", b"1")
    assert storage.read("a").content == b"1"
    server.next = ["lost", "lost"]
    assert storage.read("a").content == b"1"


def test_a_process_that_was_stopped_asks_again() -> None:
    """While it stood still its request was given up: the server was not away for all that time."""
    clock, inner, stops = FakeTime(), MemoryServer("s3://bucket"), [True]

    class Stopping(MemoryServer):
        """Whose first request finds the process stopped for an hour."""

        def put(self, key: str, body: Body, version: str | None) -> str:
            if stops and stops.pop():
                clock.now_s += 3600
                raise StorageAwayError("s3://bucket does not answer")
            return inner.put(key, body, version)

    storage = ObjectStorage(
        Stopping("s3://bucket"), Pauses(total_s=10, rest_s=2, sleep=clock.sleep, clock_s=lambda: clock.now_s)
    )
    storage.put_new("a", b"1")
    assert inner.get("a").content == b"1"
    assert clock.now_s < 3610


def test_a_busy_server_is_left_alone_for_a_while() -> None:
    """503 and Retry-After: the pause is as long as it wants at least."""
    clock = FakeTime()
    server = FaultyServer(MemoryServer(), chance=0)
    server.next = ["busy", "busy"]
    ObjectStorage(server, clock.pauses()).put_new("a", b"1")
    assert clock.slept[0] >= 1
    assert clock.slept[1] >= 1


def test_a_lagging_list_of_what_others_did_is_late_and_no_more() -> None:
    """Another writer's object may be missing from a list; by its name it is there at once."""
    server = MemoryServer()
    one = ObjectStorage(server, FakeTime().pauses())
    faults = FaultyServer(server, chance=0)
    other = ObjectStorage(faults, FakeTime().pauses())
    one.put("a/b", b"1")
    faults.next = ["lagging"]
    assert other.list_folder("a").names == ()
    assert other.read("a/b").content == b"1"
    assert other.list_folder("a").names == ("b",)
