"""Steps 1 and 2 of the way of a reading: the topics that devices publish on, and the names in them."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

__all__ = ["NAME_RULE", "SITE_ZONE", "Topic", "alert_topic", "is_alert_topic", "is_name", "parse_topic", "sample_topic"]

SITE_ZONE = "_site"
"""The zone of site-wide devices (the weather station)."""

NAME_RULE = "a name has only letters a to z, digits and . _ -, at most 64, and begins with a letter or digit"
"""What :func:`is_name` asks for, in words."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_KINDS = ("sample", "plan", "event")
_LONGEST_TOPIC = 256  # three names and what is around them are shorter
_TOPICS_KEPT = 16_384


@dataclass(frozen=True, slots=True)
class Topic:
    """A parsed topic; ``kind`` is ``sample``, ``plan`` or ``event``."""

    site: str
    zone: str
    device: str
    kind: str


def is_name(text: str) -> bool:
    """Whether ``text`` may name a site, a zone or a device.

    >>> is_name("north-1"), is_name("../etc"), is_name("a/b"), is_name("_site")
    (True, False, False, False)
    """
    return _NAME.match(text) is not None


def parse_topic(topic: str) -> Topic | None:
    """Parse ``hothouse/v1/{site}/{zone}/{device}/{kind}``; ``None`` where the topic is not ours.

    >>> parse_topic("hothouse/v1/demo/z1/climate/sample")
    Topic(site='demo', zone='z1', device='climate', kind='sample')
    >>> parse_topic("hothouse/v1/demo/z1/sample") is None
    True
    """
    return _parse_topic(topic) if len(topic) <= _LONGEST_TOPIC else None


@functools.lru_cache(_TOPICS_KEPT)  # devices send on the same topics again and again
def _parse_topic(topic: str) -> Topic | None:
    parts = topic.split("/")
    if len(parts) != 6 or parts[0] != "hothouse" or parts[1] != "v1" or parts[5] not in _KINDS:
        return None
    site, zone, device = parts[2:5]
    if not (is_name(site) and (zone == SITE_ZONE or is_name(zone)) and is_name(device)):
        return None
    return Topic(site, zone, device, parts[5])


def alert_topic(site: str, zone: str, id: str) -> str:
    """The topic on which an alert stands, retained.

    >>> alert_topic("demo", "z1", "6f0c")
    'hothouse/v1/demo/z1/alert/6f0c'
    """
    return f"hothouse/v1/{site}/{zone}/alert/{id}"


def is_alert_topic(topic: str) -> bool:
    """Whether an alert stands there: what we publish ourselves is nobody's mistake.

    >>> is_alert_topic("hothouse/v1/demo/z1/alert/6f0c"), is_alert_topic("hothouse/v1/demo/z1/alert/sample")
    (True, False)
    """
    parts = topic.split("/")
    return len(parts) == 6 and parts[:2] == ["hothouse", "v1"] and parts[4] == "alert" and parts[5] not in _KINDS


def sample_topic(site: str, zone: str, device: str) -> str:
    """The topic a device publishes its samples on.

    >>> sample_topic("demo", "z1", "climate")
    'hothouse/v1/demo/z1/climate/sample'
    """
    return f"hothouse/v1/{site}/{zone}/{device}/sample"
