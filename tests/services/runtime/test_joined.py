"""Joining a Ray cluster: what is refused, what an earlier run left, where HTTP is. Ray itself is faked here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray import serve

from services.config import Settings, StorageSettings, load_settings
from services.errors import StartError
from services.installation import installation_of
from services.runtime import joined
from services.store.storage import StorageAddress
from tests.s3 import s3_address


def node(name: str, cpus: float, alive: bool = True) -> dict[str, Any]:
    """A node as ``ray.nodes()`` shows it."""
    resources = {"CPU": cpus} if cpus else {}
    return {"NodeID": name, "NodeManagerAddress": f"10.0.0.{name}", "Alive": alive, "Resources": resources}


def settings(tmp_path: Path, kind: str = "kafka") -> Settings:
    """Settings of a service on a cluster."""
    kafka = {"servers": ("kafka:9092",)} if kind == "kafka" else {}
    return load_settings(data_dir=tmp_path, log={"kind": kind}, kafka=kafka, ray={"address": "head:6379"})


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The cluster's nodes, to be filled; every node sees every folder."""
    nodes: list[dict[str, Any]] = []
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    mine = lambda storage, found: {address: joined._read(storage) for address in found.values()}  # noqa: E731
    monkeypatch.setattr(joined, "_read_on", mine)
    return nodes


def test_heads_and_drivers_are_not_counted(cluster: list[dict[str, Any]], tmp_path: Path) -> None:
    """One node with CPUs among others without is one node: a log in a file is fine there."""
    cluster += [node("1", 0), node("2", 4), node("3", 0), node("4", 8, alive=False)]
    assert joined.work_nodes() == {"2": "10.0.0.2"}
    joined.check_nodes(settings(tmp_path, "sqlite"))


def test_a_log_in_a_file_is_refused_on_two_nodes(cluster: list[dict[str, Any]], tmp_path: Path) -> None:
    """A shard could be on either; Kafka is what they share."""
    cluster += [node("1", 2), node("2", 2)]
    with pytest.raises(StartError, match="2 nodes with CPUs, and a file log works on one node only"):
        joined.check_nodes(settings(tmp_path, "sqlite"))
    joined.check_nodes(settings(tmp_path, "kafka"))


def clock(sleep: Callable[[float], None]) -> SimpleNamespace:
    """What the module knows as ``time``: the real one is that of threads which other tests have left, too."""
    return SimpleNamespace(sleep=sleep, monotonic=time.monotonic)


def test_a_cluster_without_workers_is_refused(
    cluster: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Actors would wait for ever where nothing takes them."""
    cluster += [node("1", 0)]
    monkeypatch.setattr(joined, "NODES_S", 0.0)
    with pytest.raises(StartError, match="no node with CPUs"):
        joined.check_nodes(settings(tmp_path))


def test_the_first_worker_may_come_a_moment_later(
    cluster: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Kubernetes the service starts together with the cluster."""
    monkeypatch.setattr(joined, "time", clock(lambda _: cluster.append(node("1", 2))))
    joined.check_nodes(settings(tmp_path))
    assert len(cluster) == 1


@pytest.mark.parametrize("there", ["", "0123456789ab"], ids=["nothing", "another installation"])
def test_a_node_that_does_not_see_the_folder_is_named(
    cluster: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    """History and snapshots must be the same everywhere; a folder of that name that is another one is none."""
    cluster += [node("1", 2), node("2", 2)]
    mine = installation_of(tmp_path / "storage")
    seen = {"10.0.0.1": (mine, ""), "10.0.0.2": (there, "")}
    monkeypatch.setattr(joined, "_read_on", lambda storage, found: seen)
    with pytest.raises(StartError, match=r"10\.0\.0\.2 do not see the data folder"):
        joined.check_nodes(settings(tmp_path))


@pytest.mark.s3
def test_a_node_that_does_not_reach_the_bucket_is_named(
    cluster: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No folder need be shared then; but each node needs the way to the bucket, and its login."""
    cluster += [node("1", 2), node("2", 2)]
    address = s3_address(tmp_path)
    there = {name: getattr(address, name) for name in ("url", "endpoint", "region", "path_style", "credentials_file")}
    mine = settings(tmp_path)
    mine = mine.model_copy(update={"storage": StorageSettings(**there)})
    asked = []

    def reads(storage: StorageAddress, found: dict[str, str]) -> dict[str, tuple[str, str]]:
        asked.append(storage)
        return {address: joined._read(storage) for address in found.values()}

    monkeypatch.setattr(joined, "_read_on", reads)
    joined.check_nodes(mine)
    assert asked[0].url == address.url
    assert not (tmp_path / "storage").exists()
    blind = replace(address, credentials_file=str(tmp_path / "nothing"), retry_s=0.1)
    monkeypatch.setattr(
        joined, "_read_on", lambda storage, found: {"10.0.0.1": joined._read(storage), "10.0.0.2": joined._read(blind)}
    )
    with pytest.raises(StartError, match=r"10\.0\.0\.2 do not reach s3://.* says: .*nothing") as caught:
        joined.check_nodes(mine)
    assert "storage.credentials_file" in caught.value.hint


def test_actors_of_an_earlier_run_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours are ended until none is left; those of another installation on the same cluster, and Serve's, stay."""
    others = {("controller", "serve"), ("shard-0", "hothouse-of-others"), ("board-0", "hothouse-of-others")}
    living = {("shard-0", "hothouse-ours"), ("board-0", "hothouse-ours"), *others}

    def listed(all_namespaces: bool) -> list[dict[str, str]]:
        assert all_namespaces
        return [{"name": name, "namespace": namespace} for name, namespace in living]

    def kill(actor: tuple[str, str], no_restart: bool) -> None:
        assert no_restart
        living.discard(actor)

    monkeypatch.setattr(ray.util, "list_named_actors", listed)
    monkeypatch.setattr(ray, "get_actor", lambda name, namespace: (name, namespace))
    monkeypatch.setattr(ray, "kill", kill)
    monkeypatch.setattr(joined, "time", clock(lambda _: None))
    joined.end_earlier_run("hothouse-ours")
    assert living == others


def test_an_actor_that_does_not_end_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, after a minute."""
    now_s = iter(range(0, 1000, 30))
    monkeypatch.setattr(joined, "_left", lambda namespace: ["shard-0"])
    monkeypatch.setattr(ray, "get_actor", lambda name, namespace: name)
    monkeypatch.setattr(ray, "kill", lambda actor, no_restart: None)
    monkeypatch.setattr(joined, "time", SimpleNamespace(monotonic=lambda: next(now_s), sleep=lambda _: None))
    with pytest.raises(StartError, match="shard-0"):
        joined.end_earlier_run("hothouse-ours")


def serve_details(port: int, **routes: str) -> dict[str, Any]:
    """What Serve says of itself."""
    there = {name: {"route_prefix": route, "status": "RUNNING"} for name, route in routes.items()}
    return {"http_options": {"port": port}, "applications": there}


def test_a_route_of_another_application_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two installations on one cluster need a route each; one's own of an earlier run is replaced."""
    monkeypatch.setattr(joined, "_serve_details", lambda: serve_details(8000, theirs="/"))
    with pytest.raises(StartError, match="theirs on the Ray cluster already answers on the route /") as caught:
        joined.check_serve(8000, "/", "ours")
    assert "api.route" in caught.value.hint
    joined.check_serve(8000, "/north", "ours")
    joined.check_serve(8000, "/", "theirs")


def test_another_port_of_the_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve listens where its first application said; a URL with another port would answer nobody."""
    monkeypatch.setattr(joined, "_serve_details", lambda: serve_details(8000))
    with pytest.raises(StartError, match="listens on port 8000 since it was started, not on 8001") as caught:
        joined.check_serve(8001, "/", "ours")
    assert "api.port = 8000" in caught.value.hint


def test_http_is_on_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of the cluster's own server names the head."""
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address="ray-head:6379"))
    assert joined.api_host() == "ray-head"


def replicas(status: str, **running: int) -> SimpleNamespace:
    """What Serve says of the application ``ours``."""
    deployments = {
        name: SimpleNamespace(replica_states={"RUNNING": count}, status="UPDATING", status_trigger="", message="")
        for name, count in running.items()
    }
    application = SimpleNamespace(status=status, message="it has no bed", deployments=deployments)
    return SimpleNamespace(applications={"ours": application})


def two_of_each(tmp_path: Path, per_node: int) -> Settings:
    """Two replicas of each kind, so many of a kind on a node."""
    ray_section = {"address": "head:6379", "forecaster_replicas": 2, "replicas_per_node": per_node}
    return load_settings(data_dir=tmp_path, api={"replicas": 2}, ray=ray_section)


@pytest.mark.parametrize(
    ("nodes", "per_node", "looks", "seen"),
    [
        (2, 1, [replicas("DEPLOYING", Api=1, Forecaster=1), replicas("RUNNING", Api=2, Forecaster=2)], 2),
        (1, 0, [replicas("DEPLOYING", Api=1, Forecaster=1), replicas("RUNNING", Api=2, Forecaster=2)], 2),
        (1, 1, [replicas("DEPLOYING", Api=1, Forecaster=0), replicas("DEPLOYING", Api=1, Forecaster=1)], 2),
        (0, 1, [replicas("DEPLOYING", Api=0, Forecaster=0), replicas("RUNNING", Api=2, Forecaster=2)], 2),
    ],
    ids=["both nodes", "no limit", "a node is lost", "both are lost"],
)
def test_a_start_waits_for_as_many_replicas_as_there_is_room_for(
    cluster: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    nodes: int, per_node: int, looks: list[SimpleNamespace], seen: int,
) -> None:  # fmt: skip
    """A lost node must not keep shards and learning from starting."""
    cluster += [node(str(number), 2) for number in range(nodes)]
    asked = list[SimpleNamespace]()

    def status() -> SimpleNamespace:
        asked.append(looks[len(asked)])
        return asked[-1]

    monkeypatch.setattr(serve, "status", status)
    joined.await_application(two_of_each(tmp_path, per_node), "ours", every_s=0)
    assert len(asked) == seen


def test_the_api_has_room_on_nodes_of_its_own(
    cluster: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is lost, while all nodes that work are there: the start does not wait for it."""
    own = load_settings(
        data_dir=tmp_path, api={"replicas": 2},
        ray={"address": "head:6379", "forecaster_replicas": 2, "replicas_per_node": 1, "api_resource": "api"},
    )  # fmt: skip
    cluster += [node("1", 2), node("2", 2), {**node("3", 0), "Resources": {"api": 1}}]
    looks = [replicas("DEPLOYING", Api=1, Forecaster=1), replicas("DEPLOYING", Api=1, Forecaster=2)]
    monkeypatch.setattr(serve, "status", lambda: looks.pop(0))
    joined.await_application(own, "ours", every_s=0)
    assert not looks


def test_a_replica_that_does_not_come_up_holds_up_no_start(
    cluster: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while one of each kind is enough: the other may never come."""
    cluster += [node("1", 2), node("2", 2)]
    looks = [replicas("UNHEALTHY", Api=2, Forecaster=0), replicas("UNHEALTHY", Api=2, Forecaster=1)]
    monkeypatch.setattr(serve, "status", lambda: looks.pop(0))
    joined.await_application(two_of_each(tmp_path, 1), "ours", every_s=0, enough_s=0)
    assert not looks


def test_a_controller_that_does_not_answer_stops_the_start() -> None:
    """Ray itself would wait for ever; an answer and an error pass."""
    never = threading.Event()
    with pytest.raises(StartError, match=r"does not answer within 0\.05 s"):
        joined.within(never.wait, 0.05)
    never.set()
    assert joined.within(lambda: 7, 60) == 7
    with pytest.raises(ZeroDivisionError):
        joined.within(lambda: 1 // 0, 60)


@pytest.mark.parametrize(
    ("status", "trigger", "message", "given_up"),
    [
        ("DEPLOY_FAILED", "REPLICA_STARTUP_FAILED", "", True),
        ("DEPLOY_FAILED", "HEALTH_CHECK_FAILED", "", False),
        ("DEPLOY_FAILED", "HEALTH_CHECK_FAILED", "failed to start 6 times in a row during a rolling update.", True),
        ("UPDATING", "CONFIG_UPDATE_STARTED", "", False),
        ("HEALTHY", "CONFIG_UPDATE_COMPLETED", "", False),
    ],
)
def test_what_serve_gave_up_is_known(
    monkeypatch: pytest.MonkeyPatch, status: str, trigger: str, message: str, given_up: bool
) -> None:
    """It starts replicas of the same version no more, whoever deploys them again."""
    found = replicas("DEPLOYING", Api=1)
    there = found.applications["ours"].deployments["Api"]
    there.status, there.status_trigger, there.message = status, trigger, message
    monkeypatch.setattr(serve, "status", lambda: found)
    monkeypatch.setattr(joined, "_versions", lambda name: {"Api": f"7 of {name}"})
    assert joined.deployed("ours") == {"Api": joined.Deployed("7 of ours", given_up)}
    assert joined.deployed("another") == {}


def test_a_start_that_repairs_does_not_end_for_what_the_one_before_left(
    cluster: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just deployed anew: Serve says so of the application, and a moment later of its deployments."""
    cluster += [node("1", 2)]
    looks = [replicas("DEPLOYING", Api=0, Forecaster=1), replicas("RUNNING", Api=1, Forecaster=1)]
    left = looks[0].applications["ours"].deployments["Api"]
    left.status, left.status_trigger = "DEPLOY_FAILED", "REPLICA_STARTUP_FAILED"
    monkeypatch.setattr(serve, "status", lambda: looks.pop(0))
    joined.await_application(two_of_each(tmp_path, 1), "ours", every_s=0)
    assert not looks


def test_replicas_that_fail_stop_the_start(
    cluster: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what Serve says of them."""
    cluster += [node("1", 2)]
    found = replicas("DEPLOY_FAILED", Api=0, Forecaster=1)
    failed = found.applications["ours"].deployments["Api"]
    failed.status, failed.status_trigger = "DEPLOY_FAILED", "REPLICA_STARTUP_FAILED"
    monkeypatch.setattr(serve, "status", lambda: found)
    with pytest.raises(RuntimeError, match="it has no bed"):
        joined.await_application(two_of_each(tmp_path, 1), "ours", every_s=0)
