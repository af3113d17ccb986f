"""Reading what sites write to Kafka themselves, against a client that fails as the test says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from edge.gateway import kafka_source
from edge.gateway.kafka_source import KafkaSource
from edge.log.kafka.address import KafkaAddress
from tests.patience import patience_s

kafka_errors = pytest.importorskip("kafka.errors")


class Consumer:
    """A client whose polls come from a list: ``None`` is an empty answer, an error is raised."""

    def __init__(self, polls: Iterator[Exception | None]) -> None:
        self._polls = polls

        self.partitions, self.assigned = {0}, list[Any]()

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(self.partitions)

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = partitions

    def poll(self, timeout_ms: int, max_records: int) -> dict[Any, Any]:
        found = next(self._polls)
        if found is not None:
            raise found
        return {}

    def close(self, **_: Any) -> None: ...


def test_after_a_success_the_back_off_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses grow from failure to failure, and are short again after Kafka has answered in between."""
    away = kafka_errors.KafkaConnectionError("away")
    polls = iter([away, away, away, away, None, away, away])
    source = KafkaSource(KafkaAddress(servers=("nowhere:9092",), topic="direct"), lambda *_: None, 10)
    pauses: list[float] = []
    over = threading.Event()

    def wait(timeout: float) -> bool:
        pauses.append(timeout)
        if len(pauses) == 6:
            source._stop.set()
            over.set()
        return False

    monkeypatch.setattr(kafka_source, "KafkaConsumer", lambda **_: Consumer(polls))
    monkeypatch.setattr(source._stop, "wait", wait)
    source.start()
    assert over.wait(patience_s(10))
    source.close()
    assert pauses == [0.2, 0.4, 0.8, 1.6, 0.2, 0.4]


def test_partitions_that_are_added_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """From when the client knows of them, without a restart of the gateway."""
    made: list[Consumer] = []
    source = KafkaSource(KafkaAddress(servers=("nowhere:9092",), topic="direct"), lambda *_: None, 10)
    over = threading.Event()

    def polls(number: int) -> Iterator[None]:
        if number:
            source._stop.set()
            over.set()
        else:
            made[0].partitions = {0, 1}
        yield None

    def consumer(**_: Any) -> Consumer:
        found = Consumer(polls(len(made)))
        found.partitions = {0, 1} if made else {0}
        made.append(found)
        return found

    monkeypatch.setattr(kafka_source, "KafkaConsumer", consumer)
    source.start()
    assert over.wait(patience_s(10))
    source.close()
    assert [[one.partition for one in each.assigned] for each in made] == [[0], [0, 1]]
