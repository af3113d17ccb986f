"""Step 1 of the way of a reading: publishes messages to the broker, as a device would."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from edge.mqtt.connection import MqttAddress, is_refused_version, new_client, open_connection

__all__ = ["PublishError", "publish_all", "publish_once"]

WAIT_S = 10.0
V5_WAIT_S = 5.0
"""A broker that has not answered a client of MQTT 5 by then is asked in 3.1.1."""


class PublishError(Exception):
    """The broker did not acknowledge the message, but may still have it."""


def publish_once(address: MqttAddress, name: str, topic: str, payload: bytes, wait_s: float = WAIT_S) -> None:
    """Publish with QoS 1 and wait until the broker has acknowledged it; ``name`` begins the client's id.

    Raises :class:`PublishError` if it did not within ``wait_s``, or if it refuses the message, which brokers that speak
    MQTT 5 say.
    """
    publish_all(address, name, [(topic, payload)], wait_s=wait_s)


def publish_all(
    address: MqttAddress, name: str, messages: Sequence[tuple[str, bytes]], *, retain: bool = False,
    wait_s: float = WAIT_S,
) -> None:  # fmt: skip
    """Publish several in order over one connection, as :func:`publish_once`; ``retain``: who comes later gets them,
    too, and an empty payload ends that. What was published before an error may be sent again.
    """
    try:
        _publish(address, name, messages, retain, wait_s)
    except _VersionError:
        _publish(replace(address, v5=False), name, messages, retain, wait_s)


class _VersionError(Exception):
    """The broker does not speak MQTT 5: it says so, hangs up or does not answer."""


def _publish(
    address: MqttAddress, name: str, messages: Sequence[tuple[str, bytes]], retain: bool, wait_s: float
) -> None:  # fmt: skip
    where = f"the broker at {address.host}:{address.port}"
    try:
        client = new_client(address, f"{name}-{secrets.token_hex(4)}", v5=address.v5)
    except OSError as error:
        raise PublishError(f"{where} cannot be asked: {error}") from error
    ended, said, refusals = threading.Event(), list[Any](), list[str]()  # ended: the broker answered, or hung up

    def on_connect(_client: object, _data: object, _flags: object, reason: Any, _properties: object) -> None:
        said.append(reason)
        ended.set()

    def on_disconnect(*_: object) -> None:
        ended.set()

    def on_publish(_client: object, _data: object, _packet: int, reason: Any, _properties: object) -> None:
        if reason.is_failure:
            refusals.append(str(reason))

    client.on_connect, client.on_disconnect, client.on_publish = on_connect, on_disconnect, on_publish
    failed = PublishError(f"{where} did not take it")
    try:
        open_connection(client, address)
        ended.wait(min(wait_s, V5_WAIT_S) if address.v5 else wait_s)
        if address.v5 and (not said or is_refused_version(said[0])):
            raise _VersionError
        if not said:
            raise failed
        if said[0].is_failure:
            raise PublishError(f"{where} refuses us: {said[0]}")
        sent = [client.publish(topic, payload, qos=1, retain=retain) for topic, payload in messages]
        end_s = time.monotonic() + wait_s
        for one in sent:
            one.wait_for_publish(max(end_s - time.monotonic(), 0.01))
            if not one.is_published():
                raise failed
        if refusals:
            raise PublishError(f"{where} refuses it: {refusals[0]}")
    except (OSError, RuntimeError, ValueError) as error:  # paho's words for a connection that ended meanwhile
        raise failed from error
    finally:
        client.disconnect()
        client.loop_stop()
