"""Dead letters are kept once, within a bound."""

from __future__ import annotations

from pathlib import Path

from services.store.deadletters import DeadLetters
from services.store.rows import DeadLetter


def letter(offset: int, item: int = 0) -> DeadLetter:
    return DeadLetter(0, offset, item, 1_646_092_800_000, "hothouse/v1/s/z/d/sample", "late", "why", b"\x00payload")


def test_a_replay_adds_no_letter(tmp_path: Path) -> None:
    """(partition, offset, item) names a letter: putting it again changes nothing."""
    with DeadLetters(tmp_path, 0) as letters:
        letters.put([letter(1), letter(1, 1), letter(2)])
        letters.put([letter(1), letter(2)._replace(reason="other")])
        assert letters.newest() == [letter(2), letter(1, 1), letter(1)]
    with DeadLetters(tmp_path, 0) as letters:
        assert len(letters.newest()) == 3


def test_the_oldest_go_beyond_the_bound(tmp_path: Path) -> None:
    """A device that only sends nonsense cannot fill the disk."""
    with DeadLetters(tmp_path, 0, keep=3) as letters:
        letters.put([letter(n) for n in range(10)])
        assert [found.offset for found in letters.newest()] == [9, 8, 7]
        letters.put([])
