"""Steps 2 to 5 of the way of a reading: how one log record holds many samples: in columns.

The gateway decodes a sample once; from there on a record's samples are arrays. A payload is the header, then the
*head*, MessagePack of site, devices and metric sets, then the columns, all little-endian: device and metric set (two
unsigned 32-bit indices a sample), ``seq``, ``ts_ms``, values. A device that sends one sample a message has the same
head each time, so writer and reader keep the heads that they have seen. Payloads of older versions begin with another
byte and stay readable.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from edge.wire.reading import Sample

__all__ = [
    "ENCODING",
    "HEADER",
    "DeviceBoot",
    "MetricSet",
    "SampleColumns",
    "SampleHeader",
    "decode_device",
    "decode_head",
    "decode_samples",
    "encode_samples",
]

ENCODING = 3
"""First byte of a payload. MessagePack lists, the first version, begin with 0x90 or above."""

HEADER = np.dtype([("encoding", "u1"), ("head_bytes", "<u4"), ("samples", "<u4"), ("values", "<u4")])
"""What a payload begins with: the encoding, then how long the head is and how many samples and values follow."""

_KNOWN_HEADS = 10_000
_KNOWN_VALUES = 64  # of the sample of a head that is kept: a message may hold thousands of metrics
_PACKED_HEADER = struct.Struct("<BIII")
_WORD = np.dtype("<i8")

DeviceBoot = tuple[str, str, str]
"""Zone, device and boot, within which ``seq`` counts up."""

MetricSet = tuple[str, ...]
"""The metrics that a sample carries, in their order."""

I64 = npt.NDArray[np.int64]


class SampleHeader(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the indices in a payload's columns refer to. ``devices`` are MessagePack of a :data:`DeviceBoot` each, so
    that a reader that has met one before need not decode it; ``metric_sets`` are the metrics that samples carry, in
    their order.
    """

    site: str
    devices: tuple[bytes, ...]
    metric_sets: tuple[MetricSet, ...]


class SampleColumns(msgspec.Struct, frozen=True, eq=False):
    """``n`` samples of one site; see :class:`SampleHeader`."""

    site: str
    devices: tuple[bytes, ...]
    metric_sets: tuple[MetricSet, ...]
    device: I64  # [n], index into devices
    metric_set: I64  # [n], index into metric_sets
    seq: I64  # [n]
    ts_ms: I64  # [n]
    lengths: I64  # [n], how many values each sample carries
    values: npt.NDArray[np.float64]  # [sum of lengths], sample after sample

    def __len__(self) -> int:
        return len(self.seq)

    @classmethod
    def of(cls, payload: bytes) -> SampleColumns:
        """Decode a record's payload, of whatever version; raises ``msgspec.DecodeError`` on a torn one."""
        if payload[:1] == b"\x02":
            return cls._of_columns(*_of_version_2(payload))
        if payload[:1] != bytes([ENCODING]):
            payload = _of_version_1(payload)
        if len(payload) < HEADER.itemsize:
            raise msgspec.DecodeError("the payload is cut off in its header")
        _, head_bytes, samples, values = _PACKED_HEADER.unpack_from(payload)
        begin = HEADER.itemsize + head_bytes
        if len(payload) != begin + _WORD.itemsize * (3 * samples + values):
            raise msgspec.DecodeError(f"{len(payload)} bytes do not hold {samples} samples and {values} values")
        words = np.frombuffer(payload, _WORD, offset=begin)
        pairs = words[:samples].view("<u4").reshape(-1, 2)
        head = decode_head(payload[HEADER.itemsize : begin])
        return cls._of_columns(
            head, pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64), words[samples : 2 * samples],
            words[2 * samples : 3 * samples], words[3 * samples :].view("<f8"),
        )  # fmt: skip

    @classmethod
    def _of_columns(
        cls, head: SampleHeader, device: I64, metric_set: I64, seq: I64, ts_ms: I64, values: npt.NDArray[np.float64]
    ) -> SampleColumns:
        fits = len(device) == len(metric_set) == len(seq) == len(ts_ms)
        if not (fits and _within(device, head.devices) and _within(metric_set, head.metric_sets)):
            raise msgspec.DecodeError("columns do not fit each other")
        lengths = np.array([*map(len, head.metric_sets)], np.int64)[metric_set]
        if lengths.sum() != len(values):
            raise msgspec.DecodeError("values do not fit the other columns")
        return cls(head.site, head.devices, head.metric_sets, device, metric_set, seq, ts_ms, lengths, values)

    def payload(self) -> bytes:
        """The payload of one log record."""
        head = msgspec.msgpack.encode(SampleHeader(self.site, self.devices, self.metric_sets))
        pairs = np.stack([self.device, self.metric_set], axis=1).astype("<u4")
        columns = (pairs, self.seq.astype(_WORD), self.ts_ms.astype(_WORD), self.values.astype("<f8"))
        return b"".join([_header(head, len(self), len(self.values)), head, *(column.tobytes() for column in columns)])

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


class _Version2(msgspec.Struct, array_like=True):
    site: str
    devices: tuple[bytes, ...]
    metric_sets: tuple[MetricSet, ...]
    device: bytes
    metric_set: bytes
    seq: bytes
    ts_ms: bytes
    values: bytes


_HEAD = msgspec.msgpack.Decoder(SampleHeader)
_VERSION_2 = msgspec.msgpack.Decoder(_Version2)
_VERSION_1 = msgspec.msgpack.Decoder(list[Sample])
_DEVICE = msgspec.msgpack.Decoder(DeviceBoot)


def decode_head(encoded: bytes) -> SampleHeader:
    """The head of a payload; raises ``msgspec.DecodeError``."""
    return _HEAD.decode(encoded)


def decode_device(encoded: bytes) -> DeviceBoot:
    """One of :attr:`SampleHeader.devices`; raises ``msgspec.DecodeError``."""
    device: DeviceBoot = _DEVICE.decode(encoded)
    return device


def _of_version_1(payload: bytes) -> bytes:
    try:
        return encode_samples(_VERSION_1.decode(payload))
    except (struct.error, OverflowError) as error:  # a number longer than any sample has
        raise msgspec.DecodeError(str(error)) from error


def encode_samples(samples: Sequence[Sample]) -> bytes:
    """The payload of one log record of kind ``samples``, all of one site.

    >>> sample = Sample("s", "z", "d", "9f3c62d1a07be845", 7, 1646092800000, {"rh_pct": 71.0})
    >>> decode_samples(encode_samples([sample])) == [sample]
    True
    """
    devices: dict[DeviceBoot, int] = {}
    metric_sets: dict[MetricSet, int] = {}
    pairs: list[int] = []
    values: list[float] = []
    for sample in samples:
        pairs.append(devices.setdefault((sample.zone, sample.device, sample.boot), len(devices)))
        pairs.append(metric_sets.setdefault(tuple(sample.values), len(metric_sets)))
        values.extend(sample.values.values())
    keep = len(samples) == 1 and len(values) <= _KNOWN_VALUES
    encode = _encode_head if keep else _encode_head.__wrapped__
    head = encode(samples[0].site if samples else "", tuple(devices), tuple(metric_sets))
    columns = _packing(len(samples), len(values)).pack(
        *pairs, *[sample.seq for sample in samples], *[sample.ts_ms for sample in samples], *values
    )
    return _header(head, len(samples), len(values)) + head + columns


def decode_samples(payload: bytes) -> list[Sample]:
    """Inverse of :func:`encode_samples`; raises ``msgspec.DecodeError`` on a torn payload."""
    return SampleColumns.of(payload).samples()


@lru_cache(_KNOWN_HEADS)
def _encode_head(site: str, devices: tuple[DeviceBoot, ...], metric_sets: tuple[MetricSet, ...]) -> bytes:
    return msgspec.msgpack.encode(SampleHeader(site, tuple(map(msgspec.msgpack.encode, devices)), metric_sets))


@lru_cache(1024)
def _packing(samples: int, values: int) -> struct.Struct:
    return struct.Struct(f"<{2 * samples}I{2 * samples}q{values}d")


def _header(head: bytes, samples: int, values: int) -> bytes:
    return _PACKED_HEADER.pack(ENCODING, len(head), samples, values)


def _of_version_2(payload: bytes) -> tuple[Any, ...]:
    found = _VERSION_2.decode(memoryview(payload)[1:])
    try:
        device, metric_set = np.frombuffer(found.device, "<i4"), np.frombuffer(found.metric_set, "<i4")
        seq, ts_ms = np.frombuffer(found.seq, _WORD), np.frombuffer(found.ts_ms, _WORD)
        values = np.frombuffer(found.values, "<f8")
    except ValueError as error:
        raise msgspec.DecodeError(f"a column is torn: {error}") from error
    head = SampleHeader(found.site, found.devices, found.metric_sets)
    return head, device.astype(np.int64), metric_set.astype(np.int64), seq, ts_ms, values


def _within(index: I64, items: Sequence[object]) -> bool:
    return not len(index) or bool(index.min() >= 0 and index.max() < len(items))
