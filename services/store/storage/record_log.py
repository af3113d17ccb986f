"""Step 6 of the way of a reading: records in their order, as numbered objects of which the last one grows.

``{folder}/{number}.jsonl.gz`` is a line that says the place of its first record, and a line a record. Each record has a
place, counted from 1; an object holds the places that its number says, so that a reader finds it by its name, without a
list, which may lag behind. Only the object with the newest records is ever replaced, and only in the version that its
writer knows: of two writers the one that comes second notices. The oldest objects go once ``keep`` newer records are
there.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from services.errors import AlreadyStoredError, ChangedError, NotStoredError, StorageError
from services.store.storage.storage import Storage, always

__all__ = ["PER_OBJECT", "RecordLog"]

Record = TypeVar("Record")

PER_OBJECT = 1000
_SUFFIX = ".jsonl.gz"
_LEVEL = 1  # an object is written anew with each records that come: most of what can be saved, at once


class _Head(msgspec.Struct):
    first: int


@dataclass(frozen=True, slots=True)
class _Object(Generic[Record]):
    number: int
    version: str  # empty: it is not there yet
    first: int
    records: tuple[Record, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1


class RecordLog(Generic[Record]):
    """Records of one ``kind`` (a type that msgspec takes) in a ``folder``; one writer, any number of readers.

    An instance remembers the object that it has read last. Methods raise ``OSError``, which a damaged object is, too.
    """

    def __init__(
        self, storage: Storage, folder: str, kind: type[Record], keep: int = 2**62, per_object: int = PER_OBJECT
    ) -> None:
        self._storage, self._folder, self._keep, self._per_object = storage, folder, keep, per_object
        self._decoder = msgspec.json.Decoder(kind)
        self._held: _Object[Record] | None = None
        self._oldest = 0  # the number of the oldest object that may be there

    def span(self) -> tuple[int, int]:
        """The places of the oldest and the newest record; where there is none the second is the smaller."""
        oldest, newest = self._numbers()
        first, last = self._load(oldest), self._load(newest)
        return (first.first if first else 1), (last.last if last else 0)

    def read(self, after: int, limit: int) -> tuple[list[tuple[int, Record]], int]:
        """The records behind the place ``after`` with their places, at most ``limit``; and how many were there that
        are gone.
        """
        number = after // self._per_object
        held = self._load(number)
        if held is None:
            oldest, newest = self._numbers()
            if not number < oldest <= newest:
                return [], 0  # nothing is behind that place yet
            held = self._load(number := oldest)
        gone = 0 if held is None else max(held.first - after - 1, 0)
        found: list[tuple[int, Record]] = []
        while held is not None and len(found) < limit:
            found += [one for one in enumerate(held.records, held.first) if one[0] > after]
            held = self._load(number := number + 1) if self._is_full(held) else None
        return found[:limit], gone

    def oldest_first(self) -> Iterator[Record]:
        """All records that are there."""
        oldest, newest = self._numbers()
        for number in range(oldest, newest + 1):
            held = self._load(number)
            yield from held.records if held else ()

    def newest_first(self) -> Iterator[tuple[Record, ...]]:
        """All records, as tuples of an object's records in their order, those of the newest object first."""
        oldest, newest = self._numbers()
        for number in range(newest, oldest - 1, -1):
            held = self._load(number)
            if held:
                yield held.records

    def append(self, records: Sequence[Record], check: Callable[[], None] = always) -> None:
        """Keep records durably; for the one writer. What it raises may leave some of them kept.

        Raises :class:`ChangedError` or :class:`AlreadyStoredError` where another writer has written meanwhile: what is
        there must be looked at anew. ``check`` is called before each write.
        """
        at = 0
        while at < len(records):
            tail = self._tail()
            room = (tail.number + 1) * self._per_object - tail.last
            taken = records[at : at + room]
            self._held = self._write(tail, (*tail.records, *taken), check)
            at += len(taken)
            self._remove_older(self._held.last - self._keep)

    def _write(self, tail: _Object[Record], records: tuple[Record, ...], check: Callable[[], None]) -> _Object[Record]:
        last = tail.first + len(records) - 1
        records = records[-self._keep :]
        first, key = last - len(records) + 1, self._key(tail.number)
        lines = msgspec.json.encode(_Head(first)) + b"\n" + msgspec.json.Encoder().encode_lines(records)
        content = gzip.compress(lines, _LEVEL, mtime=0)
        try:
            if tail.version:
                version = self._storage.swap(key, content, tail.version, check)
            else:
                version = self._storage.put_new(key, content, check)
        except (AlreadyStoredError, ChangedError):
            self._held = None
            raise
        return _Object(tail.number, version, first, records)

    def _tail(self) -> _Object[Record]:
        """What is written next: the newest object, or one behind it. The writer knows it since it last wrote."""
        held = self._held
        if held is None:
            held = self._load(self._numbers()[1])
        if held is None:
            return _Object(0, "", 1, ())
        if self._is_full(held):
            return _Object(held.number + 1, "", held.last + 1, ())
        return held

    def _remove_older(self, place: int) -> None:
        """Remove the objects that hold nothing behind a place."""
        while (self._oldest + 1) * self._per_object <= place:
            self._storage.delete(self._key(self._oldest))
            self._oldest += 1

    def _numbers(self) -> tuple[int, int]:
        """The numbers of the oldest and the newest object; -1 is the newest where there is none."""
        names = self._storage.list_folder(self._folder).names
        numbers = [int(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX)]
        newest = max(numbers, default=-1)
        while self._storage.entry(self._key(newest + 1)) is not None:  # the list may lag behind
            newest += 1
        self._oldest = min(numbers, default=0)
        return self._oldest, newest

    def _load(self, number: int) -> _Object[Record] | None:
        held, key = self._held, self._key(number)
        if held is not None and held.number == number:
            if self._is_full(held):
                return held
            entry = self._storage.entry(key)
            if entry is not None and entry.version == held.version:
                return held
        if number < 0:
            return None
        try:
            stored = self._storage.read(key)
            head, _, lines = gzip.decompress(stored.content).partition(b"\n")
            records = tuple(self._decoder.decode_lines(lines))
            found = _Object(number, stored.version, msgspec.json.decode(head, type=_Head).first, records)
        except NotStoredError:
            return None
        except (gzip.BadGzipFile, EOFError, zlib.error, msgspec.MsgspecError) as error:
            raise StorageError(f"{self._storage.address(key)} is damaged: {error}") from error
        self._held = found
        return found

    def _is_full(self, held: _Object[Record]) -> bool:
        return held.last >= (held.number + 1) * self._per_object

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:012d}{_SUFFIX}"
