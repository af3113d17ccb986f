"""Step 6 of the way of a reading: dead letters with their reasons, a log of records (``deadletters/p{partition}/``) a
partition, in the order of their places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from services.errors import AlreadyStoredError, ChangedError
from services.store.rows import DeadLetter
from services.store.storage import Storage, always, stored_in
from services.store.storage.record_log import RecordLog

__all__ = [
    "KEEP",
    "DeadLetterCount",
    "DeadLetters",
    "NewDeadLetters",
    "are_kept",
    "count_dead_letters",
    "read_dead_letters",
]

KEEP = 100_000
_ROOT = "deadletters"
_TRIES = 4
_Place = tuple[int, int]
"""Offset and item: a letter's permanent name in its partition."""


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """How many letters of one reason and topic are kept, and the newest of them."""

    reason: str
    topic: str
    count: int
    partition: int
    offset: int
    receive_ms: int
    detail: str


class DeadLetters:
    """Those of a partition, for its one writer; keeps the newest ``keep`` letters, and up to a thousand older ones."""

    def __init__(self, root: Storage | Path, partition: int, keep: int = KEEP) -> None:
        self._log = RecordLog(stored_in(root), f"{_ROOT}/p{partition}", DeadLetter, keep)
        self._newest: _Place | None = None  # None: not looked at yet
        self._places: set[_Place] | None = None  # of all letters, while older ones are put again

    def put(self, dead_letters: Sequence[DeadLetter], check: Callable[[], None] = always) -> None:
        """Keep letters durably; a letter that exists already, after a replay, stays as it is. Raises ``OSError``.

        The cost depends on these letters, and at most a thousand others; what a replay puts again is looked up in all.
        ``check`` raises when the partition belongs to another writer by now.
        """
        for left in range(_TRIES, 0, -1):
            new = self._new(dead_letters)
            if not new:
                return
            try:
                self._log.append(new, check)
            except (AlreadyStoredError, ChangedError):  # by a writer that has the partition, or had it
                self._newest = self._places = None
                check()
                if left == 1:
                    raise
                continue
            except BaseException:
                self._newest = self._places = None  # some may have been kept
                raise
            self._newest = max(map(_place, new), default=self._newest)
            if self._places is not None:
                self._places.update(map(_place, new))
            return

    def newest(self, limit: int = 100) -> list[DeadLetter]:
        """The newest letters, newest first."""
        return sorted(_once(self._log.oldest_first()), key=_place, reverse=True)[:limit]

    def _new(self, dead_letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Those that are not there and were not removed as the oldest, each once, in the order of their places."""
        if not dead_letters:
            return []
        if self._newest is None:
            self._newest = max(map(_place, next(self._log.newest_first(), ())), default=(-1, -1))
        wanted = sorted(_once(dead_letters), key=_place)
        if _place(wanted[0]) > self._newest:
            self._places = None
            return wanted
        if self._places is None:
            self._places = set(map(_place, self._log.oldest_first()))
        oldest = min(self._places) if self._log.span()[0] > 1 else (-1, -1)
        return [letter for letter in wanted if oldest < _place(letter) and _place(letter) not in self._places]


class NewDeadLetters:
    """The letters of all partitions that come from now on."""

    def __init__(self, root: Storage | Path) -> None:
        self._storage = stored_in(root)
        self._logs = {partition: self._log(partition) for partition in _partitions(self._storage)}
        self._after = {partition: log.span()[1] for partition, log in self._logs.items()}

    def read(self, limit: int) -> list[DeadLetter]:
        """The letters since the last call, at most ``limit`` of each partition, in the order of receive times.

        Raises ``OSError``.
        """
        found: list[DeadLetter] = []
        for partition in _partitions(self._storage):
            log = self._logs.setdefault(partition, self._log(partition))
            letters, gone = log.read(self._after.get(partition, 0), limit)
            self._after[partition] = self._after.get(partition, 0) + gone + len(letters)
            found += [letter for _, letter in letters]
        return sorted(found, key=lambda letter: (letter.receive_ms, *_place(letter)))

    def _log(self, partition: int) -> RecordLog[DeadLetter]:
        return _log_of(self._storage, partition)


def are_kept(root: Storage | Path) -> bool:
    """Whether any partition has letters."""
    return bool(_partitions(stored_in(root)))


def count_dead_letters(root: Storage | Path, reason: str | None = None) -> list[DeadLetterCount]:
    """Counts of the letters in all partitions of ``root`` by reason and topic, the most frequent first; changes
    nothing. Raises ``OSError``.
    """
    found: dict[tuple[str, str], DeadLetterCount] = {}
    for letter in _once(_all(stored_in(root))):
        if reason is not None and letter.reason != reason:
            continue
        key = letter.reason, letter.topic
        before = found.get(key)
        if before is None or letter.receive_ms >= before.receive_ms:
            found[key] = DeadLetterCount(
                *key, 1 + (before.count if before else 0), letter.partition, letter.offset, letter.receive_ms,
                letter.detail,
            )  # fmt: skip
        else:
            found[key] = replace(before, count=before.count + 1)
    return sorted(found.values(), key=lambda one: (-one.count, one.reason, one.topic))


def read_dead_letters(root: Storage | Path, limit: int, reason: str | None = None) -> list[DeadLetter]:
    """The newest letters of all partitions by receive time, newest first; changes nothing. Raises ``OSError``."""
    storage, found = stored_in(root), list[DeadLetter]()
    for partition in _partitions(storage):
        some: list[DeadLetter] = []
        for letters in _log_of(storage, partition).newest_first():
            some += [letter for letter in letters if reason in (None, letter.reason)]
            if len(some) >= limit:
                break
        found += _once(some)
    return sorted(found, key=lambda letter: (-letter.receive_ms, -letter.offset, -letter.item))[:limit]


def _all(storage: Storage) -> Iterator[DeadLetter]:
    return chain.from_iterable(_log_of(storage, number).oldest_first() for number in _partitions(storage))


def _log_of(storage: Storage, partition: int) -> RecordLog[DeadLetter]:
    return RecordLog(storage, f"{_ROOT}/p{partition}", DeadLetter)


def _partitions(storage: Storage) -> list[int]:
    return sorted(int(name[1:]) for name in storage.list_folder(_ROOT).folders if name[1:].isdigit())


def _place(letter: DeadLetter) -> _Place:
    return letter.offset, letter.item


def _once(letters: Iterator[DeadLetter] | Sequence[DeadLetter]) -> list[DeadLetter]:
    """Each name once: of two letters the first that was put."""
    return list({(letter.partition, *_place(letter)): letter for letter in reversed(list(letters))}.values())[::-1]
