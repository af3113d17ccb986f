"""Step 2 of the way of a reading: messages that came and wait for the gateway's writer."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from edge.gateway.record_builder import Message

__all__ = ["Acknowledge", "Inbox", "Incoming"]

Acknowledge = Callable[[list[Any]], object]
"""Acknowledges messages of one connection by their tickets, in the order in which they came."""


@dataclass(slots=True, eq=False)
class Incoming:
    """A message; once it is durable ``acknowledge`` is called with its ``ticket``. ``None``: nobody waits for that."""

    message: Message
    acknowledge: Acknowledge | None
    ticket: Any
    come_s: float


class Inbox:
    """A queue from any number of threads to one writer, which takes batches of at most ``max_batch`` messages.

    A batch waits until its first message is ``linger_s`` old, or it is full: so there is one wake-up, one fsync and one
    record a site for many messages, and no message waits longer. ``clock_s`` is monotonic; ``pause`` waits for the
    seconds it is given, or until it is told that the batch is full.

    Until :meth:`durable` is told of a message, one that is sent again is the same, however often its connection ends:
    it is kept once, at its place, and acknowledged on the connection that brought it last. Earlier connections are
    gone, and acknowledgements on them with them.
    """

    def __init__(
        self, max_batch: int, linger_s: float, clock_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:  # fmt: skip
        self._max_batch, self._linger_s = max_batch, linger_s
        self._queue: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self._unacknowledged: dict[Any, Incoming] = {}  # by ticket, taken or not
        self._knowing = threading.Lock()
        self._full = threading.Event()
        self._hurried = False
        self._clock_s = clock_s
        self._pause = pause or self._full.wait

    def __len__(self) -> int:
        return self._queue.qsize()

    def put(
        self, message: Message, acknowledge: Acknowledge | None, ticket: Any = None, *, again: bool = False
    ) -> None:
        """Add a message; never waits. ``again``: its sender says that it sent it before, under the same ticket."""
        incoming = Incoming(message, acknowledge, ticket, self._clock_s())
        if acknowledge is not None:
            with self._knowing:
                before = self._unacknowledged.get(ticket) if again else None
                # A sender that has lost its state uses tickets anew, for other messages.
                if before is not None and before.message == message:
                    before.acknowledge = acknowledge
                    return
                self._unacknowledged[ticket] = incoming
        self._queue.put(incoming)
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

    def durable(self, messages: Iterable[Incoming]) -> dict[Acknowledge, list[Any]]:
        """What is to be acknowledged of messages that are durable: tickets, a connection's together, in their order."""
        tickets: dict[Acknowledge, list[Any]] = {}
        with self._knowing:
            for incoming in messages:
                if incoming.acknowledge is None:
                    continue
                tickets.setdefault(incoming.acknowledge, []).append(incoming.ticket)
                if self._unacknowledged.get(incoming.ticket) is incoming:
                    del self._unacknowledged[incoming.ticket]
        return tickets

    def _linger(self, left_s: float) -> None:
        self._full.clear()
        # Whoever put the message that fills the batch, or hurried us, before the event was cleared is seen here.
        if left_s > 0 and self._queue.qsize() + 1 < self._max_batch and not self._hurried:
            self._pause(left_s)
