"""Step 3 of the way of a reading: the two topics of a log on Kafka, and the small facts beside its records.

``TOPIC`` holds the records. ``TOPIC.meta`` is compacted and holds the format, the log's name, the known sites and, by
partition, the sites' newest receive times. Records carry Kafka's own append time, not ours: with times
of an import, retention would delete them within minutes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors

from edge.log.contract import LogError, LogFormatError
from edge.log.kafka.address import KafkaAddress
from models.durations import HOUR_MS

__all__ = [
    "MAX_RECORD_BYTES",
    "TopicFacts",
    "check_format",
    "log_name",
    "make_topics",
    "read_pieces",
    "read_range",
    "too_few_copies",
    "topic_partitions",
]

MAX_RECORD_BYTES = 8 * 1024 * 1024
_ROLL_MS = 600_000
_COPIES = 3
"""Where so many copies are, one may be away and another be lost."""
_logger = logging.getLogger(__name__)

_FORMAT = {"format": 2, "hash": "crc32"}
_NAME = "log"
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


def make_topics(address: KafkaAddress, partitions: int, facts: TopicFacts, consumer: KafkaConsumer) -> str:
    """Create the topics that are missing.

    Returns the id that Kafka gave the topic of the records; empty where servers give none (before Kafka 2.8). Raises
    ``LogFormatError`` if it is another's topic.
    """
    if partitions < 1:
        raise ValueError(f"a log needs at least one partition, not {partitions}")
    admin = KafkaAdminClient(**address.options())
    try:
        there = set(admin.list_topics())
        if address.topic in there and f"{address.topic}.meta" not in there:
            raise LogFormatError(f"the topic {address.topic} is not a Hothouse log")
        if address.topic not in there and f"{address.topic}.meta" in there and facts.read(consumer).get(_NAME):
            _write(address, facts, {_NAME: b""})  # it was deleted: the one that is made now is another log
        retention_ms = address.retention_h * HOUR_MS or -1
        # Kafka unpacks what comes compressed, so that its limit is for what readers have to hold: a megabyte may be
        # a gigabyte that was packed.
        common = {"max.message.bytes": str(MAX_RECORD_BYTES), "compression.type": "uncompressed"}
        # Kafka compacts what it does not write to any more: after a week, by itself, and a start reads all until then.
        facts_only = {"cleanup.policy": "compact", "segment.ms": str(_ROLL_MS)}
        _create(admin, address, f"{address.topic}.meta", 1, {**common, **facts_only}, there)
        records = {"message.timestamp.type": "LogAppendTime", "retention.ms": str(retention_ms)}
        _create(admin, address, address.topic, partitions, {**common, **records}, there)
        (described,) = admin.describe_topics([address.topic])
        return str(described.get("topic_id") or "")
    finally:
        admin.close()


def check_format(address: KafkaAddress, partitions: int, facts: TopicFacts, consumer: KafkaConsumer) -> None:
    """Check that the topics are a log of our format with ``partitions``, and write that down of new or older ones.

    Raises ``LogFormatError`` where they are not. Partitions that somebody added to the topic later are left alone.
    """
    expected = {**_FORMAT, "partitions": partitions}
    text = facts.read(consumer).get("format")
    found = None if text is None else msgspec.json.decode(text, type=dict[str, Any])
    is_to_write = found in (None, {**expected, "format": _MIGRATED})
    if found is not None and not is_to_write:
        _compare(address, found, expected)
    number = _partitions_there(address, consumer)
    # Without that fact the topic alone says over how many partitions its sites are spread.
    if number < partitions or (found is None and number > partitions):
        raise LogFormatError(
            f"the topic {address.topic} has {number} partitions and cannot be opened with {partitions}"
        )
    if is_to_write:
        _write(address, facts, {"format": msgspec.json.encode(expected)})
    if number > partitions:  # Kafka takes none away again
        _logger.warning(
            "the topic %s has %d partitions, and the log was made with %d: the others stay empty",
            address.topic, number, partitions,
        )  # fmt: skip


def _partitions_there(address: KafkaAddress, consumer: KafkaConsumer) -> int:
    deadline_s = time.monotonic() + address.timeout_s
    while not (found := consumer.partitions_for_topic(address.topic)) and time.monotonic() < deadline_s:
        time.sleep(0.1)  # of several servers, one may not have heard yet of a topic that another has just made
    return len(found or ())


def log_name(address: KafkaAddress, facts: TopicFacts, consumer: KafkaConsumer, topic_id: str) -> str:
    """The log's permanent name: the id that its topic had when it was first opened; empty where servers give none.

    It stays so where both topics are brought to another Kafka, which gives them other ids.
    """
    if name := facts.read(consumer).get(_NAME):
        return name.decode()
    if topic_id:
        _write(address, facts, {_NAME: topic_id.encode()})  # where several open it at once, they write the same
    return topic_id


def _write(address: KafkaAddress, facts: TopicFacts, changed: dict[str, bytes]) -> None:
    producer = KafkaProducer(**address.options(), acks="all")
    try:
        facts.write(producer, changed)
    finally:
        producer.close(timeout=address.timeout_s)


def _create(
    admin: KafkaAdminClient, address: KafkaAddress, name: str, partitions: int, configs: dict[str, str], there: set[str]
) -> None:
    if name in there:
        return
    options: dict[str, Any] = {"num_partitions": partitions, "replication_factor": address.replication}
    try:
        copies = address.replication if address.replication > 0 else _default_copies(admin, name, options)
        if copies >= _COPIES:
            # acks=all then means two disks, not whoever is left
            configs = {**configs, "min.insync.replicas": "2"}
        elif copies == 1:
            # No other server has the record: it is on this one's disk before it is acknowledged, as in SQLite.
            configs = {**configs, "flush.messages": "1"}
        admin.create_topics({name: {**options, "configs": configs}}, wait_for_metadata=True)
    except kafka_errors.TopicAlreadyExistsError:
        admin.wait_for_topics([name])  # another process was first
        return
    if copies > 0 and (problem := too_few_copies(copies, len(admin.describe_cluster()["brokers"]))):
        _logger.warning("%s: %s", name, problem)


def _default_copies(admin: KafkaAdminClient, name: str, options: dict[str, Any]) -> int:
    """How many copies the servers would give a new topic; -1 where we may not know."""
    (planned,) = admin.create_topics({name: options}, validate_only=True)["topics"]
    return int(planned["replication_factor"])


def too_few_copies(copies: int, servers: int) -> str:
    """What is wrong with a topic that has fewer copies than there are servers, up to three; else empty.

    >>> too_few_copies(1, 3), too_few_copies(3, 4), too_few_copies(1, 1)
    ('1 copy on 3 servers: where one stops, nothing is taken; where one is lost, so are records', '', '')
    """
    if copies >= min(servers, _COPIES):
        return ""
    if copies == 1:
        return f"1 copy on {servers} servers: where one stops, nothing is taken; where one is lost, so are records"
    return f"{copies} copies on {servers} servers: where one stops, another that is lost takes records with it"


def topic_partitions(admin: KafkaAdminClient, name: str) -> list[dict[str, Any]]:
    """A topic's partitions: ``partition_index``, ``leader_id``, ``replica_nodes``, ``isr_nodes`` and more."""
    (found,) = admin.describe_topics([name])
    return sorted(found["partitions"], key=lambda each: int(each["partition_index"]))


def _compare(address: KafkaAddress, found: dict[str, Any], expected: dict[str, Any]) -> None:
    if found.get("partitions") != expected["partitions"] and found.get("format") == expected["format"]:
        raise LogFormatError(
            f"{address} was created with {found.get('partitions')} partitions"
            f" and cannot be opened with {expected['partitions']}: set log.partitions, or uplink.partitions of an"
            f" uplink into it, to {found.get('partitions')}"
        )
    if found != expected:
        raise LogFormatError(f"{address} has {found}; this version reads {expected}")


def read_range(consumer: KafkaConsumer, place: TopicPartition, start: int, end: int, timeout_s: float) -> list[Any]:
    """The records of a partition with ``start <= offset < end``; raises ``LogError`` when they do not come in time."""
    return [record for records, _ in read_pieces(consumer, place, start, end, timeout_s) for record in records]


def read_pieces(
    consumer: KafkaConsumer, place: TopicPartition, start: int, end: int, timeout_s: float
) -> Iterator[tuple[list[Any], int]]:
    """The same as they come, each piece with the offset behind it: who goes on from there after the ``LogError`` comes
    to the end, however many there are.
    """
    if start >= end:
        return
    consumer.assign([place])
    consumer.seek(place, start)
    deadline_s = time.monotonic() + timeout_s
    at = start
    while at < end:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise LogError(f"{place.topic}: records {at} to {end} did not come within {timeout_s:g} s")
        records = [r for of_place in consumer.poll(min(left_s, 0.5) * 1000).values() for r in of_place]
        at = consumer.position(place)
        yield [record for record in records if record.offset < end], min(at, end)
