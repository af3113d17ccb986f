"""Step 2 of the way of a reading: what a message says, by the kind of devices that sent it.

A :class:`Decoder` knows one kind of topics. The gateway subscribes to what its decoders name and asks the one whose
prefix a topic has, so that another wire format (Sparkplug B, say) is one more class and changes nothing else.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from edge.log.contract import NewRecord, RecordKind
from edge.wire.change import decode_change
from edge.wire.envelope import UNKNOWN_SITE, decode_envelope, is_envelope
from edge.wire.reading import Refusal, Sample, decode, parse_topic

__all__ = ["MAX_DOCUMENT_BYTES", "Decoder", "HothouseDecoder", "Taken"]

MAX_DOCUMENT_BYTES = 64 * 1024
"""A plan or an event may be this long."""


class Taken(msgspec.Struct, frozen=True):
    """What a message held, all of ``site``: checked samples, what was refused, or a record to append as it is."""

    site: str
    samples: list[Sample] = []
    refusals: list[Refusal] = []
    record: NewRecord | None = None


class Decoder(Protocol):
    """One wire format. ``prefix`` begins the topics that are its; a gateway's decoders have different ones."""

    prefix: str

    def take(self, topic: str, payload: bytes, receive_ms: int) -> Taken:
        """Check one message from outside; never raises. Every sample of it is in the answer or in a refusal."""


class HothouseDecoder:
    """Our own format: samples, plans and events of devices, and records that a site's gateway hands on.

    >>> taken = HothouseDecoder().take("hothouse/v1/s/z/d/event", b'{"crop":"lettuce"}', 1646092800000)
    >>> taken.site, taken.record.kind
    ('s', 'event')
    """

    prefix = "hothouse/v1/"

    def take(self, topic: str, payload: bytes, receive_ms: int) -> Taken:
        """Check one message; see :class:`Decoder`."""
        where = parse_topic(topic)
        if where is None and is_envelope(topic):
            try:
                record = decode_envelope(topic, payload)
            except ValueError as error:
                return _refused("malformed", topic, payload, str(error), UNKNOWN_SITE)
            return Taken(record.site, record=record)
        if where is None or where.kind == "sample":
            decoded = decode(topic, payload, receive_ms)
            return Taken(where.site if where else UNKNOWN_SITE, decoded.samples, decoded.refusals)
        if len(payload) > MAX_DOCUMENT_BYTES:
            detail = f"{len(payload)} bytes, at most {MAX_DOCUMENT_BYTES}"
            return _refused("oversized", topic, payload, detail, where.site)
        try:
            msgspec.json.decode(payload, type=dict[str, Any])
            if where.kind == "event":
                decode_change(where, payload)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            return _refused("malformed", topic, payload, str(error), where.site)
        kind: RecordKind = "plan" if where.kind == "plan" else "event"
        return Taken(where.site, record=NewRecord(where.site, kind, receive_ms, payload, topic))


def _refused(reason: str, topic: str, payload: bytes, detail: str, site: str) -> Taken:
    return Taken(site, refusals=[Refusal(reason, topic[:256], detail, payload[:1024])])
