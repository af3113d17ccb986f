"""Step 3 of the way of a reading: the reader of a log on Kafka; it goes on in each partition where it stopped."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from kafka import TopicPartition
from kafka import errors as kafka_errors

from edge.log.contract import LogError, LogTruncatedError, Record
from edge.log.kafka.address import KafkaAddress
from edge.log.kafka.clients import FETCH_WAIT_MS, KafkaClients
from edge.log.kafka.record import decode_record
from edge.timing import Periodic

__all__ = ["KafkaReader"]

_POLL_RECORDS = 500
_BUFFER_RECORDS = 1000
_LOOK_S = 0.2


@dataclass(slots=True)
class _Place:
    """Where reading of a partition goes on, and what was fetched beyond."""

    next: int
    fetched: deque[Any] = field(default_factory=deque)
    look: Periodic = field(default_factory=lambda: Periodic(_LOOK_S))
    paused: bool = False


class KafkaReader:
    """Reading of any number of partitions, over one consumer; the caller's lock guards it."""

    def __init__(self, address: KafkaAddress, clients: KafkaClients) -> None:
        self._address, self._clients = address, clients
        self._places: dict[int, _Place] = {}

    def read(self, partition: int, offset: int, limit: int, known_end: int) -> list[Record]:
        """At most ``limit`` records; waits at most the time-out for those before ``known_end``, not for others."""
        place = self._places.get(partition)
        if place is None or place.next != offset:
            place = self._seek(partition, offset)
            if place is None:
                return []
        if not place.fetched:
            self._fetch(partition, place, known_end)
        records: list[Record] = []
        while place.fetched and len(records) < limit:
            records.append(decode_record(place.fetched.popleft()))
        if records:
            place.next = records[-1].offset + 1
        return records

    def forget(self, partition: int) -> None:
        """Find the place again at the next read: records were truncated."""
        self._places.pop(partition, None)

    def _seek(self, partition: int, offset: int) -> _Place | None:
        """Read on from ``offset``; None where nothing can be there yet."""
        at, scout = TopicPartition(self._address.topic, partition), self._clients.scout
        begin = int(scout.beginning_offsets([at])[at])
        if offset < begin:
            raise LogTruncatedError(partition, offset, begin)
        if offset > int(scout.end_offsets([at])[at]):
            return None
        place = self._places[partition] = _Place(offset)
        consumer = self._clients.reader
        wanted = {number: TopicPartition(self._address.topic, number) for number in self._places}
        if set(wanted.values()) - set(consumer.assignment()):
            consumer.assign(sorted(wanted.values()))
            for number, other in self._places.items():  # a new assignment forgets every position
                other.fetched.clear()
                consumer.seek(wanted[number], other.next)
        consumer.seek(at, offset)
        consumer.resume(at)
        return place

    def _fetch(self, partition: int, place: _Place, known_end: int) -> None:
        """Fetch from a partition, unless nothing is there."""
        at = TopicPartition(self._address.topic, partition)
        if place.paused:
            self._clients.reader.resume(at)
            place.paused = False
        self._poll(0)
        now_s = time.monotonic()
        due = place.look.is_due(now_s) or known_end > place.next
        if place.fetched or not due:
            return
        place.look.restart(now_s)
        end = int(self._clients.scout.end_offsets([at])[at])
        while not place.fetched and place.next < end:
            if time.monotonic() > now_s + self._address.timeout_s:
                # It was deleted behind our back, its server does not answer, or the consumer is stuck, which it then
                # stays: a fresh one looks again from the start.
                self._places.clear()
                self._clients.drop_reader()
                raise LogError(f"{self._address}: partition {partition} gives nothing from offset {place.next}")
            self._poll(FETCH_WAIT_MS)

    def _poll(self, timeout_ms: int) -> None:
        consumer = self._clients.reader
        _free_the_slot(consumer)
        try:
            found = consumer.poll(timeout_ms, max_records=_POLL_RECORDS)
        except kafka_errors.OffsetOutOfRangeError as error:
            self._places.clear()
            self._clients.drop_reader()
            raise LogError(f"{self._address}: records were deleted while they were read: {error}") from error
        for at, records in found.items():
            place = self._places[at.partition]
            place.fetched.extend(records)
            if len(place.fetched) >= _BUFFER_RECORDS:
                consumer.pause(at)
                place.paused = True


def _free_the_slot(consumer: Any) -> None:
    """Let records of a partition that was paused be given again after it is resumed.

    kafka-python 3.0.12 parks them and takes them back only while its slot for the records in turn is None; where
    another partition's came to their end meanwhile, it leaves those there: a resumed partition never gives a record
    again.
    """
    fetcher = consumer._fetcher
    if not fetcher._next_partition_records:
        fetcher._next_partition_records = None
