"""Step 3 of the way of a reading: which topic has a name now.

Clients read and write by a topic's name. Where it was deleted and made anew they go on in the middle of the new one,
and only its id tells: Kafka gives one to every topic, from 2.8 on.
"""

from __future__ import annotations

import contextlib
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka import errors as kafka_errors

__all__ = ["ASK_S", "LOOK_S", "ask_topic", "go_on_asking", "is_another", "topic_id"]

LOOK_S = 10.0
"""How often clients are to look at what a topic is, besides after an error: then at once."""
ASK_S = 0.2
"""Who gets records asks so often. A request takes 1 ms."""
_WAIT_MS = 500
"""A server that hangs is not waited for: what it says later counts, too."""


def topic_id(client: KafkaConsumer | KafkaProducer, topic: str) -> str:
    """The id, as far as the client's own thread has heard; empty while the topic is away, or servers give none."""
    return str(_cluster(client).topic_id(topic) or "")


def is_another(client: KafkaConsumer | KafkaProducer, topic: str, known: str) -> bool:
    """Whether the topic of that name has another id than ``known``; not where either is empty."""
    found = topic_id(client, topic)
    return bool(found and known and found != known)


def go_on_asking(client: KafkaConsumer | KafkaProducer) -> None:
    """Let a client look again at what topics are, and at who leads their partitions, where it has ended that: it does
    for ever after an error that is not Kafka's, such as a file of a password or a CA that is away for a moment.
    """
    cluster = _cluster(client)
    asking = cluster._refresh_loop_future
    if asking is not None and asking.is_done:
        cluster._refresh_loop_future = None
        cluster.start_refresh_loop()


def ask_topic(consumer: KafkaConsumer) -> None:
    """Let the consumer hear it now, before records are given: the topic may have been made anew moments ago."""
    # While Kafka is away, records that came before are given; who looks for more is told that it is.
    with contextlib.suppress(kafka_errors.KafkaError, OSError):
        consumer._net.run(consumer._manager.wait_for, consumer._cluster.request_update(), _WAIT_MS)


def _cluster(client: KafkaConsumer | KafkaProducer) -> Any:
    return client._metadata if isinstance(client, KafkaProducer) else client._cluster
