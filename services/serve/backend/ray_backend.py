"""The API's backend over Ray: named actors, the Forecaster's deployment handle, and the storage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from edge.log import partition_of
from services.config import Settings
from services.errors import HothouseError
from services.installation import namespace_of
from services.message_broker import publish
from services.messages import (
    F32,
    MODEL_POINTER_ACTOR,
    RETRAINER_ACTOR,
    ChangeAsked,
    ForecastReply,
    ForecastRequest,
    SiteRulesShown,
    ZoneForecast,
    ZoneMixture,
    ZoneOutlook,
    ZonePlan,
    ZoneQuality,
    ZoneWhatIf,
    live_state_actor,
    shard_actor,
)
from services.serve.api.backend import POLL_S, OrderAnswer
from services.serve.backend.actor_calls import ANSWER_S, ActorCalls, within
from services.serve.backend.stored_reads import StoredReads, in_thread
from services.serve.live_state import LiveStateChanges, ZonePast
from services.serve.models.model_pointer import ModelPointerStatus
from services.serve.problem_error import ProblemError

__all__ = ["RayBackend", "shard_of"]

_log = logging.getLogger(__name__)

ORDER_S = 30.0
SUBMIT_S = 55.0
"""A submitted model is loaded in a process that has to start first; a request may take a minute."""
PUBLISHERS = 8
"""Threads that publish. They do nothing else: a broker that hangs holds up no answer that is worked out in a thread."""


def shard_of(site: str, settings: Settings) -> str:
    """The actor that owns a site: shards take the log's partitions in turn."""
    return shard_actor(_shard_index(site, settings))


def live_state_of(site: str, settings: Settings) -> int:
    """The index of the live state that a site's shard tells."""
    return settings.live_state_of(_shard_index(site, settings))


def _shard_index(site: str, settings: Settings) -> int:
    return partition_of(site, settings.log.partitions) % settings.stream.shards


def _not_yet(why: str) -> ProblemError:
    """The API knows of a zone or a site, and its shard does not: it was restarted, and reads the log. That is no 404,
    which says that there is no such zone.
    """
    return ProblemError(503, f"{why}; try again in a few seconds", {"Retry-After": "5"})


class RayBackend(StoredReads):
    """:class:`services.serve.api.backend.Backend` over the actors of the cluster; for one event loop."""

    def __init__(self, settings: Settings, forecaster: Any) -> None:
        super().__init__(settings)
        self.live_states, self.shards = settings.live_states, settings.stream.shards
        self._actors = ActorCalls(namespace_of(settings))
        self._forecaster = forecaster
        self._publishers = ThreadPoolExecutor(PUBLISHERS, "publishers")

    async def connect(self) -> None:
        """Open the ways to Forecaster and shards before the first request.

        Ray makes a handle's router at its first call, and imports an actor's module where the actor is first looked
        up: a first request would wait for that.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                for index in range(self._settings.stream.shards):
                    await self._actors.find(shard_actor(index))
            await within(self._forecaster.ping.remote(), ANSWER_S, "the Forecaster")
        except (ProblemError, TimeoutError) as error:  # GET /predict needs neither
            _log.warning("the ways to shards and Forecaster are opened later: %s", error)

    def live_state_of(self, site: str) -> int:
        """See :class:`Backend`."""
        return live_state_of(site, self._settings)

    async def changes(self, live_state: int, seen_version: int) -> LiveStateChanges:
        """See :class:`Backend`."""
        found: LiveStateChanges = await self._actors.ask(
            live_state_actor(live_state), "wait", seen_version, POLL_S, limit_s=POLL_S + ANSWER_S, who="the live state"
        )
        return found

    async def restore(self, live_state: int, forecasts: Sequence[ZoneForecast]) -> None:
        """See :class:`Backend`."""
        await self._actors.ask(live_state_actor(live_state), "restore", forecasts, who="the live state")

    async def past(self, site: str, zone: str) -> ZonePast:
        """See :class:`Backend`."""
        actor = live_state_actor(self.live_state_of(site))
        found: ZonePast = await self._actors.ask(actor, "past", site, zone, who="the live state")
        return found

    async def what_if(self, site: str, zone: str, changes: list[ChangeAsked]) -> ZoneWhatIf:
        """See :class:`Backend`."""
        found: ZoneWhatIf | None = await self._ask_shard(site, "what_if", zone, changes)
        if found is None:
            raise _not_yet(f"the shard of {site} has no forecast of {zone} yet")
        return found

    async def outlook(self, site: str, zone: str) -> ZoneOutlook:
        """See :class:`Backend`."""
        found: ZoneOutlook | None = await self._ask_shard(site, "outlook", zone)
        if found is None:
            raise _not_yet(f"the shard of {site} has no forecast of {zone} yet")
        return found

    async def baseline(self, site: str, zone: str, origin_ms: int, now: F32) -> F32:
        """See :class:`Backend`."""
        values = np.asarray(now, np.float32)
        found: F32 | None = await self._ask_shard(site, "baseline", zone, origin_ms, values)
        if found is None:
            raise _not_yet(f"the shard of {site} does not know {zone} yet")
        return found

    async def plan(self, site: str, zone: str) -> list[ZonePlan]:
        """See :class:`Backend`."""
        found: list[ZonePlan] | None = await self._ask_shard(site, "plan", zone)
        if found is None:
            raise _not_yet(f"the shard of {site} does not know {zone} yet")
        return found

    async def next_issue(self, site: str, zone: str, source: str, now_ms: int) -> int:
        """See :class:`Backend`."""
        found: int | None = await self._ask_shard(site, "next_issue", zone, source, now_ms)
        if found is None:
            raise _not_yet(f"the shard of {site} does not know it yet")
        return found

    async def quality(self, asked: tuple[str, str] | None) -> list[ZoneQuality]:
        """See :class:`Backend`."""
        if asked is not None:
            shard = shard_of(asked[0], self._settings)
            found: list[ZoneQuality] = await self._actors.ask(shard, "quality", asked, who="the zone's shard")
            if not found:
                raise _not_yet(f"the shard of {asked[0]} does not know {asked[1]} yet")
            return found
        names = [shard_actor(index) for index in range(self._settings.stream.shards)]
        every = [await self._actors.ask(name, "quality", None, who=name) for name in names]
        return sorted((one for part in every for one in part), key=lambda one: (one["site"], one["zone"]))

    async def publish(self, topic: str, payload: bytes) -> None:
        """See :class:`Backend`."""
        try:
            await in_thread(self._publishers, publish, self._settings, "hothouse-api", topic, payload)
        except HothouseError as error:
            raise ProblemError(503, f"it was not published: {error.message}", {"Retry-After": "5"}) from error

    async def alert_rules(self, site: str) -> SiteRulesShown:
        """See :class:`Backend`."""
        shard = shard_of(site, self._settings)
        found: SiteRulesShown | None = await self._actors.ask(shard, "alert_rules", site, who="the site's shard")
        if found is None:
            raise _not_yet(f"its shard does not know {site} yet")
        return found

    async def mixtures(self) -> list[ZoneMixture]:
        """See :class:`Backend`."""
        found: list[ZoneMixture] = []
        for index in range(self._settings.stream.shards):
            found += await self._actors.ask(shard_actor(index), "mixtures", who=shard_actor(index))
        return sorted(found, key=lambda one: (one["site"], one["zone"]))

    async def forecast(self, request: ForecastRequest) -> ForecastReply:
        """See :class:`Backend`."""
        return await within(self._forecaster.forecast.remote(request), ORDER_S, "the Forecaster")

    async def pointer(self) -> ModelPointerStatus:
        """See :class:`Backend`."""
        found: ModelPointerStatus = await self._actors.ask(MODEL_POINTER_ACTOR, "status", who="the model pointer")
        return found

    async def order(self, verb: str, *arguments: str) -> OrderAnswer:
        """See :class:`Backend`."""
        limit_s = SUBMIT_S if verb == "submit" else ORDER_S
        actor = await within(self._actors.find(RETRAINER_ACTOR), ANSWER_S, "the retrainer")
        # No Retry-After from here on: a program that asks again by itself would give the order twice.
        unanswered = ProblemError(503, "the retrainer did not say in time whether it was done; look at /models first")
        order: Awaitable[OrderAnswer] = getattr(actor, verb).remote(*arguments)
        return await within(order, limit_s, "the retrainer", unanswered)

    async def _ask_shard(self, site: str, verb: str, zone: str, *arguments: Any) -> Any:
        return await self._actors.ask(
            shard_of(site, self._settings), verb, site, zone, *arguments, who="the zone's shard"
        )
