"""Step 2 of the way of a reading: sites that write to Kafka themselves, without MQTT.

A record's key is the topic as on MQTT, its value the same JSON: one sample or several. The gateway checks it as it
checks what comes from the broker, stamps it, and appends it to the log under the site's own partition; an offset is
committed once everything before it is durable there. All partitions are read by this one process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from kafka import KafkaConsumer, TopicPartition
from kafka import errors as kafka_errors
from kafka.structs import OffsetAndMetadata

from edge.gateway.record_builder import Message
from edge.log.kafka.address import KafkaAddress
from edge.log.kafka.lost_connections import words_of
from edge.log.kafka.topic_id import ASK_S, LOOK_S, ask_topic, is_another, topic_id
from edge.timing import Backoff, Periodic

__all__ = ["KafkaSource"]

_logger = logging.getLogger(__name__)
_POLL_MS = 200
_POLL_RECORDS = 500
_COMMIT_S = 1.0

_Place = tuple[TopicPartition, int, int]  # a partition, the offset behind a record of it, and which topic it was
OnMessage = Callable[[Message, Callable[[Sequence[_Place]], None], _Place], None]


class KafkaSource:
    """Reads ``address.topic`` from what its group committed, else from its beginning, in a thread of its own. One that
    was deleted and made anew meanwhile is read from its beginning. ``removed`` counts the records that Kafka removed
    before they were read, as it does after its retention.

    ``on_message`` gets a message, what to call when it is durable, and with what; one call may do so for many, in their
    order. It must not block. At most ``max_waiting`` messages wait for that call.
    """

    def __init__(self, address: KafkaAddress, on_message: OnMessage, max_waiting: int) -> None:
        self.last_error = ""
        self.removed = 0
        self._address = address
        self._on_message = on_message
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._waiting = 0
        self._next: dict[TopicPartition, int] = {}
        self._durable: dict[TopicPartition, int] = {}
        self._topic_id = ""
        self._topics = 0  # how often it was made anew
        self._ask = Periodic(ASK_S)
        self._backoff = Backoff()  # until Kafka answers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-source", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading, commit what is durable, and leave."""
        self._stop.set()
        self._thread.join(self._address.timeout_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._read()
            except (kafka_errors.KafkaError, OSError) as error:
                problem = f"{self._address}: {words_of(error)}"
                if problem != self.last_error:
                    _logger.warning("cannot be read, trying again: %s", problem)
                self.last_error = problem
                self._stop.wait(self._backoff.next_s())

    def _read(self) -> None:
        """Read until we are stopped, the topic has got more partitions, which are then read with the others, or it is
        another topic.
        """
        consumer = KafkaConsumer(
            **self._address.options(), group_id=self._address.group, enable_auto_commit=False,
            auto_offset_reset="none", allow_auto_create_topics=False, metadata_max_age_ms=round(LOOK_S * 1000),
        )  # fmt: skip
        try:
            partitions = consumer.partitions_for_topic(self._address.topic)
            if not partitions:
                raise kafka_errors.UnknownTopicOrPartitionError(self._address.topic)
            places = [TopicPartition(self._address.topic, partition) for partition in sorted(partitions)]
            consumer.assign(places)
            if self._is_another(consumer):
                _logger.warning("%s was deleted and made anew: it is read from its beginning", self._address)
                self._begin_anew(places)
            self._seek(consumer, places)
            self._topic_id = topic_id(consumer, self._address.topic) or self._topic_id
            committed: dict[TopicPartition, int] = {}
            commit = Periodic(_COMMIT_S, time.monotonic())
            while not self._stop.is_set() and consumer.partitions_for_topic(self._address.topic) == partitions:
                if self._is_another(consumer):
                    return
                if self._waiting >= self._max_waiting:
                    self._stop.wait(_POLL_MS / 1000)
                else:
                    self._hand_over(consumer)
                if commit.due(time.monotonic()):
                    committed = self._commit(consumer, committed)
                self.last_error = ""
                self._backoff.reset()
            self._commit(consumer, committed)
        finally:
            consumer.close(autocommit=False, timeout_ms=1000)

    def _is_another(self, consumer: KafkaConsumer) -> bool:
        return is_another(consumer, self._address.topic, self._topic_id)

    def _begin_anew(self, places: Sequence[TopicPartition]) -> None:
        self._next = dict.fromkeys(places, 0)
        with self._lock:
            self._topics += 1
            # It is committed, too: what stands there may be of the topic of before.
            self._durable = dict.fromkeys(places, 0)

    def _seek(self, consumer: KafkaConsumer, places: Sequence[TopicPartition]) -> None:
        """Go on behind what was handed over, else at what the group committed, else at the beginning."""
        begins, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
        for place in places:
            begin, at = begins[place], self._next.get(place)
            if at is None:
                at = consumer.committed(place, timeout_ms=round(self._address.timeout_s * 1000))
            if at is not None and at < begin:
                self.removed += begin - at
                _logger.warning(
                    "%s: Kafka removed %d records of partition %d before they were read. What to do: give the topic a "
                    "longer retention than the gateway may ever be away", self._address, begin - at, place.partition,
                )  # fmt: skip
                with self._lock:  # else the next start tells it again
                    self._durable[place] = max(begin, self._durable.get(place, 0))
            self._next[place] = at if at is not None and begin <= at <= ends[place] else begin
            consumer.seek(place, self._next[place])

    def _hand_over(self, consumer: KafkaConsumer) -> None:
        found = consumer.poll(_POLL_MS, max_records=_POLL_RECORDS)
        if found and self._ask.due(time.monotonic()):
            ask_topic(consumer)
            if self._is_another(consumer):
                return
        for place, records in found.items():
            with self._lock:
                self._waiting += len(records)
            for record in records:
                topic = (record.key or b"?").decode(errors="replace")
                message = Message(topic, record.value or b"")
                self._next[place] = record.offset + 1
                self._on_message(message, self._are_durable, (place, self._next[place], self._topics))

    def _are_durable(self, places: Sequence[_Place]) -> None:
        with self._lock:
            self._waiting -= len(places)
            for place, offset, topic in places:
                if topic == self._topics:
                    self._durable[place] = max(offset, self._durable.get(place, 0))

    def _commit(self, consumer: KafkaConsumer, committed: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        with self._lock:
            durable = dict(self._durable)
        new = {place: offset for place, offset in durable.items() if committed.get(place) != offset}
        if new:
            offsets = {place: OffsetAndMetadata(offset, "", -1) for place, offset in new.items()}
            consumer.commit(offsets, timeout_ms=round(self._address.timeout_s * 1000))
        return durable
