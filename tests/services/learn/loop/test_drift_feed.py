"""What is new since the newest training began."""

from __future__ import annotations

import pytest

from services.errors import TrainingError
from services.learn.loop.drift_feed import EVERY_S, DriftFeed
from services.learn.loop.triggers import NewData


class Shards:
    """Answers what it is set to; counts how often it was asked."""

    def __init__(self) -> None:
        self.answer: NewData | TrainingError = NewData(rows=100)
        self.asked: list[int] = []

    def __call__(self, known_to_ms: int) -> NewData:
        self.asked.append(known_to_ms)
        if isinstance(self.answer, TrainingError):
            raise self.answer
        return self.answer


def test_shards_are_asked_now_and_then() -> None:
    """Between two asks the last answer stands; rows count from the first."""
    shards = Shards()
    drift_feed = DriftFeed(shards)
    assert drift_feed.look(0, 7) == NewData()
    shards.answer = NewData(drift="d", rows=130)
    assert drift_feed.look(EVERY_S - 1, 7) == NewData()
    assert drift_feed.look(EVERY_S, 7) == NewData(drift="d", rows=30)
    assert shards.asked == [7, 7]


def test_a_shard_that_is_away_at_first_is_not_an_empty_log() -> None:
    """An ask that fails is told, is made again at once, and leaves no rows that would count as new."""
    shards = Shards()
    shards.answer = TrainingError("away")
    drift_feed = DriftFeed(shards)
    for at_s in (0, 2):
        with pytest.raises(TrainingError, match="away"):
            drift_feed.look(at_s, 0)
    drift_feed.training_began()
    shards.answer = NewData(rows=1_000_000)
    assert drift_feed.look(4, 0) == NewData()


def test_a_training_takes_the_news_with_it() -> None:
    """What was known when it began is not new afterwards, whatever came of it; the next drift is."""
    shards = Shards()
    drift_feed = DriftFeed(shards)
    shards.answer = NewData(drift="one", rows=150)
    assert drift_feed.look(0, 0) == NewData(drift="one")
    drift_feed.training_began()
    assert drift_feed.look(1, 0) == NewData()
    shards.answer = NewData(drift="two", rows=170)
    assert drift_feed.look(EVERY_S, 0) == NewData(drift="two", rows=20)


def test_a_log_that_is_read_anew_counts_anew() -> None:
    """Fewer rows than before are no negative number of new ones."""
    shards = Shards()
    drift_feed = DriftFeed(shards)
    drift_feed.look(0, 0)
    shards.answer = NewData(rows=10)
    assert drift_feed.look(EVERY_S, 0) == NewData()
    shards.answer = NewData(rows=25)
    assert drift_feed.look(2 * EVERY_S, 0) == NewData(rows=15)


def test_a_newer_model_is_asked_for_at_once() -> None:
    """What was new for the model before may be old for it: days that it knows start no second training."""
    shards = Shards()
    drift_feed = DriftFeed(shards)
    shards.answer = NewData(rows=100, days=5.0)
    assert drift_feed.look(0, 7).days == 5
    shards.answer = NewData(rows=100, days=0.0)
    assert drift_feed.look(1, 7).days == 5
    assert drift_feed.look(1, 8).days == 0
    assert shards.asked == [7, 8]
