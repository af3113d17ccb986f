"""What every storage does: a folder, memory, an object store behind faults, and a real S3 server."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.errors import AlreadyStoredError, ChangedError, NotStoredError
from services.store.storage import FolderStorage, MemoryServer, ObjectStorage, Storage, StorageAddress, open_storage
from tests.contracts.faulty_proxy import FaultyProxy
from tests.s3 import s3_address
from tests.storages import KINDS, FakeTime, faulty, faulty_s3


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """Each implementation, empty."""
    if request.param == "folder":
        yield FolderStorage(tmp_path / "storage")
    elif request.param == "memory":
        yield ObjectStorage(MemoryServer(), FakeTime().pauses())
    elif request.param == "faulty":
        yield faulty()[0]
    elif request.param == "s3":
        yield open_storage(s3_address(tmp_path))
    else:
        yield faulty_s3(tmp_path)()


def file_of(content: bytes) -> Any:
    """The same content, written piece by piece."""
    return lambda path: path.write_bytes(content) and None


def test_what_was_put_is_read(storage: Storage) -> None:
    """Whole, in part, mapped, and with the size that it has; made at once or piece by piece."""
    for number, content in enumerate((b"hello", b"", b"x" * 70_000)):
        for form in (content, file_of(content)):
            key = f"a/b/{number}-{callable(form)}"
            version = storage.put(key, form)
            assert storage.read(key).content == content
            assert storage.read(key).version == version
            assert bytes(storage.mapped(key)) == content
            assert storage.read_range(key, 1, 3) == content[1:4]
            found = storage.entry(key)
            assert found is not None
            assert (found.size, found.version) == (len(content), version)


def test_a_range_behind_the_end_is_short(storage: Storage) -> None:
    """As much is given as there is."""
    storage.put("a", b"hello")
    assert storage.read_range("a", 3, 10) == b"lo"


def test_what_is_not_there_is_said(storage: Storage) -> None:
    """One kind of error, which is a FileNotFoundError too and names the object; removing it again is no error."""
    for read in (storage.read, storage.mapped, lambda key: storage.read_range(key, 0, 1)):
        with pytest.raises(NotStoredError, match="nothing is not there"):
            read("a/nothing")
        with pytest.raises(FileNotFoundError):
            read("a/nothing")
    assert storage.entry("a/nothing") is None
    storage.delete("a/nothing")
    storage.put("a/nothing", b"1")
    storage.delete("a/nothing")
    storage.delete("a/nothing")
    assert storage.entry("a/nothing") is None


def test_put_replaces_whatever_is_there(storage: Storage) -> None:
    """Also what another writer wrote meanwhile; each content has a version of its own."""
    versions = {storage.put("a", content) for content in (b"1", b"2", b"1111")}
    assert len(versions) == 3
    assert storage.read("a").content == b"1111"


def test_a_new_object_is_made_once(storage: Storage) -> None:
    """The second writer is refused; the first may say it again, as its answer may have been lost."""
    version = storage.put_new("a", b"mine")
    assert storage.put_new("a", b"mine") == version
    for other in (b"theirs", file_of(b"theirs")):
        with pytest.raises(AlreadyStoredError, match="a is there already"):
            storage.put_new("a", other)
    assert storage.put_new("a", file_of(b"mine")) == version
    assert storage.read("a").content == b"mine"


def test_a_version_is_replaced_once(storage: Storage) -> None:
    """Of two that replace the same one the second is refused, also where nothing is left to replace."""
    first = storage.put("a", b"1")
    second = storage.swap("a", b"2", first)
    with pytest.raises(ChangedError, match="changed meanwhile by another writer"):
        storage.swap("a", b"3", first)
    assert storage.swap("a", b"2", first) == second  # its answer may have been lost
    storage.delete("a")
    with pytest.raises(ChangedError, match="another writer"):
        storage.swap("a", b"4", second)
    assert storage.entry("a") is None


def test_a_version_of_before_is_never_a_version_again(storage: Storage) -> None:
    """Writers put something of their own into what they swap: then no content, and no version, comes back."""
    versions = [storage.put("a", b"%04d" % n) for n in range(20)]
    assert len(set(versions)) == 20


def test_what_is_checked_at_the_last_moment_leaves_the_object(storage: Storage) -> None:
    """A writer that was fenced writes nothing, and what it raises is passed on."""

    class FencedError(Exception):
        pass

    def fenced() -> None:
        raise FencedError

    version = storage.put("a", b"1")
    for write in (
        lambda: storage.put("a", b"2", fenced), lambda: storage.put_new("b", b"2", fenced),
        lambda: storage.swap("a", b"2", version, fenced),
    ):  # fmt: skip
        with pytest.raises(FencedError):
            write()
    assert storage.read("a").content == b"1"
    assert storage.list_folder("").names == ("a",)


def test_a_folder_lists_what_lies_in_it(storage: Storage) -> None:
    """Names and folders, sorted, not what is deeper; names that begin with a dot are nobody's."""
    for key in ("b/2", "b/1", "b/c/d/3", "b/c/4", "bb/5", ".hidden", "b/.hidden", "6"):
        storage.put(key, b"12")
    assert storage.list_folder("b") == storage.list_folder("b")
    assert (storage.list_folder("b").folders, storage.list_folder("b").names) == (("c",), ("1", "2"))
    assert (storage.list_folder("").folders, storage.list_folder("").names) == (("b", "bb"), ("6",))
    assert (storage.list_folder("nothing").folders, storage.list_folder("nothing").names) == ((), ())
    assert {name: entry.size for name, entry in storage.entries("b").items()} == {"1": 2, "2": 2}
    found = storage.entry("b/1")
    assert found is not None
    assert storage.entries("b")["1"].version == found.version
    assert abs(storage.entries("b")["1"].modified_s - time.time()) < 3600


def test_lists_know_at_once_what_this_writer_did(storage: Storage) -> None:
    """Put, then deleted, then put again: however far the server's lists are behind."""
    for _ in range(3):
        storage.put("a/b", b"1")
        assert storage.list_folder("a").names == ("b",)
        storage.delete("a/b")
        assert storage.list_folder("a").names == ()
        assert storage.list_folder("").names == ()


def test_addresses_name_the_object(storage: Storage) -> None:
    """What people and other programs know it by; where it is a file, its path."""
    storage.put("a/b", b"1")
    assert storage.address("a/b").startswith(storage.url)
    assert storage.address("a/b").endswith("/a/b")
    path = storage.local("a/b")
    assert path is None or path.read_bytes() == b"1"


@pytest.mark.parametrize("kind", ["folder", pytest.param("s3", marks=pytest.mark.s3)])
def test_of_many_writers_at_once_one_has_it(kind: str, tmp_path: Path) -> None:
    """Threads that all make one object, then all replace one version: one of them each time."""
    address = s3_address(tmp_path) if kind == "s3" else StorageAddress(url=str(tmp_path / "storage"))
    won = list[int]()
    version = ""

    def write(number: int, turn: int) -> None:
        open_storage.cache_clear()
        mine = open_storage(address)  # as in a process of its own
        with suppress(AlreadyStoredError, ChangedError):
            content = b"%d %d" % (number, turn)
            mine.put_new("a", content) if not version else mine.swap("a", content, version)
            won.append(number)

    for turn in range(3):
        threads = [threading.Thread(target=write, args=(number, turn)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        found = open_storage(address).read("a")
        assert found.content == b"%d %d" % (won.pop(), turn)
        version = found.version


@pytest.mark.s3
@pytest.mark.parametrize("through", ["", "lost answers"])
def test_of_two_writers_of_a_large_object_one_has_it(through: str, tmp_path: Path) -> None:
    """100 MB from each at once, made and then replaced: one has it, the other is told so, and what is there is whole.

    A server refuses such a put before it was sent as a whole, and closes the connection: the answer is lost.
    """
    where = s3_address(tmp_path)
    with FaultyProxy(where.endpoint, 5, chance=0.3, faults=("answer lost",) if through else ()) as proxy:
        if through:
            where = replace(where, endpoint=proxy.endpoint)
        said = dict[int, str]()

        def write(number: int, version: str) -> None:
            mine = open_storage.__wrapped__(where)  # as in a process of its own
            try:
                content = file_of(_large(number))
                said[number] = mine.swap("a", content, version) if version else mine.put_new("a", content)
            except (AlreadyStoredError, ChangedError) as error:
                said[number] = type(error).__name__

        version = ""
        for turn in (0, 2):
            threads = [threading.Thread(target=write, args=(number, version)) for number in (turn, turn + 1)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            refused = [number for number in (turn, turn + 1) if said[number].endswith("Error")]
            assert len(refused) == 1, said
            assert said[refused[0]] == ("ChangedError" if turn else "AlreadyStoredError")
            winner = 2 * turn + 1 - refused[0]
            found = open_storage.__wrapped__(where).read("a")
            assert found.content == _large(winner)
            version = found.version
        assert version == said[winner]


def _large(number: int) -> bytes:
    """100 MB, others for each number."""
    return number.to_bytes(1, "big") * 100_000_000


def test_a_folder_made_by_hand_is_a_storage() -> None:
    """What is in a folder needs nothing beside it: files are objects as they are."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "x").mkdir()
        Path(folder, "x", "y").write_text("1")
        storage = FolderStorage(Path(folder))
        found = storage.read("x/y")
        assert found.content == b"1"
        storage.swap("x/y", b"2", found.version)
        assert Path(folder, "x", "y").read_text() == "2"
