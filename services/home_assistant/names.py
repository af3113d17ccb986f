"""Step 9 of the way of a reading: the topics that Home Assistant reads, and the ids of its devices.

States are outside of ``hothouse/v1``: the gateway reads that, and would refuse what is no sample.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from edge.wire.topic import SITE_ZONE

__all__ = ["RetainedMessage", "alerts_topic", "config_topic", "device_id", "rule_key", "slug", "state_topic"]

STATES = "hothouse/state"


class RetainedMessage(NamedTuple):
    """What is published, retained; an empty payload takes back what was there."""

    topic: str
    payload: bytes


def slug(text: str) -> str:
    """The text with nothing but what an id may hold.

    >>> slug("cold.north 1")
    'cold_north_1'
    """
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)


def device_id(site: str, zone: str = SITE_ZONE) -> str:
    """A zone's id, or that of its site; no other zone has the same, whatever its name holds.

    >>> device_id("demo", "north-1"), device_id("demo")
    ('hothouse_demo_north-1_ddd3db', 'hothouse_demo_d89b41')
    """
    name = slug(f"{site}_{zone}" if zone != SITE_ZONE else site)
    return f"hothouse_{name}_{_digest(f'{site}/{zone}')}"


def rule_key(rule: str) -> str:
    """What an alert's rule is called in ids and states: its name, or what an id may hold of it with some digits, so
    that two names in letters that no id may hold are told apart.

    >>> rule_key("frost"), rule_key("cold.north 1"), rule_key("太冷") == rule_key("太热")
    ('frost', 'cold_north_1_3928f3', False)
    """
    key = slug(rule)
    return key if key == rule else f"{key}_{_digest(rule)}"


def config_topic(prefix: str, device: str) -> str:
    """Where a device is announced."""
    return f"{prefix}/device/{device}/config"


def state_topic(site: str, zone: str = SITE_ZONE) -> str:
    """Where readings, forecast and health of a zone are, or what its site has.

    >>> state_topic("demo", "north-1"), state_topic("demo")
    ('hothouse/state/demo/north-1', 'hothouse/state/demo/_site')
    """
    return f"{STATES}/{site}/{zone}"


def alerts_topic(site: str, zone: str = SITE_ZONE) -> str:
    """Where the alerts of a zone are, or those of a site as a whole."""
    return f"{STATES}/{site}/{zone}/alerts"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]
