"""Step 7 of the way of a reading: closed steps wait here for their forecast, which never holds the stream up.

One request is in flight at a time; what closes meanwhile goes out together in the next. When there is too much, the
newest steps of each site win.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, fields
from typing import Any

from edge.timing import Backoff, Periodic
from edge.wire.trace_id import in_step
from models.spec import ForecastSpec
from services.errors import HistoryError
from services.ingest.figures import Failures
from services.ingest.forecasting import MAX_ORIGINS, ForecastOrigin, build_request
from services.ingest.learned.rings import Rings
from services.messages import ASK_AGAIN, ONLINE_VERSION, ForecastReply, ForecastRequest

__all__ = ["ForecastQueue"]

_log = logging.getLogger(__name__)

MAX_EXAMPLES = 2_048
"""Zones times origins of one request."""
CATCH_UP_FORECAST_S = 5.0
"""While there is a backlog only the newest step is forecast, at most this often."""
RETRY_FORECAST_S = 0.5


@dataclass(slots=True)
class _InFlight:
    origins: list[ForecastOrigin]
    future: Future[ForecastReply]


class ForecastQueue:
    """Not safe to share between threads, except for :meth:`refresh`.

    ``forecast`` computes a reply and may block or raise; it runs on ``executor``. What it raises, and a
    ``HistoryError`` of issuing, is tried again after a while. ``clock_s`` is monotonic.
    """

    def __init__(
        self, spec: ForecastSpec, ring_steps: int, forecast: Callable[[ForecastRequest], ForecastReply],
        executor: Executor, clock_s: Callable[[], float], failures: Failures,
    ) -> None:  # fmt: skip
        self._spec = spec
        self._call, self._executor, self._clock_s, self._failures = forecast, executor, clock_s, failures
        self.max_origins = min(MAX_ORIGINS, ring_steps - spec.lookback_steps + 1)
        self.past_due: set[str] = set()  # sites of which steps were left out
        self._pending: list[ForecastOrigin] = []
        self._latest: dict[str, ForecastOrigin] = {}  # of each site, for refresh()
        self._in_flight: _InFlight | None = None
        self._catch_up = Periodic(CATCH_UP_FORECAST_S, clock_s())
        self._backoff = Backoff(RETRY_FORECAST_S, RETRY_FORECAST_S)
        self._refresh = False
        self._with_rows = False  # whether a network served when it was last asked

    @property
    def waits(self) -> bool:
        """Whether a step waits for its forecast."""
        return self._in_flight is not None or bool(self._pending)

    @property
    def length(self) -> int:
        """How many steps of sites wait for their forecast, those that were asked for among them."""
        return len(self._pending) + (len(self._in_flight.origins) if self._in_flight else 0)

    def add(self, origins: Sequence[ForecastOrigin]) -> None:
        """Origins that have just closed, the oldest first."""
        waiting: dict[str, list[ForecastOrigin]] = {}
        for origin in [*self._pending, *origins]:
            waiting.setdefault(origin.site, []).append(origin)
        self.past_due.update(site for site, of_site in waiting.items() if len(of_site) > self.max_origins)
        self._pending = [origin for of_site in waiting.values() for origin in of_site[-self.max_origins :]]
        self._latest.update({origin.site: origin for origin in origins})

    def refresh(self) -> None:
        """Compute the last step's forecasts again, as after a swap to another model."""
        self._refresh = True

    def submit(self, rings: Mapping[int, Rings], behind: bool) -> None:
        """Send what waits to the Forecaster. If it is too much, the newest steps are kept.

        ``rings`` are those of each partition; ``behind`` when there is a backlog.
        """
        now_s = self._clock_s()
        if self._in_flight is not None or not self._backoff.is_over(now_s):
            return
        if self._refresh:
            self._refresh = False
            waiting = {(origin.site, origin.end_ms) for origin in self._pending}
            self._pending += [o for o in self._latest.values() if (o.site, o.end_ms) not in waiting]
        if not self._pending:
            return
        if behind:
            if not self._catch_up.is_due(now_s):
                return
            self.past_due.update(origin.site for origin in self._pending)
            self._pending = list({origin.site: origin for origin in self._pending}.values())
        chosen = self._choose()
        request = build_request(self._spec, chosen, [rings[origin.partition] for origin in chosen], self._with_rows)
        self._catch_up.restart(now_s)
        self._in_flight = _InFlight(chosen, self._executor.submit(self._call, request))

    def harvest(self, issue: Callable[[Sequence[ForecastOrigin], ForecastReply], None]) -> None:
        """Pass a reply that has come to ``issue``; what fails waits again."""
        if self._in_flight is None or not self._in_flight.future.done():
            return
        origins, future = self._in_flight.origins, self._in_flight.future
        self._in_flight = None
        error = future.exception()
        if error is None:
            reply = future.result()
            self._with_rows = reply["version"] != ONLINE_VERSION
            if reply["version"] == ASK_AGAIN:
                self._put_back(origins)
                return
            try:
                issue(origins, reply)
            except HistoryError as not_kept:
                error = not_kept
        if error is None:
            self._failures.works("forecast")
        else:
            if not self._failures.failing["forecast"]:
                for origin in origins:
                    extra = in_step(origin.site, origin.end_ms)
                    _log.warning("no forecast yet, it is asked for again: %s", error, extra=extra)
            self._failures.failed("forecast", error)
            self._backoff.failed(self._clock_s())
            self._put_back(origins)

    def state(self, partition: int) -> list[dict[str, Any]]:
        """What waits or is in flight, for a snapshot."""
        waiting = [*(self._in_flight.origins if self._in_flight else ()), *self._pending]
        names = [field.name for field in fields(ForecastOrigin)]
        return [{name: getattr(o, name) for name in names} for o in waiting if o.partition == partition]

    def load(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Let what a snapshot holds wait again."""
        self.add([ForecastOrigin(**{**origin, "zones": tuple(origin["zones"])}) for origin in state])

    def _put_back(self, origins: list[ForecastOrigin]) -> None:
        later, self._pending = self._pending, origins
        self.add(later)

    def _choose(self) -> list[ForecastOrigin]:
        """Take the newest out of what waits, as many as fit into a request; the oldest first."""
        by_age = sorted(self._pending, key=lambda origin: origin.end_ms, reverse=True)
        chosen: list[ForecastOrigin] = []
        examples = 0
        for origin in by_age:
            if chosen and examples + len(origin.zones) > MAX_EXAMPLES:
                break
            chosen.append(origin)
            examples += len(origin.zones)
        self._pending = sorted(by_age[len(chosen) :], key=lambda origin: origin.end_ms)
        return chosen[::-1]
