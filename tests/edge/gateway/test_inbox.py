"""How long a gateway waits for more messages before it appends those that came."""

from __future__ import annotations

import threading
from collections.abc import Callable

from edge.gateway.inbox import Inbox, Incoming
from edge.gateway.record_builder import Message
from tests.patience import patience_s, until

FOR_EVER_S = 3600.0
LINGER_S = 0.02


class Clock:
    """Advances only while an inbox pauses; ``meanwhile`` is what happens in each pause."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.pauses: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.pauses.append(round(seconds, 6))
        self.now_s += seconds
        self.meanwhile()


def inbox(clock: Clock, max_batch: int = 1000) -> Inbox:
    """One on a clock that stands still."""
    return Inbox(max_batch, LINGER_S, clock, clock.pause)


def put(to: Inbox, *numbers: int) -> None:
    """Messages whose tickets are these numbers."""
    for number in numbers:
        to.put(Message("t", b""), None, number)


def tickets(batch: list[Incoming]) -> list[int]:
    """What :func:`put` was given."""
    return [incoming.ticket for incoming in batch]


def test_a_batch_holds_what_came_while_it_lingered() -> None:
    """After its first message a batch waits so long once, however many come meanwhile; what comes later is the next."""
    clock = Clock()
    box = inbox(clock)
    put(box, 1, 2)
    clock.meanwhile = lambda: put(box, 3, 4)
    assert tickets(box.take(0.0)) == [1, 2, 3, 4]
    assert clock.pauses == [LINGER_S]


def test_a_message_that_has_waited_waits_for_the_rest_only() -> None:
    """What a message waited while the batch before was appended counts: none waits longer for others than is set."""
    clock = Clock()
    box = inbox(clock)
    put(box, 1)
    clock.now_s += 0.75 * LINGER_S
    box.take(0.0)
    put(box, 2)
    clock.now_s += 3 * LINGER_S
    assert tickets(box.take(0.0)) == [2]
    assert clock.pauses == [LINGER_S / 4]


def test_a_full_batch_does_not_linger() -> None:
    """As many messages as a batch may hold are taken at once, the others after them, in their order."""
    clock = Clock()
    box = inbox(clock, max_batch=3)
    put(box, *range(7))
    assert tickets(box.take(0.0)) == [0, 1, 2]
    assert tickets(box.take(0.0)) == [3, 4, 5]
    assert clock.pauses == []
    assert tickets(box.take(0.0)) == [6]
    assert clock.pauses == [LINGER_S]


def test_nothing_that_came_is_nothing_to_wait_for() -> None:
    """An empty inbox gives an empty batch after the time-out, without lingering."""
    clock = Clock()
    assert inbox(clock).take(0.0) == []
    assert clock.pauses == []


def test_the_message_that_fills_a_batch_ends_its_wait() -> None:
    """However long a batch would linger, the last message that it may hold makes it go."""
    box, batches = Inbox(5, FOR_EVER_S), list[list[Incoming]]()
    thread = threading.Thread(target=lambda: batches.append(box.take(FOR_EVER_S)), daemon=True)
    thread.start()
    put(box, 0)
    until(lambda: len(box) == 0)  # the first was taken
    put(box, 1, 2, 3, 4)
    thread.join(patience_s(60))
    assert [tickets(batch) for batch in batches] == [[0, 1, 2, 3, 4]]


def test_who_stops_waits_for_nothing() -> None:
    """An inbox that is hurried gives what it has at once, and an empty batch where it has nothing."""
    box, batches = Inbox(5, FOR_EVER_S), list[list[Incoming]]()
    thread = threading.Thread(target=lambda: batches.append(box.take(FOR_EVER_S)), daemon=True)
    thread.start()
    put(box, 0)
    until(lambda: len(box) == 0)
    box.hurry()
    thread.join(patience_s(60))
    put(box, 1)
    assert [tickets(batch) for batch in (*batches, box.take(FOR_EVER_S), box.take(FOR_EVER_S))] == [[0], [1], []]


class Connection:
    """Keeps what is acknowledged on it."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []

    def ack_all(self, tickets: list[int]) -> None:
        self.acknowledged += tickets


def acknowledge(of: Inbox, batch: list[Incoming]) -> None:
    """The batch is durable."""
    for answer, its in of.durable(batch).items():
        answer(its)


def test_what_is_sent_again_while_it_waits_is_kept_once() -> None:
    """At its place, whether it was taken or not, and acknowledged on the connection that brought it last."""
    box, connections = Inbox(2, 0.0), [Connection() for _ in range(5)]
    for connection in connections:
        for number in range(4):
            box.put(Message("t", b"%d" % number), connection.ack_all, number, again=connection is not connections[0])
    assert len(box) == 4
    first = box.take(0.0)
    last = Connection()
    for number in range(4):
        box.put(Message("t", b"%d" % number), last.ack_all, number, again=True)
    assert (tickets(first), len(box)) == ([0, 1], 2)
    acknowledge(box, first)
    acknowledge(box, box.take(0.0))
    assert [connection.acknowledged for connection in (*connections, last)] == [[]] * 5 + [[0, 1, 2, 3]]


def test_what_is_another_message_is_kept() -> None:
    """One that was durable already, one that only has a ticket of before, one that nobody acknowledges."""
    box, before, now = Inbox(10, 0.0), Connection(), Connection()
    box.put(Message("t", b"durable"), before.ack_all, 1)
    acknowledge(box, box.take(0.0))
    box.put(Message("t", b"durable"), now.ack_all, 1, again=True)
    box.put(Message("t", b"lost by the broker"), before.ack_all, 2)
    box.put(Message("t", b"other"), now.ack_all, 2, again=True)
    box.put(Message("t", b"other"), now.ack_all, 2)
    box.put(Message("t", b"quality 0"), None, 0)
    box.put(Message("t", b"quality 0"), None, 0, again=True)
    batch = box.take(0.0)
    assert [incoming.message.payload for incoming in batch] == [
        b"durable", b"lost by the broker", b"other", b"other", b"quality 0", b"quality 0",
    ]  # fmt: skip
    acknowledge(box, batch)
    assert (before.acknowledged, now.acknowledged) == ([1, 2], [1, 2, 2])
    assert not box._unacknowledged
