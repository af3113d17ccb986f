"""Step 4 of the way of a reading: a partition's state and log offset, written whole or not at all, part by part.

``p{partition}-{offset}.snapshot`` is ``MAGIC``, the header's length (4 bytes), its CRC-32C (4 bytes), a MessagePack
header that names each part with its version, length and CRC-32C, and the parts: MessagePack, in which an array stands
as it is, or, where it is large, as its :class:`~services.ingest.snapshots.pieces.Layout` in the segments
``p{partition}-{epoch}-{number}.pieces``. Nothing is ever unpickled. What one damaged part holds is lost, not the rest.
"""

from __future__ import annotations

import logging
import secrets
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from crc32c import crc32c

from services.errors import AlreadyStoredError, ChangedError, HothouseError, NotStoredError, SnapshotError, StorageError
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
from services.store.storage import Storage, stored_in

__all__ = ["FORMAT", "MAGIC", "FencedError", "Saved", "Snapshot", "Snapshots", "head_of", "header_bytes"]

MAGIC = b"HHSNP2\r\n"
FORMAT = 11
KEEP = 2
HEADER_BYTES = 65_536
"""So much is read of a snapshot to see its header, which is smaller as a rule."""
CLAIM_TRIES = 16
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
    """Snapshots of one partition in a ``folder`` of the storage; the newest two are kept.

    Constructing it claims the partition: the writer epoch rises, and an older writer's next :meth:`check` or
    :meth:`save` raises. Of two that claim it at once the one that was second has it.
    """

    def __init__(self, storage: Storage | Path, partition: int, folder: str = "") -> None:
        self._storage, self.partition, self._folder = stored_in(storage), partition, folder
        self._epoch_key = self._key(f"p{partition}.epoch")
        self.epoch, self._claim = self._claimed()
        self._bodies: dict[str, _Body] = {}  # as they were saved last
        self._segments: dict[int, Segment] = {}  # that these lie in
        self._storage.tidy(folder, f"p{partition}-")  # of a writer that was killed
        self._useless: set[str] = set()  # snapshots that were passed over; they go with the next that is saved
        self._number = max((number for _, number in map(_epoch_and_number, self._segments_there())), default=0)

    def check(self) -> None:
        """Raises :class:`FencedError` when a newer writer has claimed the partition, ``OSError`` where nobody can say:
        a disk that is not mounted has no claim at all.
        """
        try:
            content = self._storage.read(self._epoch_key).content
        except NotStoredError as error:
            where = self._storage.address(self._epoch_key)
            raise StorageError(f"{where} is gone, so that nothing is written", "Bring the storage back.") from error
        if content != self._claim:
            newest = self._epoch_in(content)
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
        written = writer.write(self._storage, self._key(segment.name), self.check)
        segments = self._segments | {segment.number: segment}
        used = pieces_used(_layouts(bodies), max(segments))
        segments = {number: one for number, one in segments.items() if used[number]}
        content = _content(self.epoch, offset, list(segments.values()), bodies)
        name = self._name(offset)
        try:
            self._storage.put(self._key(name), lambda beside: _fill(beside, content), self.check)
        except BaseException:
            if not self._needs(name, segment):  # it may fail once it is in place, too
                with suppress(OSError):  # what it failed with says more
                    self._storage.delete(self._key(segment.name))  # on a full disk each new try would add one
            raise
        self._bodies, self._segments = bodies, segments
        self._remove_old(name)
        return Saved(written + sum(map(len, content)), writer.looked_at)

    def load(self, begin: int = 0) -> Snapshot | None:
        """The snapshot to go on from, for a log that begins at ``begin``; ``None`` when there is none at all.

        That is the newest that can be read whole, else the newest whose essential parts can be read. Raises
        :class:`SnapshotError` when there are snapshots and none can be used.
        """
        found: list[_Loaded] = []
        reasons = []
        for name in reversed(self._snapshots_there()):
            self._useless.add(name)
            try:
                found.append(self._read(name))
            except SnapshotError as error:
                reasons.append(str(error))
                continue
            where = self._storage.address(self._key(name))
            reasons += [
                f"{part} in {where} cannot be read: {why}" for part, why in found[-1].snapshot.unreadable.items()
            ]
            if found[-1].is_whole:
                break
        for reason in reasons:
            _log.error("%s", reason)
        usable = [one for one in found if not ESSENTIAL & set(one.snapshot.unreadable)]
        if usable:
            best = max(usable, key=lambda one: (one.snapshot.offset >= begin, one.is_whole, one.snapshot.offset))
            self._bodies, self._segments = best.bodies, best.segments
            self._number = max(self._number, *best.segments, 0)  # the list of the folder may have been an old one
            self._useless.discard(self._name(best.snapshot.offset))
            return replace(best.snapshot, damage=tuple(reasons))
        if reasons:
            raise SnapshotError(
                f"no snapshot of partition {self.partition} in {self._storage.address(self._folder)} can be read",
                "Remove them to go on with what the log still holds.",
            )
        return None

    @property
    def oldest_offset(self) -> int:
        """The offset of the oldest snapshot that is kept, from which the log may still be read; 0 without any."""
        names = self._snapshots_there()
        return int(names[0].removesuffix(".snapshot").split("-")[1]) if names else 0

    def _there(self, suffix: str = "") -> list[str]:
        names = self._storage.list_folder(self._folder).names
        return [name for name in names if name.startswith(f"p{self.partition}-") and name.endswith(suffix)]

    def _snapshots_there(self) -> list[str]:
        return self._there(".snapshot")

    def _segments_there(self) -> list[str]:
        return self._there(".pieces")

    def _name(self, offset: int) -> str:
        return f"p{self.partition}-{offset:020d}.snapshot"

    def _key(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name

    def _remove_old(self, newest: str) -> None:
        """Keep ``newest`` and the usable one before it. Those of later offsets are of before a replay."""
        there = self._there()  # once: a bucket is paid by the list
        names = [name for name in there if name.endswith(".snapshot")]
        before = [name for name in names if name < newest and name not in self._useless]
        kept = {newest, *before[1 - KEEP :]}
        for name in set(names) - kept:
            self._storage.delete(self._key(name))
        self._useless = set()
        needed = {segment.name for segment in self._segments.values()}
        for name in kept - {newest}:
            try:
                needed |= {segment for _, segment, _ in self._header(name)[0].segments}
            except (SnapshotError, NotStoredError):
                continue  # of an earlier format, damaged, or removed by another writer: it cannot be gone back to
        for name in (name for name in there if name.endswith(".pieces")):
            # A writer that has just been taken over from must not remove what the newer one writes.
            if name not in needed and _epoch_and_number(name)[0] <= self.epoch:
                self._storage.delete(self._key(name))

    def _claimed(self) -> tuple[int, bytes]:
        """Take the partition over: the new epoch, and how it is written down, which no other writer writes."""
        for left in range(CLAIM_TRIES, 0, -1):
            try:
                found = self._storage.read(self._epoch_key)
            except NotStoredError:
                found = None
            epoch = 1 if found is None else self._epoch_in(found.content) + 1
            claim = f"{epoch} {secrets.token_hex(8)}".encode()
            try:
                if found is None:
                    self._storage.put_new(self._epoch_key, claim)
                else:
                    self._storage.swap(self._epoch_key, claim, found.version)
            except (AlreadyStoredError, ChangedError):
                if left == 1:
                    raise
                continue  # another writer was faster: what it has claimed is taken over
            return epoch, claim
        raise AssertionError("the last try has returned or raised")

    def _epoch_in(self, content: bytes) -> int:
        """Releases before 0.1.0 wrote the number alone."""
        try:
            return int(content.split()[0])
        except (ValueError, IndexError) as error:
            raise SnapshotError(
                f"{self._storage.address(self._epoch_key)} does not hold a number",
                "Write a number that is larger than every earlier one.",
            ) from error

    def _needs(self, name: str, segment: Segment) -> bool:
        """Whether there is a snapshot of that name that needs ``segment``; also where that cannot be known."""
        try:
            return segment.name in {used for _, used, _ in self._header(name)[0].segments}
        except (NotStoredError, SnapshotError):
            return False
        except OSError:
            return self._storage.local(self._key(name)) is None

    def _header(self, name: str) -> tuple[_Header, int]:
        key = self._key(name)
        return _header(self._storage.address(key), memoryview(head_of(self._storage, key)))

    def _read(self, name: str) -> _Loaded:
        key = self._key(name)
        return _read(
            self._storage.address(key), self._storage.mapped(key),
            lambda segments: SegmentReader(self._storage, self._folder, segments),
        )  # fmt: skip


def _layouts(bodies: Mapping[str, _Body]) -> list[Layout]:
    return [layout for body in bodies.values() for layout in body.layouts]


def _content(epoch: int, offset: int, segments: Sequence[Segment], bodies: Mapping[str, _Body]) -> list[bytes]:
    parts = [_Part(name, PARTS[name].version, len(b.content), crc32c(b.content)) for name, b in bodies.items()]
    named = [(segment.number, segment.name, segment.pieces) for segment in segments]
    header = msgspec.msgpack.encode(_Header(FORMAT, epoch, offset, named, parts))
    return [MAGIC + struct.pack("<II", len(header), crc32c(header)) + header, *(b.content for b in bodies.values())]


def head_of(storage: Storage, key: str) -> bytes:
    """The first bytes of a snapshot, with all of its header. Raises :class:`NotStoredError` where there is none."""
    content = storage.read_range(key, 0, HEADER_BYTES)
    whole = header_bytes(content)
    return storage.read_range(key, 0, whole) if whole > len(content) == HEADER_BYTES else content


def header_bytes(content: bytes) -> int:
    """How many bytes there are up to the end of the header; 0 where it is none."""
    if len(content) < len(MAGIC) + 8 or not content.startswith(MAGIC):
        return 0
    return len(MAGIC) + 8 + int(struct.unpack_from("<I", content, len(MAGIC))[0])


def _header(path: str, whole: memoryview) -> tuple[_Header, int]:
    """The header of a snapshot, and where it ends; ``path`` is what it is called."""
    head = bytes(whole[: len(MAGIC) + 8])
    if len(head) < len(MAGIC) + 8 or not head.startswith(MAGIC):
        raise SnapshotError(f"{path} is not a snapshot")
    size, checksum = struct.unpack_from("<II", head, len(MAGIC))
    content = bytes(whole[len(head) : len(head) + size])
    if len(content) != size or crc32c(content) != checksum:
        raise SnapshotError(f"{path} has a damaged header")
    try:
        named = msgspec.msgpack.decode(content).get("format")
        if named != FORMAT:
            raise SnapshotError(f"{path} has format {named}, this version reads {FORMAT}")
        return msgspec.msgpack.decode(content, type=_Header), len(head) + size
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError) as error:
        raise SnapshotError(f"{path} has a header of another kind: {error}") from error


def _read(path: str, whole: memoryview, segments_of: Callable[[Iterable[Segment]], SegmentReader]) -> _Loaded:
    old = read_format_10(path, whole)
    if old is not None:
        offset, state = old
        kept, lost = _upgraded({name: (1, part) for name, part in parts_of_format_10(state).items()})
        return _Loaded(Snapshot(offset, {**_new_parts({*kept, *lost}), **kept}, lost), {}, {})
    header, at = _header(path, whole)
    content = bytes(whole)
    segments = {number: Segment(number, name, pieces) for number, name, pieces in header.segments}
    reader = segments_of(segments.values())
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


def _epoch_and_number(name: str) -> tuple[int, int]:
    """Of a segment's name.

    >>> _epoch_and_number("p0-3-17.pieces")
    (3, 17)
    """
    _, epoch, number = name.removesuffix(".pieces").split("-")
    return int(epoch), int(number)


def _fill(path: Path, parts: Sequence[bytes]) -> None:
    with path.open("wb") as file:
        file.writelines(parts)
