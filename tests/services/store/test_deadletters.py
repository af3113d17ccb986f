"""Dead letters are kept once, within a bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.errors import HothouseError
from services.store.deadletters import DeadLetters, NewDeadLetters, count_dead_letters, read_dead_letters
from services.store.rows import DeadLetter
from services.store.storage import MemoryServer, ObjectStorage
from tests.storages import KINDS, opener


def letter(offset: int, item: int = 0) -> DeadLetter:
    return DeadLetter(0, offset, item, 1_646_092_800_000, "hothouse/v1/s/z/d/sample", "late", "why", b"\x00payload")


def test_a_replay_adds_no_letter(tmp_path: Path) -> None:
    """(partition, offset, item) names a letter: putting it again changes nothing."""
    dead_letters = DeadLetters(tmp_path, 0)
    dead_letters.put([letter(1), letter(1, 1), letter(2)])
    dead_letters.put([letter(1), letter(2)._replace(reason="other")])
    assert dead_letters.newest() == [letter(2), letter(1, 1), letter(1)]
    dead_letters = DeadLetters(tmp_path, 0)
    assert len(dead_letters.newest()) == 3


def test_the_oldest_go_beyond_the_bound(tmp_path: Path) -> None:
    """A device that only sends nonsense cannot fill the disk."""
    dead_letters = DeadLetters(tmp_path, 0, keep=3)
    dead_letters.put([letter(n) for n in range(10)])
    assert [found.offset for found in dead_letters.newest()] == [9, 8, 7]
    dead_letters.put([])


def test_keeping_a_letter_costs_the_same_however_many_there_are() -> None:
    """The server is asked as often for one more letter beyond the bound as beyond a bound of a hundredth."""
    asked = []
    for keep in (100, 10_000):
        server = MemoryServer()
        dead_letters = DeadLetters(ObjectStorage(server), 0, keep)
        dead_letters.put([letter(n) for n in range(keep)])
        counted: list[str] = []
        for name in ("get", "head", "put", "delete", "list_folder"):
            _count(server, name, counted)
        dead_letters.put([letter(keep)])
        asked.append(len(counted))
        assert keep <= len(dead_letters.newest(2 * keep)) <= keep + 1000
    assert asked[1] <= asked[0] <= 3


def _count(server: MemoryServer, name: str, counted: list[str]) -> None:
    ask = getattr(server, name)

    def counting(*arguments: Any) -> Any:
        counted.append(name)
        return ask(*arguments)

    setattr(server, name, counting)


def test_the_bound_holds_over_restarts_and_replays(tmp_path: Path) -> None:
    """What a replay puts again, below the oldest that is kept as well, changes nothing."""
    for _ in range(3):
        dead_letters = DeadLetters(tmp_path, 0, keep=3)
        for n in range(10):
            dead_letters.put([letter(n)])
        assert [found.offset for found in dead_letters.newest()] == [9, 8, 7]


def test_dead_letters_of_all_partitions_are_counted_and_listed(tmp_path: Path) -> None:
    """By reason and topic, with the newest one's place; another reason is left out when one is asked for."""
    assert count_dead_letters(tmp_path) == read_dead_letters(tmp_path, 5) == []
    other = letter(5)._replace(partition=1, receive_ms=letter(0).receive_ms + 1)
    bad = letter(9)._replace(reason="malformed")
    dead_letters = DeadLetters(tmp_path, 0)
    more = DeadLetters(tmp_path, 1)
    dead_letters.put([letter(1), letter(2), bad])
    more.put([other])
    late, malformed = count_dead_letters(tmp_path)
    assert (late.reason, late.count, late.partition, late.offset) == ("late", 3, 1, 5)
    assert (malformed.reason, malformed.count, malformed.offset) == ("malformed", 1, 9)
    assert count_dead_letters(tmp_path, "malformed") == [malformed]
    assert read_dead_letters(tmp_path, 2) == [other, bad]
    assert read_dead_letters(tmp_path, 9, "late") == [other, letter(2), letter(1)]


@pytest.mark.parametrize("kind", KINDS)
def test_two_writers_lose_nothing_and_keep_nothing_twice(tmp_path: Path, kind: str) -> None:
    """A shard that took a partition over while the one before wrote once more: letters of both, each once."""
    storage = opener(kind, tmp_path)
    first, second = DeadLetters(storage(), 0), DeadLetters(storage(), 0)
    first.put([letter(1), letter(2)])
    second.put([letter(1), letter(2), letter(3)])
    first.put([letter(3), letter(4)])
    second.put([letter(2), letter(4), letter(5)])
    assert [found.offset for found in DeadLetters(storage(), 0).newest()] == [5, 4, 3, 2, 1]
    assert [found.count for found in count_dead_letters(storage())] == [5]


def test_a_writer_that_lost_its_partition_keeps_nothing(tmp_path: Path) -> None:
    """What its check raises is raised, and nothing is written."""

    class LostError(HothouseError):
        pass

    def lost() -> None:
        raise LostError("taken over")

    first, second = DeadLetters(tmp_path, 0), DeadLetters(tmp_path, 0)
    first.put([letter(1)])
    second.put([letter(2)])
    with pytest.raises(LostError):
        first.put([letter(9)], lost)
    assert [found.offset for found in second.newest()] == [2, 1]


def test_letters_that_come_late_to_their_place_are_kept(tmp_path: Path) -> None:
    """A partition that is grown again may reject what it took before: its letter has an older place than others."""
    DeadLetters(tmp_path, 0).put([letter(5), letter(9)])
    DeadLetters(tmp_path, 0).put([letter(7), letter(9), letter(10)])
    assert [found.offset for found in DeadLetters(tmp_path, 0).newest()] == [10, 9, 7, 5]


def test_letters_are_followed_over_the_ends_of_objects(tmp_path: Path) -> None:
    """What comes is told once, in pieces; what was there before is not."""
    dead_letters = DeadLetters(tmp_path, 0)
    dead_letters.put([letter(n) for n in range(1500)])
    new = NewDeadLetters(tmp_path)
    assert new.read(10) == []
    dead_letters.put([letter(n) for n in range(1500, 3500)])
    told: list[int] = []
    while some := new.read(300):
        told += [one.offset for one in some]
    assert told == list(range(1500, 3500))
