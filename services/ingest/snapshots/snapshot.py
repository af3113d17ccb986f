"""Step 4 of the way of a reading: a partition's state and log offset, written whole or not at all, part by part.

``p{partition}-{offset}.snapshot`` is ``MAGIC``, the header's length (4 bytes), its CRC-32C (4 bytes), a MessagePack
header that names each part with its version, length and CRC-32C, and the parts: MessagePack, in which an array stands
as it is, or, where it is large, as its :class:`~services.ingest.snapshots.pieces.Layout` in the segments
``p{partition}-{epoch}-{number}.pieces``. Nothing is ever unpickled. What one damaged part holds is lost, not the rest.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from crc32c import crc32c

from services.errors import HothouseError, SnapshotError
from services.ingest.snapshots.format_10 import read_format_10
from services.ingest.snapshots.parts import ESSENTIAL, PARTS, PartError, parts_of_format_10, upgraded
from services.ingest.snapshots.pieces import (
    PIECE,
    Layout,
    PieceError,
    Segment,
    SegmentReader,
    SegmentWriter,
    pieces_used,
    to_rewrite,
)
from services.store.files import TMP_SUFFIX, write_atomically

__all__ = ["FencedError", "Saved", "Snapshot", "Snapshots"]

MAGIC = b"HHSNP2\r\n"
FORMAT = 11
KEEP = 2
_ARRAY, _LARGE = 1, 2  # codes of the MessagePack extensions that hold an array

_log = logging.getLogger(__name__)


class FencedError(HothouseError):
    """Another writer has taken over this partition; the caller must stop."""


class _Part(msgspec.Struct):
    name: str
    version: int
    length: int
    crc32c: int


class _Header(msgspec.Struct):
    format: int
    epoch: int
    offset: int
    segments: list[tuple[int, str, int]]  # number, name, pieces
    parts: list[_Part]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot holds: each part, in this version's form, and why others cannot be read."""

    offset: int
    parts: Mapping[str, Any]
    unreadable: Mapping[str, str]
    damage: tuple[str, ...] = ()  # what was wrong with it and with newer ones


@dataclass(frozen=True, slots=True)
class Saved:
    """What a snapshot cost."""

    written_bytes: int
    looked_at_bytes: int


class _Body(NamedTuple):
    """A part as it stands in the file, and where its large arrays lie, in their order."""

    content: bytes
    layouts: tuple[Layout, ...] = ()

    def lies_in(self, segments: Collection[int]) -> bool:
        return any(np.isin(layout.segment, list(segments)).any() for layout in self.layouts) if segments else False


class _Loaded(NamedTuple):
    snapshot: Snapshot
    bodies: dict[str, _Body]
    segments: dict[int, Segment]

    @property
    def is_whole(self) -> bool:
        return not self.snapshot.unreadable


class Snapshots:
    """Snapshots of one partition in ``folder``; the newest two are kept.

    Constructing it claims the partition: the writer epoch rises, and an older writer's next :meth:`check` or
    :meth:`save` raises.
    """

    def __init__(self, folder: Path, partition: int) -> None:
        self._folder, self.partition = folder, partition
        self._epoch_file = folder / f"p{partition}.epoch"
        self.epoch = self._stored_epoch() + 1
        write_atomically(self._epoch_file, lambda tmp: _fill(tmp, [str(self.epoch).encode()]))
        self._bodies: dict[str, _Body] = {}  # as they were saved last
        self._segments: dict[int, Segment] = {}  # that these lie in
        for left in folder.glob(f".p{partition}-*{TMP_SUFFIX}"):  # of a writer that was killed
            left.unlink(missing_ok=True)
        self._useless: set[Path] = set()  # snapshots that were passed over; they go with the next that is saved
        self._number = max((number for _, number in map(_epoch_and_number, self._segment_files())), default=0)

    def check(self) -> None:
        """Raises :class:`FencedError` when a newer writer has claimed the partition."""
        newest = self._stored_epoch()
        if newest != self.epoch:
            raise FencedError(f"partition {self.partition} was taken over by another writer (epoch {newest})")

    def save(self, offset: int, parts: Mapping[str, Any]) -> Saved:
        """Make ``parts`` durable as what holds before the record at ``offset``; see :meth:`begin`."""
        return self.begin(offset, parts, not_copied=parts)()

    def begin(
        self, offset: int, parts: Mapping[str, Any], *, not_copied: Collection[str], unchanged: Collection[str] = ()
    ) -> Callable[[], Saved]:  # fmt: skip
        """Take in ``parts`` (see ``services.ingest.snapshots.parts``): maps, lists and arrays. What it returns
        makes them durable as what holds before the record at ``offset``, in whatever thread.

        Until that is done the arrays of the parts that are ``not_copied`` must not change, and nothing else may be
        saved; the others are copied at once. Parts that are ``unchanged`` are as they were saved the last time. What
        is returned raises :class:`FencedError` when a newer writer has claimed the partition, and what the disk
        raises; then nothing is saved.
        """
        self.check()
        copied = {name: _encoded(state) for name, state in parts.items() if name not in not_copied}
        return lambda: self._write(offset, parts, copied, frozenset(unchanged))

    def _write(
        self, offset: int, parts: Mapping[str, Any], copied: Mapping[str, _Body], unchanged: frozenset[str]
    ) -> Saved:  # fmt: skip
        self.check()
        self._number += 1
        rewrite = to_rewrite(self._segments.values(), _layouts(self._bodies))
        writer, bodies = SegmentWriter(self._number, rewrite), {}
        for name, state in parts.items():
            before = self._bodies.get(name, _Body(b""))
            if name in copied:
                bodies[name] = copied[name]
            elif name in unchanged and name in self._bodies and not before.lies_in(rewrite):
                bodies[name] = before
            else:
                bodies[name] = _encoded(state, writer, before.layouts)
        segment = Segment(self._number, f"p{self.partition}-{self.epoch}-{self._number}.pieces", writer.pieces)
        written = writer.write(self._folder / segment.name, self.check)
        segments = self._segments | {segment.number: segment}
        used = pieces_used(_layouts(bodies), max(segments))
        segments = {number: one for number, one in segments.items() if used[number]}
        content = _content(self.epoch, offset, list(segments.values()), bodies)
        path = self._path(offset)
        try:
            write_atomically(path, lambda tmp: _fill(tmp, content), self.check)
        except BaseException:
            if not _names(path, segment):  # it may fail after the rename, too
                (self._folder / segment.name).unlink(missing_ok=True)  # on a full disk each new try would add one
            raise
        self._bodies, self._segments = bodies, segments
        self._remove_old(path)
        return Saved(written + sum(map(len, content)), writer.looked_at)

    def load(self, begin: int = 0) -> Snapshot | None:
        """The snapshot to go on from, for a log that begins at ``begin``; ``None`` when there is none at all.

        That is the newest that can be read whole, else the newest whose essential parts can be read. Raises
        :class:`SnapshotError` when there are snapshots and none can be used.
        """
        found: list[_Loaded] = []
        reasons = []
        for path in reversed(self._files()):
            self._useless.add(path)
            try:
                found.append(_read(path))
            except SnapshotError as error:
                reasons.append(str(error))
                continue
            reasons += [
                f"{name} in {path} cannot be read: {why}" for name, why in found[-1].snapshot.unreadable.items()
            ]
            if found[-1].is_whole:
                break
        for reason in reasons:
            _log.error("%s", reason)
        usable = [one for one in found if not ESSENTIAL & set(one.snapshot.unreadable)]
        if usable:
            best = max(usable, key=lambda one: (one.snapshot.offset >= begin, one.is_whole, one.snapshot.offset))
            self._bodies, self._segments = best.bodies, best.segments
            self._useless.discard(self._path(best.snapshot.offset))
            return replace(best.snapshot, damage=tuple(reasons))
        if reasons:
            raise SnapshotError(
                f"no snapshot of partition {self.partition} in {self._folder} can be read",
                "Remove them to go on with what the log still holds.",
            )
        return None

    @property
    def oldest_offset(self) -> int:
        """The offset of the oldest snapshot that is kept, from which the log may still be read; 0 without any."""
        files = self._files()
        return int(files[0].stem.split("-")[1]) if files else 0

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(f"p{self.partition}-*.snapshot"))

    def _segment_files(self) -> list[Path]:
        return sorted(self._folder.glob(f"p{self.partition}-*.pieces"))

    def _path(self, offset: int) -> Path:
        return self._folder / f"p{self.partition}-{offset:020d}.snapshot"

    def _remove_old(self, newest: Path) -> None:
        """Keep ``newest`` and the usable one before it. Those of later offsets are of before a replay."""
        files = self._files()
        before = [path for path in files if path < newest and path not in self._useless]
        for path in set(files) - {newest, *before[1 - KEEP :]}:
            path.unlink()
        self._useless = set()
        needed = {segment.name for segment in self._segments.values()}
        for path in self._files():
            try:
                needed |= {name for _, name, _ in _header(path)[0].segments}
            except SnapshotError:
                continue  # of an earlier format, or damaged: it cannot be gone back to
        for path in self._segment_files():
            # A writer that has just been taken over from must not remove what the newer one writes.
            if path.name not in needed and _epoch_and_number(path)[0] <= self.epoch:
                path.unlink(missing_ok=True)

    def _stored_epoch(self) -> int:
        try:
            return int(self._epoch_file.read_text())
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise SnapshotError(
                f"{self._epoch_file} does not hold a number", "Write a number that is larger than every earlier one."
            ) from error


def _names(path: Path, segment: Segment) -> bool:
    """Whether there is a snapshot at ``path`` that needs ``segment``."""
    try:
        return segment.name in {name for _, name, _ in _header(path)[0].segments}
    except (OSError, SnapshotError):
        return False


def _layouts(bodies: Mapping[str, _Body]) -> list[Layout]:
    return [layout for body in bodies.values() for layout in body.layouts]


def _content(epoch: int, offset: int, segments: Sequence[Segment], bodies: Mapping[str, _Body]) -> list[bytes]:
    parts = [_Part(name, PARTS[name].version, len(b.content), crc32c(b.content)) for name, b in bodies.items()]
    named = [(segment.number, segment.name, segment.pieces) for segment in segments]
    header = msgspec.msgpack.encode(_Header(FORMAT, epoch, offset, named, parts))
    return [MAGIC + struct.pack("<II", len(header), crc32c(header)) + header, *(b.content for b in bodies.values())]


def _header(path: Path) -> tuple[_Header, int]:
    """The header of a file, and where it ends."""
    with path.open("rb") as file:
        head = file.read(len(MAGIC) + 8)
        if len(head) < len(MAGIC) + 8 or not head.startswith(MAGIC):
            raise SnapshotError(f"{path} is not a snapshot")
        size, checksum = struct.unpack_from("<II", head, len(MAGIC))
        content = file.read(size)
    if len(content) != size or crc32c(content) != checksum:
        raise SnapshotError(f"{path} has a damaged header")
    try:
        named = msgspec.msgpack.decode(content).get("format")
        if named != FORMAT:
            raise SnapshotError(f"{path} has format {named}, this version reads {FORMAT}")
        return msgspec.msgpack.decode(content, type=_Header), len(head) + size
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError) as error:
        raise SnapshotError(f"{path} has a header of another kind: {error}") from error


def _read(path: Path) -> _Loaded:
    old = read_format_10(path)
    if old is not None:
        offset, state = old
        kept, lost = _upgraded({name: (1, part) for name, part in parts_of_format_10(state).items()})
        return _Loaded(Snapshot(offset, {**_new_parts({*kept, *lost}), **kept}, lost), {}, {})
    header, at = _header(path)
    content = path.read_bytes()
    segments = {number: Segment(number, name, pieces) for number, name, pieces in header.segments}
    reader = SegmentReader(path.parent, segments.values())
    found: dict[str, tuple[int, Any]] = {}
    bodies, unreadable = {}, {}
    for part in header.parts:
        encoded, at = content[at : at + part.length], at + part.length
        try:
            if len(encoded) != part.length or crc32c(encoded) != part.crc32c:
                raise PartError("its checksum does not fit")
            state, bodies[part.name] = _decoded(encoded, reader)
            found[part.name] = (part.version, state)
        except (PartError, PieceError, msgspec.DecodeError, ValueError, TypeError) as error:
            unreadable[part.name] = str(error)
    parts, lost = _upgraded(found)
    unreadable |= lost
    parts |= _new_parts({part.name for part in header.parts})
    unreadable |= {name: "it is missing" for name in PARTS if name not in parts and name not in unreadable}
    return _Loaded(Snapshot(header.offset, parts, unreadable), bodies, segments)


def _new_parts(named: Collection[str]) -> dict[str, Any]:
    """Those parts that the release which wrote a snapshot did not know, as it names others only."""
    return {name: form.missing() for name, form in PARTS.items() if form.missing is not None and name not in named}


def _upgraded(found: Mapping[str, tuple[int, Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """Parts in this release's form, from (version, part); and why others cannot be used."""
    parts, unreadable = {}, {}
    for name, (version, state) in found.items():
        try:
            parts[name] = upgraded(name, version, state)
        except (PartError, KeyError, ValueError, TypeError) as error:
            unreadable[name] = str(error)
    return parts, unreadable


def _encoded(state: Any, writer: SegmentWriter | None = None, before: Sequence[Layout] = ()) -> _Body:
    """A part as bytes; with a ``writer`` large arrays go into its segment, but for pieces that are as ``before``."""
    layouts: list[Layout] = []

    def set_aside(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            raise NotImplementedError(f"a snapshot cannot hold {type(value).__name__}")
        kind = (value.dtype.str, list(value.shape))
        if writer is None or value.nbytes < PIECE:
            return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode((*kind, value.tobytes())))
        layout = writer.add(value, before[len(layouts)] if len(layouts) < len(before) else None)
        layouts.append(layout)
        columns = (layout.hashes.tobytes(), layout.segment.tobytes(), layout.place.tobytes())
        return msgspec.msgpack.Ext(_LARGE, msgspec.msgpack.encode((*kind, *columns)))

    return _Body(msgspec.msgpack.encode(state, enc_hook=set_aside), tuple(layouts))


def _decoded(content: bytes, reader: SegmentReader) -> tuple[Any, _Body]:
    layouts: list[Layout] = []

    def fetch(code: int, data: memoryview) -> Any:
        name, shape, *columns = msgspec.msgpack.decode(data)
        if code == _ARRAY:
            return np.frombuffer(columns[0], np.dtype(name)).reshape(shape).copy()
        if code != _LARGE:
            raise PartError(f"it holds an unknown extension {code}")
        kinds = (np.uint64, np.uint32, np.uint32)
        layout = Layout(*(np.frombuffer(column, kind) for column, kind in zip(columns, kinds, strict=True)))
        layouts.append(layout)
        return reader.array(layout, np.dtype(name), tuple(shape))

    return msgspec.msgpack.decode(content, ext_hook=fetch), _Body(content, tuple(layouts))


def _epoch_and_number(path: Path) -> tuple[int, int]:
    """Of a segment's file name.

    >>> _epoch_and_number(Path("p0-3-17.pieces"))
    (3, 17)
    """
    _, epoch, number = path.stem.split("-")
    return int(epoch), int(number)


def _fill(path: Path, parts: Sequence[bytes]) -> None:
    with path.open("wb") as file:
        file.writelines(parts)
