"""Step 1 of the way of a reading: the broker for a machine without Mosquitto, amqtt in a process of its own.

It speaks MQTT 3.1.1 and keeps everything in memory: what waits for the gateway is lost when this process dies.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import amqtt.broker
from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter
from amqtt.contexts import Action
from amqtt.errors import AMQTTError
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import OUTGOING
from pwdlib.hashers.argon2 import Argon2Hasher

from edge.mqtt.broker_log import LOG, shorten
from edge.mqtt.connection import MAX_PACKET_BYTES
from edge.mqtt.embedded_access import DeviceRules
from edge.parent_watch import when_stdin_ends
from edge.secret_file import write_secret

__all__ = ["run"]

LOOK_S = 10.0
"""How often the log's length is looked at."""
AT_ONCE = 100
"""Messages that waited for a client and are sent before it has acknowledged some."""


class _PatientHandler(BrokerProtocolHandler):  # type: ignore[misc]
    """Keeps a QoS 1 message until the client acknowledges it.

    amqtt forgets it after 5 s without an acknowledgement and whenever the connection ends, so a gateway that is killed,
    or whose disk is full, would lose messages. A kept message is sent again on the next connection.

    There amqtt answers nothing until all that waited is acknowledged, or has waited for seconds. A gateway whose
    subscription is not answered gives up and connects again, each time. So it is sent beside what else is to be done.
    """

    _sending: asyncio.Task[None] | None = None

    async def _retry_deliveries(self) -> None:
        """See :meth:`send_what_waited`, which follows."""

    def send_what_waited(self, session: Any) -> None:
        """Begin to send what the client has not acknowledged, then what came while it was away."""
        self._sending = asyncio.create_task(self._send_all(deque(session.inflight_out.values()), session))

    async def _send_all(self, again: deque[Any], session: Any) -> None:
        async def send_some() -> None:
            while again or not session.retained_messages.empty():
                with suppress(TimeoutError, AMQTTError):  # it is kept; or it has been acknowledged meanwhile
                    if again:
                        await self._handle_message_flow(again.popleft())
                    else:
                        await self._send(session.retained_messages.get_nowait())

        await asyncio.gather(*(send_some() for _ in range(AT_ONCE)), return_exceptions=True)
        while True:  # amqtt may take a client that comes back at once for one that is away: what comes then goes, too
            with suppress(TimeoutError, AMQTTError):
                await self._send(await session.retained_messages.get())

    async def _send(self, waited: Any) -> None:
        await self.mqtt_publish(waited.topic, waited.data, waited.qos, retain=False)

    async def stop(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        await super().stop()

    async def _handle_qos1_message_flow(self, app_message: Any) -> None:
        session = self.session
        try:
            await super()._handle_qos1_message_flow(app_message)
        finally:
            if app_message.direction == OUTGOING and app_message.puback_packet is None and session is not None:
                session.inflight_out[app_message.packet_id] = app_message

    async def handle_puback(self, puback: Any) -> None:
        await super().handle_puback(puback)
        packet_id = puback.variable_header.packet_id
        if packet_id not in self._puback_waiters and self.session is not None:
            self.session.inflight_out.pop(packet_id, None)  # it came after amqtt had stopped to wait


class _BoundedReader(StreamReaderAdapter):  # type: ignore[misc]
    """Ends the connection at a packet larger than any of ours, before it is read: amqtt would hold all of it."""

    _ended = False

    async def read(self, n: int = -1) -> bytes:
        if self._ended or n > MAX_PACKET_BYTES:
            self._ended = True
            raise ConnectionResetError
        found: bytes = await super().read(n)
        return found


class _RuledBroker(amqtt.broker.Broker):  # type: ignore[misc]
    """Asks ``rules`` about each message. Through a plugin, which amqtt asks in a task of its own, some hundreds of
    messages at once stop the broker for good: its deliveries wait for each other.
    """

    rules: DeviceRules

    async def stream_connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener_name: str
    ) -> None:
        await self._client_connected(listener_name, _BoundedReader(reader), StreamWriterAdapter(writer))

    async def _publish_session_retained_messages(self, session: Any) -> None:
        handler = self._get_handler(session)
        if handler is not None:
            handler.send_what_waited(session)

    async def _topic_filtering(self, session: Any, topic: str, action: Action) -> bool:
        return self.rules.allow(session.username, topic, action)


def run(folder: Path, host: str, port: int, username: str, password: str, stop_with_stdin: bool) -> int:
    """Run amqtt until we are told to stop; returns the exit code. Raises ``BrokerError`` when the port is taken."""
    users = folder / "amqtt.users"
    write_secret(users, f"{username}:{Argon2Hasher().hash(password)}\n")
    plugins = {
        "edge.mqtt.embedded_access.DevicePasswords": {"password_file": os.fspath(users), "folder": os.fspath(folder)},
    }
    asyncio.run(_serve(host, port, plugins, DeviceRules(folder, username), stop_with_stdin, folder / LOG))
    return 0


async def _serve(
    host: str, port: int, plugins: dict[str, dict[str, str]], rules: DeviceRules, stop_with_stdin: bool,
    log: Path,
) -> None:  # fmt: skip
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if stop_with_stdin:
        when_stdin_ends(lambda: loop.call_soon_threadsafe(stopped.set))
    amqtt.broker.BrokerProtocolHandler = _PatientHandler  # amqtt has no setting for the class of its handlers
    broker = _RuledBroker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"{host}:{port}"}},
            "plugins": plugins,
        }
    )
    broker.rules = rules
    await broker.start()
    while not stopped.is_set():
        shorten(log)
        with suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), LOOK_S)
    await broker.shutdown()
