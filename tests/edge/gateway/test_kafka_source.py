"""Reading what sites write to Kafka themselves, against a client that fails as the test says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from edge.gateway import kafka_source
from edge.gateway.kafka_source import KafkaSource
from edge.log.kafka.address import KafkaAddress
from tests.patience import patience_s

kafka_errors = pytest.importorskip("kafka.errors")
TopicPartition = pytest.importorskip("kafka").TopicPartition


class Consumer:
    """A client whose polls come from a list: ``None`` is an empty answer, an error is raised."""

    def __init__(self, polls: Iterator[Any], topic_id: str = "") -> None:
        self._polls = polls
        self.partitions, self.assigned = {0}, list[Any]()
        self.begin = 0
        self.topic_id, self.commits, self.seeks = topic_id, list[dict[Any, int]](), list[int]()
        self._cluster = SimpleNamespace(topic_id=lambda topic: self.topic_id, request_update=lambda: None)
        self._manager = SimpleNamespace(wait_for=None)
        self._net = SimpleNamespace(run=lambda *_: None)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(self.partitions)

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = partitions

    def poll(self, timeout_ms: int, max_records: int) -> dict[Any, Any]:
        found = next(self._polls)
        if isinstance(found, Exception):
            raise found
        return found or {}

    def commit(self, offsets: dict[Any, Any], timeout_ms: int) -> None:
        self.commits.append({place.partition: found.offset for place, found in offsets.items()})

    def committed(self, place: Any, timeout_ms: int) -> int | None:
        return None

    def beginning_offsets(self, places: list[Any]) -> dict[Any, int]:
        return dict.fromkeys(places, self.begin)

    def end_offsets(self, places: list[Any]) -> dict[Any, int]:
        return dict.fromkeys(places, 100)

    def seek(self, place: Any, offset: int) -> None:
        self.seeks.append(offset)

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


def test_what_was_read_of_the_topic_of_before_is_not_committed_of_the_one_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where it becomes durable only then: a gateway that starts would leave out what the new one begins with."""
    place = TopicPartition("direct", 0)
    made: list[Consumer] = []
    taken: list[tuple[Any, Any]] = []
    over = threading.Event()

    def records(*offsets: int) -> dict[Any, Any]:
        return {place: [SimpleNamespace(key=b"k", value=b"v", offset=offset) for offset in offsets]}

    def polls(number: int) -> Iterator[Any]:
        if number == 0:
            yield records(40, 41)
            made[0].topic_id = "second"
            yield records(42)  # the new one has grown that far
            raise AssertionError("it is read on")
        for done, reached in taken:
            done([reached])
        yield None
        yield records(0)
        taken[-1][0]([taken[-1][1]])
        yield None
        source._stop.set()
        over.set()
        yield None

    def consumer(**_: Any) -> Consumer:
        made.append(Consumer(polls(len(made)), "second" if made else "first"))
        return made[-1]

    monkeypatch.setattr(kafka_source, "KafkaConsumer", consumer)
    monkeypatch.setattr(kafka_source, "ASK_S", 0.0)
    monkeypatch.setattr(kafka_source, "_COMMIT_S", 0.0)
    source = KafkaSource(
        KafkaAddress(servers=("nowhere:9092",), topic="direct"), lambda message, done, at: taken.append((done, at)), 10
    )
    source.start()
    assert over.wait(patience_s(10))
    source.close()
    assert [at[1] for _, at in taken] == [41, 42, 1]
    assert [one.seeks for one in made] == [[0], [0]]
    assert [one.commits for one in made] == [[], [{0: 0}, {0: 1}]]


def test_records_that_are_removed_while_it_reads_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it reads slower than the topic's retention goes on. What was handed over does not come again."""
    place = TopicPartition("direct", 0)
    made: list[Consumer] = []
    taken: list[int] = []
    over = threading.Event()

    def polls(number: int) -> Iterator[Any]:
        if number == 0:
            yield {place: [SimpleNamespace(key=b"k", value=b"v", offset=offset) for offset in (0, 1)]}
            yield kafka_errors.OffsetOutOfRangeError({place: 2})
        source._stop.set()
        over.set()
        yield None

    def consumer(**_: Any) -> Consumer:
        made.append(Consumer(polls(len(made))))
        made[-1].begin = 10 if len(made) > 1 else 0
        return made[-1]

    monkeypatch.setattr(kafka_source, "KafkaConsumer", consumer)
    source = KafkaSource(
        KafkaAddress(servers=("nowhere:9092",), topic="direct"), lambda _, done, at: taken.append(at[1]), 10
    )
    source.start()
    assert over.wait(patience_s(10))
    source.close()
    assert (taken, source.removed) == ([1, 2], 8)
    assert [one.seeks for one in made] == [[0], [10]]
    assert made[-1].commits == [{0: 10}]
