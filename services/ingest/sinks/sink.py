"""Steps 6 and 9 of the way of a reading: what takes a shard's closed rows and issued forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from services.messages import ZoneForecast
from services.store.rows import ClosedStep

__all__ = ["Sink"]


class Sink(Protocol):
    """Takes closed rows, issued forecasts or both; calls return at once and never raise.

    Each row and forecast comes once, in the order of its site's rows, but for what a crash undid: it comes again, the
    same. A shard's sinks are the line ``self._sinks`` of ``services.ingest.shard``.
    """

    def rows(self, steps: Sequence[ClosedStep]) -> None:
        """Rows that have just closed; the history may not have them yet."""

    def forecasts(self, forecasts: Sequence[ZoneForecast]) -> None:
        """The forecasts from one row of a site, of the zones that have not left since; they are durable."""
