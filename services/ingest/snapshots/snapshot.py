"""Step 4 of the way of a reading: a partition's state and log offset in one file, written whole or not at all.

A file is ``MAGIC``, the header's length (4 bytes), a MessagePack header, a MessagePack body, and the NumPy arrays one
after another, in the order of the body's extension values that stand for them; nothing is ever unpickled.
"""

from __future__ import annotations

import logging
import math
import mmap
import struct
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from services.errors import HothouseError
from services.store.files import write_atomically

__all__ = ["FencedError", "SnapshotError", "Snapshots"]

MAGIC = b"HHSNAP\r\n"
FORMAT = 10
KEEP = 2
_ARRAY = 1  # code of the MessagePack extension that holds an array

_log = logging.getLogger(__name__)


class SnapshotError(HothouseError):
    """A snapshot is torn, corrupt or of another format."""


class FencedError(HothouseError):
    """Another writer has taken over this partition; the caller must stop."""


class _Header(msgspec.Struct):
    format: int
    epoch: int
    offset: int
    length: int  # of body and arrays
    body: int
    crc32c: int  # of body and arrays; by the processor, where SHA-256 held the shard up for most of a second


class Snapshots:
    """Snapshots of one partition in ``folder``; the newest two are kept.

    Constructing it claims the partition: the writer epoch rises, and an older writer's next :meth:`check` or
    :meth:`save` raises.
    """

    def __init__(self, folder: Path, partition: int) -> None:
        self._folder, self.partition = folder, partition
        self._epoch_file = folder / f"p{partition}.epoch"
        self.epoch = self._stored_epoch() + 1
        write_atomically(self._epoch_file, lambda tmp: _fill(tmp, str(self.epoch).encode()))

    def check(self) -> None:
        """Raises :class:`FencedError` when a newer writer has claimed the partition."""
        newest = self._stored_epoch()
        if newest != self.epoch:
            raise FencedError(f"partition {self.partition} was taken over by another writer (epoch {newest})")

    def save(self, offset: int, state: dict[str, Any]) -> int:
        """Make ``state`` durable as what holds before the record at ``offset``; ``state`` is maps, lists and arrays.

        Gives the size in bytes. Raises :class:`FencedError` when a newer writer has claimed the partition.
        """
        self.check()
        arrays: list[npt.NDArray[Any]] = []
        body = msgspec.msgpack.encode(state, enc_hook=lambda value: _set_aside(value, arrays))
        # The arrays go from where they are to the file: they are most of a shard's memory and must not be there twice.
        parts: list[bytes | memoryview] = [body, *(array.reshape(-1).view(np.uint8).data for array in arrays)]
        checksum = 0
        for part in parts:
            checksum = crc32c(part, checksum)
        length = sum(len(part) for part in parts)
        header = msgspec.msgpack.encode(_Header(FORMAT, self.epoch, offset, length, len(body), checksum))
        parts = [MAGIC + struct.pack("<I", len(header)) + header, *parts]
        path = self._folder / f"p{self.partition}-{offset:020d}.snapshot"
        write_atomically(path, lambda tmp: _fill(tmp, *parts), self.check)
        for old in self._files()[:-KEEP]:
            old.unlink()
        return length

    def load(self) -> tuple[int, dict[str, Any]] | None:
        """The newest readable snapshot as (offset, state), ``None`` when there is none.

        A corrupt one is logged and the one before it is taken. Raises :class:`SnapshotError` when none can be read.
        """
        files = self._files()
        for path in reversed(files):
            try:
                return _read(path)
            except SnapshotError as error:
                _log.error("%s; trying the snapshot before it", error)
        if files:
            raise SnapshotError(
                f"no snapshot of partition {self.partition} in {self._folder} can be read",
                "Remove them to replay the log from its beginning.",
            )
        return None

    @property
    def oldest_offset(self) -> int:
        """The offset of the oldest snapshot that is kept, from which the log may still be read; 0 without any."""
        files = self._files()
        return int(files[0].stem.split("-")[1]) if files else 0

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(f"p{self.partition}-*.snapshot"))

    def _stored_epoch(self) -> int:
        try:
            return int(self._epoch_file.read_text())
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise SnapshotError(f"{self._epoch_file} does not hold a number", "Write one above any before.") from error


def _read(path: Path) -> tuple[int, dict[str, Any]]:
    with path.open("rb") as file:
        head = file.read(len(MAGIC) + 4)
        if len(head) < len(MAGIC) + 4 or not head.startswith(MAGIC):
            raise SnapshotError(f"{path} is not a snapshot")
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
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


def _fill(path: Path, *parts: bytes | memoryview) -> None:
    with path.open("wb") as file:
        file.writelines(parts)


def _set_aside(value: Any, arrays: list[npt.NDArray[Any]]) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        raise NotImplementedError(f"a snapshot cannot hold {type(value).__name__}")
    arrays.append(np.ascontiguousarray(value))
    return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode((value.dtype.str, list(value.shape))))


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
