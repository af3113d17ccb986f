"""Step 9 of the way of a reading: the thread that carries zones from the live state to Home Assistant's broker."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from paho.mqtt.client import MQTTMessageInfo
from paho.mqtt.reasoncodes import ReasonCode

from edge.mqtt.connection import MqttAddress
from edge.mqtt.subscriber import Published, Subscriber
from edge.mqtt.subscription import Subscription
from services.errors import NotStoredError
from services.home_assistant.names import RetainedMessage
from services.home_assistant.publication import Publication
from services.store.storage import Storage

__all__ = ["HomeAssistantLink", "PublishedTopics", "presence_topic"]

_log = logging.getLogger(__name__)

RETRY_S = 1.0
REFUSED_S = 60.0
"""What the broker refuses is tried again so often, one message at a time: some end the connection at it."""
ONLINE = b"online"
"""What Home Assistant says on its status topic when it has started."""


def presence_topic(client_id: str) -> str:
    """Where the broker says whether we are there."""
    return f"hothouse/presence/{client_id}"


class PublishedTopics:
    """The topics on which the broker may hold something of ours, as an object: a restart can take them back."""

    def __init__(self, storage: Storage, key: str) -> None:
        self._storage, self._key, self._kept = storage, key, set[str]()

    def read(self) -> set[str]:
        """Those of the last time; none where the object is missing or damaged.

        Raises ``OSError`` where it cannot be read: taken for empty it would be replaced, and what an earlier process
        published would stay on the broker for ever.
        """
        try:
            self._kept = {str(topic) for topic in json.loads(self._storage.read(self._key).content)}
        except NotStoredError:
            self._kept = set()
        except (ValueError, TypeError) as error:
            where = self._storage.address(self._key)
            _log.warning("%s is damaged: what it named may stay on the broker of Home Assistant: %s", where, error)
            self._kept = set()
        return set(self._kept)

    @property
    def kept(self) -> frozenset[str]:
        """The topics."""
        return frozenset(self._kept)

    def keep(self, topics: Iterable[str]) -> None:
        """Replace them, where they have changed."""
        if (now := set(topics)) == self._kept:
            return
        self._storage.put(self._key, (json.dumps(sorted(now), indent=1) + "\n").encode())
        self._kept = now


class Changes(Protocol):
    """Waits for what changed on the next live state in turn, a second at most; may raise anything. ``seen`` has the
    versions that are known: live state -> version.
    """

    def __call__(self, seen: Mapping[int, int]) -> Mapping[str, Any]: ...


class HomeAssistantLink:
    """A context manager: publishes while it is entered. ``publication`` is used by its thread alone.

    Without ``prefix`` it only takes back what an earlier process published.
    """

    def __init__(
        self, address: MqttAddress, client_id: str, prefix: str, publication: Publication, changes: Changes,
        topics: PublishedTopics, clock_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._prefix, self._publication, self._changes, self._topics = prefix, publication, changes, topics
        self._clock_s = clock_s
        self._asked, self._stop = threading.Event(), threading.Event()
        self._subscription = Subscription(
            address, client_id, [[f"{prefix}/status" if prefix else "hothouse/presence/none"]], self._heard,
            receive_maximum=20, session_expiry_s=0, presence_topic=presence_topic(client_id),
            on_answer=lambda mid, reason: self._answers.append((mid, reason)),
        )  # fmt: skip
        self._answers = deque[tuple[int, ReasonCode]]()  # from the network thread
        self._asked_of: dict[int, str] = {}  # a message's number -> its topic, while there is no answer
        self._refused: dict[str, str] = {}  # topic -> why
        self._refused_s = 0.0  # when one was tried last
        self._suspect = ""  # topic of the message at which the last connection may have ended
        self._connects = 0
        self._emptied: dict[str, MQTTMessageInfo] = {}  # topic taken back -> whether the broker has it
        self._thread = threading.Thread(target=self._run, name="home-assistant", daemon=True)

    @property
    def error(self) -> str:
        """What fails now; empty when all is well."""
        try:
            topic, why = next(iter(self._refused.items()))
        except (StopIteration, RuntimeError):  # another thread changes it: the next look tells
            return self._subscription.last_error
        return f"the broker refuses what is published for Home Assistant, such as {topic}: {why}"

    def __enter__(self) -> HomeAssistantLink:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        seen: dict[int, int] = {}
        try:
            while not self._stop.is_set():
                self._subscription.tend(self._clock_s())
                try:
                    changes = self._changes(seen) if self._prefix else {}
                    messages = self._publication.take(changes) if self._prefix else []
                    # First noted, then published: what a kill leaves behind is then known, and taken back later.
                    self._topics.keep({*self._topics.kept, *self._publication.published})
                    self._send(messages)
                    self._forget_cleared()
                    self._topics.keep(self._publication.published)
                except Exception:
                    _log.warning("Home Assistant is not told now", exc_info=True)
                    self._stop.wait(RETRY_S)
                    continue
                if "version" in changes:
                    seen[changes.get("live_state", 0)] = changes["version"]
                if not self._prefix:
                    self._stop.wait(RETRY_S)
        finally:
            self._subscription.close()

    def _send(self, messages: Iterable[RetainedMessage]) -> None:
        """What was published over a connection that has ended may be lost: then all of it goes out again, but for what
        the broker refuses.
        """
        self._see_answers()
        connects, tried = self._subscription.connects, self._tried_again()
        if self._subscription.connected and (connects != self._connects or self._asked.is_set() or tried):
            if connects != self._connects:  # numbers begin anew
                self._suspect_first()
                self._answers.clear()
                self._asked_of.clear()
            self._connects = connects
            self._asked.clear()
            messages = self._publication.again()
        for topic, payload in messages:
            if topic in self._refused and topic != tried:
                continue
            sent = self._subscription.publish(topic, payload, 1, retain=True)
            if sent is None:
                self._connects = -1 if self._subscription.connected else self._connects
                return
            self._asked_of[sent.mid] = topic
            self._emptied.pop(topic, None)
            if not payload:
                self._emptied[topic] = sent

    def _tried_again(self) -> str:
        """The topic that may not be refused any more, now and then."""
        now_s = self._clock_s()
        if not self._refused or not self._subscription.connected or now_s < self._refused_s + REFUSED_S:
            return ""
        self._refused_s = now_s
        return next(iter(self._refused))

    def _see_answers(self) -> None:
        while self._answers:
            mid, reason = self._answers.popleft()
            topic = self._asked_of.pop(mid, None)
            if topic is not None and reason.is_failure:
                self._refuse(topic, str(reason))
            elif topic in self._refused:
                self._refused.clear()
                self._asked.set()

    def _suspect_first(self) -> None:
        """A connection that ends takes answers with it: where two end at the same message, it is the reason."""
        first = next(iter(self._asked_of.values()), "")
        if first and first == self._suspect:
            self._refuse(first, "the connection ends at it")
        self._suspect = first

    def _refuse(self, topic: str, why: str) -> None:
        if not self._refused:
            _log.warning("the broker refuses what is published on %s: %s", topic, why)
            self._refused_s = self._clock_s()
        self._refused[topic] = why

    def _forget_cleared(self) -> None:
        for topic in [topic for topic, sent in self._emptied.items() if sent.is_published()]:
            self._publication.cleared(topic)
            del self._emptied[topic]

    def _heard(self, client: Subscriber, message: Published) -> None:
        if message.payload == ONLINE:
            self._asked.set()
        if message.qos:
            client.ack_all([message.mid])
