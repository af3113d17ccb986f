"""A Ray cluster that already runs: what must hold before Hothouse joins it, and what an earlier run left there.

Only for ``ray.address``; a runtime of our own is :mod:`services.runtime`'s matter.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import uuid4

from services.config import Settings
from services.errors import HothouseError, StartError
from services.installation import INSTALLATION_FILE, installation_of
from services.messages import FORECASTER_DEPLOYMENT
from services.runtime.threads.in_time import in_time
from services.store.storage import StorageAddress, address_of, open_storage, storage_of

__all__ = [
    "BEGIN_S", "Deployed", "api_host", "await_application", "check_nodes", "check_serve", "deployed",
    "end_earlier_run", "within",
]  # fmt: skip

T = TypeVar("T")
_log = logging.getLogger(__name__)
GONE_S = 60.0
LOOK_S = 60.0
ENOUGH_S = 60.0
BEGIN_S = 180.0
STATUS_S = 60.0
TELL_EVERY_S = 30.0
NODES_S = 120.0
"""How long a cluster may take until its first node with CPUs is there: on Kubernetes all start at once."""


def check_nodes(settings: Settings) -> None:
    """Every node that runs work must see this installation's state, and only one may where the log is a file.

    Raises :class:`StartError`.
    """
    deadline_s = time.monotonic() + NODES_S
    while not (nodes := work_nodes()):
        if time.monotonic() > deadline_s:
            raise StartError(
                f"the Ray cluster at {settings.ray.address} has no node with CPUs yet",
                "Start a worker, then this again.",
            )
        time.sleep(0.5)
    if len(nodes) > 1 and settings.log.kind == "sqlite":
        raise StartError(
            f"the Ray cluster has {len(nodes)} nodes with CPUs, and a file log works on one node only",
            'Set log.kind = "kafka".',
        )
    here, there = installation_of(storage_of(settings)), _read_on(address_of(settings), nodes)
    blind = {address: said for address, (found, said) in there.items() if found != here}
    if blind and settings.storage.url:
        address, said = min(blind.items())
        raise StartError(
            f"the Ray nodes {', '.join(sorted(blind))} do not reach {settings.storage.url}; "
            f"{address} says: {said or 'another installation is there'}",
            "Each node needs the way there, and the login: storage.credentials_file, or what its environment says.",
        )
    if blind:
        raise StartError(
            f"the Ray nodes {', '.join(sorted(blind))} do not see the data folder {settings.data_dir}",
            "Mount the same folder there, under the same name, or keep the state in a bucket (storage.url).",
        )


def work_nodes() -> dict[str, str]:
    """The nodes that take work: id -> address. Heads and drivers' nodes offer no CPUs."""
    return _nodes_with("CPU")


def _nodes_with(resource: str) -> dict[str, str]:
    import ray

    return {
        str(node["NodeID"]): str(node["NodeManagerAddress"])
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get(resource, 0) > 0
    }


def check_serve(port: int, route: str, application: str) -> None:
    """HTTP of the cluster's Serve must be where it is looked for, and no other application answer on our ``route``.

    Called once Serve runs. Raises :class:`StartError`.
    """
    found = _serve_details()
    listens = int(found["http_options"]["port"])
    if listens != port:
        raise StartError(
            f"Serve of the Ray cluster listens on port {listens} since it was started, not on {port}",
            f"Set api.port = {listens}, or restart the cluster.",
        )
    for name, there in found["applications"].items():
        if name != application and there["route_prefix"] == route and there["status"] != "DELETING":
            raise StartError(
                f"{name} on the Ray cluster already answers on the route {route}",
                'Give each installation one of its own, such as api.route = "/north".',
            )


@dataclass(frozen=True, slots=True)
class Deployed:
    """A deployment of the application that a cluster has."""

    version: str = ""
    given_up: bool = False

    def next_version(self, fingerprint: str) -> str:
        """The version to deploy for replicas that are made as ``fingerprint`` says: the same where they are so already.

        >>> Deployed("a1").next_version("a1"), Deployed("a1").next_version("b2"), Deployed().next_version("b2")
        ('a1', 'b2', 'b2')
        >>> again = Deployed("a1", given_up=True).next_version("a1")
        >>> again == "a1", Deployed(again).next_version("a1") == again
        (False, True)
        """
        if self.given_up:
            return f"{fingerprint}-{uuid4().hex[:8]}"
        return self.version if self.version.split("-")[0] == fingerprint else fingerprint


def deployed(name: str) -> dict[str, Deployed]:
    """The deployments of an application on the cluster, by their names; none where it is not there."""
    from ray import serve

    application = within(serve.status, STATUS_S).applications.get(name)
    if application is None:
        return {}
    versions = within(lambda: _versions(name), STATUS_S)
    return {one: Deployed(versions.get(one, ""), _gave_up(there)) for one, there in application.deployments.items()}


def _gave_up(deployment: Any) -> bool:
    """Whether Serve starts no replica of it any more before it gets another version. After a health check that failed
    it goes on, and says ``DEPLOY_FAILED``, too; unless it has given the rolling update up, which only the message says.
    """
    if deployment.status != "DEPLOY_FAILED":
        return False
    return deployment.status_trigger == "REPLICA_STARTUP_FAILED" or "rolling update" in deployment.message


def _versions(application: str) -> dict[str, str]:
    import ray
    from ray.serve.context import _get_global_client

    found = ray.get(_get_global_client()._controller.list_deployments_internal.remote())
    return {one.name: str(info.version or "") for one, (info, _) in found.items() if one.app_name == application}


def await_application(settings: Settings, name: str, every_s: float = 0.2, enough_s: float = ENOUGH_S) -> None:
    """Return once the application runs, or as much of it as the nodes take (``ray.replicas_per_node``), or one replica
    of each kind after ``enough_s``.

    Where a node is lost the rest must start without waiting for another one: Serve starts what is missing when that
    comes. Nor is a replica waited for that does not come up. Raises ``RuntimeError`` where replicas fail.
    """
    from ray import serve

    began_s, told = time.monotonic(), 0
    wanted = {"Api": settings.api.replicas, FORECASTER_DEPLOYMENT: settings.ray.forecaster_replicas}
    while True:
        found = within(serve.status, STATUS_S).applications.get(name)
        if found is not None and found.status == "RUNNING":
            return
        # At first Serve may show a deployment as the previous start left it, but never the application.
        if found is not None and found.status == "DEPLOY_FAILED" and any(map(_gave_up, found.deployments.values())):
            raise RuntimeError(found.message)
        states = {one: dict(there.replica_states) for one, there in found.deployments.items()} if found else {}
        running = {one: states.get(one, {}).get("RUNNING", 0) for one in wanted}
        room = _room(settings, wanted)
        if room != wanted and all(0 < room[one] <= running[one] for one in wanted):
            _log.warning("the cluster has room for %s replicas; the others start when a node comes", room)
            return
        waited_s = time.monotonic() - began_s
        status = f"{found.status}, {found.message}" if found else "not there"
        if waited_s >= enough_s and all(running.values()):
            _log.warning("some replicas run, and the start goes on. Ray Serve says: %s; %s", status, states)
            return
        if waited_s >= (told + 1) * TELL_EVERY_S:
            _log.warning("waiting for Ray Serve, which says of the application: %s; its replicas: %s", status, states)
            told += 1
        time.sleep(every_s)


def _room(settings: Settings, wanted: Mapping[str, int]) -> dict[str, int]:
    """How many of the wanted replicas of each deployment the nodes take that are there."""
    most = settings.ray.replicas_per_node
    if not most:
        return dict(wanted)
    runs_on = {"Api": settings.ray.api_resource or "CPU", FORECASTER_DEPLOYMENT: "CPU"}
    return {one: min(number, len(_nodes_with(runs_on[one])) * most) for one, number in wanted.items()}


def within(ask: Callable[[], T], limit_s: float) -> T:
    """What the controller of Ray Serve answers; raises :class:`StartError` where it does not in that time.

    Ray asks it without a limit, and waits for one that is being started again for as long as that takes.
    """
    try:
        return in_time(limit_s, ask, "ask-serve")
    except TimeoutError as error:
        raise StartError(
            f"Ray Serve's controller on the cluster does not answer within {limit_s:g} s",
            "Its log is on the cluster's head: session_latest/logs/serve/controller_….log.",
        ) from error


def _serve_details() -> dict[str, Any]:
    from ray.serve.context import _get_global_client

    details: dict[str, Any] = _get_global_client().get_serve_details()
    return details


def end_earlier_run(namespace: str) -> None:
    """End the actors that a run of this installation before this one left, and wait until their names are free.

    A run that was killed takes its node with it, which the cluster only believes after half a minute; until then its
    actors live on and keep their names. The caller holds the lock of the state, so nobody uses them; those of other
    installations are in other namespaces.
    """
    import ray

    deadline_s = time.monotonic() + GONE_S
    while left := _left(namespace):
        if time.monotonic() > deadline_s:
            raise StartError(f"the actors {', '.join(left)} of an earlier run do not end")
        for name in left:
            _log.warning("ending %s of an earlier run", name)
            with suppress(ValueError):  # it has just gone
                ray.kill(ray.get_actor(name, namespace=namespace), no_restart=True)
        time.sleep(0.5)


def api_host() -> str:
    """Where Serve's HTTP of the cluster is sure to be: on the head node."""
    import ray

    return str(ray.get_runtime_context().gcs_address).rsplit(":", 1)[0]


def _left(namespace: str) -> list[str]:
    import ray

    found: list[dict[str, Any]] = ray.util.list_named_actors(all_namespaces=True)
    return sorted(actor["name"] for actor in found if actor["namespace"] == namespace)


def _read_on(storage: StorageAddress, nodes: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Node's address -> the installation's id that the storage has there, empty if none, and why; asked on each."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    read = ray.remote(num_cpus=0.01, max_retries=1)(_read)
    asked = {
        address: read.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(storage)
        for node, address in nodes.items()
    }
    try:
        answers = ray.get(list(asked.values()), timeout=LOOK_S)
    except ray.exceptions.RayError as error:
        raise StartError(f"a Ray node does not run a task: {str(error).splitlines()[0]}") from error
    return dict(zip(asked, answers, strict=True))


def _read(address: StorageAddress) -> tuple[str, str]:
    try:
        return open_storage(address).read(INSTALLATION_FILE).content.decode().strip(), ""
    except (OSError, HothouseError, UnicodeDecodeError) as error:
        return "", str(error)
