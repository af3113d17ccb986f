"""Pauses before another try, and times for periodic work.

Neither is a thread or has a clock: the caller gives the time and does the waiting.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Backoff", "Periodic"]


class Backoff:
    """The pauses between tries of what fails: each twice as long as the one before, from ``first_s`` to ``longest_s``.

    ``jitter`` gives numbers in 0 ... 1; each shortens its pause, to a half of it at 0. With one, the many clients of a
    server that is back do not come all at once (AWS Architecture Blog, "Exponential Backoff and Jitter": equal jitter).

    >>> backoff = Backoff(0.2, 1.0)
    >>> [backoff.next_s() for _ in range(4)]
    [0.2, 0.4, 0.8, 1.0]
    >>> backoff.reset()
    >>> backoff.next_s()
    0.2

    Who does not wait, but looks now and then, tells it the time of failures, of one clock, and asks:

    >>> backoff = Backoff(2, 10)
    >>> backoff.failed(now_s=100)
    >>> backoff.is_over(now_s=101), backoff.is_over(now_s=102)
    (False, True)
    """

    def __init__(
        self, first_s: float = 0.2, longest_s: float = 15.0, jitter: Callable[[], float] | None = None
    ) -> None:
        self._first_s, self._longest_s, self._jitter = min(first_s, longest_s), longest_s, jitter
        self._pause_s = self._first_s
        self._over_s = float("-inf")

    def next_s(self) -> float:
        """Seconds to wait after one more failure."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, self._longest_s)
        return pause_s if self._jitter is None else pause_s * (0.5 + self._jitter() / 2)

    def failed(self, now_s: float) -> None:
        """It has failed once more, now."""
        self._over_s = now_s + self.next_s()

    def is_over(self, now_s: float) -> bool:
        """Whether the pause after the last failure that was told by :meth:`failed` is over."""
        return now_s >= self._over_s

    def reset(self) -> None:
        """It works again, or is another thing now: it may be tried at once, and the next failure is a first one."""
        self._pause_s, self._over_s = self._first_s, float("-inf")


class Periodic:
    """Work that is due every ``every_s`` seconds: at the first call, or this long after ``since_s``.

    A late call moves all that follow: between two times lie at least ``every_s`` seconds.

    >>> report = Periodic(10)
    >>> [report.due(now_s) for now_s in (3, 12, 13, 22, 23)]
    [True, False, True, False, True]
    """

    def __init__(self, every_s: float, since_s: float = float("-inf")) -> None:
        self._every_s, self._since_s = every_s, since_s

    def due(self, now_s: float) -> bool:
        """Whether it is time; if so, the caller does the work now."""
        if not self.is_due(now_s):
            return False
        self.restart(now_s)
        return True

    def is_due(self, now_s: float) -> bool:
        """Whether it is time, for a caller that may put the work off. When it does it, it calls :meth:`restart`."""
        return now_s - self._since_s >= self._every_s

    def restart(self, now_s: float) -> None:
        """The work was done now."""
        self._since_s = now_s
