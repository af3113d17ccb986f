"""What the routes of one API replica share: its view of the live state, the rest of the system, keys and schema."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import Header

from models.spec import ForecastSpec, Place
from services.config import NO_LABELS, SiteNames
from services.messages import live_state_actor
from services.messages.sentences import with_codes
from services.serve.api.auth import Keys
from services.serve.api.backend import POLL_S, Backend
from services.serve.api.client_limits import NO_LIMITS, ClientLimits, Limits
from services.serve.api.event_stream import EventStream
from services.serve.api.problems import ProblemError
from services.serve.components import Figures
from services.serve.follow import follow
from services.serve.health import Readiness, awaited, component_errors, readiness
from services.serve.live_state import LiveStateChanges
from services.serve.view import View

if TYPE_CHECKING:
    from services.observe.spans import Spans

__all__ = ["ApiState", "Authorization"]

RECENT_S = 1.0
FIRST_NEWS_S = 3.0
"""A replica starts without what is known if that does not come for so long; until then others are asked."""
QUIET_S = 3 * POLL_S
"""A live state that has not answered for so long is away."""

_log = logging.getLogger(__name__)

Authorization = Annotated[str | None, Header(description="Bearer KEY, where a key is needed.")]


class ApiState:
    """Follows each live state by itself between :meth:`start` and :meth:`stop`."""

    def __init__(
        self, backend: Backend, keys: Keys, spec: ForecastSpec, stale_after_s: float,
        clock_s: Callable[[], float] = time.monotonic, timezone: Callable[[str], str] = lambda site: "UTC",
        place_of: Callable[[str], Place] = lambda site: Place(),
        names: SiteNames = NO_LABELS, limits: Limits = NO_LIMITS, spans: Spans | None = None,
        receive_clock: Literal["wall", "replayed"] = "wall",
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:  # fmt: skip
        self.spans = spans
        self.timezone = timezone  # of a site
        self.backend = backend
        self.place_of = place_of
        self.receive_clock = receive_clock  # of the gateways
        self.names = names
        self.keys = keys
        self.limits = ClientLimits(limits, keys, clock_s)
        self.spec = spec
        self.events = EventStream(clock_s, backend.live_states)
        quiet_after_s = 2 * spec.step_ms / 1000 + 60
        self.view = View(
            stale_after_s, quiet_after_s, clock_s, wall_ms if receive_clock == "wall" else None,
            backend.live_states, backend.shards,
        )  # fmt: skip
        self._clock_s = clock_s
        self._begun_s = clock_s()
        self._heard_s: dict[int, float] = {}  # live state -> when it last answered
        self._ready = False
        self._recent: tuple[float, Readiness] | None = None
        self._followers: list[asyncio.Task[None]] = []
        self._heard = asyncio.Event()  # all have answered
        self._identities: dict[int, int] = {}  # live state -> identity of the one that was heard last

    async def start(self) -> None:
        """Begin to follow the live states; returns once they have said what they know, or one is away."""
        self._followers = [
            asyncio.create_task(self._follow(index), name=f"follow the live state {index}")
            for index in range(self.backend.live_states)
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_NEWS_S):
                await self._heard.wait()

    async def stop(self) -> None:
        """Stop following, and end the streams of events."""
        self.events.close()
        for follower in self._followers:
            follower.cancel()

    def check_health(self) -> None:
        """Raises when this replica no longer follows a live state: it would go on answering with old forecasts."""
        for follower in self._followers:
            if follower.done():
                raise RuntimeError(f"the replica no longer follows the live state: {follower!r}")

    def readable(self, authorization: str | None) -> View:
        """What a request may read. Raises a 401 or 403 problem as :meth:`Keys.require_reader`."""
        return self.view.of_sites(self.keys.require_reader(authorization).sites)

    def orderable(self, authorization: str | None) -> View:
        """Where a request may give orders. Raises a 401 or 403 problem as :meth:`Keys.require_operator`."""
        return self.view.of_sites(self.keys.require_operator(authorization).sites)

    def readiness(self, *, names_zones: bool = True) -> Readiness:
        """Whether this replica can answer: once a zone has a usable forecast and the log is read to its end.

        Without ``names_zones`` it does not say which zones are degraded.

        From then on until no zone has one and no stream goes on: where much is read at once, or what comes begins again
        after a gap, the next row is waited for.
        """
        zones, usable, now, goes_on = {}, 0, False, False
        for key in list(self.view.answers):
            zones["/".join(key)] = self.view.degraded(key) if names_zones else []
            goes_on |= self.view.goes_on(key)
            try:
                self.view.body(key)
            except ProblemError:
                continue
            usable += 1
            now |= not self.view.behind(key[0])
        self._ready = now or (self._ready and goes_on)
        following = self.quiet_s < QUIET_S
        failing = list(component_errors(self.view.stats))
        words = awaited(self.view.stats, self.timezone)
        return readiness(zones, usable, following, failing, ready=self._ready, awaited=words)

    def recent_readiness(self) -> Readiness:
        """:meth:`readiness` of a moment ago: it looks at every zone, and each open page asks."""
        known = self._recent
        if known is None or self._clock_s() - known[0] > RECENT_S:
            known = self._recent = (self._clock_s(), self.readiness())
        return known[1]

    @property
    def quiet_s(self) -> float:
        """Seconds since all live states have answered; without end where one never has."""
        if len(self._heard_s) < self.backend.live_states:
            return float("inf")
        return self._clock_s() - min(self._heard_s.values())

    def live_state_age_s(self) -> dict[str, float]:
        """Live state -> seconds since it last answered, or since this replica began where it never has."""
        now_s = self._clock_s()
        return {
            live_state_actor(index): round(now_s - self._heard_s.get(index, self._begun_s), 3)
            for index in range(self.backend.live_states)
        }

    def current_stats(self) -> dict[str, Figures]:
        """Component -> figures, without those that are old because their live state does not answer this replica.

        Prometheus, which asks another replica at each scrape, would take an old count after a new one for a new start.
        """
        now_s = self._clock_s()
        return self.view.stats_of([index for index, at_s in self._heard_s.items() if now_s - at_s < QUIET_S])

    async def _follow(self, index: int) -> None:
        await follow(
            lambda: self.backend.changes(index, self.view.versions[index]), self._take, live_state_actor(index)
        )

    async def _take(self, changes: LiveStateChanges) -> None:
        index = changes.get("live_state", 0)
        self._heard_s[index] = self._clock_s()
        if "alerts" in changes:
            changes["alerts"] = [with_codes(alert) for alert in changes["alerts"]]
        self.view.take(changes)
        self.events.take(changes, self.recent_readiness() if self.events.open else None)
        if len(self._heard_s) == self.backend.live_states:
            self._heard.set()
        await self._give_back(index, changes.get("identity", 0))

    async def _give_back(self, index: int, identity: int) -> None:
        """Give a live state that has taken another's place what this replica knows of its sites: replicas that start
        now have nobody else to hear it from before the next step.
        """
        if self._identities.get(index, identity) != identity and self.view.answers:
            known = [
                answer.forecast for (site, _), answer in self.view.answers.items()
                if self.backend.live_state_of(site) == index
            ]  # fmt: skip
            try:
                await self.backend.restore(index, known)
            except ProblemError as error:
                _log.warning("what is known could not be given back to the live state: %s", error)
                return  # with its next news
        self._identities[index] = identity
