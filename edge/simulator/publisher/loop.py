"""Step 1 of the way of a reading: publishes a source's samples over MQTT as its devices would, at a chosen speed.

All devices of a site share one connection: a broker keeps the order of one sender, so a replay's clock message
reaches the gateway before the samples of its instant, and weather and zones arrive in step.

MQTT acknowledges what the broker has, and a broker that dies can lose it. So a :class:`Publisher` keeps what it sent
in the last 60 s and all that was not acknowledged, and sends that again, in order, on every new connection; who
receives it drops the copies by their ids. While there is no broker nothing new is published: a replay's time stands
still, a live source catches up afterwards.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edge.clock import CLOCK_TOPIC, encode_clock
from edge.mqtt.connection import MqttAddress
from edge.recordings.sample_source import SampleSource, new_boot
from edge.simulator.publisher.disturb import Disturbance
from edge.simulator.publisher.ledger import Ledger
from edge.simulator.publisher.link import Link, LinkError
from edge.simulator.publisher.pace import Pace
from edge.timing import Backoff
from edge.wire.plan import encode_plan, plan_topic
from edge.wire.reading import Sample, encode_message
from edge.wire.topic import sample_topic

__all__ = ["Publisher"]

KEPT_S = 60.0
KEPT_MESSAGES = 20_000
FIRST_RETRY_S, LONGEST_RETRY_S = 0.2, 5.0
DRAIN_AFTER_STOP_S = 2.0
LOOK_S = 0.1
"""How often a wait checks whether to stop, and whether the link is alive."""


@dataclass(slots=True, eq=False)
class _Message:
    topic: str
    payload: bytes
    kind: str  # "sample", "plan", "clock", or a disturbance's kind
    sample: Sample | None = None  # of a true sample
    sent_s: float | None = None


class Publisher:
    """Publishes ``source`` up to ``until_ms`` (``None``: to its end). :meth:`run` once; :meth:`stop` from anywhere.

    ``with_clock`` also publishes each instant's time, which a gateway with a replayed clock takes as its receive
    time. At most a window of messages waits for acknowledgement; beyond it publishing waits.
    """

    def __init__(
        self, source: SampleSource, address: MqttAddress, ledger: Ledger, pace: Pace, *, with_clock: bool = False,
        until_ms: int | None = None, disturbance: Disturbance | None = None,
        open_link: Callable[[MqttAddress, str, Callable[[Link, str], None]], Link] = Link.open,
    ) -> None:  # fmt: skip
        self._source = source
        self._address = address
        self._ledger = ledger
        self._pace = pace
        self._with_clock = with_clock
        self._instants = source.samples(sys.maxsize if until_ms is None else until_ms)
        self._disturbance = disturbance
        self._open_link = open_link
        self._client_id = f"hothouse-{source.site}-{new_boot(None)[:8]}"
        self._kept: deque[_Message] = deque()
        self._unacked: deque[_Message] = deque()  # sent on this link, in order
        self._unsent = 0  # how many of the newest kept messages wait to be sent on this link
        self._link: Link | None = None
        self._acks = threading.Condition()
        # Not an event: a signal handler that sets one waits for ever if it has interrupted who holds the event's lock.
        self._stop_asked = False

    def run(self) -> None:
        """Publish everything, wait for the acknowledgements, and close the ledger."""
        try:
            pending = next(self._instants, None)
            for link in self._links():
                self._unsent = len(self._kept)
                while link.is_alive and not self._stop_asked:
                    self._send_kept(link)
                    if pending is None:
                        break
                    if not self._unsent and self._wait_until_due(link, pending[0]):
                        self._take(*pending)
                        pending = next(self._instants, None)
                self._drain(link)
                if pending is None and not self._unsent and not self._unacked:
                    break
            self._ledger.finish(complete=pending is None and not self._unsent and not self._unacked)
        except Exception as error:
            self._ledger.error(f"{type(error).__name__}: {error}")
            self._ledger.finish(complete=False)
            raise

    def stop(self) -> None:
        """Publish nothing more; :meth:`run` returns once what was sent is acknowledged, at the latest after 2 s.

        May be called from a signal handler or another thread.
        """
        self._stop_asked = True

    def _links(self) -> Iterator[Link]:
        """One connection after the other, with back-off, until stopped; each is closed before the next."""
        backoff = Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)
        while not self._stop_asked:
            try:
                link = self._open_link(self._address, self._client_id, self._acked)
            except LinkError as error:
                self._ledger.error(str(error))
                self._rest(time.monotonic() + backoff.next_s())
                continue
            backoff.reset()
            self._ledger.connected(link.protocol)
            if self._with_clock:
                self._pace.restart()
            with self._acks:
                self._link = link
                self._unacked.clear()
            try:
                yield link
            finally:
                link.close()
            if link.reason:
                self._ledger.error(link.reason)

    def _take(self, ts_ms: int, samples: list[Sample]) -> None:
        """Make an instant's messages, the clock's first, and put them at the end of what is kept."""
        messages = [_Message(CLOCK_TOPIC, encode_clock(ts_ms), "clock")] if self._with_clock else []
        for plan in self._source.plans():
            messages.append(_Message(plan_topic(plan.site, plan.zone, plan.source), encode_plan(plan), "plan"))
        for sample in samples:
            topic = sample_topic(sample.site, sample.zone, sample.device)
            messages.append(_Message(topic, encode_message([sample]), "sample", sample))
            if self._disturbance is not None:
                messages += [_Message(topic, payload, kind) for kind, payload in self._disturbance.after(sample)]
        self._kept.extend(messages)
        self._unsent += len(messages)
        self._ledger.instant(ts_ms)

    def _send_kept(self, link: Link) -> None:
        """Send what waits, as far as the window allows; returns early when the link is lost or on :meth:`stop`."""
        while self._unsent and self._has_room(link):
            message = self._kept[-self._unsent]
            if message.sent_s is None:
                self._write_down(message)
            self._ledger.sent(message.kind, again=message.sent_s is not None)
            message.sent_s = time.monotonic()
            with self._acks:
                self._unacked.append(message)
            self._unsent -= 1
            link.send(message.topic, message.payload)
        self._forget_old()

    def _write_down(self, message: _Message) -> None:
        """Before it is sent, and not sooner: what :meth:`stop` leaves unsent was never published."""
        if message.sample is not None:
            self._ledger.identify(message.sample)
        if message.kind != "clock":
            self._ledger.message(message.kind, message.topic, message.payload)

    def _has_room(self, link: Link) -> bool:
        with self._acks:
            while len(self._unacked) >= link.window:
                if not link.is_alive or self._stop_asked:
                    return False
                self._acks.wait(0.2)
                self._ledger.save_if_due()
        return link.is_alive and not self._stop_asked

    def _forget_old(self) -> None:
        oldest_s = time.monotonic() - KEPT_S
        with self._acks:
            needed = len(self._unacked) + self._unsent
        while len(self._kept) > needed:
            sent_s = self._kept[0].sent_s
            if sent_s is None or (sent_s > oldest_s and len(self._kept) <= KEPT_MESSAGES):
                break
            self._kept.popleft()

    def _acked(self, link: Link, error: str) -> None:
        """Called by the network thread; a broker acknowledges in the order it was sent to."""
        with self._acks:
            if link is not self._link or not self._unacked:
                return
            message = self._unacked.popleft()
            self._acks.notify()
        self._ledger.acked(message.kind, error)

    def _wait_until_due(self, link: Link, ts_ms: int) -> bool:
        due_s = self._pace.due_s(ts_ms, time.monotonic())
        self._rest(due_s, link)
        return link.is_alive and not self._stop_asked

    def _rest(self, until_s: float, link: Link | None = None) -> None:
        self._ledger.save_if_due()
        while (left_s := until_s - time.monotonic()) > 0 and (link is None or link.is_alive):
            if self._stop_asked:
                return
            time.sleep(min(left_s, LOOK_S))
            self._ledger.save_if_due()

    def _drain(self, link: Link) -> None:
        """Wait for acknowledgements: as long as it takes, or 2 s after :meth:`stop`."""
        stopped_s: float | None = None
        with self._acks:
            while self._unacked and link.is_alive:
                if self._stop_asked:
                    stopped_s = stopped_s or time.monotonic()
                    if time.monotonic() - stopped_s > DRAIN_AFTER_STOP_S:
                        return
                self._acks.wait(0.2)
                self._ledger.save_if_due()
