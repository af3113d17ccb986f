"""Step 11 of the way of a reading: whether a training begins by itself now, and when the next one can, for people.

:class:`services.learn.loop.triggers.Triggers` decides. This module gives it what it decides by: how long the history
is, what drifted and which models there are. While challengers wait for their verdict, none may begin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from edge.timing import Periodic
from services.config import LearnSettings
from services.errors import TrainingError
from services.learn.learning_status import LearningStatus
from services.learn.loop.drift_feed import DriftFeed
from services.learn.loop.schedule import Cron, Every, Schedule
from services.learn.loop.triggers import NOTHING_NEW, NewData, Trigger, Triggers
from services.learn.promotion.live_comparison import LiveComparison
from services.learn.promotion.registry import Registry
from services.learn.promotion.shadow_capacity import TrainingWait, wait_of
from services.messages import STILL_READ, ModelRow
from services.observe.duration import in_words

__all__ = ["DueTraining", "StreamHistory"]

LOOK_S = 2.0
"""How often the history is looked at while the schedule waits for it."""


class StreamHistory(Protocol):
    """What is asked of the rows; each method may raise, and none may hang."""

    def history_days(self) -> float:
        """Length of the history on the storage, in days; 0 without any. Reads files: not to be asked all the time."""

    def least_days(self) -> float:
        """How many days of it a training needs at least, whatever the settings say."""

    def news(self, since_ms: int) -> NewData:
        """What drifted in rows that end after ``since_ms``, and how many days of rows there are since; ``rows``: all
        that were ever closed.
        """


class DueTraining:
    """Whether a training is due, by its own ``triggers``; for one thread, except for :meth:`next_training`.

    ``wall_ms`` is the clock that models are stamped by, ``monotonic_s`` the one that intervals are measured with.
    """

    def __init__(
        self, settings: LearnSettings, registry: Registry, rows: StreamHistory, comparison: LiveComparison,
        learning_status: LearningStatus, wall_ms: Callable[[], int], monotonic_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._settings, self._registry, self._rows = settings, registry, rows
        self._comparison, self._learning_status = comparison, learning_status
        self._wall_ms, self._monotonic_s = wall_ms, monotonic_s
        self._looks = Periodic(LOOK_S)
        self.triggers = Triggers(
            self._schedule(), settings.cool_down_s, settings.min_days, monotonic_s(), settings.retrain_rows,
            settings.rest, settings.retrain_days, "recorded forecasts" if settings.kind == "tuned" else "history",
        )  # fmt: skip
        self.drift_feed = DriftFeed(rows.news)
        self._drift = ""  # the newest that was told
        self._lacks = ""  # what a training that is due waits for, where there are too few rows to read now

    def due(self, now_s: float) -> Trigger | None:
        """The trigger of a training that begins by itself now, if any.

        Shards, history and registry are asked every :data:`LOOK_S` at most, and only where their answer decides.
        """
        if self.triggers.running or not self._looks.due(now_s):
            return None
        self._lacks = ""
        models = self._learning_status.models
        self._see_models(models, now_s)
        news = self._news(now_s)
        trigger = self.triggers.due(now_s, float("inf"), news)
        if trigger is None or not self._may_begin(trigger, models):
            return None
        days = self._rows.history_days()
        self.triggers.min_days = max(self._settings.min_days, self._rows.least_days())
        trigger = self.triggers.due(now_s, days, news)
        if trigger is not None and not self.triggers.has_model:
            self._see_models(self._registry.list(), now_s)
            trigger = self.triggers.due(now_s, days, news)
        if trigger is None and self.triggers.has_model:
            tuned = self._settings.kind == "tuned"  # of which there may be too few, as after a change of the schema
            self._lacks = self.triggers.first_words if days or tuned else STILL_READ
        self._learning_status.errors.pop("schedule", None)
        if trigger is not None and not self._may_begin(trigger, self._registry.list()):
            return None  # another was registered since the models were last shown
        return trigger

    def next_training(self) -> tuple[float | None, str]:
        """When the next training can begin by itself, in seconds from now, and why then; ``None``: nobody knows."""
        if self.triggers.running:
            return None, "one is under way"
        now_s = self._monotonic_s()
        due_s = self.triggers.next_due_s(now_s)
        from_now_s = None if due_s is None else due_s - now_s
        why = self.triggers.next_words, self.triggers.failed_words(now_s), self._lacks
        words = "; ".join(filter(None, why))
        wait = self._wait(self._learning_status.models)
        newest_ms = self._comparison.newest_ms
        if wait is None or wait.is_over(newest_ms, urgent=False):
            timed = from_now_s is not None and self.triggers.has_model  # a first one waits for rows, not for a time
            return from_now_s, f"{_from_now(from_now_s or 0)}: {words}" if timed else words
        if from_now_s is None or not newest_ms:
            return None, f"{words}; and none begins before: {wait.why}"
        from_now_s = max(from_now_s, (wait.until_ms - newest_ms) / 1000)  # where rows come as fast as time goes by
        return from_now_s, f"{_from_now(from_now_s)}: {wait.why}; {words}"

    def _schedule(self) -> Schedule | None:
        settings, now_s = self._settings, self._monotonic_s()
        if settings.retrain_cron:
            return Cron(settings.retrain_cron, settings.retrain_timezone, lambda: self._wall_ms() / 1000)
        return Every(settings.retrain_every_s, now_s) if settings.retrain_every_s else None

    def _wait(self, models: list[ModelRow]) -> TrainingWait | None:
        return wait_of(models, self._settings.shadows)

    def _may_begin(self, trigger: Trigger, models: list[ModelRow]) -> bool:
        wait = self._wait(models)
        return wait is None or wait.is_over(self._comparison.newest_ms, urgent=trigger.kind == "drift")

    def _see_models(self, models: list[ModelRow], now_s: float) -> None:
        """Let the schedule go on from the models that earlier processes trained, as soon as they are known."""
        if models and not self.triggers.has_model:
            self.triggers.has_model = True
            self.triggers.goes_on(now_s, now_s - (self._wall_ms() - models[0]["created_ms"]) / 1000)

    def _news(self, now_s: float) -> NewData:
        """What happened since the newest model; nothing while there is no model, where no setting asks for it, or while
        a shard is away. The schedule then goes on by time alone.
        """
        wanted = self._settings.retrain_rows or self._settings.retrain_days
        if self._settings.retrain_on_drift == "never" and not wanted:
            return NOTHING_NEW
        if not self.triggers.has_model:
            return NOTHING_NEW
        try:
            news = self.drift_feed.look(now_s, self._known_to_ms())
        except TrainingError as error:
            self._learning_status.errors["news"] = error.message
            return NOTHING_NEW
        self._learning_status.errors.pop("news", None)
        if news.drift and news.drift != self._drift:
            self._learning_status.tell("drift", message=news.drift)
            self._drift = news.drift
        return news

    def _known_to_ms(self) -> int:
        """The newest row, of any site, that any training here knew, its held-back rows too."""
        return max((int(row["trained_on"].get("known_to_ms") or 0) for row in self._learning_status.models), default=0)


def _from_now(seconds: float) -> str:
    return f"in {in_words(seconds)}" if seconds > 0 else "now"
