"""What the local brokers do for sessions: what waits, in which order, for whom, and when a connection ends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from paho.mqtt.client import Client, MQTTMessage

from edge.mqtt.broker import LocalBroker
from edge.mqtt.connection import MqttAddress, new_client, open_connection
from tests.broker.conftest import device, local_broker, login_answer, until
from tests.patience import patience_s

pytestmark = pytest.mark.broker

KINDS = ("mosquitto", "amqtt")
_KEEPALIVE_S = 4  # of which a loaded machine may lose some


@pytest.mark.parametrize("kind", KINDS)
def test_who_acknowledges_nothing_is_answered_all_the_same(tmp_path: Path, kind: str) -> None:
    """A gateway waits four seconds for the answer to its subscription; what waits for it must not hold that up. What it
    has not acknowledged comes with each connection, and once it has, no more.
    """
    with local_broker(tmp_path / "b", kind) as broker:
        took_s, waited = [], [str(n).encode() for n in range(50)]
        with waiting_session(broker):
            pass
        with device(broker.address) as publish:
            publish([("waits", payload) for payload in waited])
        for _ in range(3):
            with waiting_session(broker) as (took, received):
                took_s.append(took)
                until(lambda: len(received) >= len(waited), "all that waits comes")
                assert sorted(message.payload for message in received) == sorted(waited)
                assert not any(message.retain for message in received)
        assert min(took_s) < 4.0
        with waiting_session(broker, acknowledges=True) as (_, received):
            until(lambda: len(received) >= len(waited), "all that waits comes")
        with device(broker.address) as publish:
            publish([("waits", b"last")])
        with waiting_session(broker) as (_, received):
            until(lambda: b"last" in [message.payload for message in received])
            assert len(received) < len(waited)


@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_comes_before_what_is_published_meanwhile(tmp_path: Path, kind: str) -> None:
    """Samples that are sent live while a gateway is given what waited come after it: rows close by the newest sample,
    and what came behind it would be late.
    """
    waited, live = (range(1500), range(1500, 2500))
    with local_broker(tmp_path / "b", kind) as broker:
        with waiting_session(broker):
            pass
        with device(broker.address) as publish:
            publish([("waits", str(n).encode()) for n in waited])
            sending = threading.Thread(target=publish, args=([("waits", str(n).encode()) for n in live],))
            with waiting_session(broker, acknowledges=True, when_connected=sending.start) as (_, received):
                sending.join()
                until(lambda: len({message.payload for message in received}) == live.stop, "all comes")
    assert [int(message.payload) for message in received] == [*waited, *live]


@pytest.mark.parametrize("kind", KINDS)
def test_quality_0_is_not_kept_for_who_is_away(tmp_path: Path, kind: str) -> None:
    """A number without a time would count as measured when the gateway is back (docs/sensors.md, ESPHome)."""
    with local_broker(tmp_path / "b", kind) as broker:
        with waiting_session(broker):
            pass
        client = new_client(broker.address, "test-device", v5=broker.address.v5)
        open_connection(client, broker.address)
        until(client.is_connected)
        client.publish("waits", b"0", qos=0)
        client.publish("waits", b"1", qos=1).wait_for_publish(patience_s(10))
        with waiting_session(broker, acknowledges=True) as (_, received):
            until(lambda: received)
            client.publish("waits", b"2", qos=0)
            until(lambda: len(received) > 1)
        client.disconnect()
        client.loop_stop()
    assert [(message.payload, message.qos) for message in received] == [(b"1", 1), (b"2", 0)]


@pytest.mark.parametrize("kind", KINDS)
def test_who_takes_a_connection_over_gets_all_that_comes(tmp_path: Path, kind: str) -> None:
    """Of whatever quality: a gateway that connects again before the broker has seen its connection end, too."""
    with local_broker(tmp_path / "b", kind) as broker:
        with (
            waiting_session(broker, acknowledges=True) as (_, before),
            waiting_session(broker, acknowledges=True) as (_, received),
            device(broker.address) as publish,
            device(broker.address, qos=0) as publish_unsure,
        ):
            publish([("waits", b"1")])
            until(lambda: received)
            publish_unsure([("waits", b"2")])
            until(lambda: len(received) > 1)
        assert [message.payload for message in received] == [b"1", b"2"]
        assert not before


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_of_quality_2_gets_all_that_waits(tmp_path: Path, kind: str) -> None:
    """Also while its client answers nothing, as one that is busy: each message would wait for the one before."""
    waited = [str(n).encode() for n in range(5)]
    with local_broker(tmp_path / "b", kind) as broker:
        with waiting_session(broker, qos=2):
            pass
        with device(broker.address, qos=2) as publish:
            publish([("waits", payload) for payload in waited])
        with waiting_session(broker, qos=2) as (_, received):
            until(lambda: [message.payload for message in received] == waited)


@pytest.mark.parametrize("kind", KINDS)
def test_what_topics_retain_goes_to_who_subscribes_alone(tmp_path: Path, kind: str) -> None:
    """Alerts are retained, and a device with a login that reads nothing was sent them when it connected."""
    with local_broker(tmp_path / "b", kind) as broker, waiting_session(broker, acknowledges=True) as (_, received):
        publisher = new_client(broker.address, "test-publisher", v5=broker.address.v5)
        open_connection(publisher, broker.address)
        until(publisher.is_connected)
        publisher.publish("waits", b"kept", qos=1, retain=True)
        until(lambda: received)
        told, subscribed = list[MQTTMessage](), list[object]()
        stranger = new_client(broker.address, "test-stranger", v5=broker.address.v5)
        stranger.on_connect = lambda client, *_: client.subscribe("else", qos=1)
        stranger.on_subscribe = lambda *given: subscribed.append(given)
        stranger.on_message = lambda client, _, message: told.append(message)
        open_connection(stranger, broker.address)
        until(lambda: subscribed)
        publisher.publish("else", b"last", qos=1)
        until(lambda: b"last" in [message.payload for message in told])
        for client in (publisher, stranger):
            client.disconnect()
            client.loop_stop()
        assert [message.payload for message in told] == [b"last"]


@pytest.mark.parametrize("kind", KINDS)
def test_who_has_no_login_ends_nobodys_connection(tmp_path: Path, kind: str) -> None:
    """Nor is a session made for him, which would stay: a device with a wrong password tries for ever."""
    with local_broker(tmp_path / "b", kind) as broker:
        ended: list[object] = []
        client = new_client(broker.address, "test-login", persistent=True, v5=broker.address.v5)
        client.on_disconnect = lambda *given: ended.append(given)
        open_connection(client, broker.address, session_expiry_s=600)
        until(client.is_connected)
        for name in ("nobody", broker.address.username):
            stranger = replace(broker.address, username=name, password="wrong")
            assert login_answer(stranger, persistent=True) == "Not authorized"
        client.publish("waits", b"1", qos=1).wait_for_publish(patience_s(10))
        assert not ended
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("clean", "begun"), [(True, b""), (False, b""), (True, b"\x30\x64\x00\x05waits")])
def test_dead_connections_end(tmp_path: Path, kind: str, clean: bool, begun: bytes) -> None:
    """A device that loses its Wi-Fi leaves its connection open and makes another: the broker would run out of files. It
    may have begun a message.
    """
    with local_broker(tmp_path / "b", kind) as broker:
        ended: list[object] = []
        idle = new_client(broker.address, "test-idle", v5=broker.address.v5)
        idle.on_disconnect = lambda *given: ended.append(given)
        open_connection(idle, broker.address, keepalive_s=_KEEPALIVE_S)
        until(idle.is_connected)
        left = [_silent_login(broker.address, "test-flaky", clean=clean) for _ in range(3)]
        left[-1].sendall(begun)
        for connection in left:
            connection.settimeout(patience_s(20))
            assert connection.recv(100) == b""
            connection.close()
        assert not ended, "who says that it is there stays"
        idle.disconnect()
        idle.loop_stop()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("topic", ["$own/topic", "waits/+", "#"])
def test_what_follows_a_topic_that_cannot_be_is_not_lost(tmp_path: Path, kind: str, topic: str) -> None:
    """The connection ends, and the device sends again what was not acknowledged."""
    with local_broker(tmp_path / "b", kind) as broker, waiting_session(broker) as (_, received):
        connection = _silent_login(broker.address, "test-wrong", clean=True)
        name, meant = topic.encode(), b"\x00\x05waits"
        wrong = len(name).to_bytes(2, "big") + name
        connection.sendall(bytes([0x30, len(wrong)]) + wrong)
        acknowledged = b""
        with suppress(OSError):  # it has ended
            connection.settimeout(patience_s(20))
            for number in range(1, 200):
                body = meant + number.to_bytes(2, "big") + str(number).encode()
                connection.sendall(bytes([0x32, len(body)]) + body)
                if not (answer := connection.recv(4)):
                    break
                acknowledged += answer
        connection.close()
        numbers = [acknowledged[at + 3] for at in range(0, len(acknowledged), 4)]
        until(lambda: len(received) >= len(numbers), "what is acknowledged comes")


@pytest.mark.parametrize("kind", KINDS)
def test_who_comes_and_goes_without_a_word_leaves_no_connection(tmp_path: Path, kind: str) -> None:
    """So a probe of the port does, every few seconds."""
    with (
        local_broker(tmp_path / "b", kind) as broker,
        socket.create_connection((broker.address.host, broker.address.port), patience_s(10)) as connection,
    ):
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b""


def _silent_login(address: MqttAddress, client_id: str, *, clean: bool) -> socket.socket:
    """A connection of MQTT 3.1.1 which then says nothing."""
    flags = 0b1100_0000 | (0b10 if clean else 0)
    words = [word.encode() for word in (client_id, address.username, address.password)]
    text = b"".join(len(word).to_bytes(2, "big") + word for word in words)
    body = b"\x00\x04MQTT\x04" + bytes([flags, 0, _KEEPALIVE_S]) + text
    connection = socket.create_connection((address.host, address.port), patience_s(10))
    connection.sendall(bytes([0x10, len(body)]) + body)
    assert connection.recv(4)[0] == 0x20
    return connection


@contextmanager
def waiting_session(
    broker: LocalBroker, *, acknowledges: bool = False, when_connected: Callable[[], object] = lambda: None,
    qos: int = 1,
) -> Iterator[tuple[float, list[MQTTMessage]]]:  # fmt: skip
    """A session's connection: how long its subscription waited for an answer, and what it gets."""
    received: list[MQTTMessage] = []
    subscribed: list[object] = []

    def on_message(client: Client, _: object, message: MQTTMessage) -> None:
        received.append(message)
        if acknowledges:
            client.ack(message.mid, message.qos)

    client = new_client(broker.address, "test-session", persistent=True, v5=broker.address.v5)
    client.on_connect = lambda client, *_: (client.subscribe("waits", qos=qos), when_connected())
    client.on_subscribe = lambda *given: subscribed.append(given)
    client.on_message = on_message
    began_s = time.monotonic()
    open_connection(client, broker.address, session_expiry_s=600)
    until(lambda: subscribed)
    try:
        yield time.monotonic() - began_s, received
    finally:
        client.disconnect()
        client.loop_stop()
