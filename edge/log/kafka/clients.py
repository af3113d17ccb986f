"""Step 3 of the way of a reading: the clients of a log on Kafka, made when they are first needed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka import errors as kafka_errors

from edge.log.contract import LogReplacedError
from edge.log.kafka.address import KafkaAddress
from edge.log.kafka.topic_id import ASK_S, LOOK_S, ask_topic, go_on_asking, is_another
from edge.log.kafka.topics import MAX_RECORD_BYTES
from edge.timing import Periodic

__all__ = ["FETCH_WAIT_MS", "KafkaClients"]

FETCH_WAIT_MS = 50


class KafkaClients:
    """At most one of each kind; the caller's lock guards them. ``topic_id`` is what Kafka called the topic when it was
    opened; empty where servers give topics no ids (before Kafka 2.8).
    """

    def __init__(self, address: KafkaAddress) -> None:
        self.topic_id = ""
        self._address = address
        self._timeout_ms = round(address.timeout_s * 1000)
        self._made: dict[str, Any] = {}
        self._ask = Periodic(ASK_S)

    def check_topic(self, *, ask: bool = False) -> None:
        """Raise ``LogReplacedError`` where the topic is another one than when it was opened.

        With ``ask`` Kafka is asked, unless that was moments ago; without, it is what the clients have heard.
        """
        if ask and self._ask.due(time.monotonic()):
            ask_topic(self.reader)
        for client in self._made.values():
            go_on_asking(client)
            if is_another(client, self._address.topic, self.topic_id):
                raise LogReplacedError(
                    f"{self._address} was deleted and made anew: it is another log. Bring the earlier log back, or "
                    "let this one begin on a data folder and storage of its own"
                )

    @property
    def producer(self) -> KafkaProducer:
        """An idempotent producer; a record is done when every replica in sync has it."""
        return self._get("producer", lambda: KafkaProducer(
            **self._options(), acks="all", enable_idempotence=True, allow_auto_create_topics=False,
            delivery_timeout_ms=self._timeout_ms, max_block_ms=self._timeout_ms,
            batch_size=1024 * 1024, max_request_size=MAX_RECORD_BYTES,
        ))  # fmt: skip

    @property
    def scout(self) -> KafkaConsumer:
        """A consumer that answers questions and reads short ranges, beside :meth:`reader`."""
        return self._get("scout", self._consumer)

    @property
    def reader(self) -> KafkaConsumer:
        """The consumer that goes on reading."""
        return self._get("reader", self._consumer)

    @property
    def committer(self) -> KafkaConsumer:
        """A consumer that commits offsets of the address's group."""
        return self._get("committer", lambda: self._consumer(group_id=self._address.group))

    def drop_producer(self) -> None:
        """Close it without sending what waits in it; the next use makes another."""
        producer = self._made.pop("producer", None)
        if producer is not None:
            with contextlib.suppress(kafka_errors.KafkaError, OSError):
                _abandon(producer)

    def drop_reader(self) -> None:
        """Close it; the next use makes another."""
        self._close("reader")

    def close(self) -> None:
        """Close all."""
        self.drop_producer()
        for name in list(self._made):
            self._close(name)

    def _consumer(self, **options: Any) -> KafkaConsumer:
        return KafkaConsumer(
            **self._options(), enable_auto_commit=False, auto_offset_reset="none",
            allow_auto_create_topics=False, fetch_max_wait_ms=FETCH_WAIT_MS, **options,
        )  # fmt: skip

    def _options(self) -> dict[str, Any]:
        return {**self._address.options(), "metadata_max_age_ms": round(LOOK_S * 1000), "metrics_enabled": False}

    def _get(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def _close(self, name: str) -> None:
        client = self._made.pop(name, None)
        if client is not None:
            with contextlib.suppress(kafka_errors.KafkaError, OSError):
                client.close(timeout_ms=1000)


def _abandon(producer: KafkaProducer) -> None:
    """Close a producer without sending what waits in it.

    Its own ``close`` flushes first, and where that fails it leaves the sending thread running, which might still send.
    """
    sender = producer._sender
    sender.force_close()
    sender.join(1.0)
    producer.close(timeout=0)
