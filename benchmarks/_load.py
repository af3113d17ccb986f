"""A load generator: many devices behind one MQTT connection, at a stated rate, as cheaply as Python allows.

It writes MQTT 3.1.1 packets itself, because a client library would cost more than the system under test.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from ctypes import c_double, c_int64
from typing import Any

from benchmarks._child import Child
from edge.mqtt.broker import LocalBroker
from edge.mqtt.connection import MqttAddress
from edge.wire.topic import sample_topic

__all__ = ["SITES", "Load", "remaining_length", "zone_of"]

SITES = tuple(f"site-{number}" for number in range(10))
VALUES = (
    b'{"air_temp_c":21.37,"rh_pct":71.2,"co2_ppm":455,"par_umol_m2_s":321.5,"soil_temp_c":19.8,"vent_lee_pct":12.5}'
)
PULSE_S = 0.02
MOST_UNACKED = 20_000
"""Messages; beyond it the generator waits, so that the stated rate is not reached."""


def zone_of(number: int) -> str:
    """The zone of that number, of site ``SITES[number % len(SITES)]``."""
    return f"z{number}"


class Load(Child):
    """A process that publishes :attr:`rate` samples a second, from ``with`` to its end. It begins with 0."""

    def __init__(self, broker: LocalBroker, samples_a_message: int, zones: int) -> None:
        super().__init__()
        self._rate: Any = self.spawn.Value(c_double, 0.0)
        self._published: Any = self.spawn.Value(c_int64, 0)
        self.runs(_publish, broker.address, samples_a_message, zones, self._rate, self._published)

    @property
    def rate(self) -> float:
        """Samples a second, all devices together."""
        return float(self._rate.value)

    @rate.setter
    def rate(self, value: float) -> None:
        self._rate.value = value

    @property
    def published(self) -> int:
        """Samples handed to the broker so far."""
        return int(self._published.value)


def _publish(address: MqttAddress, samples_a_message: int, zones: int, rate: Any, published: Any) -> None:
    """Round after round over all devices, a pulse's share each 20 ms."""
    connection = _connect(address)
    acked = [0]
    threading.Thread(target=_count_acks, args=(connection, acked), daemon=True).start()
    topics = [
        sample_topic(SITES[zone % len(SITES)], zone_of(zone), device).encode()
        for zone in range(zones)
        for device in ("climate", "control")
    ]
    boot = f"{time.time_ns():016x}".encode()
    owed, messages, at_s = 0.0, 0, time.monotonic()
    while True:
        time.sleep(PULSE_S)
        now_s = time.monotonic()
        owed = min(owed + rate.value / samples_a_message * (now_s - at_s), 2.0 * rate.value) if rate.value else 0.0
        at_s = now_s
        count = min(int(owed), MOST_UNACKED - (messages - acked[0]))
        if count <= 0:
            continue
        now_ms = time.time_ns() // 1_000_000
        packets = []
        for number in range(messages, messages + count):
            seq = number * samples_a_message
            payload = _payload(boot, now_ms, seq, samples_a_message)
            packets.append(_packet(topics[number % len(topics)], payload, number % 65_535 + 1))
        connection.sendall(b"".join(packets))
        messages += count
        owed -= count
        published.value = messages * samples_a_message


def _payload(boot: bytes, now_ms: int, seq: int, samples: int) -> bytes:
    if samples == 1:
        return b'{"boot":"%s","ts":%d,"seq":%d,"values":%s}' % (boot, now_ms, seq, VALUES)
    points = [b'{"ts":%d,"seq":%d,"values":%s}' % (now_ms - n, seq + n, VALUES) for n in range(samples)]
    return b'{"boot":"%s","samples":[%s]}' % (boot, b",".join(points))


def _packet(topic: bytes, payload: bytes, packet_id: int) -> bytes:
    """PUBLISH with QoS 1."""
    body = struct.pack(f"!H{len(topic)}sH", len(topic), topic, packet_id) + payload
    return b"\x32" + remaining_length(len(body)) + body


def remaining_length(size: int) -> bytes:
    """MQTT's variable byte integer."""
    digits = bytearray()
    while True:
        size, digit = divmod(size, 128)
        digits.append(digit | (0x80 if size else 0))
        if not size:
            return bytes(digits)


def _connect(address: MqttAddress) -> socket.socket:
    connection = socket.create_connection((address.host, address.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    words = [b"hothouse-load", address.username.encode(), address.password.encode()]
    flags = 0xC2  # user name, password, clean session
    body = b"\x00\x04MQTT\x04" + bytes([flags]) + struct.pack("!H", 0)
    body += b"".join(struct.pack("!H", len(word)) + word for word in words)
    connection.sendall(b"\x10" + remaining_length(len(body)) + body)
    answer = connection.recv(4)
    if answer != b"\x20\x02\x00\x00":
        raise ConnectionError(f"the broker answered {answer!r}")
    return connection


def _count_acks(connection: socket.socket, acked: list[int]) -> None:
    """A PUBACK is four bytes; nothing else comes."""
    received = 0
    while data := connection.recv(65_536):
        received += len(data)
        acked[0] = received // 4


if __name__ == "__main__":
    raise SystemExit("this is a part of benchmarks.live")
