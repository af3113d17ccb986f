"""Step 2 of the way of a reading: a central MQTT broker as an uplink's target.

Each record is one message of quality 1. It counts as arrived once the broker has acknowledged it *and* said that
somebody is subscribed: a broker may acknowledge what it then drops because the central gateway was never there. Only
MQTT 5 tells the difference, so an uplink needs it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from paho.mqtt import client as paho
from paho.mqtt.reasoncodes import ReasonCode

from edge.log.contract import LogError, NewRecord
from edge.mqtt.connection import MqttAddress, is_refused_version, new_client, open_connection
from edge.wire.envelope import encode_envelope

__all__ = ["MqttTarget"]

_IN_FLIGHT = 20
"""Messages sent and not acknowledged yet, unless the broker takes fewer."""
_NO_SUBSCRIBER = 0x10
_HEAD_BYTES = 10
"""What a packet has besides topic and payload, at most."""
_KEEPALIVE_S = 10
"""Short enough to notice a broker whose machine is gone while the buffer still holds what it took."""


class MqttTarget:
    """The broker at ``address``; connected when it is first needed, and again after every failure.

    ``timeout_s`` bounds connecting, and how long the broker may acknowledge nothing.
    """

    def __init__(self, address: MqttAddress, client_id: str, timeout_s: float = 10.0, tail_s: float = 60.0) -> None:
        self.tail_s = tail_s
        self._address, self._client_id, self._timeout_s = address, client_id, timeout_s
        self._where = f"the central broker at {address.host}:{address.port}"
        self._client: paho.Client | None = None
        self._news = threading.Condition()
        self._sites: list[str] = []  # of this batch's records
        self._answered = 0  # of these
        self._in_flight = _IN_FLIGHT
        self._most_bytes: int | None = None  # of a packet, as far as the broker says
        self._state = ""  # "", "connected", or what went wrong

    def send(self, records: Sequence[NewRecord]) -> None:
        """Publish them in order, and wait for every acknowledgement."""
        try:
            client = self._client or self._connect()
            messages = [encode_envelope(record) for record in records]
            self._check_sizes(records, messages)  # first: else those before it would be sent at each try
            # Of a new batch: nothing of the one before is under way.
            self._sites, self._answered = [record.site for record in records], 0
            for number, message in enumerate(messages):
                self._await_answers(number - self._in_flight + 1)
                client.publish(*message, qos=1)
            self._await_answers(len(records))
        except (OSError, ValueError) as error:  # ValueError: TLS or host name make no sense to the socket library
            self.close()
            raise LogError(f"{self._where} cannot be reached: {error}") from error
        except BaseException:
            self.close()  # an answer that comes later must not be taken for one of the next batch
            raise

    def check(self) -> None:
        """Raise where the connection was lost: the broker may have ended with what it had only in memory."""
        if self._client is not None and self._state != "connected":
            state = self._state
            self.close()
            raise LogError(f"{self._where} {state}")

    def close(self) -> None:
        """Leave; the next :meth:`send` connects again."""
        client, self._client = self._client, None
        if client is not None:
            client.on_disconnect = None
            client.disconnect()
            client.loop_stop()
        with self._news:
            self._state = ""

    def _connect(self) -> paho.Client:
        client = new_client(self._address, self._client_id, v5=True)
        client.connect_timeout = self._timeout_s / 2
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_publish = self._published
        self._client = client
        open_connection(client, self._address, keepalive_s=_KEEPALIVE_S)
        with self._news:
            self._news.wait_for(lambda: self._state, self._timeout_s)
            if self._state != "connected":
                raise LogError(f"{self._where} {self._state or 'does not answer as MQTT 5'}")
        return client

    def _check_sizes(self, records: Sequence[NewRecord], messages: Sequence[tuple[str, bytes]]) -> None:
        """A broker ends the connection at a packet that is larger than it takes, and mostly does not say why."""
        for record, (topic, payload) in zip(records, messages, strict=True):
            size = len(topic.encode()) + len(payload) + _HEAD_BYTES
            if self._most_bytes is not None and size > self._most_bytes:
                raise LogError(
                    f"{self._where} takes packets of {self._most_bytes:,} bytes at most, and a record of {record.site} "
                    f"({record.kind}) needs {size:,}: raise its limit (Mosquitto: max_packet_size); the records wait"
                )

    def _await_answers(self, number: int) -> None:
        with self._news:
            while self._answered < number and self._state == "connected":
                before = self._answered
                if not self._news.wait(self._timeout_s) and self._answered == before:
                    raise LogError(f"{self._where} acknowledges nothing for {self._timeout_s:g} s")
            if self._state != "connected":
                raise LogError(f"{self._where} {self._state}")

    def _connected(self, client: paho.Client, _: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        self._in_flight = min(_IN_FLIGHT, getattr(properties, "ReceiveMaximum", _IN_FLIGHT))
        self._most_bytes = getattr(properties, "MaximumPacketSize", None)
        if is_refused_version(reason):
            self._say("speaks no MQTT 5, which an uplink needs")
        else:
            self._say(f"refuses us: {reason}" if reason.is_failure else "connected")

    def _disconnected(self, client: paho.Client, _: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        if self._state in ("", "connected"):
            self._say(f"was lost: {reason}")

    def _published(self, client: paho.Client, _: Any, packet: int, reason: ReasonCode, properties: Any) -> None:
        if reason.value == _NO_SUBSCRIBER:
            self._say("has no subscriber: the central gateway was never connected to it")
        elif reason.is_failure:
            # Brokers acknowledge in order.
            self._say(f"refuses a record of {self._sites[self._answered]}: {reason}")
        else:
            with self._news:
                self._answered += 1
                self._news.notify()

    def _say(self, state: str) -> None:
        with self._news:
            self._state = state
            self._news.notify()
