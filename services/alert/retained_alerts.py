"""Step 9 of the way of a reading: each alert as a retained message of its own topic.

Who connects gets what holds now; a topic is cleared some time after its alert was resolved. What was published is kept
on the storage: a broker that has lost its messages gets them again when we start, and after every failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from edge.wire.topic import alert_topic
from services.alert.delivery import DeliveryError, damage_told
from services.alert.delivery_trace import DeliveryTrace
from services.errors import HothouseError, NotStoredError
from services.messages import ShownAlert
from services.store.storage import Storage, stored_in

__all__ = ["TOPICS", "AlertMessage", "RetainedAlerts"]

AlertMessage = tuple[str, bytes]
TOPICS = "alert-delivery/topics.json"
A_CALL = 500
"""Messages of a call, which has some seconds: a broker that is far away acknowledges a hundred or two in each."""


class _Topic(msgspec.Struct):
    payload: str
    clear_s: float | None  # Unix time


_DECODER = msgspec.json.Decoder(dict[str, _Topic])


class RetainedAlerts:
    """``publish`` sends retained messages, in order, and raises :class:`HothouseError` where the broker does not take
    them. ``wall_s`` says when a topic is cleared; see :class:`services.alert.delivery.Channel`. One that is not ``on``
    publishes nothing and takes back what an earlier process published: nobody would say that it is over.
    """

    name = "mqtt"

    def __init__(
        self, root: Storage | Path, publish: Callable[[Sequence[AlertMessage]], None], clear_after_s: float,
        wall_s: Callable[[], float], trace: DeliveryTrace | None = None, *, on: bool = True,
    ) -> None:  # fmt: skip
        self._trace, self._on = trace or DeliveryTrace(), on
        self._publish, self._clear_after_s, self._wall_s = publish, clear_after_s, wall_s
        self._storage = stored_in(root)
        self._topics: dict[str, _Topic] = {}
        with suppress(NotStoredError), damage_told(self._storage, TOPICS):
            self._topics = _DECODER.decode(self._storage.read(TOPICS).content)

    def __len__(self) -> int:
        """How many topics hold something."""
        return len(self._topics)

    def begin(self) -> None:
        """Publish all that holds again."""
        if not self._on:
            return
        self._send([(topic, held.payload.encode()) for topic, held in sorted(self._topics.items())])

    def deliver(self, alerts: Sequence[ShownAlert]) -> int:
        """See :class:`services.alert.delivery.Channel`; raises ``OSError``, too."""
        if not self._on:
            self._take_back(list(self._topics))
            return len(alerts)
        newest = {alert_topic(alert["site"], alert["zone"], alert["id"]): alert for alert in alerts}
        now_s = self._wall_s()
        for topic, alert in newest.items():
            clear_s = now_s + self._clear_after_s if alert["state"] == "resolved" else None
            self._topics[topic] = _Topic(msgspec.json.encode(alert).decode(), clear_s)
        if newest:
            self._keep()
        since_ns = self._trace.now_ns()
        self._send([(topic, self._topics[topic].payload.encode()) for topic in newest])
        self._trace.told(self.name, list(newest.values()), since_ns)
        self._clear(now_s)
        return len(alerts)

    def _clear(self, now_s: float) -> None:
        due = [topic for topic, held in self._topics.items() if held.clear_s is not None and held.clear_s <= now_s]
        self._take_back(due)

    def _take_back(self, topics: Sequence[str]) -> None:
        if topics:
            self._send([(topic, b"") for topic in topics])
            for topic in topics:
                del self._topics[topic]
            self._keep()

    def _keep(self) -> None:
        self._storage.put(TOPICS, msgspec.json.encode(self._topics))

    def _send(self, messages: Sequence[AlertMessage]) -> None:
        for begin in range(0, len(messages), A_CALL):
            try:
                self._publish(messages[begin : begin + A_CALL])
            except HothouseError as error:
                raise DeliveryError(error.message) from error
