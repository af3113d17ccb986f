"""Steps 2 to 5 of the way of a reading: how one log record holds many samples: in columns.

The gateway decodes a sample once; from there on a record's samples are arrays. A record's payload is the byte
``ENCODING``, then MessagePack of its columns, little-endian. Records that older versions wrote, a MessagePack list of
samples, begin with another byte and stay readable.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from edge.reading import Sample

__all__ = ["ENCODING", "DeviceBoot", "SampleColumns", "decode_device", "decode_samples", "encode_samples"]

ENCODING = 2
"""First byte of a payload in columns. MessagePack lists begin with 0x90 or above, so it tells the encodings apart."""

_I32, _I64, _F64 = np.dtype("<i4"), np.dtype("<i8"), np.dtype("<f8")


DeviceBoot = tuple[str, str, str]
"""Zone, device, boot: what counts its samples up."""


class _Encoded(msgspec.Struct, array_like=True):
    site: str
    devices: list[bytes]
    metric_sets: list[tuple[str, ...]]
    device: bytes
    metric_set: bytes
    seq: bytes
    ts_ms: bytes
    values: bytes


class SampleColumns(msgspec.Struct, frozen=True, eq=False):
    """``n`` samples of one site. ``devices`` are MessagePack of a :data:`DeviceBoot` each, so that a reader that has
    met one before need not decode it; ``metric_sets`` are the metrics that samples carry, in their order.
    """

    site: str
    devices: list[bytes]
    metric_sets: list[tuple[str, ...]]
    device: npt.NDArray[np.int32]  # [n], index into devices
    metric_set: npt.NDArray[np.int32]  # [n], index into metric_sets
    seq: npt.NDArray[np.int64]  # [n]
    ts_ms: npt.NDArray[np.int64]  # [n]
    lengths: npt.NDArray[np.int64]  # [n], how many values each sample carries
    values: npt.NDArray[np.float64]  # [sum of lengths], sample after sample

    def __len__(self) -> int:
        return len(self.seq)

    @classmethod
    def of(cls, payload: bytes) -> SampleColumns:
        """Decode a record's payload; raises ``msgspec.DecodeError`` on a torn one."""
        if payload[:1] != bytes([ENCODING]):
            payload = encode_samples(_OLD.decode(payload))
        found = _COLUMNS.decode(memoryview(payload)[1:])
        try:
            device, metric_set = np.frombuffer(found.device, _I32), np.frombuffer(found.metric_set, _I32)
            seq, ts_ms = np.frombuffer(found.seq, _I64), np.frombuffer(found.ts_ms, _I64)
            values = np.frombuffer(found.values, _F64)
        except ValueError as error:
            raise msgspec.DecodeError(f"a column is torn: {error}") from error
        fits = len(device) == len(metric_set) == len(seq) == len(ts_ms)
        if not (fits and _within(device, found.devices) and _within(metric_set, found.metric_sets)):
            raise msgspec.DecodeError("columns do not fit each other")
        lengths = np.array([*map(len, found.metric_sets)], np.int64)[metric_set]
        if lengths.sum() != len(values):
            raise msgspec.DecodeError("values do not fit the other columns")
        return cls(found.site, found.devices, found.metric_sets, device, metric_set, seq, ts_ms, lengths, values)

    def samples(self, chosen: npt.NDArray[np.intp] | None = None) -> list[Sample]:
        """The samples as objects; only those at the indices ``chosen`` where given."""
        ends = np.cumsum(self.lengths)
        made = []
        for n in (np.arange(len(self)) if chosen is None else chosen).tolist():
            values = self.values[ends[n] - self.lengths[n] : ends[n]].tolist()
            zone, device, boot = decode_device(self.devices[self.device[n]])
            by_name = dict(zip(self.metric_sets[self.metric_set[n]], values, strict=True))
            made.append(Sample(self.site, zone, device, boot, int(self.seq[n]), int(self.ts_ms[n]), by_name))
        return made


_COLUMNS = msgspec.msgpack.Decoder(_Encoded)
_OLD = msgspec.msgpack.Decoder(list[Sample])
_DEVICE = msgspec.msgpack.Decoder(DeviceBoot)


def decode_device(encoded: bytes) -> DeviceBoot:
    """One of :attr:`SampleColumns.devices`; raises ``msgspec.DecodeError``."""
    device: DeviceBoot = _DEVICE.decode(encoded)
    return device


def encode_samples(samples: Sequence[Sample]) -> bytes:
    """The payload of one log record of kind ``samples``, all of one site.

    >>> sample = Sample("s", "z", "d", "9f3c62d1a07be845", 7, 1646092800000, {"rh_pct": 71.0})
    >>> decode_samples(encode_samples([sample])) == [sample]
    True
    """
    devices: dict[DeviceBoot, int] = {}
    metric_sets: dict[tuple[str, ...], int] = {}
    device = [devices.setdefault((s.zone, s.device, s.boot), len(devices)) for s in samples]
    metric_set = [metric_sets.setdefault(tuple(s.values), len(metric_sets)) for s in samples]
    encoded = _Encoded(
        samples[0].site if samples else "", [*map(msgspec.msgpack.encode, devices)], list(metric_sets),
        _bytes(device, _I32), _bytes(metric_set, _I32), _bytes([s.seq for s in samples], _I64),
        _bytes([s.ts_ms for s in samples], _I64),
        _bytes(list(chain.from_iterable([s.values.values() for s in samples])), _F64),
    )  # fmt: skip
    return bytes([ENCODING]) + msgspec.msgpack.encode(encoded)


def decode_samples(payload: bytes) -> list[Sample]:
    """Inverse of :func:`encode_samples`; raises ``msgspec.DecodeError`` on a torn payload."""
    return SampleColumns.of(payload).samples()


def _within(index: npt.NDArray[np.int32], items: Sequence[object]) -> bool:
    return not len(index) or bool(index.min() >= 0 and index.max() < len(items))


def _bytes(values: list[Any], dtype: np.dtype[Any]) -> bytes:
    return np.array(values, dtype).tobytes()
