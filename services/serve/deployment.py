"""Steps 7, 9 and 16 of the way of a reading, on Ray: the actors of serving and the Serve application are started.

Nothing here imports torch. Ray is imported when something is started, after
:class:`services.runtime.ray_runtime.RayRuntime` has set the switches that Ray reads once.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

from services.config import Settings
from services.errors import StartError
from services.installation import app_name_of, namespace_of
from services.key_file import read_key, write_secret
from services.messages import FORECASTER_DEPLOYMENT, MODEL_POINTER_ACTOR, live_state_actor
from services.runtime.ingress import listens_at, probe_ingress
from services.runtime.joined import BEGIN_S, Deployed, api_host, await_application, check_serve, deployed, within
from services.serve.api.auth import OPERATOR_KEY_FILE, HashedKey
from services.serve.api.client_limits import Limits
from services.serve.api.event_stream import MOST as MOST_STREAMS
from services.serve.models.model_loading import load_model
from services.serve.models.model_pointer import ModelPointer
from services.serve.replicas import ApiReplica, ForecasterReplica, LiveStateActor, api_keys
from services.store.storage import address_of

__all__ = ["ServingActors", "build_app", "start_actors", "start_serving"]

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
        live_states=[actor(LiveStateActor, live_state_actor(index), index) for index in range(settings.live_states)],
        pointer=actor(ModelPointer, MODEL_POINTER_ACTOR, address_of(settings)),
    )
    try:
        ray.get([*(one.identity.remote() for one in actors.live_states), actors.pointer.get.remote()], timeout=60)
    except Exception as error:
        raise StartError(f"a live state or the model pointer did not start: {error}") from error
    return actors


def build_app(settings: Settings, there: Mapping[str, Deployed] = NOTHING) -> Any:
    """The Serve application: Api is its ingress; Forecaster is bound to it, and shards call it too.

    ``there``: what a cluster has of it.
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
            graceful_shutdown_wait_loop_s=1,  # before the first look; after Serve's own 2 s a replica is killed
            logging_config={"log_level": "WARNING", "enable_access_log": False},
        )
        # No option says it any more; None: new replicas at each start.
        made._version = there.get(name, Deployed()).next_version(made_of) if joins else None
        return made

    forecaster_needs: dict[str, Any] = {"num_cpus": REPLICA_CPUS}
    resource = settings.ray.api_resource if joins else ""
    api_needs = {"num_cpus": 0, "resources": {resource: 1}} if resource else forecaster_needs
    forecaster = deployment(
        ForecasterReplica, FORECASTER_DEPLOYMENT, settings.ray.forecaster_replicas, 64, forecaster_needs
    )
    api = deployment(serve.ingress()(ApiReplica), "Api", settings.api.replicas, MOST_STREAMS + 512, api_needs)
    return api.bind(settings, forecaster.bind(settings, load_model), limits, operator)


def _fingerprint(settings: Settings, *more: Any) -> str:
    """The same for a start that would make the same replicas: those that a killed ``hothouse up`` left on the cluster
    know the forecasts, and go on answering.
    """
    said = [version("hothouse"), settings.model_dump_json(), *map(repr, more)]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]


def start_serving(settings: Settings) -> str:
    """Start HTTP and the application, and return the address once its replicas are healthy.

    Makes the operator's key. Raises :class:`StartError` if the port is taken or a replica does not come up.
    """
    from ray import serve
    from ray.exceptions import RayError

    logging.getLogger("ray.serve").setLevel(logging.ERROR)  # the terminal belongs to the command line
    write_secret(settings.data_dir / OPERATOR_KEY_FILE)
    api_keys(settings, _operator(settings))  # a bad key file must stop the start, not a replica
    joins = bool(settings.ray.address)  # then HTTP is on other nodes: what is free here says nothing
    host, port = listens_at(settings)
    application, route_prefix = app_name_of(settings), settings.api.route

    def begin() -> None:
        serve.start(
            proxy_location="EveryNode",  # that has a replica: the loss of one leaves the others
            http_options={"host": host, "port": port, "request_timeout_s": 60},
            logging_config={"log_level": "WARNING", "enable_access_log": False},
        )
        if joins:
            check_serve(port, route_prefix, application)
            app = build_app(settings, deployed(application))
            target = serve.RunTarget(app, name=application, route_prefix=route_prefix)
            serve.run_many([target], wait_for_applications_running=False)
        else:
            serve.run(build_app(settings), name=application, route_prefix=route_prefix)

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
    return _address(settings, host, port)


def _address(settings: Settings, host: str, port: int) -> str:
    """Where the API is reached that listens there."""
    route = settings.api.route.rstrip("/")
    if settings.api.url:
        return f"{settings.api.url}{route}"
    if settings.ray.address:
        return f"http://{api_host()}:{port}{route}"
    shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host  # noqa: S104 - compared, not bound
    return f"http://{shown}:{port}{route}"


def _operator(settings: Settings) -> HashedKey:
    """The operator's key, whose file is on this machine alone."""
    return HashedKey.of(read_key(settings.data_dir / OPERATOR_KEY_FILE))


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
