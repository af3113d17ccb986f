"""Step 1 of the way of a reading: the broker for a machine without Mosquitto, amqtt in a process of its own.

It speaks MQTT 3.1.1 and keeps everything in memory: what waits for the gateway is lost when this process dies.

Where amqtt does not keep to MQTT, or would lose messages of a gateway, methods of it are replaced, private ones too: it
has no settings for that.

- A message of QoS 1 is sent until it is acknowledged, also on a later connection, and behind those that came before it:
  ``_PatientHandler``. QoS 2 is given as QoS 1, in ``add_subscription``, too.
- QoS 0 stays QoS 0, and is not kept for who is away: ``_handle_message_delivery``, ``_broadcast_message``.
- What a topic retains goes to who subscribes, not to who connects: ``_publish_retained_messages_for_subscription``.
- Who has no login gets no session: ``init_from_connect``, ``_authenticate``. Each message is asked about:
  ``_topic_filtering``.
- Connections end that say nothing, are dead, send too much, or were taken over, and their sessions go on: ``attach``,
  ``handle_read_timeout``, ``_BoundedReader``, ``stream_connected``, ``_delete_session``, ``_client_message_loop``,
  ``_handle_disconnect``.

``tests/broker`` shows each. A method that a later amqtt no longer has would be replaced in vain:
``tests/edge/mqtt/test_embedded_broker.py`` fails then.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import amqtt.broker
from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter
from amqtt.broker import RetainedApplicationMessage
from amqtt.contexts import Action
from amqtt.errors import AMQTTError, MQTTError, NoDataError, ProtocolHandlerError
from amqtt.mqtt.connack import NOT_AUTHORIZED, ConnackPacket
from amqtt.mqtt.constants import QOS_0, QOS_1
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
FIRST_WORDS_S = 30.0
"""So long a client may take to log in."""
AT_ONCE = 1000
"""Messages that are with a client, not acknowledged yet; the others wait. A gateway takes so many at once."""


class _PatientHandler(BrokerProtocolHandler):  # type: ignore[misc]
    """Sends messages one after another, and keeps each of QoS 1 until the client acknowledges it.

    amqtt forgets a message after 5 s without an acknowledgement and whenever the connection ends, so a gateway that is
    killed, or whose disk is full, would lose messages. A kept message is sent again on the next connection.

    amqtt sends what is published while it still sends what waited for the client, before that. A gateway would take for
    late what comes behind newer samples. So all go through one queue, the session's.

    amqtt answers nothing until all that waited is acknowledged, or has waited for seconds. A gateway whose subscription
    is not answered gives up and connects again, each time. So it is sent beside what else is to be done.

    QoS 2 is sent as QoS 1: amqtt waits for its two answers 5 s each, then forgets the message, and the queue would wait
    with it.
    """

    _sending: asyncio.Task[None] | None = None
    may_subscribe = False
    """Whether the broker reads what the client asks for: it has just connected until then."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._acknowledged = asyncio.Event()

    @classmethod
    async def init_from_connect(cls, reader: Any, writer: Any, plugins_manager: Any, loop: Any = None) -> Any:
        """Refuse who has no login at once: amqtt first gives him the session of his client id, whoever it is of, or a
        new one, which stays. Who says nothing is refused, too.
        """
        try:
            async with asyncio.timeout(FIRST_WORDS_S):
                handler, session = await super().init_from_connect(reader, writer, plugins_manager, loop)
        except TimeoutError as error:
            raise MQTTError(f"said nothing within {FIRST_WORDS_S:g} s") from error
        except (AMQTTError, NoDataError):  # amqtt would leave the connection open
            writer.abort()
            raise
        session.keep_alive = math.ceil(session.keep_alive * 1.5)  # as MQTT has it
        answers = await plugins_manager.map_plugin_auth(session=session)
        if not answers or not all(answers.values()):
            await ConnackPacket.build(0, NOT_AUTHORIZED).to_stream(writer)
            raise MQTTError("not authorised")
        return handler, session

    def attach(self, session: Any, reader: Any, writer: Any) -> None:
        super().attach(session, reader, writer)
        reader.keep_alive_s = session.keep_alive or None

    async def _retry_deliveries(self) -> None:
        """See :meth:`send_what_waits`, which follows."""

    def send_what_waits(self, session: Any) -> None:
        """Begin to send what the client has not acknowledged, then what came while it was away, then what comes.

        Quality 0 that the connection before could not send any more is not for this one.
        """
        waiting = session.retained_messages
        for _ in range(waiting.qsize()):
            if (message := waiting.get_nowait()).qos != QOS_0:
                waiting.put_nowait(message)
        self._sending = asyncio.create_task(self._send_all(session))

    async def mqtt_publish(
        self, topic: str, data: bytes | bytearray, qos: int | None, retain: bool, ack_timeout: int | None = None
    ) -> Any:
        session, qos = self.session, min(qos or QOS_0, QOS_1)
        if session is None or retain:  # what a topic retains comes with the subscription
            return await super().mqtt_publish(topic, data, qos, retain, ack_timeout)
        session.retained_messages.put_nowait(waiting := RetainedApplicationMessage(None, topic, data, qos))
        return waiting

    async def _send_all(self, session: Any) -> None:
        with suppress(ProtocolHandlerError):  # amqtt makes one of the end of this task
            for message in list(session.inflight_out.values()):
                await self._handle_message_flow(message)
            while True:
                while len(session.inflight_out) >= AT_ONCE:
                    self._acknowledged.clear()
                    await self._acknowledged.wait()
                waited = await session.retained_messages.get()
                await super().mqtt_publish(waited.topic, waited.data, min(waited.qos, QOS_1), retain=False)

    async def stop(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        await super().stop()

    def handle_read_timeout(self) -> None:
        """End the connection: it is dead, as that of a device which lost its Wi-Fi. amqtt would keep it for ever."""
        self.end()

    def end(self) -> None:
        """End the connection without a word more; what waits to be sent would hold that up."""
        if self.writer is not None:
            self.writer.abort()

    async def _handle_qos1_message_flow(self, app_message: Any) -> None:
        if app_message.direction != OUTGOING:
            await super()._handle_qos1_message_flow(app_message)
        elif self.session is not None:
            self.session.inflight_out[app_message.packet_id] = app_message
            packet = app_message.build_publish_packet(dup=app_message.publish_packet is not None)
            app_message.publish_packet = packet
            await self._send_packet(packet)

    async def handle_puback(self, puback: Any) -> None:
        if self.session is not None:
            self.session.inflight_out.pop(puback.variable_header.packet_id, None)
        self._acknowledged.set()


class _BoundedReader(StreamReaderAdapter):  # type: ignore[misc]
    """Ends the connection at a packet larger than any of ours, before it is read: amqtt would hold all of it."""

    keep_alive_s: float | None = None
    """So long it waits, also within a packet; amqtt looks at the keep-alive between packets alone."""
    _ended = False

    async def read(self, n: int = -1) -> bytes:
        if self._ended or n > MAX_PACKET_BYTES:
            self._ended = True
            raise ConnectionResetError
        async with asyncio.timeout(self.keep_alive_s):
            found: bytes = await super().read(n)
        return found


class _Writer(StreamWriterAdapter):  # type: ignore[misc]
    def abort(self) -> None:
        self._writer.transport.abort()


class _Broker(amqtt.broker.Broker):  # type: ignore[misc]
    """Asks ``rules`` about each message. Through a plugin, which amqtt asks in a task of its own, some hundreds of
    messages at once stop the broker for good: its deliveries wait for each other.
    """

    rules: DeviceRules

    async def stream_connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener_name: str
    ) -> None:
        try:
            await self._client_connected(listener_name, _BoundedReader(reader), _Writer(writer))
        finally:
            writer.close()  # amqtt leaves it open where the client has gone without a word, as a probe of the port does

    async def _publish_session_retained_messages(self, session: Any) -> None:
        handler = self._get_handler(session)
        if handler is not None:
            handler.send_what_waits(session)

    async def _authenticate(self, session: Any, listener: Any) -> bool:
        return True  # its handler has asked

    async def _delete_session(self, client_id: str) -> None:
        _, handler = self._sessions.get(client_id, (None, None))
        await super()._delete_session(client_id)
        if handler is not None:  # amqtt would leave its connection open beside the new one
            handler.end()

    async def _client_message_loop(self, client_session: Any, handler: Any) -> None:
        handler.may_subscribe = True
        self._note_connected(client_session)
        await super()._client_message_loop(client_session, handler)

    async def _handle_disconnect(self, client_session: Any, handler: Any, disconnect_waiter: Any) -> None:
        await super()._handle_disconnect(client_session, handler, disconnect_waiter)
        session, newest = self._sessions.get(client_session.client_id, (None, None))
        if session is client_session and newest is not handler:
            self._note_connected(client_session)

    @staticmethod
    def _note_connected(session: Any) -> None:
        # Where a connection is taken over, amqtt takes its end for that of the next one: QoS 0 would reach nobody.
        if not session.transitions.is_connected():
            session.transitions.connect()

    async def add_subscription(self, subscription: tuple[str, int], session: Any) -> int:
        topic_filter, qos = subscription
        granted: int = await super().add_subscription((topic_filter, min(qos, QOS_1)), session)
        return granted

    async def _publish_retained_messages_for_subscription(self, subscription: tuple[str, int], session: Any) -> None:
        # To whoever connects amqtt sends what is retained for the subscriptions of anybody.
        handler = self._get_handler(session)
        if handler is not None and handler.may_subscribe:
            await super()._publish_retained_messages_for_subscription(subscription, session)

    async def _handle_message_delivery(self, client_session: Any, handler: Any, wait_deliver: Any) -> bool:
        message = wait_deliver.result()
        client_session.attributes["qos"] = None if message is None else message.qos
        if not await super()._handle_message_delivery(client_session, handler, wait_deliver):
            handler.end()  # amqtt would acknowledge what else comes, and drop it
        return True

    async def _broadcast_message(self, session: Any, topic: Any, data: Any, force_qos: int | None = None) -> None:
        # What is published with QoS 0 amqtt sends on with QoS 1, and keeps it for who is away.
        if force_qos is None and session is not None and session.attributes.get("qos") == QOS_0:
            force_qos = QOS_0
        await super()._broadcast_message(session, topic, data, force_qos)

    async def _topic_filtering(self, session: Any, topic: str, action: Action) -> bool:
        return self.rules.allow(session.username, topic, action)


def run(folder: Path, host: str, port: int, username: str, password: str, stop_with_stdin: bool) -> int:
    """Run amqtt until we are told to stop; the exit code. Raises amqtt's ``BrokerError`` if the port is taken."""
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
    broker = _Broker(
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
