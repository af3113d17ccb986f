"""Step 2 of the way of a reading: a log record as an MQTT message, from a site's gateway to the central one.

Topic ``hothouse/v1/{site}/_uplink/{log}/record``, payload a MessagePack list; site and log are in the topic only, so
that a broker's access rules bind them. The central gateway appends the record as it is, receive time and origin too.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from edge.log.contract import NewRecord, Origin, RecordKind
from edge.wire.reading import EPOCH_2000_MS, FUTURE_TOLERANCE_MS, decode_refusals
from edge.wire.samples import SampleColumns, decode_device
from edge.wire.topic import SITE_ZONE, is_name, parse_topic

__all__ = ["UNKNOWN_SITE", "decode_envelope", "encode_envelope", "is_envelope"]

UNKNOWN_SITE = "_unknown"
"""The site of what was refused on a topic that names none."""

_VERSION = 1
_LATEST_MS = 253_370_764_800_000  # the year 9999 begins: rows that follow end in it


class _Envelope(msgspec.Struct, array_like=True, frozen=True):
    version: int
    kind: RecordKind
    receive_ms: int
    number: int
    topic: str
    payload: bytes


_DECODER = msgspec.msgpack.Decoder(_Envelope)


def encode_envelope(record: NewRecord) -> tuple[str, bytes]:
    """Topic and payload of a record that has an origin."""
    assert record.origin is not None
    body = _Envelope(_VERSION, record.kind, record.receive_ms, record.origin.number, record.topic, record.payload)
    return f"hothouse/v1/{record.site}/_uplink/{record.origin.log}/record", msgspec.msgpack.encode(body)


def is_envelope(topic: str) -> bool:
    """Whether a topic is one that uplinks publish on.

    >>> is_envelope("hothouse/v1/demo/_uplink/9f3c62d1a07be845/record"), is_envelope("hothouse/v1/demo/z1/d/sample")
    (True, False)
    """
    parts = topic.split("/")
    return len(parts) == 6 and parts[3] == "_uplink"


def decode_envelope(topic: str, payload: bytes) -> NewRecord:
    """Inverse of :func:`encode_envelope`; raises ``ValueError`` with the reason for what no gateway of ours sent."""
    parts = topic.split("/")
    if len(parts) != 6 or (parts[0], parts[1], parts[3], parts[5]) != ("hothouse", "v1", "_uplink", "record"):
        raise ValueError("expected hothouse/v1/{site}/_uplink/{log}/record")
    site, log = parts[2], parts[4]
    if not (is_name(site) or site == UNKNOWN_SITE) or not is_name(log):
        raise ValueError("the topic names no site or no log")
    try:
        body = _DECODER.decode(payload)
        if body.version != _VERSION:
            raise ValueError(f"version {body.version}; this gateway reads {_VERSION}")
        if not (0 <= body.receive_ms <= _LATEST_MS and 0 <= body.number < 2**53):
            raise ValueError(f"receive_ms {body.receive_ms} or number {body.number} is out of range")
        _check(site, body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return NewRecord(site, body.kind, body.receive_ms, body.payload, body.topic, Origin(log, body.number))


def _check(site: str, body: _Envelope) -> None:
    """The payload is what its kind says, and of this site."""
    if body.kind == "samples":
        columns = SampleColumns.of(body.payload)
        for zone, device, _ in map(decode_device, columns.devices):
            if not ((zone == SITE_ZONE or is_name(zone)) and is_name(device)):
                raise ValueError(f"it holds samples of {zone[:64]!r}/{device[:64]!r}, which name no zone and device")
        with np.errstate(over="ignore"):  # rows are of single precision
            if not np.isfinite(columns.values.astype(np.float32)).all():
                raise ValueError("it holds a value that is no number, or too large for one")
        if len(columns) and not (
            columns.ts_ms.min() >= EPOCH_2000_MS and columns.ts_ms.max() <= body.receive_ms + FUTURE_TOLERANCE_MS
        ):
            raise ValueError("it holds a sample from before 2000, or from after its receive time")
        if columns.site != site:
            raise ValueError(f"it holds samples of {columns.site[:64]!r}, not of {site}")
    elif body.kind == "refused":
        decode_refusals(body.payload)
    elif body.kind == "tick":
        if body.payload:
            raise ValueError("a tick carries nothing")
    else:
        msgspec.json.decode(body.payload, type=dict[str, Any])
        where = parse_topic(body.topic)
        if where is None or (where.site, where.kind) != (site, body.kind):
            raise ValueError(f"a {body.kind} of {site} on the topic {body.topic[:256]}")
