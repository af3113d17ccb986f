"""Logs on a real Kafka for tests, each in topics of its own that are deleted at the end."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from edge.log import NewRecord
from tests.patience import until

__all__ = [
    "SITES", "batch", "delete_topics", "kafka_logs", "made_anew", "opened", "payloads", "records_of", "topic_setting",
]  # fmt: skip

SITES = ("north", "pepper", "demo", "site-1")
"""Of both partitions of two."""


@contextlib.contextmanager
def kafka_logs(server: str, **options: Any) -> Iterator[Callable[[int], Any]]:
    """Makes an empty KafkaLog of so many partitions; the caller closes it."""
    from edge.log.kafka.address import KafkaAddress
    from edge.log.kafka.kafka_log import KafkaLog

    topics: list[str] = []

    def make(partitions: int) -> KafkaLog:
        topics.append(f"test-{uuid.uuid4().hex[:12]}")
        address = KafkaAddress(servers=(server,), topic=topics[-1], group=topics[-1], retention_h=24, **options)
        return KafkaLog(address, partitions)

    try:
        yield make
    finally:
        delete_topics(server, [name for topic in topics for name in (topic, f"{topic}.meta")])


def delete_topics(server: str, topics: list[str]) -> None:
    """Delete topics that are there."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=server)
    there = set(admin.list_topics())
    admin.delete_topics([topic for topic in topics if topic in there])
    admin.close()


def made_anew(log: Any) -> Any:
    """Another log, open, in topics of the names of this one's, which are deleted."""
    delete_topics(log.address.servers[0], [log.address.topic, f"{log.address.topic}.meta"])
    return until(lambda: opened(log), "the topics can be made anew")


def opened(log: Any) -> Any:
    """What is at a log's address; None for a moment after it was deleted, while its names stay taken."""
    from edge.log import LogError
    from edge.log.kafka.kafka_log import KafkaLog

    try:
        return KafkaLog(log.address, log.partitions)
    except LogError:
        return None


def topic_setting(servers: Sequence[str], topic: str, name: str) -> str:
    """What a topic's setting is now."""
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource, ConfigResourceType

    admin = KafkaAdminClient(bootstrap_servers=list(servers))
    try:
        found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    finally:
        admin.close()
    return str(found["topic"][topic][name]["value"])


def batch(count: int = 8) -> list[NewRecord]:
    """Records of several sites, so of both partitions."""
    return [NewRecord(SITES[n % len(SITES)], "samples", 1000 + n, b"%d" % n, "t") for n in range(count)]


def payloads(log: Any) -> list[bytes]:
    """Everything in the log."""
    return sorted(r.payload for p in range(log.partitions) for r in records_of(log, p))


def records_of(log: Any, partition: int) -> list[Any]:
    """Everything in a partition."""
    records: list[Any] = []
    while found := log.read(partition, len(records), 1000):
        records += found
    return records
