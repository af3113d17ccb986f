"""Dead letters are kept once, within a bound."""

from __future__ import annotations

from pathlib import Path

from services.store.deadletters import DeadLetters, count_dead_letters, read_dead_letters
from services.store.rows import DeadLetter


def letter(offset: int, item: int = 0) -> DeadLetter:
    return DeadLetter(0, offset, item, 1_646_092_800_000, "hothouse/v1/s/z/d/sample", "late", "why", b"\x00payload")


def test_a_replay_adds_no_letter(tmp_path: Path) -> None:
    """(partition, offset, item) names a letter: putting it again changes nothing."""
    with DeadLetters(tmp_path, 0) as dead_letters:
        dead_letters.put([letter(1), letter(1, 1), letter(2)])
        dead_letters.put([letter(1), letter(2)._replace(reason="other")])
        assert dead_letters.newest() == [letter(2), letter(1, 1), letter(1)]
    with DeadLetters(tmp_path, 0) as dead_letters:
        assert len(dead_letters.newest()) == 3


def test_the_oldest_go_beyond_the_bound(tmp_path: Path) -> None:
    """A device that only sends nonsense cannot fill the disk."""
    with DeadLetters(tmp_path, 0, keep=3) as dead_letters:
        dead_letters.put([letter(n) for n in range(10)])
        assert [found.offset for found in dead_letters.newest()] == [9, 8, 7]
        dead_letters.put([])


def test_keeping_a_letter_costs_the_same_however_many_there_are(tmp_path: Path) -> None:
    """SQLite takes as many steps for one more letter beyond the bound as beyond a bound of a hundredth."""
    steps = []
    for keep in (100, 10_000):
        with DeadLetters(tmp_path / str(keep), 0, keep) as dead_letters:
            dead_letters.put([letter(n) for n in range(keep)])
            counted: list[None] = []
            dead_letters._db.set_progress_handler(lambda counted=counted: counted.append(None), 1)
            dead_letters.put([letter(keep)])
            dead_letters._db.set_progress_handler(None, 0)
            assert len(dead_letters.newest(2 * keep)) == keep
            steps.append(len(counted))
    assert steps[1] < 1.5 * steps[0]


def test_the_bound_holds_over_restarts_and_replays(tmp_path: Path) -> None:
    """What a replay puts again, below the oldest that is kept as well, changes nothing."""
    for _ in range(3):
        with DeadLetters(tmp_path, 0, keep=3) as dead_letters:
            for n in range(10):
                dead_letters.put([letter(n)])
            assert [found.offset for found in dead_letters.newest()] == [9, 8, 7]


def test_dead_letters_of_all_partitions_are_counted_and_listed(tmp_path: Path) -> None:
    """By reason and topic, with the newest one's place; another reason is left out when one is asked for."""
    assert count_dead_letters(tmp_path) == read_dead_letters(tmp_path, 5) == []
    other = letter(5)._replace(partition=1, receive_ms=letter(0).receive_ms + 1)
    bad = letter(9)._replace(reason="malformed")
    with DeadLetters(tmp_path, 0) as dead_letters, DeadLetters(tmp_path, 1) as more:
        dead_letters.put([letter(1), letter(2), bad])
        more.put([other])
        late, malformed = count_dead_letters(tmp_path)
        assert (late.reason, late.count, late.partition, late.offset) == ("late", 3, 1, 5)
        assert (malformed.reason, malformed.count, malformed.offset) == ("malformed", 1, 9)
        assert count_dead_letters(tmp_path, "malformed") == [malformed]
        assert read_dead_letters(tmp_path, 2) == [other, bad]
        assert read_dead_letters(tmp_path, 9, "late") == [other, letter(2), letter(1)]
