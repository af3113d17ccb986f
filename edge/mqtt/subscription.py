"""Step 2 of the way of a reading: keeps one persistent subscription alive.

It connects with MQTT 5, or with 3.1.1 if the broker has no 5, and connects again with back-off and jitter for as long
as it is tended. The broker keeps what arrives meanwhile, because session and subscription outlive a connection.
"""

from __future__ import annotations

import logging
import random
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any

from paho.mqtt import client as paho
from paho.mqtt.reasoncodes import ReasonCode

from edge.mqtt import connection_failures
from edge.mqtt.connection import MqttAddress, is_refused_version, new_subscriber, open_connection
from edge.mqtt.subscriber import Published, Subscriber
from edge.mqtt.topic_choice import TopicChoice
from edge.timing import Backoff

__all__ = ["OFFLINE", "ONLINE", "Subscription"]

ONLINE, OFFLINE = b'{"online":true}', b'{"online":false}'
"""What the presence topic holds."""

_logger = logging.getLogger(__name__)
_ANSWER_S = 4.0
_SOON_S = 10.0  # a connection that ends before this did not hold
_FEW = 3  # of those in a row may be chance
_FAILURE = 0x80  # MQTT reason codes from here on say that something failed


class Subscription:
    """A subscription to topics with QoS 1 whose messages are acknowledged by hand.

    ``on_message`` is called in the network thread with the client to acknowledge on; it must not block. ``gather_s`` is
    how long the network thread lets messages gather before it reads them. Call :meth:`tend` a few times a second,
    always from the same thread. ``presence_topic`` holds, retained, whether we are connected; the broker itself says
    when we are lost. ``topics`` are lists of topics: the first is subscribed to, and if the broker refuses it, or ends
    the connection on that request, the next one. A session keeps only the topics of the list that is in use.
    ``on_answer`` is called in the network thread with the number of each message that was published and the broker's
    answer to it; a broker without MQTT 5 refuses none.

    Another client with our client id takes our session over, and we take it back from it: so the pauses grow once a few
    connections of a lasting session did not hold.
    """

    def __init__(
        self,
        address: MqttAddress,
        client_id: str,
        topics: Sequence[Sequence[str]],
        on_message: Callable[[Subscriber, Published], None],
        *,
        receive_maximum: int,
        session_expiry_s: int,
        gather_s: float = 0.0,
        presence_topic: str = "",
        on_answer: Callable[[int, ReasonCode], None] | None = None,
    ) -> None:
        self.connected = False
        self.connects = 0
        self.last_error = ""
        self.certificate_ends_ms: dict[str, int] = {}
        self._address = address
        self._client_id = client_id
        self._choice = TopicChoice(topics)
        self._on_message = on_message
        self._receive_maximum = receive_maximum
        self._session_expiry_s = session_expiry_s
        self._gather_s = gather_s
        self._presence_topic = presence_topic
        self._on_answer = on_answer
        self._backoff = Backoff(jitter=random.SystemRandom().random)
        self._client: paho.Client | None = None
        self._lost = threading.Event()
        self._v5 = address.v5
        self._started_s = self._now_s = 0.0
        self._answered = False  # the broker has said something on this connection
        self._ended_soon = 0  # connections in a row that did

    def tend(self, now_s: float) -> None:
        """Connect if that is due; ``now_s`` is a monotonic time."""
        self._now_s = now_s
        waiting = self._client is not None and not self.connected and not self._lost.is_set()
        if waiting and now_s > self._started_s + _ANSWER_S:
            self._fail(connection_failures.no_answer(self._address))
            self._v5 = not self._v5  # it may have waited for more of a packet that it does not understand
        if self._client is not None and self._lost.is_set():
            self._drop()
            self._backoff.failed(now_s)
        if self._client is None and self._backoff.is_over(now_s):
            self._started_s = now_s
            self._connect()

    def close(self) -> None:
        """Send what is queued, acknowledgements above all, and leave; the broker keeps the session."""
        if self.connected:
            self._say(OFFLINE)
        self._drop()

    def publish(self, topic: str, payload: bytes, qos: int, *, retain: bool = False) -> paho.MQTTMessageInfo | None:
        """Send a message, from any thread, and wait for nothing; ``None`` if there is no connection to send it on.

        The message is lost if the connection ends before the broker has it; the answer tells when it has.
        """
        client = self._client
        if client is None or not self.connected:
            return None
        sent = client.publish(topic, payload, qos, retain)
        return sent if sent.rc == paho.MQTT_ERR_SUCCESS else None

    def _connect(self) -> None:
        self._lost.clear()
        self._answered = False
        will = (self._presence_topic, OFFLINE) if self._presence_topic else None
        try:
            client = new_subscriber(self._address, self._client_id, v5=self._v5, will=will)
        except OSError as error:  # as while a certificate and its key are renewed, one after the other, or a password
            self._backoff.failed(self._now_s)
            return self._fail(connection_failures.cannot_be_asked(self._address, error))
        client.gather_s = self._gather_s
        client.connect_timeout = 2.0
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_disconnect = self._disconnected
        client.on_published = lambda message: self._on_message(client, message)
        if (answered := self._on_answer) is not None:
            client.on_publish = lambda _client, _data, mid, reason, _properties: answered(mid, reason)
        self._client = client
        try:
            open_connection(
                client,
                self._address,
                session_expiry_s=self._session_expiry_s,
                receive_maximum=self._receive_maximum,
            )
        except (OSError, ValueError) as error:  # ValueError: TLS or host name make no sense to the socket library
            self._fail(connection_failures.not_reached(self._address, error))
        return None

    def _drop(self) -> None:
        if self._client is not None:
            self._client.on_disconnect = None
            self._client.disconnect()
            self._client.loop_stop()
            self._client = None
        self.connected = False

    def _fail(self, reason: str) -> None:
        if reason != self.last_error:
            _logger.warning("%s; trying again", reason)
        self.last_error = reason
        self.connected = False
        self._lost.set()

    def _connected(self, client: paho.Client, _: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        self._answered = True
        self.certificate_ends_ms = _certificate_end(client.socket())
        if is_refused_version(reason) and self._v5:
            self._v5 = False
            self._backoff.reset()
            self._lost.set()
        elif reason.is_failure:
            self._fail(connection_failures.refused(self._address, reason))
        else:
            client.subscribe([(topic, 1) for topic in self._choice.asked()])

    def _subscribed(self, client: paho.Client, _: Any, mid: int, reasons: list[ReasonCode], properties: Any) -> None:
        if any(reason.value >= _FAILURE for reason in reasons):
            asked = self._choice.topics
            if self._choice.refused():
                self._ask_for_others(asked)
                self._lost.set()
            else:
                self._fail(connection_failures.refused_topics(asked, reasons[0]))
            return
        self._choice.granted()
        # From a time when they were all we asked for: a message that two subscriptions fit may come twice.
        if others := self._choice.others:
            client.unsubscribe(others)
        if self._ended_soon < _FEW:
            self._backoff.reset()
        self.connects += 1
        self.last_error = ""
        self.connected = True
        self._say(ONLINE)

    def _ask_for_others(self, before: list[str]) -> None:
        self._backoff.reset()
        asked, rest = ", ".join(before), ", ".join(self._choice.topics)
        _logger.warning("the broker does not let us read %s, so that only %s is read", asked, rest)

    def _say(self, presence: bytes) -> None:
        if self._presence_topic and self._client is not None:
            self._client.publish(self._presence_topic, presence, qos=1, retain=True)

    def _disconnected(self, client: paho.Client, _: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        asked = self._choice.topics
        if self._choice.connection_ended():
            self._ask_for_others(asked)
        if not self._lost.is_set():
            self._fail(self._why_lost(reason))

    def _why_lost(self, reason: ReasonCode) -> str:
        if not self._answered:
            return connection_failures.unanswered(self._address)
        # A link without a session of its own finds out so which of its messages a broker ends the connection at.
        soon = self.connected and self._session_expiry_s > 0 and self._now_s < self._started_s + _SOON_S
        self._ended_soon = self._ended_soon + 1 if soon else 0
        often = self._ended_soon >= _FEW
        return connection_failures.lost(self._address, reason, self._client_id, again_and_again=often)


def _certificate_end(connection: object) -> dict[str, int]:
    """Until when, in ms, the certificate is good that a broker has shown; nothing without TLS."""
    if not isinstance(connection, ssl.SSLSocket):
        return {}
    try:
        ends = (connection.getpeercert() or {})["notAfter"]
        return {"broker": round(1000 * ssl.cert_time_to_seconds(str(ends)))}
    except (OSError, ValueError, KeyError):  # it is a figure: no connection may fail by it
        return {}
