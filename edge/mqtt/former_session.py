"""Step 2 of the way of a reading: takes what waits at the broker under a client id that we had before.

A gateway that gets a session secret has another session from then on. The broker would keep what waits in the one
before, and all that comes after it besides, until that session expires.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge.mqtt.connection import MqttAddress, new_subscriber, open_connection
from edge.mqtt.subscriber import Published, Subscriber
from edge.timing import Backoff

__all__ = ["FormerSession"]

_logger = logging.getLogger(__name__)
_QUIET_S = 5.0
_LONGEST_S = 300.0
_TRIES = 5


class FormerSession:
    """The session whose client id is ``name`` itself, without the secret of ``address``; the broker speaks MQTT 5.

    It leaves ``topics``, so that nothing new comes. What waits goes to ``on_message``, in the network thread, with the
    function that acknowledges it. Then the session is ended. Call :meth:`tend` a few times a second, while the broker
    is there, until it is ``done``: soon where there is no such session. A session that cannot be had, or in which
    messages do not cease to come for five minutes, stays.
    """

    def __init__(
        self, address: MqttAddress, name: str, topics: Sequence[str],
        on_message: Callable[[Callable[[list[int]], object], Published], None], *,
        receive_maximum: int, session_expiry_s: int,
    ) -> None:  # fmt: skip
        self.done = False
        self._address, self._name, self._topics = replace(address, session_secret=""), name, topics
        self._on_message = on_message
        self._receive_maximum, self._session_expiry_s = receive_maximum, session_expiry_s
        self._backoff = Backoff(jitter=random.SystemRandom().random)
        self._connection: _Connection | None = None
        self._began_s: float | None = None
        self._took = self._failures = 0

    def tend(self, now_s: float, held: int = 0) -> None:
        """Go on; ``now_s`` is a monotonic time. ``held`` messages, or fewer, may stay unacknowledged."""
        self._began_s = now_s if self._began_s is None else self._began_s
        connection = self._connection
        if now_s > self._began_s + _LONGEST_S or self._failures == _TRIES:
            _logger.warning("messages for the client id %s may still wait at the broker", self._name)
            self.close()
        elif connection is None:
            if self._backoff.is_over(now_s):
                self._connect()
        elif connection.is_there is False:
            self._end()
        elif connection.lost.is_set():
            self._drop()
            self._failures += 1
            self._backoff.failed(now_s)
        elif connection.is_empty(now_s, held):
            self._end()
            _logger.warning("%s messages waited for the client id %s of before", self._took, self._name)

    def close(self) -> None:
        """Leave; what was not acknowledged stays in the session."""
        self._drop()
        self.done = True

    def _end(self) -> None:
        end = Properties(PacketTypes.DISCONNECT)  # type: ignore[no-untyped-call]
        end.SessionExpiryInterval = 0
        self._drop(end)
        self.done = True

    def _connect(self) -> None:
        client = new_subscriber(self._address, self._name, v5=True)
        client.connect_timeout = 2.0
        made = self._connection = _Connection(client, self._topics)

        def published(message: Published) -> None:
            made.received += message.qos
            self._took += 1
            self._on_message(made.ack_all, message)

        client.on_published = published
        try:
            open_connection(
                client, self._address, session_expiry_s=self._session_expiry_s, receive_maximum=self._receive_maximum
            )
        except (OSError, ValueError):  # as in Subscription, which tells it
            made.lost.set()

    def _drop(self, properties: Properties | None = None) -> None:
        if self._connection is not None:
            self._connection.client.on_disconnect = None
            self._connection.client.disconnect(properties=properties)
            self._connection.client.loop_stop()
            self._connection = None


class _Connection:
    """One connection to the session, and what came and went over it."""

    def __init__(self, client: Subscriber, topics: Sequence[str]) -> None:
        self.client, self.lost = client, threading.Event()
        self.received = self.acked = 0  # each counted by one thread alone
        self.is_there: bool | None = None  # until the broker has said it
        self._topics = topics
        self._left = False
        self._seen, self._quiet_s = -1, 0.0
        client.on_connect, client.on_unsubscribe, client.on_disconnect = (
            self._connected,
            self._unsubscribed,
            self._ended,
        )

    def ack_all(self, mids: list[int]) -> None:
        """Acknowledge messages, in this order."""
        self.client.ack_all(mids)
        self.acked += len(mids)

    def is_empty(self, now_s: float, held: int) -> bool:
        """Whether nothing waits in it any more. A broker does not say so: it is silent."""
        if self.received != self._seen:
            self._seen, self._quiet_s = self.received, now_s
        return self._left and now_s > self._quiet_s + _QUIET_S and self.received - self.acked <= held

    def _connected(self, client: Any, _: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        # A broker that refuses this id keeps nothing for it that we could have.
        self.is_there = bool(flags.session_present) and not reason.is_failure
        if self.is_there:
            client.unsubscribe(list(self._topics))

    def _unsubscribed(self, *_: Any) -> None:
        self._left = True

    def _ended(self, *_: Any) -> None:
        self.lost.set()
