"""The client that reads many messages at a time gives what paho gives, however the bytes come."""

from __future__ import annotations

import random
import struct
from itertools import pairwise
from typing import Any

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from benchmarks._load import remaining_length
from edge.mqtt.subscriber import Published, Subscriber

PROTOCOLS = [paho.MQTTv311, paho.MQTTv5]


class Socket:
    """Gives ``pieces`` one after another, then "nothing there yet"; keeps what was sent."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)
        self.sent: list[bytes] = []

    def recv(self, size: int) -> bytes:
        if not self._pieces:
            raise BlockingIOError
        piece = self._pieces.pop(0)
        if len(piece) > size:
            self._pieces.insert(0, piece[size:])
        return piece[:size]

    def send(self, data: bytes) -> int:
        self.sent.append(bytes(data))
        return len(data)

    def close(self) -> None:
        pass


class TlsSocket(Socket):
    """Gives one piece a call, as TLS gives one record."""

    def pending(self) -> int:
        """Bytes of a record that is decrypted: all of it was taken."""
        return 0


def client_of(kind: type[Any], protocol: int, socket: Socket) -> Any:
    """A client that is connected as far as it knows."""
    client = kind(CallbackAPIVersion.VERSION2, client_id="test", protocol=protocol, manual_ack=True)
    client._sock = socket
    return client


def read_all(client: Any, socket: Socket) -> MQTTErrorCode:
    """Read until nothing is there; the first error, if there was one."""
    while True:
        result = client._packet_read()
        if result not in (MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_AGAIN):
            return MQTTErrorCode(result)
        if not socket._pieces:
            return MQTTErrorCode.MQTT_ERR_SUCCESS


def publish(
    number: int, topic: bytes, payload: bytes, qos: int, protocol: int, properties: bytes = b"", *, again: bool = False
) -> bytes:
    """A PUBLISH packet; ``again``: with the flag DUP."""
    body = struct.pack("!H", len(topic)) + topic + (struct.pack("!H", number) if qos else b"")
    if protocol == paho.MQTTv5:
        body += remaining_length(len(properties)) + properties
    body += payload
    return bytes([0x30 | again << 3 | qos << 1]) + remaining_length(len(body)) + body


def stream(protocol: int) -> list[bytes]:
    """Packets of many lengths: messages, and what is paho's own among them."""
    expiry = b"\x02" + struct.pack("!I", 60)  # of a message, in seconds
    note = b"\x26" + struct.pack("!H", 4) + b"name" + struct.pack("!H", 150) + b"v" * 150  # longer than one byte says
    sizes = (0, 1, 90, 127, 128, 130, 5000, 16_500, 200_000)
    return [
        publish(7, b"hothouse/v1/s/z/d/sample", b"{}", 1, protocol),
        publish(0, "hothouse/v1/s/ß".encode(), b"x", 0, protocol),
        b"\xd0\x00",  # PINGRESP
        *(publish(size % 65_535 + 1, b"a/b", b"\x30\x82" * (size // 2), 1, protocol, expiry) for size in sizes),
        b"\xd0\x00",
        publish(9, b"not \xff text", b"y", 1, protocol, note),
        publish(9, b"a/b", b"z", 1, protocol, again=True),
        publish(65_535, b"last", b"", 1, protocol),
    ]


def by_paho(pieces: list[bytes], protocol: int) -> list[Published]:
    """What paho itself makes of them."""
    socket, found = Socket(*pieces), list[Published]()
    client = client_of(paho.Client, protocol, socket)

    def take(_: Any, __: Any, message: paho.MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = "?"
        found.append(Published(topic, bytes(message.payload), message.mid, message.qos, message.retain, message.dup))

    client.on_message = take
    assert read_all(client, socket) == MQTTErrorCode.MQTT_ERR_SUCCESS
    return found


def by_ours(pieces: list[bytes], protocol: int) -> tuple[list[Published], int]:
    """What ours makes of them, and how many answers to pings it saw."""
    socket, found, pings = Socket(*pieces), list[Published](), list[int]()
    client = client_of(Subscriber, protocol, socket)
    client.on_published = found.append
    client._handle_pingresp = lambda: pings.append(1) or MQTTErrorCode.MQTT_ERR_SUCCESS
    assert read_all(client, socket) == MQTTErrorCode.MQTT_ERR_SUCCESS
    return found, len(pings)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_messages_are_those_of_paho_however_the_bytes_are_cut(protocol: int) -> None:
    """Whole, byte by byte, in packets or in random pieces: topics, payloads, numbers and qualities are paho's."""
    packets = stream(protocol)
    data = b"".join(packets)
    expected = by_paho([data], protocol)
    assert len(expected) == 14
    assert by_ours(packets, protocol) == (expected, 2)
    assert by_ours([data], protocol) == (expected, 2)
    assert by_ours([data[n : n + 1] for n in range(2000)] + [data[2000:]], protocol) == (expected, 2)
    rng = random.Random(3)
    for _ in range(30):
        cuts = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(rng.randrange(40)))})
        pieces = [data[a:b] for a, b in pairwise(cuts)]
        assert by_ours(pieces, protocol) == (expected, 2)


@pytest.mark.parametrize(
    "packet",
    [
        b"\x32\xff\xff\xff\xff\x01",  # a length of five bytes
        b"\x32\x03\x00\x20a",  # a topic that goes on behind the packet
        b"\x32\x05\x00\x03abc",  # no number
        publish(1, b"a", b"", 2, paho.MQTTv311),  # a quality that was not asked for
        b"\xf0\x00",  # a packet that MQTT 3.1.1 has not
    ],
)
def test_what_is_no_mqtt_ends_the_connection(packet: bytes) -> None:
    """It is a protocol error, as with paho, after the messages before it were taken."""
    good = publish(7, b"a/b", b"x", 1, paho.MQTTv311)
    socket, found = Socket(good + packet), list[Published]()
    client = client_of(Subscriber, paho.MQTTv311, socket)
    client.on_published = found.append
    assert read_all(client, socket) == MQTTErrorCode.MQTT_ERR_PROTOCOL
    assert found == [Published("a/b", b"x", 7, 1)]


def test_properties_that_go_on_behind_the_packet_are_no_mqtt() -> None:
    """A message of MQTT 5 whose properties have a length without an end is never taken."""
    socket, found = Socket(b"\x32\x06\x00\x01a\x00\x07\x80"), list[Published]()
    client = client_of(Subscriber, paho.MQTTv5, socket)
    client.on_published = found.append
    assert (read_all(client, socket), found) == (MQTTErrorCode.MQTT_ERR_PROTOCOL, [])


@pytest.mark.parametrize("ends", [False, True])
def test_all_records_of_tls_that_have_arrived_are_read_at_once(ends: bool) -> None:
    """A broker makes a record of each message, and a wait to gather comes before each read; an end is told after it."""
    packets = stream(paho.MQTTv5)
    expected = by_paho(packets, paho.MQTTv5)[:8]  # of nine packets, for one is an answer to a ping
    socket, found = TlsSocket(*packets[:9], *[b""] * 2 * ends), list[Published]()
    client = client_of(Subscriber, paho.MQTTv5, socket)
    client.on_published = found.append
    assert client._packet_read() == MQTTErrorCode.MQTT_ERR_SUCCESS
    assert found == expected
    lost = MQTTErrorCode.MQTT_ERR_CONN_LOST if ends else MQTTErrorCode.MQTT_ERR_AGAIN
    assert client._packet_read() == lost


def test_a_connection_that_ends_is_lost() -> None:
    """An end of the stream is not an empty message."""
    socket = Socket(b"")
    assert client_of(Subscriber, paho.MQTTv5, socket)._packet_read() == MQTTErrorCode.MQTT_ERR_CONN_LOST


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_acknowledgements_are_those_of_paho_in_one_piece(protocol: int) -> None:
    """Acknowledging many at once sends the bytes that acknowledging each would, in their order."""
    mids = [1, 65_535, 300, 2]
    one, many = Socket(), Socket()
    each = client_of(paho.Client, protocol, one)
    for mid in mids:
        each.ack(mid, 1)
    client_of(Subscriber, protocol, many).ack_all(mids)
    assert b"".join(one.sent) == b"".join(many.sent)
    assert (len(one.sent), len(many.sent)) == (4, 1)
