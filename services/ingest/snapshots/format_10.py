"""Step 4 of the way of a reading: snapshots of format 10, which was in use before release 0.1.0, are read.

A file is ``MAGIC``, the header's length (4 bytes), a MessagePack header, a MessagePack body, and the NumPy arrays one
after another, in the order of the body's extension values that stand for them; nothing is ever unpickled.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import msgspec
import numpy as np
from crc32c import crc32c

from services.errors import SnapshotError

__all__ = ["read_format_10"]

MAGIC = b"HHSNAP\r\n"
FORMAT = 10
_ARRAY = 1  # code of the MessagePack extension that holds an array


class _Header(msgspec.Struct):
    format: int
    epoch: int
    offset: int
    length: int  # of body and arrays
    body: int
    crc32c: int  # of body and arrays


def read_format_10(path: str, content: memoryview) -> tuple[int, dict[str, Any]] | None:
    """The offset and the state in a snapshot that is called ``path``; ``None`` for one of a later format.

    Raises :class:`SnapshotError` for one that is damaged or of an earlier format.
    """
    head = bytes(content[: len(MAGIC) + 4])
    if len(head) < len(MAGIC) + 4 or not head.startswith(MAGIC):
        return None
    (size,) = struct.unpack_from("<I", head, len(MAGIC))
    start = len(head)
    try:
        header = msgspec.msgpack.decode(content[start : start + size], type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        found = _format(content[start : start + size])
        if found not in (None, FORMAT):
            raise SnapshotError(f"{path} has format {found}, this version reads {FORMAT}") from error
        raise SnapshotError(f"{path} has a torn header: {error}") from error
    rest = content[start + size :]
    if header.format != FORMAT:
        raise SnapshotError(f"{path} has format {header.format}, this version reads {FORMAT}")
    if len(rest) != header.length or crc32c(rest) != header.crc32c:
        raise SnapshotError(f"{path} is torn or corrupt: its checksum does not fit")
    arrays = _Arrays(rest[header.body :])
    state = msgspec.msgpack.decode(rest[: header.body], ext_hook=arrays.fetch)
    return header.offset, state


def _format(header: memoryview) -> int | None:
    """The format that a header of any version names."""
    try:
        found = msgspec.msgpack.decode(header).get("format")
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError):
        return None
    return found if isinstance(found, int) else None


class _Arrays:
    """Gives the arrays in the order in which they were set aside."""

    def __init__(self, content: memoryview) -> None:
        self._content, self._at = content, 0

    def fetch(self, code: int, data: memoryview) -> Any:
        if code != _ARRAY:
            raise SnapshotError(f"a snapshot holds an unknown extension {code}")
        name, shape = msgspec.msgpack.decode(data)
        dtype, count = np.dtype(name), math.prod(shape)
        part = self._content[self._at : self._at + count * dtype.itemsize]
        self._at += len(part)
        return np.frombuffer(part, dtype).reshape(shape).copy()
