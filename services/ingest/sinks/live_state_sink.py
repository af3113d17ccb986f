"""Step 9 of the way of a reading: the live state gets each forecast, and the past of zones that it lacks rows of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from services.ingest.figures import ShardFigures
from services.messages import ShownAlert, ZoneForecast
from services.store.rows import ClosedStep

__all__ = ["LiveStatePublisher", "LiveStateSink", "PastRows"]

PastRows = tuple[list[int], dict[str, list[float | None]]]
"""Ends and targets of a zone's newest rows."""


class LiveStatePublisher(Protocol):
    """Shows forecasts and figures; calls return at once and never raise."""

    def publish(self, forecasts: Sequence[ZoneForecast]) -> None:
        """Show forecasts, replacing older ones of the same zones; each adds its ``now`` to the zone's past."""

    def put_past(self, site: str, zone: str, end_ms: list[int], values: dict[str, list[float | None]]) -> None:
        """Replace a zone's past, because steps were left out."""

    def put_alerts(self, alerts: Sequence[ShownAlert]) -> None:
        """Show alerts, each in place of what it was before; they are durable."""

    def put_stats(self, stats: ShardFigures) -> None:
        """Show the shard's figures."""


class LiveStateSink:
    """``past_due`` are the sites of which steps were left out: once the shard is no longer behind, ``past`` gives what
    their zones lack.
    """

    def __init__(
        self, live_state: LiveStatePublisher, past_due: set[str], is_behind: Callable[[], bool],
        past: Callable[[str, str], PastRows | None],
    ) -> None:  # fmt: skip
        self._live_state, self._past_due, self._is_behind, self._past = live_state, past_due, is_behind, past

    def rows(self, steps: Sequence[ClosedStep]) -> None:
        """Nothing to do: a row is shown with the forecast from it."""

    def forecasts(self, forecasts: Sequence[ZoneForecast]) -> None:
        """See :class:`~services.ingest.sinks.sink.Sink`."""
        if not self._is_behind():
            due = {one["site"] for one in forecasts} & self._past_due
            for site, zone in [(one["site"], one["zone"]) for one in forecasts if one["site"] in due]:
                past = self._past(site, zone)
                if past is not None:
                    self._live_state.put_past(site, zone, *past)
            self._past_due -= due
        self._live_state.publish(forecasts)
