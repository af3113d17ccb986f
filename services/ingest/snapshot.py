"""Step 4 of the way of a reading: a partition's state and log offset in one file, written whole or not at all.

A file is ``MAGIC``, the header's length (4 bytes), a MessagePack header and a MessagePack body whose NumPy arrays are
extension values; nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import logging
import struct
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from services.errors import HothouseError
from services.store.files import write_atomically

__all__ = ["FencedError", "SnapshotError", "Snapshots"]

MAGIC = b"HHSNAP\r\n"
FORMAT = 2
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
    length: int
    sha256: str


class Snapshots:
    """Snapshots of one partition in ``folder``; the newest two are kept.

    Constructing it claims the partition: the writer epoch rises, and an older writer's next :meth:`save` raises.
    """

    def __init__(self, folder: Path, partition: int) -> None:
        self._folder, self._partition = folder, partition
        self._epoch_file = folder / f"p{partition}.epoch"
        self.epoch = self._stored_epoch() + 1
        write_atomically(self._epoch_file, lambda tmp: _fill(tmp, str(self.epoch).encode()))

    def save(self, offset: int, state: dict[str, Any]) -> None:
        """Make ``state`` durable as what holds before the record at ``offset``; ``state`` is maps, lists and arrays.

        Raises :class:`FencedError` when a newer writer has claimed the partition.
        """
        newest = self._stored_epoch()
        if newest != self.epoch:
            raise FencedError(f"partition {self._partition} was taken over by another writer (epoch {newest})")
        body = msgspec.msgpack.encode(state, enc_hook=_encode_array)
        header = msgspec.msgpack.encode(
            _Header(FORMAT, self.epoch, offset, len(body), hashlib.sha256(body).hexdigest())
        )
        content = MAGIC + struct.pack("<I", len(header)) + header + body
        write_atomically(self._folder / f"p{self._partition}-{offset:020d}.snapshot", lambda tmp: _fill(tmp, content))
        for old in self._files()[:-KEEP]:
            old.unlink()

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
                f"no snapshot of partition {self._partition} in {self._folder} can be read",
                "Remove them to replay the log from its beginning.",
            )
        return None

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(f"p{self._partition}-*.snapshot"))

    def _stored_epoch(self) -> int:
        try:
            return int(self._epoch_file.read_text())
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise SnapshotError(f"{self._epoch_file} does not hold a number", "Write one above any before.") from error


def _read(path: Path) -> tuple[int, dict[str, Any]]:
    content = path.read_bytes()
    if len(content) < len(MAGIC) + 4 or not content.startswith(MAGIC):
        raise SnapshotError(f"{path} is not a snapshot")
    (size,) = struct.unpack_from("<I", content, len(MAGIC))
    start = len(MAGIC) + 4
    try:
        header = msgspec.msgpack.decode(content[start : start + size], type=_Header)
    except msgspec.DecodeError as error:
        raise SnapshotError(f"{path} has a torn header: {error}") from error
    body = content[start + size :]
    if header.format != FORMAT:
        raise SnapshotError(f"{path} has format {header.format}, this version reads {FORMAT}")
    if len(body) != header.length or hashlib.sha256(body).hexdigest() != header.sha256:
        raise SnapshotError(f"{path} is torn or corrupt: its checksum does not fit")
    return header.offset, msgspec.msgpack.decode(body, ext_hook=_decode_array)


def _fill(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _encode_array(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        raise NotImplementedError(f"a snapshot cannot hold {type(value).__name__}")
    parts = (value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes())
    return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode(parts))


def _decode_array(code: int, data: memoryview) -> Any:
    if code != _ARRAY:
        raise SnapshotError(f"a snapshot holds an unknown extension {code}")
    dtype, shape, content = msgspec.msgpack.decode(data)
    return np.frombuffer(content, np.dtype(dtype)).reshape(shape).copy()
