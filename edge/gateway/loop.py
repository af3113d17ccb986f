"""Step 2 of the way of a reading: from the broker into the log, acknowledged after the append is durable.

The network thread puts messages into a queue; the writer thread drains it, turns a batch into records
(``edge.gateway.record_builder``), appends them with one fsync and only then acknowledges. The broker sends again what
is not acknowledged: after a crash between append and acknowledgement a message is in the log twice, and step 5 drops
the copy by its sample id. While a message waits here, for a log that refuses, no copy of it is kept (``Inbox``). The
main thread keeps the connection and writes the status file. A site's gateway has a fourth thread, the uplink
(``edge.gateway.uplink.forward``), that carries the log's records on. A decoder's answer to a device goes out before the
append, so it says nothing about what is durable.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from edge.clock import CLOCK_TOPIC, ReceiveClock, ReplayedClock
from edge.gateway.answers import AnswerLimit
from edge.gateway.inbox import Acknowledge, Inbox, Incoming
from edge.gateway.other_topics import PRESENCE, stray_topics
from edge.gateway.record_builder import Message, RecordBuilder
from edge.gateway.refusal_lines import RefusalLines
from edge.gateway.settings import GatewayOptions
from edge.gateway.status import write_status
from edge.gateway.uplink.forward import Uplink
from edge.log.contract import Log, LogError, NewRecord
from edge.log.sqlite import SqliteLog
from edge.mqtt.subscriber import Published, Subscriber
from edge.mqtt.subscription import Subscription
from edge.timing import Backoff, Periodic
from edge.wire.decoder import Answer, Decoder, HothouseDecoder
from edge.wire.gateway_status import GatewayStatus

if TYPE_CHECKING:
    from edge.gateway.kafka_source import KafkaSource
    from edge.log.kafka.address import KafkaAddress

__all__ = ["Gateway"]

_logger = logging.getLogger(__name__)
_IDLE_S = 0.1
_REPORT_S = 1.0
_FIRST_RETRY_S = 0.2
_STOP_S = 1.5
_GATHERINGS = 10
"""The network thread wakes up about this many times while a batch lingers, at the rate of the largest sites."""


class _LogFigures(NamedTuple):
    """What the log in a file and the uplink add to the status."""

    bytes_free: int | None = None
    buffered_records: int = 0
    buffered_bytes: int = 0
    oldest_unsent_s: float = 0.0
    uplinked: int = 0
    uplink_errors: int = 0


class Gateway:
    """Carries messages from a broker into ``log``, stamped by ``clock``, from :meth:`run` until :meth:`stop`.

    ``uplink`` carries what ``log`` holds on to a central one. ``decoders`` say which topics are subscribed to and what
    is in their messages, and answer devices. ``after_append`` is called between a durable append and its
    acknowledgements: tests crash there.
    """

    def __init__(
        self, settings: GatewayOptions, log: Log, clock: ReceiveClock, uplink: Uplink | None = None,
        decoders: Sequence[Decoder] = (HothouseDecoder(),), after_append: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        times = [ms for p in range(log.partitions) if (ms := log.last_receive_ms(p)) is not None]
        newest_ms = max(times, default=None)
        if isinstance(clock, ReplayedClock) and newest_ms is not None:
            clock.advance(newest_ms)
        self._started_ms = time.time_ns() // 1_000_000
        self._settings = settings
        self._log = log
        self._clock = clock
        self._uplink = uplink
        self._after_append = after_append
        self._builder = RecordBuilder(clock, settings.step_s * 1000, log.sites(), newest_ms, decoders)
        self._refusal_lines = RefusalLines(settings.step_s * 1000)
        self._durable_ms = newest_ms or 0
        self._held: Incoming | None = None
        gather_s = settings.linger_s / _GATHERINGS
        self._inbox = Inbox(settings.max_batch, settings.linger_s - gather_s)
        self._records = 0
        self._dropped_qos0 = 0
        self._limit = AnswerLimit()
        self._answered = self._unanswered = 0
        self._log_error = self._status_problem = ""
        self._crash: BaseException | None = None
        # Not an event: a signal handler that sets one waits for ever if it has interrupted who holds the event's lock.
        self._stop_asked = False
        self._stopping = threading.Event()
        share = f"$share/{settings.share}/" if settings.share else ""
        read = [f"{decoder.prefix}#" for decoder in decoders]
        asked = _asked_for(settings.topics, read)
        self._link = Subscription(
            settings.broker,
            settings.client_id,
            [[f"{share}{each}" for each in topics] for topics in asked],
            self._receive,
            receive_maximum=settings.in_flight,
            session_expiry_s=settings.session_expiry_s,
            gather_s=gather_s,
            presence_topic=f"{PRESENCE}{settings.client_id}",
        )
        self._source = self._kafka_source(settings.direct) if settings.direct else None

    def run(self) -> None:
        """Work until :meth:`stop`; then append and acknowledge what was received, and leave. Once only."""
        writer = threading.Thread(target=self._write, name="gateway-writer", daemon=True)
        writer.start()
        if self._source is not None:
            self._source.start()
        uplinking = threading.Thread(target=self._carry, name="gateway-uplink", daemon=True)
        uplinking.start()
        report = Periodic(_REPORT_S)
        while not self._asked_to_stop():
            now_s = time.monotonic()
            self._link.tend(now_s)
            if report.due(now_s):
                self._report()
        self._stopping.set()
        self._inbox.hurry()
        writer.join(_STOP_S)
        uplinking.join(_STOP_S)
        if self._source is not None:
            self._source.close()
        self._link.close()
        self._report()
        if self._crash is not None:
            raise self._crash

    def stop(self) -> None:
        """Make :meth:`run` return soon; may be called from a signal handler or another thread."""
        self._stop_asked = True

    def _asked_to_stop(self) -> bool:
        """Wait a little; whether :meth:`stop` was called."""
        time.sleep(_IDLE_S / 2)
        return self._stop_asked

    def status(self) -> GatewayStatus:
        """The gateway's present status."""
        figures, failure, errors = _LogFigures(), "", self._errors()
        try:
            figures = self._log_figures()
        except LogError as error:
            failure = str(error)
        return GatewayStatus(
            pid=os.getpid(),
            updated_ms=time.time_ns() // 1_000_000,
            started_ms=self._started_ms,
            connected=self._link.connected,
            connects=self._link.connects,
            messages=self._builder.messages,
            samples=self._builder.samples,
            refused=self._builder.refused,
            relayed=self._builder.relayed,
            other_topics=self._builder.other_topics,
            retained=self._builder.retained,
            removed=self._source.removed if self._source else 0,
            records=self._records,
            queued=len(self._inbox),
            dropped_qos0=self._dropped_qos0,
            answered=self._answered,
            unanswered=self._unanswered,
            last_error="; ".join(filter(None, [*errors, failure, self._uplink.last_error if self._uplink else ""])),
            failing=any([*errors, failure]),
            certificate_ends_ms=self._link.certificate_ends_ms,
            bytes_free=figures.bytes_free,
            buffered_records=figures.buffered_records,
            buffered_bytes=figures.buffered_bytes,
            oldest_unsent_s=figures.oldest_unsent_s,
            uplinked=figures.uplinked,
            uplink_errors=figures.uplink_errors,
        )

    def _errors(self) -> list[str]:
        """Why nothing is acknowledged; not the uplink's, for which the log keeps what was."""
        source = self._source.last_error if self._source else ""
        return [self._log_error, self._link.last_error, source]

    def _log_figures(self) -> _LogFigures:
        if not isinstance(self._log, SqliteLog):
            return _LogFigures()
        usage = self._log.usage()
        if self._uplink is None:
            return _LogFigures(bytes_free=usage.free_bytes)
        waiting = self._uplink.waiting()
        age_ms = 0 if waiting.oldest_ms is None else max(0, self._clock.now_ms() - waiting.oldest_ms)
        return _LogFigures(
            bytes_free=usage.free_bytes, buffered_records=waiting.records, buffered_bytes=usage.bytes,
            oldest_unsent_s=age_ms / 1000, uplinked=self._uplink.sent, uplink_errors=self._uplink.errors,
        )  # fmt: skip

    def _receive(self, client: Subscriber, message: Published) -> None:
        """Network thread. What arrives while we stop is not acknowledged, so it comes again."""
        if self._stop_asked:
            return
        # QoS 1 is bounded by what the broker may send unacknowledged; QoS 0 promises nothing, so it may be dropped.
        if message.qos == 0 and len(self._inbox) >= self._settings.in_flight:
            self._dropped_qos0 += 1
            return
        taken = Message(message.topic, message.payload, message.retained)
        self._inbox.put(taken, client.ack_all if message.qos else None, message.mid, again=message.again)

    def _kafka_source(self, address: KafkaAddress) -> KafkaSource:
        from edge.gateway.kafka_source import KafkaSource  # the bare install has no Kafka client

        def receive(message: Message, acknowledge: Acknowledge, ticket: Any) -> None:
            if not self._stop_asked:
                self._inbox.put(message, acknowledge, ticket)

        return KafkaSource(address, receive, self._settings.in_flight)

    def _write(self) -> None:
        try:
            while True:
                batch = self._inbox.take(_IDLE_S)
                if not batch and self._stopping.is_set():
                    return
                uplink, messages = self._uplink, [incoming.message for incoming in batch]
                if uplink is not None:
                    messages = [message for message in messages if not uplink.is_own(message.topic)]
                records = self._builder.take(messages)
                self._answer(self._builder.answers())
                if records and not self._append(records):
                    return
                self._acknowledge(batch)
        except BaseException as error:
            self._crash = error
            self.stop()

    def _answer(self, answers: Sequence[Answer]) -> None:
        now_s = time.monotonic()
        for answer in answers:
            may_go = self._link.connected and self._limit.passes(answer, now_s)
            if may_go and self._link.publish(answer.topic, answer.payload, answer.qos):
                self._answered += 1
            else:
                self._unanswered += 1

    def _carry(self) -> None:
        if self._uplink is None:
            return
        try:
            self._uplink.run(self._stopping)
        except BaseException as error:
            self._crash = error
            self.stop()

    def _append(self, records: Sequence[NewRecord]) -> bool:
        """Try until it is durable; ``False`` when we were stopped before it was."""
        backoff = Backoff(_FIRST_RETRY_S, self._settings.retry_s)
        while True:
            try:
                places = self._log.append(records)
            except LogError as error:
                if str(error) != self._log_error:
                    _logger.warning("nothing is acknowledged while the log refuses: %s", error)
                self._log_error = str(error)
                if self._stopping.wait(backoff.next_s()):
                    return False
                continue
            self._log_error = ""
            self._records += len(records)
            self._refusal_lines.tell(zip(records, places, strict=True))
            # Another gateway's record says nothing about our clock.
            self._durable_ms = max([self._durable_ms, *(new.receive_ms for new in records if new.origin is None)])
            if self._after_append is not None:
                self._after_append()
            return True

    def _acknowledge(self, batch: Sequence[Incoming]) -> None:
        """Acknowledge what is durable. The newest clock message is so only when a record carries its time: until
        then it is held, because a restart takes the clock from the log.
        """
        done = [self._held, *batch] if self._held is not None else list(batch)
        self._held = None
        if isinstance(self._clock, ReplayedClock) and self._durable_ms < self._clock.now_ms():
            clocks = [incoming for incoming in done if incoming.message.topic == CLOCK_TOPIC]
            self._held = clocks[-1] if clocks else None
        durable = self._inbox.durable(incoming for incoming in done if incoming is not self._held)
        for acknowledge, tickets in durable.items():
            acknowledge(tickets)

    def _report(self) -> None:
        if self._settings.status_file is None:
            return
        problem = write_status(self._settings.status_file, self.status())
        if problem and problem != self._status_problem:  # it comes again every second
            _logger.warning("the status file cannot be written: %s", problem)
        self._status_problem = problem


def _asked_for(topics: str, read: list[str]) -> list[list[str]]:
    """The subscriptions to ask for, in turn until the broker gives one: ``topics``, what is ``read`` beyond them, and
    the topics that devices publish on by mistake; the same without the mistakes; what is read alone. What ``topics``
    covers is not asked for again: two subscriptions may bring a message twice.

    >>> _asked_for("hothouse/v1/#", ["hothouse/v1/#"]), _asked_for("", ["hothouse/v1/#"])
    ([['hothouse/v1/#', '/hothouse/v1/#'], ['hothouse/v1/#']], [['hothouse/v1/#']])
    >>> _asked_for("#", ["hothouse/v1/#", "plant/#"])
    [['#'], ['hothouse/v1/#', 'plant/#']]
    """
    if not topics:
        return [read]
    covered = topics.removesuffix("#") if topics.endswith("#") else None
    wanted = [topics, *(each for each in read if covered is None or not each.startswith(covered))]
    asked = [[*wanted, *stray_topics(wanted)], wanted, read]
    return [each for at, each in enumerate(asked) if each not in asked[:at]]
