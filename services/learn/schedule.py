"""Step 11 of the way of a reading: when a retraining is due by itself, by an interval or by a cron expression.

Like the triggers, schedules count seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim

__all__ = ["Cron", "Every", "Schedule"]


class Schedule(Protocol):
    """Slots; those that were missed are one."""

    words: str
    """What people see."""

    def slot_s(self) -> float:
        """The oldest slot that was not used: the next one, or one in the past."""

    def use(self, now_s: float) -> None:
        """Slots up to now are used, or skipped."""

    def goes_on(self, used_s: float) -> None:
        """The newest slot that was used, by a process before this one, was not after this."""


class Every:
    """A grid of so many seconds, from ``now_s`` on.

    >>> schedule = Every(60, now_s=0)
    >>> schedule.use(150)
    >>> schedule.slot_s()
    180
    """

    def __init__(self, every_s: float, now_s: float) -> None:
        self.words = f"every {every_s:g} s"
        self._every_s = every_s
        self._slot_s = now_s + every_s

    def slot_s(self) -> float:
        """See :class:`Schedule`."""
        return self._slot_s

    def use(self, now_s: float) -> None:
        """See :class:`Schedule`."""
        if now_s >= self._slot_s:
            self._slot_s += ((now_s - self._slot_s) // self._every_s + 1) * self._every_s

    def goes_on(self, used_s: float) -> None:
        """See :class:`Schedule`."""
        self._slot_s = min(self._slot_s, used_s + self._every_s)


class Cron:
    """A cron expression of five fields, on the clock of a time zone; switches to and from daylight saving time are as
    in Debian's cron.

    ``ahead_s`` is how far Unix time is ahead of the monotonic clock: it is asked anew each time, so that a clock which
    is set, as on a machine that learns the time after it has started, moves the next slot.

    >>> schedule = Cron("30 3 * * *", "Europe/Amsterdam", now_s=0, ahead_s=lambda: 1_646_092_800)  # 2022-03-01T00:00Z
    >>> schedule.slot_s() / 3600
    2.5
    """

    def __init__(self, expression: str, timezone: str, now_s: float, ahead_s: Callable[[], float]) -> None:
        self.words = f"{expression} ({timezone})"
        self._expression, self._timezone = expression, ZoneInfo(timezone)
        self._ahead_s = ahead_s
        self._used_unix_s = now_s + ahead_s()

    def slot_s(self) -> float:
        """See :class:`Schedule`."""
        used = datetime.fromtimestamp(self._used_unix_s, self._timezone)
        return next(CronSim(self._expression, used)).timestamp() - self._ahead_s()

    def use(self, now_s: float) -> None:
        """See :class:`Schedule`."""
        self._used_unix_s = now_s + self._ahead_s()

    def goes_on(self, used_s: float) -> None:
        """See :class:`Schedule`."""
        self._used_unix_s = min(self._used_unix_s, used_s + self._ahead_s())
