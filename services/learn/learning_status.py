"""Steps 11 to 17 of the way of a reading: the learning loop's status and events, for the live state and for callers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, Unpack, cast

from services.errors import RegistryError
from services.messages import EventDetails, LearningCounts, LearningFigures, LiveEvent, ModelRow, TrainingRun

__all__ = ["LearningStatus", "StatusSink"]

_log = logging.getLogger(__name__)


class StatusSink(Protocol):
    """Where the loop reports; both methods may raise."""

    def event(self, event: LiveEvent) -> None:
        """Show an event on the live state."""

    def show(self, models: list[ModelRow], status: LearningFigures) -> None:
        """Show the models and the retrainer's status on the live state."""


def _none_yet() -> LearningCounts:
    return cast(LearningCounts, dict.fromkeys(LearningCounts.__annotations__, 0))


@dataclass
class LearningStatus:
    """What the threads of the loop report. A live state that is away stops none of them.

    ``models`` reads the registry, ``next_training`` the schedule and what stands in its way: seconds from now, ``None``
    for never, and words for people.
    """

    live_state: StatusSink
    read_models: Callable[[], list[ModelRow]]
    wall_ms: Callable[[], int]
    next_training: Callable[[], tuple[float | None, str]] = lambda: (None, "")
    counts: LearningCounts = field(default_factory=_none_yet)
    last_run: TrainingRun | None = None
    running: TrainingRun | None = None
    errors: dict[str, str] = field(default_factory=dict)  # what fails -> why, until it works again
    registry_error: str = ""
    serving: str = ""
    models: list[ModelRow] = field(default_factory=list)  # as they were seen last
    _showing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def status(self) -> LearningFigures:
        """What runs, what ran, what comes, and how often; JSON-able."""
        due_s, words = self.next_training()
        last = self.last_run or TrainingRun()
        return LearningFigures(
            serving=self.serving,
            running=self.running,
            last_run=self.last_run,
            training=self.running is not None,
            trained_ms=last.get("ended_ms"),
            trained_s=last.get("took_s"),
            last_error="; ".join(tuple(self.errors.values())),
            registry_error=self.registry_error,
            next_due_s=None if due_s is None else round(due_s, 1),
            next_training=words,
            **self.counts,
        )

    def tell(self, kind: str, **what: Unpack[EventDetails]) -> None:
        """Show an event, and everything else with it."""
        try:
            self.live_state.event(LiveEvent(time_ms=self.wall_ms(), kind=kind, **what))
        except Exception:  # a live state that restarts must not stop the learning
            _log.warning("the live state did not take the event %s %s", kind, what)
        self.show()

    def show(self) -> None:
        """Show models and status."""
        with self._showing:  # what one thread has read is not shown after what another one read later
            with suppress(RegistryError):  # its absence is in the status already; models stay as they were seen last
                self.models = self.read_models()
            try:
                self.live_state.show(self.models, self.status())
            except Exception:  # the live state restarts: it is told again soon
                _log.info("the live state does not answer")
