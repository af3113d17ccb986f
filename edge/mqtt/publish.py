"""Step 1 of the way of a reading: publishes one message to the broker, as a device would."""

from __future__ import annotations

import secrets
import threading
from typing import Any

from edge.mqtt.connection import MqttAddress, new_client, open_connection

__all__ = ["PublishError", "publish_once"]

WAIT_S = 10.0


class PublishError(Exception):
    """The broker did not acknowledge the message, but may still have it."""


def publish_once(address: MqttAddress, name: str, topic: str, payload: bytes, wait_s: float = WAIT_S) -> None:
    """Publish with QoS 1 and wait until the broker has acknowledged it; ``name`` begins the client's id.

    Raises :class:`PublishError` if it did not within ``wait_s``.
    """
    client = new_client(address, f"{name}-{secrets.token_hex(4)}", v5=False)
    connected = threading.Event()

    def on_connect(_client: object, _data: object, _flags: object, reason: Any, _properties: object) -> None:
        if not reason.is_failure:
            connected.set()

    client.on_connect = on_connect
    failed = PublishError(f"the broker at {address.host}:{address.port} did not take it")
    try:
        open_connection(client, address)
        if not connected.wait(wait_s):
            raise failed
        sent = client.publish(topic, payload, qos=1)
        sent.wait_for_publish(wait_s)
        if not sent.is_published():
            raise failed
    except OSError as error:
        raise failed from error
    finally:
        client.disconnect()
        client.loop_stop()
