"""Waiting for what a leader holds and its replicas do not, against a client that answers as the test says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edge.log import LogError
from edge.log.kafka import settled
from edge.log.kafka.settled import settled_end

kafka = pytest.importorskip("kafka")
PLACE = kafka.TopicPartition("topic", 0)


class Consumer:
    """``seen``: where readers find the end, question by question; ``written``: what the leader says, or an error."""

    def __init__(self, seen: list[int], written: list[int | Exception]) -> None:
        self.seen, self.written, self.refreshed = seen, written, 0
        self._net = SimpleNamespace(run=self._run)
        self._manager = SimpleNamespace(cluster=SimpleNamespace(request_update=self._refresh))

    def end_offsets(self, _: Any) -> dict[Any, int]:
        return {PLACE: self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]}

    def _run(self, *_: Any) -> int:
        answer = self.written.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _refresh(self) -> None:
        self.refreshed += 1


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settled, "_LOOK_S", 0.0)


def test_the_end_is_told_once_readers_see_what_the_leader_holds() -> None:
    """Records that come meanwhile belong to it, too."""
    assert settled_end(Consumer([5, 5, 6, 9], [7]), PLACE, 60.0) == 9


def test_nothing_undecided_costs_one_look() -> None:
    """The leader is asked once, readers' end once."""
    consumer = Consumer([5, 6], [5])
    assert settled_end(consumer, PLACE, 60.0) == 5
    assert consumer.seen == [6]


def test_what_stays_undecided_is_an_error() -> None:
    """It says how many records wait for other servers."""
    with pytest.raises(LogError, match="2 records of partition 0 are not on enough servers yet"):
        settled_end(Consumer([5], [7]), PLACE, 0.0)


def test_another_leader_is_looked_for() -> None:
    """A server that leads no more is no reason to give up."""
    consumer = Consumer([5], [kafka.errors.NotLeaderForPartitionError(), 5])
    assert settled_end(consumer, PLACE, 60.0) == 5
    assert consumer.refreshed == 1
