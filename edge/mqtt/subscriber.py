"""Step 2 of the way of a reading: a paho client that takes in and acknowledges many messages at a time.

Paho asks the system for one byte, for each byte of a length and for the rest of a packet, makes an object with a lock
of every message, and then waits for the next; an acknowledgement wakes its thread up, and is a packet and a system call
of its own. Here what has arrived is read at once, messages are cut out of it, and the acknowledgements of many are one
piece. All other packets, and everything else, are paho's. Three methods of paho that are not public are relied upon
(``_sock_recv``, ``_packet_read``, ``_packet_queue``); ``tests/edge/mqtt/test_subscriber.py`` holds this against paho
itself.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

from paho.mqtt import client as paho
from paho.mqtt.enums import MQTTErrorCode

__all__ = ["Published", "Subscriber"]

_READ_BYTES = 64 * 1024
_PUBLISH, _PUBACK = 0x30, 0x40
_ACK_HEAD = _PUBACK << 8 | 2
_LONGEST_LENGTH = 4  # bytes of MQTT's variable byte integer


class Published(NamedTuple):
    """A message of quality 0 or 1 as it came; ``topic`` is ``"?"`` if it is not text."""

    topic: str
    payload: bytes
    mid: int  # 0 for quality 0
    qos: int
    retained: bool = False  # the broker kept it, and sends it because somebody subscribes
    again: bool = False  # the broker says that it sent it before, with the same ``mid``, over another connection


class Subscriber(paho.Client):
    """A client whose messages come to ``on_published``, in the network thread and in order; quality 1 at most.

    Make it with ``manual_ack``. ``gather_s``: once something has arrived it waits this long for more before it reads,
    so that it wakes up less often. The connection ends if the broker sends something that is not MQTT.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.on_published: Callable[[Published], object] | None = None
        self.gather_s = 0.0
        self._begun = bytearray()  # of a packet that is not complete
        self._wanted = 0  # its length, once that is known
        self._data, self._at = b"", 0  # what paho reads next

    def ack_all(self, mids: Sequence[int]) -> None:
        """Acknowledge messages of quality 1, in this order; any thread may."""
        packets = struct.pack(f"!{2 * len(mids)}H", *chain.from_iterable(zip(repeat(_ACK_HEAD), mids, strict=False)))
        self._packet_queue(_PUBACK, packets, mids[-1], 1)

    def _packet_read(self) -> MQTTErrorCode:
        """Read what has arrived, and handle each packet that is complete."""
        if self.gather_s:
            time.sleep(self.gather_s)
        try:
            received = self._receive()
        except BlockingIOError:
            return MQTTErrorCode.MQTT_ERR_AGAIN
        except OSError:
            return MQTTErrorCode.MQTT_ERR_CONN_LOST
        if not received:
            return MQTTErrorCode.MQTT_ERR_CONN_LOST
        if self._begun:
            self._begun += received
            if len(self._begun) < self._wanted:
                return MQTTErrorCode.MQTT_ERR_SUCCESS
            received = bytes(self._begun)
        try:
            return self._handle(received)
        except (_MalformedError, IndexError):
            return MQTTErrorCode.MQTT_ERR_PROTOCOL

    def _receive(self) -> bytes:
        """What has arrived, empty at the end of the stream; raises ``BlockingIOError`` if there is nothing."""
        received = super()._sock_recv(_READ_BYTES)
        if not hasattr(self._sock, "pending"):
            return received
        parts, size = [received], len(received)  # TLS gives a record at a time, and brokers make one of each message
        while received and size < _READ_BYTES:
            try:
                received = super()._sock_recv(_READ_BYTES - size)
            except OSError:  # nothing more is there, or the next read tells what is wrong
                break
            parts.append(received)
            size += len(received)
        return b"".join(parts)

    def _handle(self, data: bytes) -> MQTTErrorCode:
        """Handle the complete packets of ``data`` and keep the rest of it."""
        at, self._wanted, v5 = 0, 0, self.protocol == paho.MQTTv5
        while len(data) - at > 1:
            start, length = _length(data, at + 1)
            if start == 0:
                break
            end = start + length
            if end > len(data):
                self._wanted = end - at
                break
            if data[at] & 0xF0 == _PUBLISH:
                message = _published(data, start, end, data[at], v5)
                if self.on_published is not None:
                    self.on_published(message)
                at = end
            else:
                self._data, self._at = data, at
                result = super()._packet_read()
                if result != MQTTErrorCode.MQTT_ERR_SUCCESS or self._sock is None:
                    return result
                at = end
        self._begun = bytearray(data[at:])
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _sock_recv(self, bufsize: int) -> bytes:
        """For paho's own reading of a packet that is complete."""
        part = self._data[self._at : self._at + bufsize]
        self._at += len(part)
        return part


class _MalformedError(Exception):
    """The broker sent what is no MQTT."""


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Where a packet goes on behind its length, and that length; (0, 0) where ``data`` ends before."""
    length = shift = 0
    for n, byte in enumerate(data[at : at + _LONGEST_LENGTH], 1):
        length |= (byte & 127) << shift
        if byte < 128:
            return at + n, length
        shift += 7
    if len(data) - at >= _LONGEST_LENGTH:
        raise _MalformedError
    return 0, 0


def _published(data: bytes, start: int, end: int, flags: int, v5: bool) -> Published:
    """The message that ``data`` holds from ``start`` to ``end``, behind the packet's length."""
    qos = flags >> 1 & 3
    at = start + 2 + (data[start] << 8 | data[start + 1])
    name, mid = data[start + 2 : at], 0
    if qos > 1:  # we subscribe with quality 1
        raise _MalformedError
    if qos:
        mid = data[at] << 8 | data[at + 1]
        at += 2
    if v5:  # properties; we asked for none that would matter
        at, length = (at + 1, 0) if data[at] == 0 else _length(data, at)
        if at == 0:
            raise _MalformedError
        at += length
    if at > end:
        raise _MalformedError
    try:
        topic = name.decode()
    except UnicodeDecodeError:
        topic = "?"  # refused as an unknown topic
    return Published(topic, data[at:end], mid, qos, bool(flags & 1), bool(flags & 8))
