"""Step 4 of the way of a reading: the file of a snapshot, part by part, from state to bytes and back.

``p{partition}-{offset}.snapshot`` is ``MAGIC``, the header's length (4 bytes), its CRC-32C (4 bytes), a MessagePack
header that names each part with its version, length and CRC-32C, and the parts: MessagePack, in which an array stands
as it is, or, where it is large, as its :class:`~services.ingest.snapshots.pieces.Layout` in the segments
``p{partition}-{epoch}-{number}.pieces``. Nothing is ever unpickled. What one damaged part holds is lost, not the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from crc32c import crc32c

from services.errors import SnapshotError
from services.ingest.snapshots.format_10 import read_format_10
from services.ingest.snapshots.parts import PARTS, PartError, parts_of_format_10, upgraded
from services.ingest.snapshots.pieces import PIECE, Layout, PieceError, Segment, SegmentReader, SegmentWriter
from services.store.storage import Storage

__all__ = [
    "FORMAT",
    "MAGIC",
    "LoadedSnapshot",
    "PartBody",
    "Snapshot",
    "SnapshotHeader",
    "encode_part",
    "head_of",
    "header_bytes",
    "layouts_of",
    "read_header",
    "read_snapshot",
    "snapshot_content",
]

MAGIC = b"HHSNP2\r\n"
FORMAT = 11
HEADER_BYTES = 65_536
"""Bytes of a snapshot that are read to see its header, which is smaller as a rule."""
_ARRAY, _LARGE = 1, 2  # codes of the MessagePack extensions that hold an array


class _Part(msgspec.Struct):
    name: str
    version: int
    length: int
    crc32c: int


class SnapshotHeader(msgspec.Struct):
    """What a snapshot says first: the writer's epoch, and where its parts and segments are."""

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


class PartBody(NamedTuple):
    """A part as it stands in the file, and where its large arrays lie, in their order."""

    content: bytes
    layouts: tuple[Layout, ...] = ()

    def lies_in(self, segments: Collection[int]) -> bool:
        """Whether a piece of one of its arrays is in one of these segments."""
        return any(np.isin(layout.segment, list(segments)).any() for layout in self.layouts) if segments else False


class LoadedSnapshot(NamedTuple):
    """A snapshot, and what the next one can take over from it."""

    snapshot: Snapshot
    bodies: dict[str, PartBody]
    segments: dict[int, Segment]

    @property
    def is_whole(self) -> bool:
        """Whether every part could be read."""
        return not self.snapshot.unreadable


def layouts_of(bodies: Mapping[str, PartBody]) -> list[Layout]:
    """Where the large arrays of all parts lie."""
    return [layout for body in bodies.values() for layout in body.layouts]


def snapshot_content(
    epoch: int, offset: int, segments: Sequence[Segment], bodies: Mapping[str, PartBody]
) -> list[bytes]:
    """The file of a snapshot, in pieces that are to be written one after another."""
    parts = [_Part(name, PARTS[name].version, len(b.content), crc32c(b.content)) for name, b in bodies.items()]
    named = [(segment.number, segment.name, segment.pieces) for segment in segments]
    header = msgspec.msgpack.encode(SnapshotHeader(FORMAT, epoch, offset, named, parts))
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


def read_header(path: str, whole: memoryview) -> tuple[SnapshotHeader, int]:
    """The header of a snapshot that is called ``path``, and where it ends; raises :class:`SnapshotError`."""
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
        return msgspec.msgpack.decode(content, type=SnapshotHeader), len(head) + size
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError) as error:
        raise SnapshotError(f"{path} has a header of another kind: {error}") from error


def read_snapshot(
    path: str, whole: memoryview, segments_of: Callable[[Iterable[Segment]], SegmentReader]
) -> LoadedSnapshot:  # fmt: skip
    """What a snapshot that is called ``path`` holds, of this format or of format 10.

    Raises :class:`SnapshotError` where its header cannot be read; a part that cannot be is named in ``unreadable``.
    """
    old = read_format_10(path, whole)
    if old is not None:
        offset, state = old
        kept, lost = _upgraded({name: (1, part) for name, part in parts_of_format_10(state).items()})
        return LoadedSnapshot(Snapshot(offset, {**_new_parts({*kept, *lost}), **kept}, lost), {}, {})
    header, at = read_header(path, whole)
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
            state, bodies[part.name] = _decode_part(encoded, reader)
            found[part.name] = (part.version, state)
        except (PartError, PieceError, msgspec.DecodeError, ValueError, TypeError) as error:
            unreadable[part.name] = str(error)
    parts, lost = _upgraded(found)
    unreadable |= lost
    parts |= _new_parts({part.name for part in header.parts})
    unreadable |= {name: "it is missing" for name in PARTS if name not in parts and name not in unreadable}
    return LoadedSnapshot(Snapshot(header.offset, parts, unreadable), bodies, segments)


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


def encode_part(state: Any, writer: SegmentWriter | None = None, before: Sequence[Layout] = ()) -> PartBody:
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

    return PartBody(msgspec.msgpack.encode(state, enc_hook=set_aside), tuple(layouts))


def _decode_part(content: bytes, reader: SegmentReader) -> tuple[Any, PartBody]:
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

    return msgspec.msgpack.decode(content, ext_hook=fetch), PartBody(content, tuple(layouts))
