"""Step 2 of the way of a reading: the clock that stamps what the gateway receives.

A live gateway uses the wall clock. A replay brings its own time, in messages on ``CLOCK_TOPIC``, so that the whole
pipeline sees one consistent time at whatever speed it runs.
"""

from __future__ import annotations

import time
from typing import Protocol

import msgspec

__all__ = ["CLOCK_TOPIC", "ReceiveClock", "ReplayedClock", "WallClock", "decode_clock", "encode_clock"]

CLOCK_TOPIC = "hothouse/v1/_clock"
"""Where a replay publishes ``{"now_ms": ...}``: it holds for every message after it."""

_LATEST_MS = 253_402_300_799_000  # the end of the year 9999


class ReceiveClock(Protocol):
    """Tells the receive time of what arrives now."""

    def now_ms(self) -> int:
        """Unix time in milliseconds, UTC."""


class WallClock:
    """The machine's clock. It may step back when it is set; the log then keeps its newest time."""

    def now_ms(self) -> int:
        """Unix time in milliseconds, UTC."""
        return time.time_ns() // 1_000_000


class ReplayedClock:
    """Stands still until it is told to advance, and never goes back.

    >>> clock = ReplayedClock(5000)
    >>> clock.advance(7000), clock.advance(6000), clock.now_ms()
    (True, False, 7000)
    """

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        """Unix time in milliseconds, UTC."""
        return self._now_ms

    def advance(self, now_ms: int) -> bool:
        """Set the clock, unless that would be back; says whether it moved."""
        moved = now_ms > self._now_ms
        self._now_ms = max(self._now_ms, now_ms)
        return moved


class _Payload(msgspec.Struct):
    now_ms: int


def encode_clock(now_ms: int) -> bytes:
    """The payload of a clock message.

    >>> encode_clock(1646092800000)
    b'{"now_ms":1646092800000}'
    """
    return msgspec.json.encode({"now_ms": now_ms})


def decode_clock(payload: bytes) -> int:
    """The time in a clock message; raises ``ValueError`` with the reason when it holds none.

    >>> decode_clock(encode_clock(7))
    7
    """
    try:
        now_ms = msgspec.json.decode(payload, type=_Payload).now_ms
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    if not 0 <= now_ms <= _LATEST_MS:
        raise ValueError(f"now_ms {now_ms} is not a time before the year 10000")
    return now_ms
