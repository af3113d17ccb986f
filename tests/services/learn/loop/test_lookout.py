"""What is new since the newest training began."""

from __future__ import annotations

import pytest

from services.errors import TrainingError
from services.learn.loop.lookout import EVERY_S, Lookout
from services.learn.loop.triggers import News


class Shards:
    """Answers what it is set to; counts how often it was asked."""

    def __init__(self) -> None:
        self.answer: News | TrainingError = News(rows=100)
        self.asked: list[int] = []

    def __call__(self, known_to_ms: int) -> News:
        self.asked.append(known_to_ms)
        if isinstance(self.answer, TrainingError):
            raise self.answer
        return self.answer


def test_shards_are_asked_now_and_then() -> None:
    """Between two asks the last answer stands; rows count from the first."""
    shards = Shards()
    lookout = Lookout(shards)
    assert lookout.look(0, 7) == News()
    shards.answer = News(drift="d", rows=130)
    assert lookout.look(EVERY_S - 1, 7) == News()
    assert lookout.look(EVERY_S, 7) == News(drift="d", rows=30)
    assert shards.asked == [7, 7]


def test_a_shard_that_is_away_at_first_is_not_an_empty_log() -> None:
    """An ask that fails is told, is made again at once, and leaves no rows that would count as new."""
    shards = Shards()
    shards.answer = TrainingError("away")
    lookout = Lookout(shards)
    for at_s in (0, 2):
        with pytest.raises(TrainingError, match="away"):
            lookout.look(at_s, 0)
    lookout.training_began()
    shards.answer = News(rows=1_000_000)
    assert lookout.look(4, 0) == News()


def test_a_training_takes_the_news_with_it() -> None:
    """What was known when it began is not new afterwards, whatever came of it; the next drift is."""
    shards = Shards()
    lookout = Lookout(shards)
    shards.answer = News(drift="one", rows=150)
    assert lookout.look(0, 0) == News(drift="one")
    lookout.training_began()
    assert lookout.look(1, 0) == News()
    shards.answer = News(drift="two", rows=170)
    assert lookout.look(EVERY_S, 0) == News(drift="two", rows=20)


def test_a_log_that_is_read_anew_counts_anew() -> None:
    """Fewer rows than before are no negative number of new ones."""
    shards = Shards()
    lookout = Lookout(shards)
    lookout.look(0, 0)
    shards.answer = News(rows=10)
    assert lookout.look(EVERY_S, 0) == News()
    shards.answer = News(rows=25)
    assert lookout.look(2 * EVERY_S, 0) == News(rows=15)


def test_a_newer_model_is_asked_for_at_once() -> None:
    """What was new for the model before may be old for it: days that it knows start no second training."""
    shards = Shards()
    lookout = Lookout(shards)
    shards.answer = News(rows=100, days=5.0)
    assert lookout.look(0, 7).days == 5
    shards.answer = News(rows=100, days=0.0)
    assert lookout.look(1, 7).days == 5
    assert lookout.look(1, 8).days == 0
    assert shards.asked == [7, 8]
