"""Steps 7, 9 and 16 of the way of a reading, on Ray: thin shells around the live state, the Forecaster and the API.

They are made in processes of their own, with the real clock and the actors of the cluster.
"""

from __future__ import annotations

import gc
import logging
import time
from functools import partial
from typing import Any

from services.access_keys import keys_of
from services.config import Settings, SiteNames
from services.forecast_spec import forecast_spec, place_of
from services.installation import namespace_of
from services.messages import MODEL_POINTER_ACTOR, ServedModel, live_state_actor, shard_actor
from services.observe.logs import log_to_file
from services.runtime.named_actors import NamedActors
from services.serve.api.app import create_app
from services.serve.api.auth import HashedKey, Keys
from services.serve.api.backend import POLL_S
from services.serve.api.client_limits import Limits
from services.serve.api.state import ApiState
from services.serve.backend.ray_backend import RayBackend
from services.serve.components import FORECASTER
from services.serve.head_connection import ask_head, keep_connection
from services.serve.live_state import LiveState
from services.serve.loop_watch import watch_loop
from services.serve.models.forecaster import Forecaster, Load
from services.serve.models.model_loading import fetch_and_load, import_torch
from services.serve.reused_port import reuse_port
from services.store.storage import address_of
from services.tracing import open_spans

__all__ = ["ApiReplica", "ForecasterReplica", "LiveStateActor", "api_keys"]

_log = logging.getLogger(__name__)


class LiveStateActor(LiveState):
    """The live state with the real clock: microseconds since 1970 as the first version outgrow those of any earlier
    one.
    """

    def __init__(self, index: int) -> None:
        super().__init__(time.time_ns() // 1000, lambda: time.time_ns() // 1_000_000, index)


def api_keys(settings: Settings, operator: HashedKey) -> Keys:
    """The keys that the settings name; raises as :meth:`Keys.load` where a file of theirs is wrong."""
    api = settings.api
    return Keys.load(operator, keys_of(settings), api.read_key_file, read_needs_key=api.read_needs_key)


class ApiReplica:
    """The ingress: a FastAPI application over an :class:`ApiState`."""

    async def __init__(  # type: ignore[misc]  # Serve awaits an async constructor
        self, settings: Settings, forecaster: Any, limits: Limits, operator: HashedKey
    ) -> None:
        from ray import serve

        replica = f"api-{serve.get_replica_context().replica_id.unique_id}"
        log_to_file(settings.logs_dir, replica, settings.logs.format, settings.logs.level, kind="api")
        keys = api_keys(settings, operator)
        backend = RayBackend(settings, forecaster)
        await backend.connect()
        if settings.ray.address:
            keep_connection(ask_head)
            reuse_port()
        self._cors_origins = settings.api.cors_origins
        self._state = ApiState(
            backend, keys, forecast_spec(settings), settings.forecast.stale_after_s,
            timezone=lambda site: settings.site(site).timezone,
            place_of=partial(place_of, settings), names=SiteNames.of(settings.sites),
            limits=limits, spans=open_spans(settings, replica), receive_clock=settings.gateway.clock,
        )  # fmt: skip

    def __serve_build_asgi_app__(self) -> Any:
        app = create_app(self._state, self._cors_origins)
        _collect_rarely()
        watch_loop()  # from now on: nobody waits for a replica that starts
        return app

    def check_health(self) -> None:
        """See ``ApiState.check_health``."""
        self._state.check_health()


def _collect_rarely() -> None:
    """Let the garbage collector look through everything about once in two minutes beside thousands of open pages.

    Each look takes .3 s, and every request waits meanwhile; by default there is one in half a minute or less. What is
    there at the start stays, and is never looked through.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 100)


class ForecasterReplica(Forecaster):
    """A Forecaster replica that follows the named actor ``slot``."""

    async def __init__(  # type: ignore[misc]  # Serve awaits an async constructor
        self, settings: Settings, load: Load
    ) -> None:
        from ray import serve

        replica = serve.get_replica_context().replica_id.unique_id
        logs = settings.logs
        log_to_file(settings.logs_dir, f"forecaster-{replica}", logs.format, logs.level, kind="forecaster")
        super().__init__(
            forecast_spec(settings), partial(place_of, settings),
            partial(fetch_and_load, address_of(settings).remote, load), _RayModelPointerLink(settings, replica),
            prepare=import_torch,
        )  # fmt: skip
        await self.start()


class _RayModelPointerLink:
    """``ModelPointerLink`` over the named actors, looked up anew for each call."""

    def __init__(self, settings: Settings, replica: str) -> None:
        self._shards = settings.stream.shards
        self._actors = NamedActors(namespace_of(settings))
        self._replica = replica

    async def wait(self, seen_generation: int) -> ServedModel:
        pointer = await self._actors.find(MODEL_POINTER_ACTOR)
        champion: ServedModel = await pointer.wait.remote(seen_generation, POLL_S)
        return champion

    async def report(self, generation: int, version: str, error: str) -> bool:
        pointer = await self._actors.find(MODEL_POINTER_ACTOR)
        return bool(await pointer.report.remote(self._replica, generation, version, error))

    async def show(self) -> None:
        pointer = await self._actors.find(MODEL_POINTER_ACTOR)
        live_state = await self._actors.find(live_state_actor())
        await live_state.put_stats.remote(FORECASTER, await pointer.figures.remote())

    async def announce(self, champion: ServedModel, error: str, first: bool) -> None:
        live_state = await self._actors.find(live_state_actor())
        if error:
            text = f"{champion['version']} could not be loaded: {error}"
            await live_state.put_event.remote({"kind": "error", "version": champion["version"], "message": text})
            return
        if first and champion["generation"] > 1:  # generation 1 is the start, not a swap
            text = "the replicas have loaded and checked it"
            await live_state.put_event.remote({"kind": "serving", "version": champion["version"], "message": text})
        for index in range(self._shards):
            try:
                (await self._actors.find(shard_actor(index))).refresh.remote()
            except ValueError:
                _log.info("%s does not run yet; its first step uses the new champion", shard_actor(index))
