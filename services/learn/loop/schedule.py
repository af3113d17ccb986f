"""Step 11 of the way of a reading: when a retraining is due by itself, by an interval or by a cron expression.

Like the triggers, schedules count seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim

from services.observe.duration import in_words

__all__ = ["GRACE_S", "Cron", "Every", "Schedule"]

GRACE_S = 3600.0
"""What a cron expression asks for is left out when it could not begin within this time."""
SET_BACK_S = 3 * 3600.0
"""A clock that is set back by less shows hours again that it has shown: what was used in them is used."""


class Schedule(Protocol):
    """Slots, each for one retraining."""

    words: str
    """What people see."""

    def slot_s(self, now_s: float) -> float:
        """The slot that may be used next; it is due where it is not after ``now_s``."""

    def use(self, now_s: float) -> None:
        """Slots up to now are used."""

    def goes_on(self, now_s: float, used_s: float) -> None:
        """An earlier process last used a slot at ``used_s``."""


class Every:
    """A slot every ``every_s`` seconds, from ``now_s`` on. Slots that were missed count as one that is due.

    >>> schedule = Every(60, now_s=0)
    >>> schedule.use(150)
    >>> schedule.slot_s(200)
    180
    """

    def __init__(self, every_s: float, now_s: float) -> None:
        self.words = f"every {in_words(every_s)}"
        self._every_s = every_s
        self._slot_s = now_s + every_s

    def slot_s(self, now_s: float) -> float:
        """See :class:`Schedule`."""
        return self._slot_s

    def use(self, now_s: float) -> None:
        """See :class:`Schedule`."""
        if now_s >= self._slot_s:
            self._slot_s += ((now_s - self._slot_s) // self._every_s + 1) * self._every_s

    def goes_on(self, now_s: float, used_s: float) -> None:
        """See :class:`Schedule`."""
        self._slot_s = min(self._slot_s, used_s + self._every_s)


class Cron:
    """A cron expression of five fields, on the clock of a time zone. As with cron, a slot that could not be used within
    an hour is left out: nothing begins at noon that was meant for the night.

    ``unix_s`` is asked anew each time, so that a clock which is set, as on a machine that learns the time after it has
    started, moves the slots.

    >>> schedule = Cron("30 3 * * *", "Europe/Amsterdam", unix_s=lambda: 1_646_092_800)  # 2022-03-01T00:00Z
    >>> schedule.slot_s(0) / 3600
    2.5
    """

    def __init__(self, expression: str, timezone: str, unix_s: Callable[[], float]) -> None:
        self.words = f"{expression} ({timezone})"
        self._expression, self._timezone = expression, ZoneInfo(timezone)
        self._unix_s = unix_s
        self._used_unix_s = unix_s()

    def slot_s(self, now_s: float) -> float:
        """See :class:`Schedule`."""
        now_unix_s = self._unix_s()
        since_s = now_unix_s - GRACE_S
        if self._used_unix_s < now_unix_s + SET_BACK_S:
            since_s = max(since_s, self._used_unix_s)
        slots = map(datetime.timestamp, CronSim(self._expression, datetime.fromtimestamp(since_s, self._timezone)))
        # In the hour that a clock shows twice CronSim begins with the first of them.
        return next(slot for slot in slots if slot > since_s) - now_unix_s + now_s

    def use(self, now_s: float) -> None:
        """See :class:`Schedule`."""
        self._used_unix_s = self._unix_s()

    def goes_on(self, now_s: float, used_s: float) -> None:
        """See :class:`Schedule`."""
        self._used_unix_s = self._unix_s() - (now_s - used_s)
