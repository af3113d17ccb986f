"""Step 7, 9 and 16 of the way of a reading, on Ray: thin shells around the model pointer, the live state, Forecaster
and API.

Nothing here imports torch but a Forecaster replica, when it loads its first model. Ray is imported when something is
started, after :class:`services.runtime.ray_runtime.RayRuntime` has set the switches that Ray reads once.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import logging
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from services.access_keys import keys_of
from services.config import Settings
from services.errors import ModelFilesError, StartError
from services.forecast_spec import forecast_spec, place_of
from services.installation import app_name_of, namespace_of
from services.key_file import read_key, write_secret
from services.messages import (
    FORECASTER_DEPLOYMENT,
    MODEL_POINTER_ACTOR,
    ServedModel,
    live_state_actor,
    shard_actor,
)  # fmt: skip
from services.observe.logs import log_to_file
from services.runtime.ingress import encrypted, probe_ingress
from services.runtime.joined import BEGIN_S, Deployed, api_host, await_application, check_serve, deployed, within
from services.runtime.named_actors import NamedActors
from services.runtime.ports import free_port
from services.serve.api.app import create_app
from services.serve.api.auth import OPERATOR_KEY_FILE, HashedKey, Keys
from services.serve.api.backend import POLL_S, RayBackend
from services.serve.api.client_limits import Limits
from services.serve.api.event_stream import MOST as MOST_STREAMS
from services.serve.api.state import ApiState, SiteNames
from services.serve.forecaster import Forecaster, Load, LoadedModel
from services.serve.head_connection import ask_head, keep_connection
from services.serve.live_state import LiveState
from services.serve.loop_watch import watch_loop
from services.serve.model_pointer import ModelPointer
from services.serve.reused_port import reuse_port
from services.store.storage import StorageAddress, address_of, fetch_folder
from services.tracing import open_spans

__all__ = ["ServingActors", "build_app", "load_model", "start_actors", "start_serving", "stop_serving"]

_log = logging.getLogger(__name__)
ACTOR_CPUS = 0.02
REPLICA_CPUS = 0.1
NOTHING: Mapping[str, Deployed] = MappingProxyType({})
"""What a cluster has of the application before the first start."""


@dataclass(frozen=True)
class ServingActors:
    """Handles that keep the named actors alive: they end with the holder of this object."""

    live_states: list[Any]
    pointer: Any


def start_actors(settings: Settings) -> ServingActors:
    """Start the live states and the model pointer; before shards, the retrainer and the Serve application, which use
    them.
    """
    import ray

    namespace = namespace_of(settings)

    def actor(kind: type, name: str, *arguments: Any) -> Any:
        options = {
            "name": name,
            "namespace": namespace,
            "max_restarts": -1,
            "max_task_retries": 0,
            "num_cpus": ACTOR_CPUS,
            "scheduling_strategy": "SPREAD",  # the loss of a node takes as few of them as there may be
        }
        return ray.remote(kind).options(**options).remote(*arguments)

    actors = ServingActors(
        live_states=[actor(_LiveStateActor, live_state_actor(index), index) for index in range(settings.live_states)],
        pointer=actor(ModelPointer, MODEL_POINTER_ACTOR, address_of(settings)),
    )
    try:
        ray.get([*(one.identity.remote() for one in actors.live_states), actors.pointer.get.remote()], timeout=60)
    except Exception as error:
        raise StartError(f"a live state or the model pointer did not start: {error}") from error
    return actors


class _LiveStateActor(LiveState):
    """The live state with the real clock: microseconds since 1970 as the first version outgrow those of any earlier
    one.
    """

    def __init__(self, index: int) -> None:
        super().__init__(time.time_ns() // 1000, lambda: time.time_ns() // 1_000_000, index)


def load_model(folder: str, schema_hash: str) -> LoadedModel:
    """Load an artefact, with its golden output checked; torch is imported here, and kept to one thread."""
    import torch

    from models import artefact

    torch.set_num_threads(1)
    try:
        model = artefact.load(Path(folder), schema_hash)
        model.verify_golden()
    except artefact.ArtefactError as error:
        raise ModelFilesError(str(error)) from error
    return model


def _fetched(where: StorageAddress | None, load: Load, folder: str, schema_hash: str) -> LoadedModel:
    """A model of the storage, with its files on this machine; raises as ``load`` does."""
    try:
        fetch_folder(where, Path(folder))
    except OSError as error:
        raise ModelFilesError(f"the artefact {Path(folder).name} cannot be had: {error}") from error
    return load(folder, schema_hash)


def import_torch() -> None:
    """What takes seconds of a first :func:`load_model`; other threads go on meanwhile."""
    link_torch()
    import torch

    from models import artefact  # noqa: F401

    torch.set_num_threads(1)


def link_torch() -> None:
    """Have the system link torch's libraries, where they are as on Linux; the import that follows finds them there.

    An import that links holds up every thread of the process, so every request, for half a second and more. A foreign
    call does not.
    """
    found = find_spec("torch")
    library = Path(found.origin if found and found.origin else "torch").with_name("lib") / "libtorch_python.so"
    if library.exists():
        system = ctypes.CDLL(None)
        system.dlopen.argtypes, system.dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
        system.dlopen(os.fsencode(library), os.RTLD_NOW)  # where it fails, the import says why


def build_app(settings: Settings, load: Load = load_model, there: Mapping[str, Deployed] = NOTHING) -> Any:
    """The Serve application: Api is its ingress; Forecaster is bound to it, and shards call it too.

    ``load`` makes a model of an artefact folder, in a Forecaster replica. ``there``: what a cluster has of it.
    """
    from ray import serve

    settings = settings.model_copy(update={"data_dir": settings.data_dir.absolute()})  # replicas have their own folder

    joins = bool(settings.ray.address)
    operator, limits = _operator(settings), _limits(settings)
    made_of = _fingerprint(settings, operator, limits)

    def deployment(kind: Any, name: str, replicas: int, most_requests: int, needs: dict[str, Any]) -> Any:
        made = serve.deployment(
            kind,
            name=name,
            num_replicas=replicas,
            max_replicas_per_node=settings.ray.replicas_per_node or None if joins else None,
            max_ongoing_requests=most_requests,
            ray_actor_options=needs,
            health_check_period_s=2,
            health_check_timeout_s=10,
            graceful_shutdown_timeout_s=2,
            logging_config={"log_level": "WARNING", "enable_access_log": False},
        )
        # No option says it any more; None: new replicas at each start.
        made._version = there.get(name, Deployed()).next_version(made_of) if joins else None
        return made

    forecaster_needs: dict[str, Any] = {"num_cpus": REPLICA_CPUS}
    resource = settings.ray.api_resource if joins else ""
    api_needs = {"num_cpus": 0, "resources": {resource: 1}} if resource else forecaster_needs
    forecaster = deployment(
        _ForecasterReplica, FORECASTER_DEPLOYMENT, settings.ray.forecaster_replicas, 64, forecaster_needs
    )
    api = deployment(serve.ingress()(_ApiReplica), "Api", settings.api.replicas, MOST_STREAMS + 512, api_needs)
    return api.bind(settings, forecaster.bind(settings, load), limits, operator)


def _fingerprint(settings: Settings, *more: Any) -> str:
    """The same for a start that would make the same replicas: those that a killed ``hothouse up`` left on the cluster
    know the forecasts, and go on answering.
    """
    said = [version("hothouse"), settings.model_dump_json(), *map(repr, more)]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]


def start_serving(settings: Settings, load: Load = load_model) -> str:
    """Start HTTP and the application, and return the address once its replicas are healthy.

    Makes the operator's key. Raises :class:`StartError` if the port is taken or a replica does not come up.
    """
    from ray import serve
    from ray.exceptions import RayError

    logging.getLogger("ray.serve").setLevel(logging.ERROR)  # the terminal belongs to the command line
    write_secret(settings.data_dir / OPERATOR_KEY_FILE)
    _keys(settings, _operator(settings))  # a bad key file must stop the start, not a replica
    host, port, route = settings.api.host, settings.api.port, settings.api.route.rstrip("/")
    joins = bool(settings.ray.address)  # then HTTP is on other nodes: what is free here says nothing
    if encrypted(settings.api):
        if joins:
            raise StartError(
                "api.tls_cert_file is set, and on a cluster HTTP is the cluster's", "Unset it: the balancer does TLS."
            )
        if _is_taken(host, port):
            raise StartError(f"port {port} on {host} is taken", "Set api.port to another.")
        host, port = "127.0.0.1", 0  # what Serve listens at; HAProxy does at the other
    if port == 0 and joins:
        raise StartError("api.port is 0, and a port that is free here may be taken on the cluster", "Set api.port.")
    if port == 0:
        port = free_port(host)
    elif not joins and _is_taken(host, port):
        raise StartError(f"port {port} on {host} is taken", "Set api.port to another, or to 0 for a free one.")
    application, route_prefix = app_name_of(settings), settings.api.route

    def begin() -> None:
        serve.start(
            proxy_location="EveryNode",  # that has a replica: the loss of one leaves the others
            http_options={"host": host, "port": port, "request_timeout_s": 60},
            logging_config={"log_level": "WARNING", "enable_access_log": False},
        )
        if joins:
            check_serve(port, route_prefix, application)
            app = build_app(settings, load, deployed(application))
            target = serve.RunTarget(app, name=application, route_prefix=route_prefix)
            serve.run_many([target], wait_for_applications_running=False)
        else:
            serve.run(build_app(settings, load), name=application, route_prefix=route_prefix)

    try:
        if joins:  # the controller of a cluster may be one that does not answer, for ever
            within(begin, BEGIN_S)
            await_application(settings, application)
        else:
            begin()
    except RayError as error:  # Serve ends a proxy that is not there in time, and waits for it all the same
        said = next(iter(str(error).splitlines()), type(error).__name__)
        hint = "If the machine had much else to do, start again. Else the logs say why."
        raise StartError(f"the API did not start: {said}", hint) from error
    except (RuntimeError, TimeoutError, OSError) as error:
        raise StartError(f"the API did not start: {error}", "The replicas' logs say why.") from error
    if settings.api.url:
        return f"{settings.api.url}{route}"
    if joins:
        return f"http://{api_host()}:{port}{route}"
    shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host  # noqa: S104 - compared, not bound
    return f"http://{shown}:{port}{route}"


def stop_serving() -> None:
    """Stop the application and HTTP."""
    from ray import serve

    serve.shutdown()


def _is_taken(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def _operator(settings: Settings) -> HashedKey:
    """The operator's key, whose file is on this machine alone."""
    return HashedKey.of(read_key(settings.data_dir / OPERATOR_KEY_FILE))


def _keys(settings: Settings, operator: HashedKey) -> Keys:
    api = settings.api
    return Keys.load(operator, keys_of(settings), api.read_key_file, read_needs_key=api.read_needs_key)


def _limits(settings: Settings) -> Limits:
    """What one client may ask, and who of those before a replica says where a request comes from.

    The HAProxy of this machine does. On a cluster, HAProxy is the cluster's: a replica sees its address instead of the
    client's, unless a proxy before it says more.
    """
    api, is_ours = settings.api, not settings.ray.address
    return Limits(
        per_s=api.rate_per_s, burst=api.rate_burst, streams=api.streams_per_client,
        ingress=is_ours and probe_ingress().kind == "haproxy", proxies=api.proxies,
        known=is_ours or bool(api.proxies),
    )  # fmt: skip


class _ApiReplica:
    """The ingress: a FastAPI application over an :class:`ApiState`."""

    async def __init__(  # type: ignore[misc]  # Serve awaits an async constructor
        self, settings: Settings, forecaster: Any, limits: Limits, operator: HashedKey
    ) -> None:
        from ray import serve

        replica = f"api-{serve.get_replica_context().replica_id.unique_id}"
        log_to_file(settings.logs_dir, replica, settings.logs.format, settings.logs.level)
        keys = _keys(settings, operator)
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


class _ForecasterReplica(Forecaster):
    """A Forecaster replica that follows the named actor ``slot``."""

    async def __init__(  # type: ignore[misc]  # Serve awaits an async constructor
        self, settings: Settings, load: Load
    ) -> None:
        from ray import serve

        replica = serve.get_replica_context().replica_id.unique_id
        log_to_file(settings.logs_dir, f"forecaster-{replica}", settings.logs.format, settings.logs.level)
        super().__init__(
            forecast_spec(settings), partial(place_of, settings), partial(_fetched, address_of(settings).remote, load),
            _RaySlot(settings, replica),
            prepare=import_torch,
        )  # fmt: skip
        await self.start()


class _RaySlot:
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
