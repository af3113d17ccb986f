"""Step 11 of the way of a reading: when to retrain. Pure: every method gets the clock as an argument.

Operators ask from threads of their own; all else is for one thread.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from edge.timing import Backoff
from services.learn.loop.schedule import Schedule
from services.observe.duration import in_words

__all__ = ["NOTHING_NEW", "NewData", "Trigger", "Triggers"]


@dataclass(frozen=True, slots=True)
class Trigger:
    """Why a retraining starts: ``kind`` is ``first``, ``drift``, ``volume``, ``schedule`` or ``operator``."""

    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewData:
    """What happened since the newest model: the words of a drift, empty without one, how many rows were closed, and how
    many days of the stream they are.
    """

    drift: str = ""
    rows: int = 0
    days: float = 0.0


NOTHING_NEW = NewData()

LONGEST_PAUSE_S = 3600.0
"""What makes one training after another fail, such as a full disk, may be over; each costs minutes of the machine."""


class Triggers:
    """Decides when a retraining starts; at most one is under way, and an operator's wish goes first.

    Without a ``schedule`` nothing is due but what happens. With one the first model does not wait for a slot: it is due
    as soon as there is history enough; the owner sets ``has_model`` once there is one, and :meth:`goes_on` keeps the
    slots from before a restart. ``rows`` new rows are due for themselves (0: never), and so is a drift; ``days`` of new
    rows are a schedule by the stream's own time.

    After each end no retraining starts by itself for ``cool_down_s``; each further one in a row that failed, or found
    too little to learn from, doubles that, up to an hour. Neither drift nor volume starts one for ``rest`` times as
    long as the last one took: where many sites drift in turn, most of the time nothing is trained. An operator's wish
    waits for neither. All times are seconds of one monotonic clock.

    >>> from services.learn.loop.schedule import Every
    >>> triggers = Triggers(Every(60, now_s=0), cool_down_s=5, min_days=2, now_s=0)
    >>> triggers.has_model = True
    >>> triggers.due(59, history_days=10), triggers.due(60, history_days=10).kind
    (None, 'schedule')
    >>> triggers.due(59, history_days=10, news=NewData(drift="rh_pct errors are twice as large")).kind
    'drift'
    """

    def __init__(
        self, schedule: Schedule | None, cool_down_s: float, min_days: float, now_s: float, rows: int = 0,
        rest: float = 10.0, days: float = 0.0, days_of: str = "history",
    ) -> None:  # fmt: skip
        self._schedule = schedule
        self._days_of = days_of  # what the days before a first training are counted in, for people
        self._rows, self._days = rows, days
        self._cool_down_s, self._rest = cool_down_s, rest
        self._pause = Backoff(max(cool_down_s, 1.0), max(cool_down_s, LONGEST_PAUSE_S))
        self._failures = 0  # in a row
        self._found_too_little = False  # the last one
        self.min_days = min_days
        self.has_model = False
        self._quiet_until_s = self._scheduled_from_s = now_s
        self._started_s = self._rested_s = now_s
        self._trained_s: float | None = None
        self._asking = threading.Lock()
        self._asked: str | None = None
        self._running = False

    @property
    def running(self) -> bool:
        """Whether a retraining is under way."""
        return self._running

    def ask(self, reason: str) -> str | None:
        """Ask for a retraining as an operator. ``None`` if that is accepted, else the reason why not."""
        with self._asking:
            if self._running:
                return "a retraining is already running"
            if self._asked is not None:
                return "a retraining has already been requested"
            self._asked = reason
        return None

    def goes_on(self, now_s: float, newest_s: float) -> None:
        """The newest model came at that time, to an earlier process. The next slot is the first one after it, but not
        within a cool-down: a training that takes the machine down must not start again at once.
        """
        if self._schedule is not None:
            self._schedule.goes_on(now_s, newest_s)
            self._scheduled_from_s = now_s + self._cool_down_s

    def due(self, now_s: float, history_days: float, news: NewData = NOTHING_NEW) -> Trigger | None:
        """What would start a retraining now; calling it changes nothing."""
        if self._running:
            return None
        if self._asked is not None:
            return Trigger("operator", self._asked)
        if history_days < self.min_days or now_s < self._quiet_until_s:
            return None
        if not self.has_model:
            first = Trigger("first", f"{history_days:.1f} days of {self._days_of}, no model yet")
            return first if self._schedule is not None or self._days else None
        rested = now_s >= self._rested_s
        if news.drift and rested:
            return Trigger("drift", news.drift)
        if self._rows and news.rows >= self._rows and rested:
            return Trigger("volume", f"{news.rows:,} new rows")
        if self._days and news.days >= self._days:
            return Trigger("schedule", f"{news.days:.1f} days of new rows")
        if self._schedule is not None and now_s >= max(self._schedule.slot_s(now_s), self._scheduled_from_s):
            return Trigger("schedule", self._schedule.words)
        return None

    def next_due_s(self, now_s: float) -> float | None:
        """When the schedule strikes next, ``None`` when it never does."""
        if self._schedule is None:
            return None
        slot_s = max(self._schedule.slot_s(now_s), self._scheduled_from_s) if self.has_model else now_s
        return max(now_s, self._quiet_until_s, slot_s)

    def failed_words(self, now_s: float) -> str:
        """Why nothing begins by itself now, where that is because trainings fail, or had too little to learn from; else
        empty.
        """
        if now_s >= self._quiet_until_s:
            return ""
        if self._found_too_little:
            return f"too few rows to learn from so far: it is tried again in {in_words(self._quiet_until_s - now_s)}"
        if not self._failures:
            return ""
        count = "the last one" if self._failures == 1 else f"the last {self._failures}"
        return f"{count} failed: none begins by itself within {in_words(self._quiet_until_s - now_s)}"

    @property
    def next_words(self) -> str:
        """What the next one waits for, besides challengers in shadow."""
        if self._schedule is None:
            if not self._days:
                return "by no schedule"
            return f"with {self._days:g} days of new rows" if self.has_model else self.first_words
        return self._schedule.words if self.has_model else self.first_words

    @property
    def first_words(self) -> str:
        """What the first one waits for."""
        days = f"{self.min_days:.2g}" if self.min_days < 10 else f"{self.min_days:.0f}"
        return f"once there are {days} days of {self._days_of}"

    def started(self, now_s: float, kind: str) -> None:
        """A retraining starts, for a trigger of this kind; moves the schedule to its next slot after ``now_s``.

        A wish that came since the trigger was looked for starts the next one.
        """
        with self._asking:
            self._running = True
            if kind == "operator":
                self._asked = None
        self._started_s, self._trained_s = now_s, None
        if self._schedule is not None:
            self._schedule.use(now_s)

    def trained(self, now_s: float) -> None:
        """A retraining has its challenger. What it waits for now is not training time, so no rest counts it."""
        self._trained_s = now_s

    def ended(self, now_s: float, failed: bool = False, too_little: bool = False) -> None:
        """A retraining ended, well or not, or it found too little to learn from."""
        self._running, self._found_too_little = False, too_little
        self._failures = self._failures + 1 if failed else 0
        if failed or too_little:
            self._quiet_until_s = now_s + self._pause.next_s()
        else:
            self._pause.reset()
            self._quiet_until_s = now_s + self._cool_down_s
        worked_until_s = now_s if self._trained_s is None else self._trained_s
        self._rested_s = now_s + self._rest * (worked_until_s - self._started_s)
