"""A Ray cluster that others started: what must hold before Hothouse runs on it, and what an earlier run left there.

Only for ``ray.address``; a runtime of our own is :mod:`services.runtime`'s matter.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from services.config import Settings
from services.errors import StartError
from services.folder import LOCK_FILE
from services.messages import NAMESPACE

__all__ = ["api_host", "check_nodes", "end_earlier_run"]

_log = logging.getLogger(__name__)
GONE_S = 60.0
LOOK_S = 60.0


def check_nodes(settings: Settings) -> None:
    """Every node that runs work must see the data folder, and only one may where the log is a file.

    Raises :class:`StartError`. The caller holds the data folder's lock, so that the lock's file is there.
    """
    nodes = work_nodes()
    if not nodes:
        raise StartError(
            f"the Ray cluster at {settings.ray.address} has no node with CPUs yet", "Start a worker, then this again."
        )
    if len(nodes) > 1 and settings.log.kind == "sqlite":
        raise StartError(
            f"the Ray cluster has {len(nodes)} nodes with CPUs, and a log in a file stands on one",
            'Set log.kind = "kafka".',
        )
    blind = [address for address, sees in _who_sees(settings.data_dir / LOCK_FILE, nodes).items() if not sees]
    if blind:
        raise StartError(
            f"the Ray nodes {', '.join(sorted(blind))} do not see the data folder {settings.data_dir}",
            "Mount the same folder there, under the same name.",
        )


def work_nodes() -> dict[str, str]:
    """The nodes that take work: id -> address. Heads and drivers' nodes offer no CPUs."""
    import ray

    return {
        str(node["NodeID"]): str(node["NodeManagerAddress"])
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU", 0) > 0
    }


def end_earlier_run() -> None:
    """End the actors that a run before this one left, and wait until their names are free.

    A run that was killed takes its node with it, which the cluster only believes after half a minute; until then its
    actors live on and keep their names. The caller holds the data folder's lock, so nobody uses them.
    """
    import ray

    deadline_s = time.monotonic() + GONE_S
    while left := _ours():
        if time.monotonic() > deadline_s:
            raise StartError(f"the actors {', '.join(left)} of an earlier run do not end")
        for name in left:
            _log.warning("ending %s of an earlier run", name)
            with suppress(ValueError):  # it has just gone
                ray.kill(ray.get_actor(name, namespace=NAMESPACE), no_restart=True)
        time.sleep(0.5)


def api_host() -> str:
    """Where Serve's HTTP of the cluster is sure to be: on the head node."""
    import ray

    return str(ray.get_runtime_context().gcs_address).rsplit(":", 1)[0]


def _ours() -> list[str]:
    import ray

    found: list[dict[str, Any]] = ray.util.list_named_actors(all_namespaces=True)
    return sorted(actor["name"] for actor in found if actor["namespace"] == NAMESPACE)


def _who_sees(path: Path, nodes: dict[str, str]) -> dict[str, bool]:
    """Address -> whether the file is there, asked on each node."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    is_there = ray.remote(num_cpus=0.01, max_retries=1)(_is_there)
    asked = {
        address: is_there.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
            str(path)
        )
        for node, address in nodes.items()
    }
    try:
        answers = ray.get(list(asked.values()), timeout=LOOK_S)
    except ray.exceptions.RayError as error:
        raise StartError(f"a Ray node does not run a task: {str(error).splitlines()[0]}") from error
    return dict(zip(asked, answers, strict=True))


def _is_there(path: str) -> bool:
    return Path(path).exists()
