"""What an API replica asks of the rest of the system, in one Protocol, and that Protocol over Ray.

Every call looks its actor up again, so that a restarted one is found, and has a time-out, because a stopped process
would never answer and nobody is found while the head of a cluster is away. Ray's errors are translated here: callers
see problems only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from edge.log import partition_of
from services.config import Settings
from services.errors import HistoryError, HothouseError
from services.forecast_spec import forecast_spec
from services.ingest.alerts.alert_journal import changes_in, changes_of
from services.installation import namespace_of
from services.message_broker import publish
from services.messages import (
    F32,
    MODEL_POINTER_ACTOR,
    RETRAINER_ACTOR,
    ChangeAsked,
    ForecastReply,
    ForecastRequest,
    ModelSubmitted,
    Moved,
    Resampled,
    SaidAhead,
    ShownAlert,
    SiteRulesShown,
    TrainingAccepted,
    ZoneForecast,
    ZoneMixture,
    ZoneOutlook,
    ZonePlan,
    ZoneQuality,
    ZoneWhatIf,
    live_state_actor,
    shard_actor,
)
from services.runtime.named_actors import NamedActors
from services.serve.api.problems import ProblemError
from services.serve.live_state import LiveStateChanges, ZonePast
from services.serve.model_pointer import ModelPointerStatus
from services.store.deadletters import DeadLetterCount, count_dead_letters, read_dead_letters
from services.store.rows import DeadLetter
from services.store.storage import storage_of

if TYPE_CHECKING:
    from services.store.forecasts import IssuedForecast
    from services.store.history import History

__all__ = ["Backend", "OrderAnswer", "RayBackend", "shard_of"]

_log = logging.getLogger(__name__)
ANSWER_S = 5.0
ORDER_S = 30.0
SUBMIT_S = 55.0
"""A submitted model is loaded in a process that has to start first; a request may take a minute."""
READ_S = 30.0
READERS, PUBLISHERS = 8, 8
"""Threads that read what is stored, and that publish. They do nothing else: a storage that hangs holds up no order, and
neither it nor a broker that hangs an answer that is worked out in a thread.
"""
POLL_S = 5.0
ISSUED_MS = 86_400_000
AN_HOUR_MS = 3_600_000
"""The newest forecast is looked for there first: a day of them, of a thousand zones, is gigabytes."""

T = TypeVar("T")

OrderAnswer = TrainingAccepted | Moved | ModelSubmitted


def shard_of(site: str, settings: Settings) -> str:
    """The actor that owns a site: shards take the log's partitions in turn."""
    return shard_actor(_shard_index(site, settings))


def live_state_of(site: str, settings: Settings) -> int:
    """The index of the live state that a site's shard tells."""
    return settings.live_state_of(_shard_index(site, settings))


def _shard_index(site: str, settings: Settings) -> int:
    return partition_of(site, settings.log.partitions) % settings.stream.shards


class Backend(Protocol):
    """The system behind the API. Everything raises a 503 problem where the part that is asked is away."""

    live_states: int

    def live_state_of(self, site: str) -> int:
        """The index of the live state that knows a site."""

    async def changes(self, live_state: int, seen_version: int) -> LiveStateChanges:
        """Wait a few seconds for a live state's next change."""

    async def restore(self, live_state: int, forecasts: Sequence[ZoneForecast]) -> None:
        """Give a live state that was restarted what is known of its sites."""

    async def past(self, site: str, zone: str) -> ZonePast:
        """The past 48 h of a zone."""

    async def what_if(self, site: str, zone: str, changes: list[ChangeAsked]) -> ZoneWhatIf:
        """What changes do to a zone's newest forecast; raises a 404 problem where its shard does not know it."""

    async def outlook(self, site: str, zone: str) -> ZoneOutlook:
        """Scenarios of a zone's newest forecast; 404 as :meth:`what_if`."""

    async def baseline(self, site: str, zone: str, origin_ms: int, now: F32) -> F32:
        """The climatology's forecasts ``[N, H, M, Q]`` for targets ``now [N, M]``; 404 as :meth:`what_if`."""

    async def plan(self, site: str, zone: str) -> list[ZonePlan]:
        """The newest plan of each source that holds for a zone; 404 as :meth:`what_if`."""

    async def next_issue(self, site: str, zone: str, source: str, now_ms: int) -> int:
        """When a plan that is put now is issued, which no other is, also of another replica; 404 as :meth:`what_if`."""

    async def series(
        self, site: str, zone: str, metrics: Sequence[str], start_ms: int, end_ms: int, interval_ms: int
    ) -> Resampled:
        """A zone's rows (:func:`~services.store.zone_series.resampled`); 503 where the history cannot be read."""

    async def series_tag(self, site: str, start_ms: int, end_ms: int) -> str:
        """Differs when a site's rows of a span may have changed."""

    async def issued(self, site: str, at_ms: int) -> IssuedForecast | None:
        """The newest forecast that was issued for a site for an origin up to then, no older than a day."""

    async def quality(self, asked: tuple[str, str] | None) -> list[ZoneQuality]:
        """How good one zone's forecasts have been; of None, how long each zone is known; 404 as :meth:`what_if`."""

    async def said_ahead(
        self, site: str, zone: str, target: str, horizon_min: int, start_ms: int, end_ms: int
    ) -> SaidAhead:
        """What was said of a target so long before each time of a span; 503 where it cannot be read."""

    async def dead_letters(self, reason: str | None, newest: int) -> tuple[list[DeadLetterCount], list[DeadLetter]]:
        """What was kept out, counted by reason and topic, and the newest letters; 503 where they cannot be read."""

    async def publish(self, topic: str, payload: bytes) -> None:
        """Publish a message to the broker, as devices do; raises a 503 problem where it does not take it."""

    async def alert_changes(self, id: str) -> list[ShownAlert]:
        """The changes of an alert, oldest first, none for an unknown one; 503 where they cannot be read."""

    async def zone_alerts(self, site: str, zone: str) -> tuple[list[ShownAlert], int | None]:
        """The changes of a zone's alerts, oldest first, and since when its site's are kept; 503 as before."""

    async def alert_rules(self, site: str) -> SiteRulesShown:
        """The rules of a site; 404 where its shard does not know it."""

    async def mixtures(self) -> list[ZoneMixture]:
        """What each zone's newest forecast was mixed from."""

    async def forecast(self, request: ForecastRequest) -> ForecastReply:
        """Run the champion."""

    async def pointer(self) -> ModelPointerStatus:
        """Champion and replicas."""

    async def order(self, verb: str, *arguments: str) -> OrderAnswer:
        """``trigger``, ``promote``, ``rollback`` or ``submit``, with what the retrainer takes.

        Raises a 409 problem with the reason of a refusal, and a 503 that says so where the order may be under way.
        """


class RayBackend:
    """The Protocol over named actors and the Forecaster's deployment handle."""

    def __init__(self, settings: Settings, forecaster: Any) -> None:
        self._settings = settings
        self.live_states = settings.live_states
        self._actors = NamedActors(namespace_of(settings))
        self._forecaster = forecaster
        self._kept_history: History | None = None
        self._readers = ThreadPoolExecutor(READERS, "readers")
        self._publishers = ThreadPoolExecutor(PUBLISHERS, "publishers")

    async def connect(self) -> None:
        """Open the ways to Forecaster and shards before the first request.

        Ray makes a handle's router at its first call, and imports an actor's module where the actor is first looked
        up: a first request would wait for that.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                for index in range(self._settings.stream.shards):
                    await self._find(shard_actor(index))
            await _within(self._forecaster.ping.remote(), ANSWER_S, "the Forecaster")
        except (ProblemError, TimeoutError) as error:  # GET /predict needs neither
            _log.warning("the ways to shards and Forecaster are opened later: %s", error)

    def live_state_of(self, site: str) -> int:
        """See :class:`Backend`."""
        return live_state_of(site, self._settings)

    async def changes(self, live_state: int, seen_version: int) -> LiveStateChanges:
        """See :class:`Backend`."""
        found: LiveStateChanges = await self._ask(
            live_state_actor(live_state), "wait", seen_version, POLL_S, limit_s=POLL_S + ANSWER_S, who="the live state"
        )
        return found

    async def restore(self, live_state: int, forecasts: Sequence[ZoneForecast]) -> None:
        """See :class:`Backend`."""
        await self._ask(live_state_actor(live_state), "restore", forecasts, who="the live state")

    async def past(self, site: str, zone: str) -> ZonePast:
        """See :class:`Backend`."""
        actor = live_state_actor(self.live_state_of(site))
        found: ZonePast = await self._ask(actor, "past", site, zone, who="the live state")
        return found

    async def what_if(self, site: str, zone: str, changes: list[ChangeAsked]) -> ZoneWhatIf:
        """See :class:`Backend`."""
        found: ZoneWhatIf | None = await self._ask_shard(site, "what_if", zone, changes)
        if found is None:
            raise ProblemError(404, f"the shard of {site} has no forecast of {zone} yet")
        return found

    async def outlook(self, site: str, zone: str) -> ZoneOutlook:
        """See :class:`Backend`."""
        found: ZoneOutlook | None = await self._ask_shard(site, "outlook", zone)
        if found is None:
            raise ProblemError(404, f"the shard of {site} has no forecast of {zone} yet")
        return found

    async def baseline(self, site: str, zone: str, origin_ms: int, now: F32) -> F32:
        """See :class:`Backend`."""
        values = np.asarray(now, np.float32)
        found: F32 | None = await self._ask_shard(site, "baseline", zone, origin_ms, values)
        if found is None:
            raise ProblemError(404, f"the shard of {site} does not know {zone} yet")
        return found

    async def plan(self, site: str, zone: str) -> list[ZonePlan]:
        """See :class:`Backend`."""
        found: list[ZonePlan] | None = await self._ask_shard(site, "plan", zone)
        if found is None:
            raise ProblemError(404, f"the shard of {site} does not know {zone} yet")
        return found

    async def next_issue(self, site: str, zone: str, source: str, now_ms: int) -> int:
        """See :class:`Backend`."""
        found: int | None = await self._ask_shard(site, "next_issue", zone, source, now_ms)
        if found is None:
            raise ProblemError(404, f"the shard of {site} does not know it yet")
        return found

    async def series(
        self, site: str, zone: str, metrics: Sequence[str], start_ms: int, end_ms: int, interval_ms: int
    ) -> Resampled:
        """See :class:`Backend`."""
        from services.store.zone_series import resampled

        return await self._read(lambda: resampled(self._history(), site, zone, metrics, start_ms, end_ms, interval_ms))

    async def series_tag(self, site: str, start_ms: int, end_ms: int) -> str:
        """See :class:`Backend`."""
        from services.store.zone_series import fingerprint

        return await self._read(lambda: fingerprint(self._history(), site, start_ms, end_ms))

    async def issued(self, site: str, at_ms: int) -> IssuedForecast | None:
        """See :class:`Backend`."""
        spec = forecast_spec(self._settings)

        def newest() -> IssuedForecast | None:
            from services.store.forecasts import IssuedForecasts

            kept = IssuedForecasts(storage_of(self._settings), 0)
            shape = len(spec.horizons_min), len(spec.targets)
            for span_ms in (AN_HOUR_MS, ISSUED_MS):
                if found := kept.read(site, at_ms - span_ms, *shape, until_ms=at_ms):
                    return found[-1]
            return None

        return await self._read(newest)

    async def quality(self, asked: tuple[str, str] | None) -> list[ZoneQuality]:
        """See :class:`Backend`."""
        if asked is not None:
            shard = shard_of(asked[0], self._settings)
            found: list[ZoneQuality] = await self._ask(shard, "quality", asked, who="the zone's shard")
            if not found:
                raise ProblemError(404, f"the shard of {asked[0]} does not know {asked[1]} yet")
            return found
        names = [shard_actor(index) for index in range(self._settings.stream.shards)]
        every = [await self._ask(name, "quality", None, who=name) for name in names]
        return sorted((one for part in every for one in part), key=lambda one: (one["site"], one["zone"]))

    async def said_ahead(
        self, site: str, zone: str, target: str, horizon_min: int, start_ms: int, end_ms: int
    ) -> SaidAhead:
        """See :class:`Backend`."""

        def read() -> SaidAhead:
            from services.store.forecasts import IssuedForecasts

            kept = IssuedForecasts(storage_of(self._settings), 0)
            return kept.ahead(site, zone, target, horizon_min, start_ms, end_ms)

        return await self._read(read)

    async def dead_letters(self, reason: str | None, newest: int) -> tuple[list[DeadLetterCount], list[DeadLetter]]:
        """See :class:`Backend`."""
        root = storage_of(self._settings)

        def read() -> tuple[list[DeadLetterCount], list[DeadLetter]]:
            return count_dead_letters(root, reason), read_dead_letters(root, newest, reason) if newest else []

        return await self._read(read)

    async def publish(self, topic: str, payload: bytes) -> None:
        """See :class:`Backend`."""
        try:
            await _in_thread(self._publishers, publish, self._settings, "hothouse-api", topic, payload)
        except HothouseError as error:
            raise ProblemError(503, f"it was not published: {error.message}", {"Retry-After": "5"}) from error

    async def alert_changes(self, id: str) -> list[ShownAlert]:
        """See :class:`Backend`."""
        return await self._read(changes_of, storage_of(self._settings), id)

    async def zone_alerts(self, site: str, zone: str) -> tuple[list[ShownAlert], int | None]:
        """See :class:`Backend`."""
        return await self._read(changes_in, storage_of(self._settings), site, zone)

    async def alert_rules(self, site: str) -> SiteRulesShown:
        """See :class:`Backend`."""
        shard = shard_of(site, self._settings)
        found: SiteRulesShown | None = await self._ask(shard, "alert_rules", site, who="the site's shard")
        if found is None:
            raise ProblemError(404, f"its shard does not know {site} yet")
        return found

    async def mixtures(self) -> list[ZoneMixture]:
        """See :class:`Backend`."""
        found: list[ZoneMixture] = []
        for index in range(self._settings.stream.shards):
            found += await self._ask(shard_actor(index), "mixtures", who=shard_actor(index))
        return sorted(found, key=lambda one: (one["site"], one["zone"]))

    async def forecast(self, request: ForecastRequest) -> ForecastReply:
        """See :class:`Backend`."""
        return await _within(self._forecaster.forecast.remote(request), ORDER_S, "the Forecaster")

    async def pointer(self) -> ModelPointerStatus:
        """See :class:`Backend`."""
        found: ModelPointerStatus = await self._ask(MODEL_POINTER_ACTOR, "status", who="the model pointer")
        return found

    async def order(self, verb: str, *arguments: str) -> OrderAnswer:
        """See :class:`Backend`."""
        limit_s = SUBMIT_S if verb == "submit" else ORDER_S
        actor = await _within(self._find(RETRAINER_ACTOR), ANSWER_S, "the retrainer")
        # No Retry-After from here on: a program that asks again by itself would give the order twice.
        unanswered = ProblemError(503, "the retrainer did not say in time whether it was done; look at /models first")
        order: Awaitable[OrderAnswer] = getattr(actor, verb).remote(*arguments)
        return await _within(order, limit_s, "the retrainer", unanswered)

    def _history(self) -> History:
        from services.store.history import History  # Parquet's library is loaded by who asks first

        if self._kept_history is None:  # it knows the tables' logs, and then asks for what is newer
            self._kept_history = History(storage_of(self._settings), (), self._settings.stream.step_s)
        return self._kept_history

    async def _read(self, read: Callable[..., T], *arguments: Any) -> T:
        """Read what is stored in a thread, as other requests go on; a 503 problem where it cannot be read in time."""
        try:
            async with asyncio.timeout(READ_S):
                return await _in_thread(self._readers, read, *arguments)
        except HistoryError as error:
            raise ProblemError(503, f"the history cannot be read: {error.message}", {"Retry-After": "60"}) from error
        except TimeoutError as error:
            words = f"what was kept could not be read within {READ_S:g} s"
            raise ProblemError(503, words, {"Retry-After": "5"}) from error
        except OSError as error:
            raise ProblemError(503, f"what was kept cannot be read: {error}", {"Retry-After": "5"}) from error

    async def _ask_shard(self, site: str, verb: str, zone: str, *arguments: Any) -> Any:
        return await self._ask(shard_of(site, self._settings), verb, site, zone, *arguments, who="the zone's shard")

    async def _ask(self, actor: str, verb: str, *arguments: Any, limit_s: float = ANSWER_S, who: str) -> Any:
        """What a named actor answers; it is looked up within the same time."""

        async def asked() -> Any:
            return await getattr(await self._find(actor), verb).remote(*arguments)

        return await _within(asked(), limit_s, who)

    async def _find(self, name: str) -> Any:
        try:
            return await self._actors.find(name)
        except ValueError as error:
            words = f"{name} does not run now; try again in a few seconds"
            raise ProblemError(503, words, {"Retry-After": "5"}) from error


async def _within(call: Awaitable[T], limit_s: float, who: str, unanswered: ProblemError | None = None) -> T:
    """Await a Ray call; its own exceptions become problems, and so does no answer: ``unanswered``, if given."""
    from ray.exceptions import RayError, RayTaskError

    try:
        async with asyncio.timeout(limit_s):
            return await call
    except RayTaskError as error:
        if isinstance(error.cause, HothouseError):
            raise ProblemError(409, str(error.cause)) from error
        if isinstance(error.cause, (KeyError, ValueError)):
            raise ProblemError(422, f"{who} refused: {error.cause}") from error
        raise
    except (RayError, TimeoutError) as error:
        words = f"{who} does not answer now; try again in a few seconds"
        raise unanswered or ProblemError(503, words, {"Retry-After": "5"}) from error


async def _in_thread(threads: ThreadPoolExecutor, call: Callable[..., T], *arguments: Any) -> T:
    """What a call returns, or raises, which knows the request that it is for, as its log lines tell."""
    return await asyncio.get_running_loop().run_in_executor(threads, copy_context().run, call, *arguments)
