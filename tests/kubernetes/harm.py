"""What is done to the installation, and when it is said to have recovered. Standard library only."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.compose.waiting import until
from tests.kubernetes.cluster import APPLY, NAMESPACE, Cluster, ClusterError, run

__all__ = ["HARMS", "Harm", "change_settings", "harm", "kill_system", "ready", "upgrade"]

RECOVER_S = 240.0
STEP_MS = 300_000
ASK_EVERY_S = 1.0  # all zones: no more than a fifth of what the load asks
SHARD = "ray::ShardActor"
API = r"ray::ServeReplica:\S+:Api\b"
Find = Callable[[Cluster], str]  # the pod that it hits now


def component(name: str) -> Find:
    """The one pod of a component."""
    return lambda cluster: names(cluster, f"app.kubernetes.io/component={name}")[0]


def names(cluster: Cluster, selector: str, of: str = NAMESPACE) -> list[str]:
    """The names of the pods that a selector names, in their order."""
    return sorted(str(pod["metadata"]["name"]) for pod in cluster.pods(selector, of))


def workers(cluster: Cluster) -> dict[str, str]:
    """Worker pod -> the titles of its processes, which say what Ray runs there."""
    selector = f"ray.io/cluster={cluster.name},ray.io/node-type=worker"
    look = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'"
    return {pod: cluster.exec(pod, "sh", "-c", look) for pod in names(cluster, selector)}


def shard(cluster: Cluster) -> str:
    """The pod in which the first shard runs."""
    found = [pod for pod, titles in workers(cluster).items() if SHARD in titles]
    if not found:
        raise ClusterError("no pod runs a shard")
    return found[0]


def serving(cluster: Cluster) -> str:
    """A pod that answers requests."""
    found = [pod for pod, titles in workers(cluster).items() if re.search(API, titles)]
    if not found:
        raise ClusterError("no pod runs a replica of the API")
    return found[0]


@dataclass(frozen=True, slots=True)
class Harm:
    """A pod that is killed, or evicted as a drain of its node does; and how long /predict may go without an answer."""

    what: str
    find: Find
    evict: bool = False
    most_s: float = 2.0
    namespace: str = NAMESPACE

    @property
    def words(self) -> str:
        """For the timeline."""
        return f"{self.what} {'evicted' if self.evict else 'killed'}"

    @property
    def most_failed(self) -> int:
        """Requests that may fail, of twenty a second."""
        return round(20 * self.most_s)


def operator(cluster: Cluster) -> str:
    """KubeRay's, which has another name where Helm installed it."""
    return names(cluster, "app.kubernetes.io/name in (kuberay,kuberay-operator)", "default")[0]


PARTS: tuple[tuple[str, Find, float], ...] = (
    ("gateway", component("gateway"), 2.0),
    ("mosquitto", component("mosquitto"), 2.0),
    ("mlflow", component("mlflow"), 2.0),
    ("redis", component("redis"), 2.0),
    ("serving pod", serving, 2.0),
    ("shard's pod", shard, 2.0),
    ("ray head", component("ray-head"), 0.0),
    ("hothouse", component("hothouse"), 2.0),
)
HARMS = (
    *(Harm(what, find, most_s=most_s) for what, find, most_s in PARTS),
    Harm("operator", operator, most_s=0.0, namespace="default"),
    *(Harm(what, find, evict=True, most_s=0.0) for what, find, _ in PARTS),
)


def ready(cluster: Cluster, least: int) -> bool:
    """Whether all pods of the installation are, and at least so many."""
    found = cluster.pods("app.kubernetes.io/name=hothouse")
    states = [
        any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))
        for pod in found
    ]
    return len(states) >= least and all(states)


def harm(cluster: Cluster, what: Harm) -> float:
    """Do it and wait for the recovery; how many seconds that took.

    Recovered: as many pods as before are ready, and every zone's forecast is of a row that closed after the harm: the
    first one may have been closed already, and not be forecast yet.
    """
    before, count = max(forecasts(cluster).values()), len(cluster.pods("app.kubernetes.io/name=hothouse"))
    pod = what.find(cluster)
    began_s = time.monotonic()
    if what.evict:
        evict(cluster, pod)
    else:
        cluster.kubectl("-n", what.namespace, "delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

    def gone() -> bool:
        found = cluster.all_pods(of=what.namespace)
        ending = {one["metadata"]["name"] for one in found if one["metadata"].get("deletionTimestamp")}
        return pod not in ending

    until(gone, f"{pod} is gone", RECOVER_S)
    until(lambda: ready(cluster, count), f"all pods are ready after {what.words}", RECOVER_S)
    _await_forecasts(cluster, before)
    return time.monotonic() - began_s


def kill_system(cluster: Cluster) -> float:
    """All pods but the gateway's and the broker's are killed at once, as by the loss of the only machine that they are
    on; how many seconds until forecasts go on.

    The broker keeps what waits for a gateway once a second: killed with it, what came in the last one would be lost.
    """
    before, count = max(forecasts(cluster).values()), len(cluster.pods("app.kubernetes.io/name=hothouse"))
    began_s = time.monotonic()
    of_system = "app.kubernetes.io/name=hothouse,app.kubernetes.io/component notin (gateway,mosquitto)"
    killed = _ids(cluster, of_system)
    at_once = ("--grace-period=0", "--force", "--wait=false")
    cluster.kubectl("-n", NAMESPACE, "delete", "pod", "-l", of_system, *at_once)

    def replaced() -> bool:
        return not killed & _ids(cluster, of_system) and ready(cluster, count)

    until(replaced, "all pods of the system are others, and ready", 2 * RECOVER_S)
    _await_forecasts(cluster, before)
    return time.monotonic() - began_s


def _await_forecasts(cluster: Cluster, before: int) -> None:
    """Return once every zone's forecast is of two rows later."""
    further_ms = before + 2 * STEP_MS
    until(lambda: min(cluster.origins().values(), default=0) >= further_ms, "forecasts go on", RECOVER_S, ASK_EVERY_S)


def _ids(cluster: Cluster, selector: str) -> set[str]:
    """Of pods, also those that end; a pod that takes another's place may have its name."""
    return {str(pod["metadata"]["uid"]) for pod in cluster.all_pods(selector)}


def change_settings(cluster: Cluster, folder: Path) -> float:
    """Apply another overlay to what runs; how many seconds until the API has its settings and forecasts go on."""
    began_s = time.monotonic()
    run(str(APPLY), str(folder))
    # Ready, as its probe sees it, is not before Ray Serve has replaced each replica of the API.
    rollout = ("-n", NAMESPACE, "rollout", "status", f"deployment/{cluster.name}", f"--timeout={RECOVER_S:.0f}s")
    cluster.kubectl(*rollout, timeout_s=RECOVER_S)
    _await_forecasts(cluster, max(forecasts(cluster).values()))
    return time.monotonic() - began_s


def upgrade(cluster: Cluster, folder: Path) -> float:
    """Have a second Ray cluster, as the overlay says, take over; how many seconds until forecasts go on from there."""
    began_s = time.monotonic()
    run(str(APPLY), "--upgrade", str(folder), timeout_s=3 * RECOVER_S)
    before = max(forecasts(cluster).values())  # by the second one
    _await_forecasts(cluster, before)
    return time.monotonic() - began_s


def evict(cluster: Cluster, pod: str) -> None:
    """As `kubectl drain` asks for it; what a disruption budget forbids is asked again."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"

    def taken() -> bool:
        cluster.post(path, body)
        return True

    until(taken, f"{pod} may be evicted", RECOVER_S, every_s=2)


def forecasts(cluster: Cluster) -> dict[str, int]:
    """:meth:`Cluster.origins`, once every zone is answered for."""
    found = dict[str, int]()

    def answered() -> bool:
        found.update(cluster.origins())
        return bool(found)

    until(answered, "an answer for every zone", 60)
    return found
