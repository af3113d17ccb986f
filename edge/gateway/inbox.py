"""Step 2 of the way of a reading: messages that came and wait for the gateway's writer."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from edge.gateway.record_builder import Message

__all__ = ["Acknowledge", "Inbox", "Incoming"]

Acknowledge = Callable[[list[Any]], object]
"""Acknowledges messages of one connection by their tickets, in the order in which they came."""


class Incoming(NamedTuple):
    """A message; once it is durable ``acknowledge`` is called with its ``ticket``. ``None``: nobody waits for that."""

    message: Message
    acknowledge: Acknowledge | None
    ticket: Any
    come_s: float


class Inbox:
    """A queue from any number of threads to one writer, which takes batches of at most ``max_batch`` messages.

    A batch waits until its first message is ``linger_s`` old, or it is full: so there is one wake-up, one fsync and one
    record a site for many messages, and no message waits longer. ``clock_s`` is monotonic; ``pause`` waits so many
    seconds, or until it is told that the batch is full.
    """

    def __init__(
        self, max_batch: int, linger_s: float, clock_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:  # fmt: skip
        self._max_batch, self._linger_s = max_batch, linger_s
        self._queue: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self._full = threading.Event()
        self._hurried = False
        self._clock_s = clock_s
        self._pause = pause or self._full.wait

    def __len__(self) -> int:
        return self._queue.qsize()

    def put(self, message: Message, acknowledge: Acknowledge | None, ticket: Any = None) -> None:
        """Add a message; never waits."""
        self._queue.put(Incoming(message, acknowledge, ticket, self._clock_s()))
        # The writer has the first message of a batch that lingers.
        if self._queue.qsize() + 1 >= self._max_batch and not self._full.is_set():
            self._full.set()

    def hurry(self) -> None:
        """From now on no batch waits for more messages, and :meth:`take` does not wait for a first one."""
        self._hurried = True
        self._full.set()

    def take(self, timeout_s: float) -> list[Incoming]:
        """The next batch, in the order in which its messages came; empty when none came within ``timeout_s``."""
        batch: list[Incoming] = []
        try:
            batch.append(self._queue.get(timeout=0.0 if self._hurried else timeout_s))
            self._linger(batch[0].come_s + self._linger_s - self._clock_s())
            while len(batch) < self._max_batch:
                batch.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return batch

    def _linger(self, left_s: float) -> None:
        self._full.clear()
        # Whoever put the message that fills the batch, or hurried us, before the event was cleared is seen here.
        if left_s > 0 and self._queue.qsize() + 1 < self._max_batch and not self._hurried:
            self._pause(left_s)
