"""Records are kept in their order, each once, whatever the server does and whoever else writes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.errors import AlreadyStoredError, ChangedError, StorageError
from services.store.storage import FolderStorage, MemoryServer, ObjectStorage, Storage
from services.store.storage.record_log import RecordLog
from tests.storages import KINDS, Open, opener


class Record(NamedTuple):
    number: int
    payload: bytes


def record(number: int) -> Record:
    return Record(number, b"\x00\xff" * number)


def log(storage: Storage, keep: int = 2**62, per_object: int = 4) -> RecordLog[Record]:
    return RecordLog(storage, "things/p0", Record, keep, per_object)


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Each kind of storage, empty."""
    return opener(request.param, tmp_path)


def test_what_was_appended_is_read_in_its_order(storage: Open) -> None:
    """By a reader of another process, in pieces over the ends of objects, with its places."""
    writer = log(storage())
    for first, count in ((1, 1), (2, 5), (7, 2), (9, 12)):
        writer.append([record(n) for n in range(first, first + count)])
    reader, found, place = log(storage()), list[Record](), 0
    while entries := reader.read(place, 3)[0]:
        place = entries[-1][0]
        found += [one for _, one in entries]
    assert found == [record(n) for n in range(1, 21)] == list(reader.oldest_first())
    assert [one for some in reader.newest_first() for one in reversed(some)] == found[::-1]
    assert reader.span() == (1, 20)


def test_a_reader_follows(storage: Open) -> None:
    """It sees what comes, also into the object that it has read, and behind a full one."""
    writer, reader = log(storage()), log(storage())
    assert reader.read(0, 9) == ([], 0)
    for place in range(10):
        writer.append([record(place)])
        assert reader.read(place, 9) == ([(place + 1, record(place))], 0)
        assert reader.read(place + 1, 9) == ([], 0)


def test_the_oldest_go(storage: Open) -> None:
    """At least ``keep`` stay, and less than an object more; who is further behind hears how many it lost."""
    writer = log(storage(), keep=6)
    for place in range(1, 24):
        writer.append([record(place)])
        first, last = log(storage()).span()
        assert last == place
        assert min(place, 6) <= last - first + 1 < 6 + 4
    entries, gone = log(storage()).read(2, 99)
    assert (entries[0][0], gone) == (first, first - 3)
    assert [place for place, _ in entries] == list(range(first, 24))


def test_of_two_writers_the_second_notices(storage: Open) -> None:
    """It overwrites nothing, and goes on behind what is there."""
    first, second = log(storage()), log(storage())
    first.append([record(1)])
    second.append([record(2)])
    with pytest.raises((ChangedError, AlreadyStoredError)):
        first.append([record(3)])
    first.append([record(3)])
    with pytest.raises((ChangedError, AlreadyStoredError)):
        second.append([record(4), record(5), record(6)])
    second.append([record(n) for n in (4, 5, 6)])
    with pytest.raises((ChangedError, AlreadyStoredError)):
        first.append([record(7)])
    assert list(log(storage()).oldest_first()) == [record(n) for n in range(1, 7)]


def test_lists_that_lag_hide_nothing() -> None:
    """Who opens the log finds its end by names, whatever the list shows yet."""
    server = MemoryServer()
    log(ObjectStorage(server)).append([record(n) for n in range(1, 15)])
    everything = server.list_folder

    def lagging(folder: str) -> object:
        folders, objects = everything(folder)
        return folders, dict(sorted(objects.items())[:1])

    server.list_folder = lagging  # type: ignore[method-assign, assignment]
    log(ObjectStorage(server)).append([record(15)])
    assert list(log(ObjectStorage(server)).oldest_first()) == [record(n) for n in range(1, 16)]


def test_a_damaged_object_is_told(tmp_path: Path) -> None:
    """It is named, and not taken for an empty one."""
    log(FolderStorage(tmp_path)).append([record(1)])
    (path,) = (tmp_path / "things" / "p0").iterdir()
    for content in (b"", b"nonsense", path.read_bytes()[:-9]):
        path.write_bytes(content)
        with pytest.raises(StorageError, match=r"000000000000\.jsonl\.gz is damaged"):
            log(FolderStorage(tmp_path)).append([record(2)])


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 12))
def test_places_never_change(counts: list[int], keep: int) -> None:
    """Whatever is appended at once, by whatever process: a record has the place that it was the so-manieth with."""
    with tempfile.TemporaryDirectory() as folder:
        storage, put = FolderStorage(Path(folder)), 0
        for count in counts:
            log(storage, keep).append([record(n) for n in range(put + 1, put + count + 1)])
            put += count
            entries, gone = log(storage).read(0, 999)
            assert all(one == record(place) for place, one in entries)
            assert gone + len(entries) == put
            assert len(entries) >= min(put, keep)
