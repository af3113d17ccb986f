"""When trees are grown, and what happens where they cannot be."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from models.trees.forest import GROW_DAYS
from services.errors import TrainingError
from services.learn.trees.forest_loop import DAY_MS, RETRY_S, ForestLoop


class FakeCluster:
    """A history of some days; growing takes what ``results`` hold: a name, or the error that it raises."""

    def __init__(self) -> None:
        self.span: tuple[int, int] | None = (0, 0)
        self.grown_ms: int | None = None
        self.results: list[str | Exception] = []
        self.events: list[dict[str, Any]] = []
        self.shown: list[dict[str, Any]] = []

    def history_span(self) -> tuple[int, int] | None:
        return self.span

    def grown_to_ms(self) -> int | None:
        return self.grown_ms

    def grow(self, cancelled: threading.Event) -> str:
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        assert self.span is not None
        self.grown_ms = self.span[1]
        return result

    def event(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def show_forests(self, status: dict[str, Any]) -> None:
        self.shown.append(status)


class Clock:
    """A clock that tests advance."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def cluster() -> FakeCluster:
    """A cluster without rows."""
    return FakeCluster()


@pytest.fixture
def clock() -> Clock:
    """A fake clock."""
    return Clock()


@pytest.fixture
def loop(cluster: FakeCluster, clock: Clock) -> ForestLoop:
    """A loop whose thread is not started."""
    return ForestLoop(cluster, wall_ms=lambda: 5, monotonic_s=clock)


def test_trees_are_grown_every_few_days_of_the_stream(loop: ForestLoop, cluster: FakeCluster) -> None:
    """First when there is history enough, then each time it has grown by as much; never while an import runs."""
    cluster.results = ["first", "second"]
    grown = []
    for day in range(3 * GROW_DAYS):
        cluster.span = (0, day * DAY_MS)
        loop.grow_if_due()
        grown.append(loop.status["newest"])
    assert grown == [""] * GROW_DAYS + ["first"] * GROW_DAYS + ["second"] * GROW_DAYS
    assert [event["kind"] for event in cluster.events] == ["trees", "trees"]
    cluster.span = None
    loop.grow_if_due()
    assert loop.status == {"newest": "second", "grown": 2, "growing": False, "last_error": ""}


def test_a_failure_is_told_once_and_tried_again_later(loop: ForestLoop, cluster: FakeCluster, clock: Clock) -> None:
    """The reason stands in the status until it works; the stream knows nothing of it."""
    cluster.span = (0, 30 * DAY_MS)
    cluster.results = [TrainingError("no room"), TrainingError("no room"), "name"]
    loop.grow_if_due()
    loop.grow_if_due()  # too soon
    assert (loop.status["last_error"], len(cluster.results)) == ("no room", 2)
    clock.now_s += RETRY_S
    loop.grow_if_due()
    assert [event["message"] for event in cluster.events] == ["trees: no room"]
    clock.now_s += RETRY_S
    loop.grow_if_due()
    assert (loop.status["last_error"], loop.status["newest"]) == ("", "name")


def test_an_end_while_growing_is_no_failure(loop: ForestLoop, cluster: FakeCluster) -> None:
    """The system stops: nothing is told."""
    cluster.span = (0, 30 * DAY_MS)
    cluster.results = [TrainingError("the system stops")]
    loop.stop()
    loop.grow_if_due()
    assert (cluster.events, loop.status["last_error"]) == ([], "")
