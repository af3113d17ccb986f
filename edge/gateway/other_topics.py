"""Step 2 of the way of a reading: messages on topics that no decoder reads are counted, and named once an hour.

Otherwise nobody would notice a device that publishes on a mistyped topic. Such messages may come every second for
years, so there are few dead letters: one a topic and hour, for at most ``MAX_TOPICS`` topics.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge.wire.hints import of_topic
from edge.wire.reading import Refusal
from models.durations import HOUR_MS

__all__ = ["MAX_TOPICS", "OWN", "PRESENCE", "OtherTopics", "stray_topics"]

PRESENCE = "hothouse/presence/"
"""Prefix of the topics on which gateways announce themselves; no samples come there."""

OWN = (PRESENCE, "hothouse/state/")
"""Prefixes of what Hothouse itself publishes, also for Home Assistant; the gateway's subscription brings it back."""

MAX_TOPICS = 50
"""An hour has letters about this many topics; messages on further topics are counted in one letter."""

_EXPECTED = "nothing reads this topic; samples go to hothouse/v1/{site}/{zone}/{device}/sample"


class OtherTopics:
    """Counts messages. Hours are those of receive times; the sum of ``samples`` over all refusals, with those that
    are still to come, is the number of messages taken.

    >>> others = OtherTopics()
    >>> [others.take("hothouse/z1/sample", b"{}") is None for _ in range(3)]
    [False, True, True]
    >>> [(letter.topic, letter.samples, letter.detail[:7]) for letter in others.due(3_600_000)]
    [('hothouse/z1/sample', 2, '2 more ')]
    """

    def __init__(self) -> None:
        self._hour = 0
        self._more: dict[str, int] = {}  # of this hour's topics, beyond the first message
        self._beyond = 0

    def take(self, topic: str, payload: bytes) -> Refusal | None:
        """The dead letter about a message; ``None`` if its topic has one in this hour. Call :meth:`due` first."""
        if topic in self._more:
            self._more[topic] += 1
        elif len(self._more) >= MAX_TOPICS:
            self._beyond += 1
        else:
            self._more[topic] = 0
            return Refusal("unknown_topic", topic[:256], _said(topic), payload[:1024])
        return None

    def due(self, now_ms: int) -> list[Refusal]:
        """At the end of an hour: letters that say how many more messages came in it."""
        hour = now_ms // HOUR_MS
        if hour == self._hour:
            return []
        more, self._more, self._hour = self._more, {}, hour
        letters = [
            Refusal("unknown_topic", topic[:256], f"{count} more of the hour before; {_said(topic)}", samples=count)
            for topic, count in more.items()
            if count
        ]
        if self._beyond:
            detail = f"{self._beyond} more of the hour before, on other topics; {_EXPECTED}"
            letters.append(Refusal("unknown_topic", "", detail, samples=self._beyond))
            self._beyond = 0
        return letters


def stray_topics(read: Sequence[str]) -> list[str]:
    """What is subscribed to besides ``read``, because devices publish there by mistake: sketches for microcontrollers
    often begin a topic with a slash, and a broker tells nobody that nobody listens.

    >>> stray_topics(["hothouse/#", "plant/#"]), stray_topics(["#"])
    (['/hothouse/#', '/plant/#', 'Hothouse/#', 'HOTHOUSE/#'], [])
    """
    if any(each[:1] in ("#", "+") for each in read):
        return []  # it comes already
    found = [f"/{each}" for each in read if not each.startswith(("/", "$"))]
    return found + [f"{name}/#" for name in ("Hothouse", "HOTHOUSE") if "hothouse/#" in read]


def _said(topic: str) -> str:
    return f"{_EXPECTED}{of_topic(topic)}"
