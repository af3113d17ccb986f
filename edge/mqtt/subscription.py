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

from edge.mqtt.connection import MqttAddress, is_refused_version, new_subscriber, open_connection
from edge.mqtt.subscriber import Published, Subscriber
from edge.timing import Backoff

__all__ = ["OFFLINE", "ONLINE", "Subscription"]

ONLINE, OFFLINE = b'{"online":true}', b'{"online":false}'
"""What the presence topic holds."""

_logger = logging.getLogger(__name__)
_OF_CERTIFICATES = (
    "HANDSHAKE_FAILURE", "BAD_CERTIFICATE", "UNKNOWN_CA", "CERTIFICATE_REQUIRED", "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_EXPIRED", "CERTIFICATE_REVOKED", "UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED",
)  # fmt: skip
"""How a broker that is not content with our certificate, or lacks one, ends a handshake."""
_ANSWER_S = 4.0
_UNANSWERED = 2  # connections that end instead of an answer: once may be chance
_SOON_S = 10.0  # a connection that ends before this did not hold
_FEW = 3  # of those in a row may be chance
_FAILURE = 0x80  # MQTT reason codes from here on say that something failed
_NO_LOGIN = (0x86, 0x87)
_READ = "; mqtt.password_file is read at each try, mqtt.username at the start"
_TAKEN_OVER = 0x8E


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
        self._topics = list(topics)  # without those that the broker did not give us
        self._asked = False  # for the first of them, and the broker has not answered yet
        self._unanswered = 0  # connections in a row that ended while it was asked
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
            self._fail(f"the broker at {self._address.host}:{self._address.port} does not answer")
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
            where = f"{self._address.host}:{self._address.port}"
            return self._fail(f"the broker at {where} cannot be asked: {error}")
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
            self._fail(f"no broker at {self._address.host}:{self._address.port}: {error}{self._meant(error)}")
        return None

    def _meant(self, error: Exception) -> str:
        """A question about a connection that cannot be made over TLS; empty about others."""
        if self._address.tls is None:
            return ""
        if isinstance(error, ssl.SSLError) and (error.reason or "").partition("_ALERT_")[2] in _OF_CERTIFICATES:
            return f"; does it want {self._certificate()}?"
        speaks = not isinstance(error, ConnectionResetError | ssl.SSLEOFError)
        return "" if speaks else "; does it speak TLS at this port (mqtt.tls_ca_file)?"

    def _certificate(self) -> str:
        shown = self._address.tls is not None and self._address.tls.cert is not None
        return f"{'another' if shown else 'a'} client certificate (mqtt.tls_cert_file)"

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
            login = _READ if reason.value in _NO_LOGIN else ""
            self._fail(f"the broker at {self._address.host}:{self._address.port} refuses us: {reason}{login}")
        else:
            self._asked = True
            client.subscribe([(topic, 1) for topic in self._topics[0]])

    def _subscribed(self, client: paho.Client, _: Any, mid: int, reasons: list[ReasonCode], properties: Any) -> None:
        self._asked, self._unanswered = False, 0
        if any(reason.value >= _FAILURE for reason in reasons):
            asked = ", ".join(self._topics[0])
            if self._do_without():
                self._lost.set()
            else:
                self._fail(f"the broker refuses the subscription to {asked}: {reasons[0]}")
            return
        # From a time when they were all we asked for: a message that two subscriptions fit may come twice.
        left = [topic for topics in self._topics[1:] for topic in topics if topic not in self._topics[0]]
        if left:
            client.unsubscribe(list(dict.fromkeys(left)))
        if self._ended_soon < _FEW:
            self._backoff.reset()
        self.connects += 1
        self.last_error = ""
        self.connected = True
        self._say(ONLINE)

    def _do_without(self) -> bool:
        """Ask for the next of ``topics`` from now on, if there is one."""
        if len(self._topics) == 1:
            return False
        asked = self._topics.pop(0)
        self._unanswered = 0
        self._backoff.reset()
        rest = ", ".join(self._topics[0])
        _logger.warning("the broker does not let us read %s, so that only %s is read", ", ".join(asked), rest)
        return True

    def _say(self, presence: bytes) -> None:
        if self._presence_topic and self._client is not None:
            self._client.publish(self._presence_topic, presence, qos=1, retain=True)

    def _disconnected(self, client: paho.Client, _: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        self._unanswered += self._asked
        self._asked = False
        if self._unanswered >= _UNANSWERED:
            self._do_without()
        if not self._lost.is_set():
            self._fail(self._why_lost(reason))

    def _why_lost(self, reason: ReasonCode) -> str:
        where = f"{self._address.host}:{self._address.port}"
        if not self._answered:
            wants = self._certificate() if self._address.tls is not None else "TLS (mqtt.tls_ca_file)"
            return f"the broker at {where} ended the connection before it answered; does it want {wants}?"
        # A link without a session of its own finds out so which of its messages a broker ends the connection at.
        soon = self.connected and self._session_expiry_s > 0 and self._now_s < self._started_s + _SOON_S
        self._ended_soon = self._ended_soon + 1 if soon else 0
        said = f"the connection to {where} was lost: {reason}"
        if self._ended_soon < _FEW and reason.value != _TAKEN_OVER:
            return said
        return f"{said}; is there another gateway with the client id {self._client_id} (mqtt.client_id)?"


def _certificate_end(connection: object) -> dict[str, int]:
    """Until when, in ms, the certificate is good that a broker has shown; nothing without TLS."""
    if not isinstance(connection, ssl.SSLSocket):
        return {}
    try:
        ends = (connection.getpeercert() or {})["notAfter"]
        return {"broker": round(1000 * ssl.cert_time_to_seconds(str(ends)))}
    except (OSError, ValueError, KeyError):  # it is a figure: no connection may fail by it
        return {}
