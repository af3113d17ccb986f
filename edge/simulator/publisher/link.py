"""Step 1 of the way of a reading: one MQTT connection of a site's devices, from its CONNACK to its loss.

A lost link stays lost: its user opens another and decides what to send again, and in which order. paho's own reconnect
would send what was not acknowledged *before* what came earlier and may have been lost in the broker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from paho.mqtt import client as paho
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge.mqtt.connection import MqttAddress, is_refused_version, new_client, open_connection

__all__ = ["Link", "LinkError"]

_CONNECT_TIMEOUT_S = 4.0
_KEEPALIVE_S = 15


class LinkError(Exception):
    """The broker could not be reached or refused us; the message says which."""


class Link:
    """A connection: MQTT 5, or 3.1.1 where the broker refuses 5. Use :meth:`open`, and close it in the end.

    ``window`` is how many messages may wait for their acknowledgement. ``on_ack(link, error)`` is called from the
    network thread, in the order of :meth:`send`, with an empty text or why the broker refused the message.
    """

    def __init__(self, address: MqttAddress, client_id: str, v5: bool, on_ack: Callable[[Link, str], None]) -> None:
        self.window = 200
        self.protocol = "MQTT 5" if v5 else "MQTT 3.1.1"
        self._address = address
        self._on_ack = on_ack
        self._settled = threading.Event()  # connected, refused or closed
        self._lost = threading.Event()
        self._reason = ""
        self._may_lack_v5 = False
        self._client = new_client(address, client_id, v5=v5)
        self._client.max_inflight_messages_set(0)  # no bound: the sender keeps to `window`
        self._client.on_connect = self._connected
        self._client.on_disconnect = self._disconnected
        self._client.on_publish = self._published

    @classmethod
    def open(cls, address: MqttAddress, client_id: str, on_ack: Callable[[Link, str], None]) -> Link:
        """Connect and log in; blocks for at most some seconds. Raises :class:`LinkError`."""
        link = cls(address, client_id, address.v5, on_ack)
        try:
            link._connect()
        except LinkError:
            if not (address.v5 and link._may_lack_v5):
                raise
            link = cls(address, client_id, False, on_ack)
            link._connect()
        return link

    @property
    def is_alive(self) -> bool:
        """Whether the connection was not lost yet."""
        return not self._lost.is_set()

    @property
    def reason(self) -> str:
        """Why the link was lost, or refused."""
        return self._reason

    def send(self, topic: str, payload: bytes) -> None:
        """Hand one message over, QoS 1; on a lost link it goes nowhere and is never acknowledged."""
        self._client.publish(topic, payload, qos=1)

    def close(self) -> None:
        """Say goodbye and end the network thread."""
        self._client.on_disconnect = None  # our own goodbye is no loss
        self._client.disconnect()
        self._client.loop_stop()
        self._lost.set()

    def _connect(self) -> None:
        where = f"{self._address.host}:{self._address.port}"
        try:
            open_connection(self._client, self._address, keepalive_s=_KEEPALIVE_S)
        except (OSError, ValueError) as error:
            raise LinkError(
                f"the broker at {where} cannot be reached: {error}. What to do: start it (`hothouse up` starts one), "
                "or name another by --host and --port"
            ) from error
        settled = self._settled.wait(_CONNECT_TIMEOUT_S)
        if settled and self.is_alive:
            return
        self._may_lack_v5 |= not self._reason  # amqtt, for one, waits for ever for more of a version 5 connect
        self.close()
        if not settled:
            raise LinkError(f"the broker at {where} did not answer within {_CONNECT_TIMEOUT_S:g} s")
        raise LinkError(f"the broker at {where} refused the connection: {self._reason or 'closed without an answer'}")

    def _connected(
        self, client: paho.Client, userdata: Any, flags: paho.ConnectFlags, code: ReasonCode,
        properties: Properties | None,
    ) -> None:  # fmt: skip
        if code.is_failure:
            self._reason = str(code)
            self._may_lack_v5 = is_refused_version(code)
            self._lost.set()
        self.window = min(self.window, getattr(properties, "ReceiveMaximum", self.window))
        self._settled.set()

    def _disconnected(
        self, client: paho.Client, userdata: Any, flags: paho.DisconnectFlags, code: ReasonCode,
        properties: Properties | None,
    ) -> None:  # fmt: skip
        if self._settled.is_set():
            self._reason = self._reason or f"connection lost ({code})"
        self._lost.set()
        self._settled.set()

    def _published(
        self, client: paho.Client, userdata: Any, mid: int, code: ReasonCode, properties: Properties | None
    ) -> None:
        self._on_ack(self, str(code) if code.is_failure else "")
