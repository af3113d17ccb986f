"""Step 3 of the way of a reading: a record of ours on Kafka: key site, value payload, all else in one header.

The header is ``kind receive_ms batch place origin topic``; ``-`` stands for no origin. The header of format 1 had no
origin and is read as well. A record without a header was not written by us and comes back as ``refused``.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from edge.log.contract import NewRecord, Origin, Record, RecordKind
from edge.wire.reading import Refusal, encode_refusals

__all__ = ["FOREIGN_RECORD", "HEADER", "KafkaHeader", "decode_header", "decode_record", "encode_header"]

FOREIGN_RECORD = "foreign_record"
"""Reason for refusing a record that another program wrote into our topic."""

HEADER = "hothouse-2"
_HEADER_1 = "hothouse-1"


class KafkaHeader(NamedTuple):
    """What a record is; ``batch`` and ``place`` name it among those of one append."""

    kind: RecordKind
    receive_ms: int
    batch: str
    place: int
    origin: Origin | None
    topic: str


def encode_header(new: NewRecord, receive_ms: int, batch: str, place: int) -> bytes:
    """The header's value.

    >>> encode_header(NewRecord("demo", "tick", 7, b"", origin=Origin("a1", 3)), 9, "b", 0)
    b'tick 9 b 0 a1:3 '
    """
    origin = f"{new.origin.log}:{new.origin.number}" if new.origin else "-"
    return f"{new.kind} {receive_ms} {batch} {place} {origin} {new.topic}".encode()


def decode_header(record: Any) -> KafkaHeader | None:
    """The header of a record as kafka-python gives it; ``None`` if another program wrote it."""
    for name, value in record.headers:
        if name == HEADER:
            kind, receive_ms, batch, place, origin, topic = value.decode().split(" ", 5)
            log, _, number = origin.rpartition(":")
            found = Origin(log, int(number)) if log else None
            return KafkaHeader(cast(RecordKind, kind), int(receive_ms), batch, int(place), found, topic)
        if name == _HEADER_1:
            kind, receive_ms, batch, place, topic = value.decode().split(" ", 4)
            return KafkaHeader(cast(RecordKind, kind), int(receive_ms), batch, int(place), None, topic)
    return None


def decode_record(record: Any) -> Record:
    """A record as the log promises it, from one as kafka-python gives it."""
    place, header = (record.partition, record.offset), decode_header(record)
    payload = record.value or b""
    if header is None:
        detail = f"no {HEADER} header; sites that write to Kafka themselves use a topic of their own"
        refusal = Refusal(FOREIGN_RECORD, record.topic, detail, payload[:1024])
        refused = encode_refusals([refusal])
        return Record(*place, "_unknown", "refused", record.timestamp, refused, record.topic)
    site = record.key.decode()
    return Record(*place, site, header.kind, header.receive_ms, payload, header.topic, header.origin)
