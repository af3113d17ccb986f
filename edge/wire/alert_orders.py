"""Step 2 of the way of a reading: orders about alerts, which go through the log as events.

They are published as events, of a site's zone, and take effect at their place in the log. One that comes twice changes
nothing the second time.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

__all__ = [
    "MAX_RULES_BYTES", "AcknowledgeAlert", "AlertOrder", "ChangeRules", "MuteRule", "decode_order", "encode_order",
    "is_rules", "order_topic",
]  # fmt: skip

MAX_RULES_BYTES = 1024 * 1024
"""An order about rules may be this long: every log takes as much in one record. It is room for ten rules in each of a
thousand zones, with four options each.
"""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class AcknowledgeAlert(
    msgspec.Struct, frozen=True, tag="alert_acknowledge", omit_defaults=True, forbid_unknown_fields=True
):
    """Somebody has seen the alert."""

    id: Name


class MuteRule(msgspec.Struct, frozen=True, tag="alert_mute", omit_defaults=True, forbid_unknown_fields=True):
    """The rule says nothing in the zone until then; with a time of the past a mute ends."""

    rule: Name
    until_ms: Annotated[int, msgspec.Meta(ge=0, le=2**47)]


class ChangeRules(msgspec.Struct, frozen=True, tag="alert_rules", omit_defaults=True, forbid_unknown_fields=True):
    """A site's rules, published in zone ``_site``: ``rules`` is a document of
    :class:`~models.alerts.rules_document.RulesDocument`. Published in another zone, it is what that zone has of its
    own. With ``merge`` it only says what changes. ``file`` names the state of the file that it is from: the same file
    counts once. With ``keep_zones`` a document without zones leaves what zones have of their own. With ``version`` it
    counts only while that is the rules' version: who gave it had seen no other.
    """

    rules: dict[str, Any]
    merge: bool = False
    file: str = ""
    keep_zones: bool = False
    version: Annotated[int, msgspec.Meta(ge=0)] = 0


AlertOrder = AcknowledgeAlert | MuteRule | ChangeRules

_TYPES = ("alert_acknowledge", "alert_mute", "alert_rules")
_DECODER = msgspec.json.Decoder(AlertOrder)


def order_topic(site: str, zone: str, device: str = "operator") -> str:
    """Where an order is published."""
    return f"hothouse/v1/{site}/{zone}/{device}/event"


def encode_order(order: AlertOrder) -> bytes:
    """The payload of the event. Raises ``ValueError`` with one sentence for rules that are longer than gateways take:
    they would be published, and never take effect.
    """
    payload = msgspec.json.encode(order)
    if len(payload) > MAX_RULES_BYTES:
        raise ValueError(f"the rules are {len(payload):,} bytes long, and {MAX_RULES_BYTES:,} is the most")
    return payload


def decode_order(payload: bytes) -> AlertOrder | None:
    """The order that an event gives; ``None`` for an event of another type.

    Raises ``ValueError`` with one sentence for an order of ours that cannot be read.

    >>> decode_order(encode_order(MuteRule("frost", 7)))
    MuteRule(rule='frost', until_ms=7)
    >>> decode_order(b'{"type":"alias","version":2,"to":"climate"}') is None
    True
    """
    document: Any = msgspec.json.decode(payload)
    if not isinstance(document, dict) or document.get("type") not in _TYPES:
        return None
    order: AlertOrder = _DECODER.decode(payload)  # a msgspec.ValidationError is a ValueError
    return order


def is_rules(payload: bytes) -> bool:
    """Whether an event is an order about rules, which may be longer than other events.

    >>> is_rules(encode_order(ChangeRules({"crop": "lettuce"}))), is_rules(b'{"crop":"lettuce"}'), is_rules(b"{")
    (True, False, False)
    """
    try:
        return isinstance(decode_order(payload), ChangeRules)
    except (ValueError, RecursionError):
        return False
