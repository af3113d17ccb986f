"""Step 3 of the way of a reading: the two topics of a log on Kafka, and the small facts beside its records.

``TOPIC`` holds the records. ``TOPIC.meta`` is compacted and holds the format, the known sites and, by partition, the
sites' newest receive times. Records carry Kafka's own append time, not ours: with times
of an import, retention would delete them within minutes.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors

from edge.log.contract import LogError, LogFormatError
from edge.log.kafka.address import KafkaAddress

__all__ = ["MAX_RECORD_BYTES", "TopicFacts", "make_topics", "read_range"]

MAX_RECORD_BYTES = 8 * 1024 * 1024

_FORMAT = {"format": 2, "hash": "crc32"}
_MIGRATED = 1
"""We read every record of this older format. Code of that format cannot read ours, so the topic's format rises."""


class TopicFacts:
    """The facts in ``TOPIC.meta``; the caller's lock guards it."""

    def __init__(self, address: KafkaAddress) -> None:
        self._address = address
        self._place = TopicPartition(f"{address.topic}.meta", 0)
        self._next = 0
        self._known: dict[str, bytes] = {}

    def read(self, consumer: KafkaConsumer) -> dict[str, bytes]:
        """All facts, as they are now."""
        end = consumer.end_offsets([self._place])[self._place]
        for record in read_range(consumer, self._place, self._next, end, self._address.timeout_s):
            self._known[(record.key or b"").decode(errors="replace")] = record.value
        self._next = end
        return self._known

    def write(self, producer: KafkaProducer, facts: dict[str, bytes]) -> None:
        """Make facts durable."""
        sent = [producer.send(self._place.topic, value, key=key.encode(), partition=0) for key, value in facts.items()]
        for future in sent:
            future.get(timeout=self._address.timeout_s)
        self._known.update(facts)


def make_topics(address: KafkaAddress, partitions: int, facts: TopicFacts, consumer: KafkaConsumer) -> None:
    """Create the topics that are missing, and check that the others are a log with ``partitions``.

    Raises ``LogFormatError`` if it is another's topic, or a log of another format or number of partitions.
    """
    if partitions < 1:
        raise ValueError(f"a log needs at least one partition, not {partitions}")
    admin = KafkaAdminClient(**address.options())
    try:
        there = set(admin.list_topics())
        if address.topic in there and f"{address.topic}.meta" not in there:
            raise LogFormatError(f"the topic {address.topic} is not a Hothouse log")
        retention_ms = address.retention_h * 3_600_000 or -1
        # Kafka unpacks what comes compressed, so that its limit is for what readers have to hold: a megabyte may be
        # a gigabyte that was packed.
        common = {"max.message.bytes": str(MAX_RECORD_BYTES), "compression.type": "uncompressed"}
        if address.replication >= 3:
            common["min.insync.replicas"] = "2"  # acks=all then means two disks, not whoever is left
        _create(admin, address, f"{address.topic}.meta", 1, {**common, "cleanup.policy": "compact"}, there)
        records = {"message.timestamp.type": "LogAppendTime", "retention.ms": str(retention_ms)}
        _create(admin, address, address.topic, partitions, {**common, **records}, there)
    finally:
        admin.close()
    expected = {**_FORMAT, "partitions": partitions}
    text = facts.read(consumer).get("format")
    found = None if text is None else msgspec.json.decode(text, type=dict[str, Any])
    if found in (None, {**expected, "format": _MIGRATED}):
        producer = KafkaProducer(**address.options(), acks="all")
        try:
            facts.write(producer, {"format": msgspec.json.encode(expected)})
        finally:
            producer.close(timeout=address.timeout_s)
    else:
        _check(address, found, expected)
    number = len(consumer.partitions_for_topic(address.topic) or ())
    if number != partitions:
        raise LogFormatError(
            f"the topic {address.topic} has {number} partitions and cannot be opened with {partitions}"
        )


def _create(
    admin: KafkaAdminClient, address: KafkaAddress, name: str, partitions: int, configs: dict[str, str], there: set[str]
) -> None:
    if name in there:
        return
    options = {"num_partitions": partitions, "replication_factor": address.replication, "configs": configs}
    try:
        admin.create_topics({name: options}, wait_for_metadata=True)
    except kafka_errors.TopicAlreadyExistsError:
        admin.wait_for_topics([name])  # another process was first


def _check(address: KafkaAddress, found: dict[str, Any], expected: dict[str, Any]) -> None:
    if found.get("partitions") != expected["partitions"] and found.get("format") == expected["format"]:
        raise LogFormatError(
            f"{address} was created with {found.get('partitions')} partitions"
            f" and cannot be opened with {expected['partitions']}"
        )
    if found != expected:
        raise LogFormatError(f"{address} has {found}; this version reads {expected}")


def read_range(consumer: KafkaConsumer, place: TopicPartition, start: int, end: int, timeout_s: float) -> list[Any]:
    """The records of a partition with ``start <= offset < end``; raises ``LogError`` when they do not come in time."""
    if start >= end:
        return []
    consumer.assign([place])
    consumer.seek(place, start)
    records: list[Any] = []
    deadline_s = time.monotonic() + timeout_s
    while consumer.position(place) < end:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise LogError(f"{place.topic}: records {start} to {end} did not come within {timeout_s:g} s")
        records += [r for of_place in consumer.poll(min(left_s, 0.5) * 1000).values() for r in of_place]
    return [record for record in records if record.offset < end]
