"""Reading on in a log on Kafka, with consumers that are not there: what is done about one that is stuck."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition

from edge.log.contract import LogError
from edge.log.kafka.address import KafkaAddress
from edge.log.kafka.reader import KafkaReader


class Consumer:
    """Gives nothing, whatever is asked; the records in turn have come to their end."""

    def __init__(self) -> None:
        self._fetcher = SimpleNamespace(_next_partition_records=[])

    def assignment(self) -> set[Any]:
        return set()

    def assign(self, wanted: Any) -> None:
        """Taken."""

    def seek(self, at: Any, offset: int) -> None:
        """Taken."""

    def resume(self, at: Any) -> None:
        """Taken."""

    def poll(self, timeout_ms: int, max_records: int) -> dict[Any, Any]:
        return {}


class Clients:
    """Counts the consumers that were made."""

    def __init__(self) -> None:
        self.made = 0
        self.dropped = 0
        self.scout = SimpleNamespace(
            beginning_offsets=lambda places: dict.fromkeys(places, 0),
            end_offsets=lambda places: dict.fromkeys(places, 100),
        )
        self._reader: Consumer | None = None

    @property
    def reader(self) -> Consumer:
        if self._reader is None:
            self._reader = Consumer()
            self.made += 1
        return self._reader

    def drop_reader(self) -> None:
        self.dropped += 1
        self._reader = None


def test_a_consumer_that_gives_nothing_is_replaced() -> None:
    """Records are there and none comes: the error says so, and the next read is made with a new consumer."""
    clients = Clients()
    address = KafkaAddress(servers=("nowhere:9092",), topic="hothouse", timeout_s=0.05)
    reader = KafkaReader(address, clients)  # type: ignore[arg-type]
    for made in (1, 2):
        with pytest.raises(LogError, match="gives nothing from offset 40"):
            reader.read(0, 40, 10, 100)
        assert (clients.made, clients.dropped) == (made, made)


def test_records_at_their_end_do_not_block_a_resumed_partition() -> None:
    """The consumer's slot is free before it is asked; records that are not at their end stay in it."""
    clients = Clients()
    address = KafkaAddress(servers=("nowhere:9092",), topic="hothouse", timeout_s=5.0)
    reader, consumer = KafkaReader(address, clients), clients.reader  # type: ignore[arg-type]
    foreign = SimpleNamespace(topic="hothouse", partition=0, offset=40, timestamp=7, key=b"", value=b"", headers=())
    seen: list[Any] = []

    def poll(timeout_ms: int, max_records: int) -> dict[Any, Any]:
        seen.append(consumer._fetcher._next_partition_records)
        consumer._fetcher._next_partition_records = ["of another partition"]
        return {} if len(seen) < 3 else {TopicPartition("hothouse", 0): [foreign]}

    consumer.poll = poll  # type: ignore[method-assign]
    assert [found.offset for found in reader.read(0, 40, 10, 100)] == [40]
    assert seen == [None, ["of another partition"], ["of another partition"]]
