"""Joining a Ray cluster: what is refused, what an earlier run left, where HTTP is. Ray itself is faked here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from services import joined
from services.config import Settings, load_settings
from services.errors import StartError
from services.messages import NAMESPACE


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
    monkeypatch.setattr(joined, "_who_sees", lambda path, found: dict.fromkeys(found.values(), True))
    return nodes


def test_heads_and_drivers_are_not_counted(cluster: list[dict[str, Any]], tmp_path: Path) -> None:
    """One node with CPUs among others without is one node: a log in a file is fine there."""
    cluster += [node("1", 0), node("2", 4), node("3", 0), node("4", 8, alive=False)]
    assert joined.work_nodes() == {"2": "10.0.0.2"}
    joined.check_nodes(settings(tmp_path, "sqlite"))


def test_a_log_in_a_file_is_refused_on_two_nodes(cluster: list[dict[str, Any]], tmp_path: Path) -> None:
    """A shard could be on either; Kafka is what they share."""
    cluster += [node("1", 2), node("2", 2)]
    with pytest.raises(StartError, match="2 nodes with CPUs"):
        joined.check_nodes(settings(tmp_path, "sqlite"))
    joined.check_nodes(settings(tmp_path, "kafka"))


def test_a_cluster_without_workers_is_refused(cluster: list[dict[str, Any]], tmp_path: Path) -> None:
    """Actors would wait for ever where nothing takes them."""
    cluster += [node("1", 0)]
    with pytest.raises(StartError, match="no node with CPUs"):
        joined.check_nodes(settings(tmp_path))


def test_a_node_that_does_not_see_the_folder_is_named(
    cluster: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History and snapshots must be the same everywhere."""
    cluster += [node("1", 2), node("2", 2)]
    monkeypatch.setattr(joined, "_who_sees", lambda path, found: {a: a != "10.0.0.2" for a in found.values()})
    with pytest.raises(StartError, match=r"10\.0\.0\.2 do not see the data folder"):
        joined.check_nodes(settings(tmp_path))


def test_actors_of_an_earlier_run_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours are ended until none is left; those of others, Serve's too, stay."""
    living = {("shard-0", NAMESPACE), ("board", NAMESPACE), ("controller", "serve")}

    def listed(all_namespaces: bool) -> list[dict[str, str]]:
        assert all_namespaces
        return [{"name": name, "namespace": namespace} for name, namespace in living]

    def kill(actor: tuple[str, str], no_restart: bool) -> None:
        assert no_restart
        living.discard(actor)

    monkeypatch.setattr(ray.util, "list_named_actors", listed)
    monkeypatch.setattr(ray, "get_actor", lambda name, namespace: (name, namespace))
    monkeypatch.setattr(ray, "kill", kill)
    monkeypatch.setattr(joined.time, "sleep", lambda _: None)
    joined.end_earlier_run()
    assert living == {("controller", "serve")}


def test_an_actor_that_does_not_end_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, after a minute."""
    now_s = iter(range(0, 1000, 30))
    monkeypatch.setattr(joined, "_ours", lambda: ["shard-0"])
    monkeypatch.setattr(ray, "get_actor", lambda name, namespace: name)
    monkeypatch.setattr(ray, "kill", lambda actor, no_restart: None)
    monkeypatch.setattr(joined, "time", SimpleNamespace(monotonic=lambda: next(now_s), sleep=lambda _: None))
    with pytest.raises(StartError, match="shard-0"):
        joined.end_earlier_run()


def test_http_is_on_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of the cluster's own server names the head."""
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address="ray-head:6379"))
    assert joined.api_host() == "ray-head"
