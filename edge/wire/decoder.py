"""Step 2 of the way of a reading: what a message says, by the kind of devices that sent it.

A :class:`Decoder` knows one kind of topics. The gateway subscribes to what its decoders name and asks the one whose
prefix a topic has, so that another wire format (Sparkplug B, say) is one more class and changes nothing else. Packages
bring decoders of their own, and the configuration names them (``edge.gateway.decoders``, docs/decoders.md).
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from edge.log.contract import NewRecord
from edge.wire.alert_orders import MAX_RULES_BYTES, is_rules
from edge.wire.envelope import UNKNOWN_SITE, decode_envelope, is_envelope
from edge.wire.events import decode_change
from edge.wire.plan import decode_plan, encode_plan
from edge.wire.reading import Refusal, Sample, decode
from edge.wire.topic import parse_topic

__all__ = ["MAX_DOCUMENT_BYTES", "Answer", "DecodedMessage", "Decoder", "HothouseDecoder", "refused"]

MAX_DOCUMENT_BYTES = 64 * 1024
"""An event or an answer may be this long; an event with rules :data:`~edge.wire.alert_orders.MAX_RULES_BYTES`."""


class Answer(msgspec.Struct, frozen=True):
    """A message to the device, such as the question to introduce itself again. The broker does not retain it.

    It is sent at once, before the message that it answers is durable, and it may be lost. It is dropped while the
    broker is away, and one topic gets only one answer every ten seconds. So a decoder answers again for as long as
    there is a reason to, and an answer never says that something was stored.
    """

    topic: str
    payload: bytes = b""
    qos: Literal[0, 1] = 0


class DecodedMessage(msgspec.Struct, frozen=True):
    """What a message held, all of ``site``: samples, what was refused, or a record to append as it is; and ``answers``
    to the device.
    """

    site: str
    samples: list[Sample] = []
    refusals: list[Refusal] = []
    record: NewRecord | None = None
    answers: list[Answer] = []


class Decoder(Protocol):
    """One wire format. Its topics begin with ``prefix``; a gateway's decoders have different ones.

    A decoder may keep a state, such as what each device said last: one thread asks it, with messages in the order in
    which they came. It starts empty with each start of the gateway, and what the broker sends again it sees again.
    """

    prefix: str

    def take(self, topic: str, payload: bytes, receive_ms: int) -> DecodedMessage:
        """Check one message from outside; never raises. Every sample of it is in ``samples`` or in a refusal."""


class HothouseDecoder:
    """Our own format: samples, plans and events of devices, and records that a site's gateway hands on.

    >>> taken = HothouseDecoder().take("hothouse/v1/s/z/d/event", b'{"crop":"lettuce"}', 1646092800000)
    >>> taken.site, taken.record.kind
    ('s', 'event')
    """

    prefix = "hothouse/v1/"

    def take(self, topic: str, payload: bytes, receive_ms: int) -> DecodedMessage:
        """Check one message; see :class:`Decoder`."""
        where = parse_topic(topic)
        if where is None and is_envelope(topic):
            try:
                record = decode_envelope(topic, payload)
            except ValueError as error:
                return refused("malformed", topic, payload, str(error))
            return DecodedMessage(record.site, record=record)
        if where is None or where.kind == "sample":
            decoded = decode(topic, payload, receive_ms)
            return DecodedMessage(where.site if where else UNKNOWN_SITE, decoded.samples, decoded.refusals)
        if where.kind == "plan":
            planned = decode_plan(topic, payload, receive_ms)
            plan = None if planned.plan is None else encode_plan(planned.plan)
            passed = None if plan is None else NewRecord(where.site, "plan", receive_ms, plan, topic)
            return DecodedMessage(where.site, refusals=planned.refusals, record=passed)
        if len(payload) > (most := _most_bytes(payload)):
            return refused("oversized", topic, payload, f"{len(payload)} bytes, at most {most}", where.site)
        try:
            msgspec.json.decode(payload, type=dict[str, Any])
            decode_change(where, payload)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            return refused("malformed", topic, payload, str(error), where.site)
        return DecodedMessage(where.site, record=NewRecord(where.site, "event", receive_ms, payload, topic))


def _most_bytes(payload: bytes) -> int:
    """How long this event may be; what is too long for any event is not read."""
    is_longer = MAX_DOCUMENT_BYTES < len(payload) <= MAX_RULES_BYTES
    return MAX_RULES_BYTES if is_longer and is_rules(payload) else MAX_DOCUMENT_BYTES


def refused(reason: str, topic: str, payload: bytes, detail: str, site: str = UNKNOWN_SITE) -> DecodedMessage:
    """A message of which nothing can be used, with so much of it as a dead letter shows."""
    return DecodedMessage(site, refusals=[Refusal(reason, topic[:256], detail, payload[:1024])])
