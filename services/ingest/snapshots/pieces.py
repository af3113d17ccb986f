"""Step 4 of the way of a reading: large arrays on disk in pieces; only pieces that changed are written.

Most of what a shard has learned stands still: a row changes a few hundred bytes of a zone's profile of the day. So an
array is cut into pieces of ``PIECE`` bytes. Each is known by its hash (XXH3, 64 bits: two versions of a piece have the
same one once in 10^19), and a *segment* is a file with the pieces that were new when it was written, never changed
after that. Where the pieces of an array lie is its :class:`Layout`, which the snapshot keeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from services.errors import StorageAwayError, StorageRefusedError
from services.store.storage import Storage

__all__ = ["PIECE", "Layout", "PieceError", "Segment", "SegmentReader", "SegmentWriter", "pieces_used", "to_rewrite"]

PIECE = 4096
SLACK = 16_384
"""Up to this many dead pieces (64 MB) always stay where they are."""
MOST_SEGMENTS = 48
_AT_ONCE = 4096
"""This many pieces (16 MB) are copied at a time."""

_Bytes = npt.NDArray[np.uint8]


class PieceError(Exception):
    """A piece is not there, or not what was written."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A file with this many pieces; ``number`` rises with each segment that a partition writes."""

    number: int
    name: str
    pieces: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the ``n`` pieces of an array lie: piece ``place`` of a segment."""

    hashes: npt.NDArray[np.uint64]  # [n]
    segment: npt.NDArray[np.uint32]  # [n], the numbers of segments
    place: npt.NDArray[np.uint32]  # [n]


@dataclass(slots=True)
class SegmentWriter:
    """Writes the new pieces of any number of arrays into one segment; ``rewrite`` are the segments to give up."""

    number: int
    rewrite: frozenset[int] = frozenset()
    pieces: int = 0
    looked_at: int = 0  # bytes
    _new: list[tuple[_Bytes, npt.NDArray[np.int64]]] = field(default_factory=list)

    def add(self, array: npt.NDArray[Any], before: Layout | None) -> Layout:
        """The layout of ``array``. Pieces that are equal at the same place ``before`` stay where they are.

        The array must not change until :meth:`write` has returned.
        """
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        hashes = _hashes(content)
        self.looked_at += len(content)
        segment, place = np.zeros(len(hashes), np.uint32), np.zeros(len(hashes), np.uint32)
        is_new = np.ones(len(hashes), bool)
        if before is not None:
            both = min(len(hashes), len(before.hashes))
            is_new[:both] = hashes[:both] != before.hashes[:both]
            for number in self.rewrite:
                is_new[:both] |= before.segment[:both] == number
            kept = np.flatnonzero(~is_new)
            segment[kept], place[kept] = before.segment[kept], before.place[kept]
        new = np.flatnonzero(is_new)
        segment[new], place[new] = self.number, np.arange(self.pieces, self.pieces + len(new))
        self.pieces += len(new)
        if len(new):
            self._new.append((content, new))
        return Layout(hashes, segment, place)

    def write(self, storage: Storage, key: str, check: Callable[[], None]) -> int:
        """Make the segment durable, unless nothing was new; its bytes. ``check`` as in :class:`Storage`."""
        if self.pieces:
            storage.put_new(key, self._fill, check)
        self._new = []
        return self.pieces * PIECE

    def _fill(self, path: Path) -> None:
        with path.open("wb", buffering=0) as file:
            for content, new in self._new:
                whole = content[: len(content) // PIECE * PIECE].reshape(-1, PIECE)
                has_rest = len(new) > 0 and new[-1] == len(whole)
                of_whole = new[:-1] if has_rest else new
                if len(of_whole) == len(whole):
                    _write(file, whole.reshape(-1).data)
                else:
                    for start in range(0, len(of_whole), _AT_ONCE):
                        _write(file, whole[of_whole[start : start + _AT_ONCE]].reshape(-1).data)
                if has_rest:
                    _write(file, content[len(whole) * PIECE :].tobytes().ljust(PIECE, b"\0"))


class SegmentReader:
    """Puts arrays together from the segments in a folder of the storage."""

    def __init__(self, storage: Storage, folder: str, segments: Iterable[Segment]) -> None:
        self._storage, self._folder = storage, folder
        self._segments = {segment.number: segment for segment in segments}
        self._opened: dict[int, _Bytes] = {}

    def array(self, layout: Layout, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """The array as it was written; raises :class:`PieceError` if a piece of it was lost or damaged."""
        size = math.prod(shape) * dtype.itemsize
        count = -(-size // PIECE)
        if not len(layout.hashes) == len(layout.segment) == len(layout.place) == count:
            raise PieceError(f"{len(layout.hashes)} pieces are no array of {size} bytes")
        content = np.empty((count, PIECE), np.uint8)
        for number in np.unique(layout.segment).tolist():
            of_segment = np.flatnonzero(layout.segment == number)
            pieces, place = self._open(number), layout.place[of_segment]
            if len(place) and place.max() >= len(pieces):
                raise PieceError(f"{self._segments[number].name} is too short")
            content[of_segment] = pieces[place]
        whole = content.reshape(-1)[:size]
        wrong = np.flatnonzero(_hashes(whole) != layout.hashes)
        if len(wrong):
            raise PieceError(f"{self._segments[int(layout.segment[wrong[0]])].name} is damaged")
        return whole.view(dtype).reshape(shape)

    def _open(self, number: int) -> _Bytes:
        if number not in self._opened:
            segment = self._segments.get(number)
            if segment is None:
                raise PieceError(f"segment {number} is not known")
            try:
                content = self._storage.mapped(f"{self._folder}/{segment.name}" if self._folder else segment.name)
            except (StorageAwayError, StorageRefusedError):
                raise  # it is not damaged: whoever asked asks again
            except (OSError, ValueError) as error:
                raise PieceError(f"{segment.name} cannot be read: {error}") from error
            self._opened[number] = np.frombuffer(content, np.uint8, len(content) // PIECE * PIECE).reshape(-1, PIECE)
        return self._opened[number]


def pieces_used(layouts: Iterable[Layout], last: int) -> npt.NDArray[np.int64]:
    """How many pieces of each segment from 0 to ``last`` the arrays with these layouts use.

    >>> place = np.zeros(3, np.uint32)
    >>> pieces_used([Layout(place.astype(np.uint64), np.array([1, 3, 3], np.uint32), place)], last=4).tolist()
    [0, 1, 0, 2, 0]
    """
    used = np.zeros(last + 1, np.int64)
    for layout in layouts:
        used += np.bincount(layout.segment, minlength=last + 1)
    return used


def to_rewrite(segments: Iterable[Segment], layouts: Iterable[Layout]) -> frozenset[int]:
    """The segments to write again: so many of their pieces are dead that files take twice the space of live pieces, or
    there are too many segments. Live pieces are written about once more that way.
    """
    segments = sorted(segments, key=lambda one: one.number)
    alive = pieces_used(layouts, max((one.number for one in segments), default=0))
    total, wanted = sum(one.pieces for one in segments), 2 * int(alive.sum()) + SLACK
    chosen: set[int] = set()
    for one in sorted(segments, key=lambda one: alive[one.number] / max(one.pieces, 1)):
        if total <= wanted and len(segments) - len(chosen) <= MOST_SEGMENTS:
            break
        chosen.add(one.number)
        total -= one.pieces - int(alive[one.number])
    return frozenset(chosen)


def _hashes(content: _Bytes) -> npt.NDArray[np.uint64]:
    view = content.data
    starts = range(0, len(content), PIECE)
    return np.fromiter((xxh3_64_intdigest(view[at : at + PIECE]) for at in starts), np.uint64, len(starts))


def _write(file: Any, content: Any) -> None:
    """All of it: a raw file may take less at a time."""
    view = memoryview(content)
    while len(view):
        view = view[file.write(view) :]
