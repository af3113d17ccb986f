"""When an instant of event time is due on the machine's clock, at a chosen speed."""

from __future__ import annotations

__all__ = ["Pace"]


class Pace:
    """Event time runs ``speed`` times as fast as the clock whose seconds are given; speed 0 means at once.

    It starts with the first instant asked for, or at ``anchor`` (event ms, clock s), as a live device's does.

    >>> pace = Pace(60)
    >>> pace.due_s(1_000_000, now_s=5.0), pace.due_s(1_060_000, now_s=5.0)
    (5.0, 6.0)
    """

    def __init__(self, speed: float, anchor: tuple[int, float] | None = None) -> None:
        self._speed = speed
        self._anchor = anchor

    def due_s(self, ts_ms: int, now_s: float) -> float:
        """The clock's second at which the instant is due; may lie before ``now_s``."""
        if self._speed == 0:
            return now_s
        if self._anchor is None:
            self._anchor = (ts_ms, now_s)
        return self._anchor[1] + (ts_ms - self._anchor[0]) / 1000 / self._speed

    def restart(self) -> None:
        """Go on from the next instant asked for, so that what was held up is not caught up with."""
        self._anchor = None
