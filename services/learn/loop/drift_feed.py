"""Step 11 of the way of a reading: what the shards saw since the newest training began."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from edge.timing import Periodic
from services.learn.loop.triggers import NOTHING_NEW, NewData

__all__ = ["DriftFeed"]

EVERY_S = 10.0
"""How often shards are asked; at each look while one does not answer, and at once when a newer model knows more."""


class DriftFeed:
    """Asks ``ask(known_to_ms)`` now and then for the newest drift and for the rows that were ever closed.

    A drift counts until a training begins after it. If that training fails, the same drift starts no other. ``ask``
    counts the days.
    """

    def __init__(self, ask: Callable[[int], NewData]) -> None:
        self._ask = ask
        self._asks = Periodic(EVERY_S)
        self._asked_for_ms = 0
        self._now = NOTHING_NEW
        self._then: NewData | None = None  # when the newest training began; None: before the first answer

    def look(self, now_s: float, known_to_ms: int) -> NewData:
        """What is new, as of the last answer; ``known_to_ms`` is the newest row that the newest model knows.

        Errors of ``ask`` are passed on.
        """
        if self._asks.is_due(now_s) or known_to_ms != self._asked_for_ms:
            self._now = self._ask(known_to_ms)
            self._asks.restart(now_s)
            self._asked_for_ms = known_to_ms
        then = self._then or NewData(rows=self._now.rows)
        # A shard that reads its log from the beginning counts anew.
        self._then = replace(then, rows=min(then.rows, self._now.rows))
        drift = "" if self._now.drift == self._then.drift else self._now.drift
        return NewData(drift=drift, rows=self._now.rows - self._then.rows, days=self._now.days)

    def training_began(self) -> None:
        """From now on only what comes is new."""
        if self._then is not None:
            self._then = self._now
