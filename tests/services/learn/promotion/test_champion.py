"""The champion's alias and an MLflow that is away, as the slow loop sees them, without a cluster."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from services.errors import ModelFilesError, PromotionRefusedError, RegistryError, TrainingError
from services.learn.promotion.pruning import GRACE_MS
from services.learn.promotion.registry import Registry
from tests.services.learn.fakes import Clock, FakeCluster, Make


def twice_away(monkeypatch: pytest.MonkeyPatch, registry: Registry, method: str) -> list[str]:
    """MLflow is away for the first two calls of a method; the versions that it is called with."""
    monkeypatch.setattr("services.learn.loop.retrainer.REGISTER_S", 0.01)
    call, tried = getattr(registry, method), list[str]()

    def away(version: str) -> None:
        tried.append(version)
        if len(tried) < 3:
            raise RegistryError("MLflow does not answer at http://mlflow")
        call(version)

    monkeypatch.setattr(registry, method, away)
    return tried


def test_alias_moved_in_mlflow_is_followed(make: Make, cluster: FakeCluster, tmp_path: Path) -> None:
    """A champion set with MLflow's own means reaches the model pointer; a torn one does not, and is reported once."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.sqlite'}")
    retrainer = make(retrain_every_s=0)
    cluster.results = [False, False]
    for _ in range(2):
        retrainer.trigger("test")
        retrainer.retrain_if_due()
    client.set_registered_model_alias("hothouse", "champion", "1")
    retrainer.watch()
    assert cluster.pointer == "v1"
    assert cluster.events[-1]["reason"] == "champion alias moved in MLflow"
    (tmp_path / "storage" / "models" / "run2" / "weights.safetensors").unlink()
    client.set_registered_model_alias("hothouse", "champion", "2")
    for _ in range(3):
        retrainer.watch()
    assert cluster.pointer == "v1"
    assert cluster.kinds().count("error") == 1
    assert "v2 cannot serve, v1 stays" in cluster.events[-1]["message"]
    assert "v2 cannot serve" in retrainer.status()["last_error"]
    client.set_registered_model_alias("hothouse", "champion", "1")
    retrainer.watch()
    assert retrainer.status()["last_error"] == ""


def test_a_move_in_mlflow_keeps_what_served_as_previous(make: Make, cluster: FakeCluster, tmp_path: Path) -> None:
    """A rollback goes back to it; and a model that was made for other rows is not served however it became champion."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.sqlite'}")
    retrainer = make(retrain_every_s=0)
    cluster.results = [True, True, False, False]
    for _ in range(4):
        retrainer.trigger("test")
        retrainer.retrain_if_due()
    client.set_registered_model_alias("hothouse", "champion", "3")
    retrainer.watch()
    assert retrainer.rollback() == {"version": "v2", "before": "v3"}
    manifest = tmp_path / "storage" / "models" / "run4" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"schema_hash": "other"}))
    client.set_registered_model_alias("hothouse", "champion", "4")
    retrainer.watch()
    assert cluster.pointer == "v2"
    assert "v4 cannot serve, v2 stays: it was made for schema other" in cluster.events[-1]["message"]
    assert retrainer.rollback() == {"version": "v2", "before": "v4"}
    assert (cluster.pointer, retrainer.status()["last_error"]) == ("v2", "")


@pytest.mark.parametrize("call", ["serving", "serve"])
def test_a_pointer_that_cannot_be_read_is_no_fault_of_the_model(
    make: Make, cluster: FakeCluster, clock: Clock, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """As where the storage is away, when the retrainer starts or when the champion moves: it is told later."""
    cluster.results = [True, True]
    retrainer = make()
    retrainer.retrain_if_due()
    if call == "serving":
        retrainer = make()
    with monkeypatch.context() as patch:
        patch.setattr(cluster, call, _unreadable)
        if call == "serve":
            clock.now_s += 100
            retrainer.retrain_if_due()
        retrainer.watch()
    version = "v2" if call == "serve" else "v1"
    words = f"the model pointer was not told of {version}: slot-trees.json cannot be read: it does not answer"
    assert retrainer.status()["last_error"] == words
    for _ in range(2):
        retrainer.watch()
    assert (cluster.pointer, retrainer.status()["last_error"]) == (version, "")


def _unreadable(*_: str) -> str:
    raise ModelFilesError("slot-trees.json cannot be read: it does not answer")


def test_a_registry_that_lost_what_serves_stops_no_swap(make: Make, cluster: FakeCluster) -> None:
    """The model pointer names a version that MLflow no longer has: the next promotion reaches it all the same."""
    cluster.pointer, cluster.results = "v9", [True]
    retrainer = make()
    retrainer.retrain_if_due()
    assert (cluster.pointer, retrainer.status()["last_error"]) == ("v1", "")


def test_an_mlflow_that_lost_its_models_serves_none_and_says_so(
    make: Make, cluster: FakeCluster, registry: Registry, clock: Clock
) -> None:
    """Versions count from 1 again, so what serves must not pass for the next of that name."""
    retrainer = make()
    cluster.results = [True, True]
    retrainer.retrain_if_due()
    with registry._connection.client() as client:
        client.delete_registered_model("hothouse")
    with pytest.raises(PromotionRefusedError, match="is not in MLflow any more"):
        retrainer.watch()
    retrainer.watch()
    assert (cluster.pointer, cluster.events[-1]["reason"]) == ("online", "MLflow has lost its models")
    clock.now_s += 100
    retrainer.retrain_if_due()
    assert cluster.served[-1] == ("v1", str(cluster.folder / "run2"))


def test_a_promotion_that_mlflow_cuts_short_is_completed(
    make: Make, cluster: FakeCluster, registry: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow goes away between the two aliases: what served before is ``previous`` once it is back, and the reason is
    the verdict's.
    """
    retrainer = make()
    cluster.results = [True, True, True]
    for _ in range(2):
        retrainer.retrain_if_due()
        clock.now_s += 100

    tried = twice_away(monkeypatch, registry, "keep_previous")
    retrainer.retrain_if_due()
    for _ in range(2):
        retrainer.watch()
    assert (registry.champion(), cluster.pointer, tried[0]) == ("v3", "v3", "v2")
    swap = next(event for event in reversed(cluster.events) if event["kind"] == "swap")
    assert swap["version"] == "v3"
    assert "moved in MLflow" not in swap["reason"]
    assert retrainer.rollback() == {"version": "v2", "before": "v3"}


@pytest.mark.parametrize("killed", [False, True])
def test_a_rollback_that_is_cut_short_is_completed(
    make: Make, cluster: FakeCluster, registry: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """MLflow goes away between the two aliases, or the retrainer is killed there: what served is ``previous``
    later, and who went back is not sent forward again.
    """
    retrainer = make()
    cluster.results = [True, True]
    for _ in range(2):
        retrainer.retrain_if_due()
        clock.now_s += 100

    twice_away(monkeypatch, registry, "keep_previous")
    with pytest.raises(RegistryError):
        retrainer.rollback()
    retrainer = make() if killed else retrainer
    for _ in range(2):
        retrainer.watch()
    assert (registry.champion(), cluster.pointer) == ("v1", "v1")
    rows = {row["version"]: row for row in registry.list()}
    assert (rows["v1"]["watch"], rows["v2"]["stage"]) == (None, "previous")
    swap = next(event for event in reversed(cluster.events) if event["kind"] == "swap")
    assert (swap["version"], swap["reason"]) == ("v1", "went back to the model that served before")


def test_rollback_and_promote_reach_the_pointer_at_once(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """An operator's rollback and promotion are served when the call returns; a second wish is refused in words."""
    retrainer = make()
    cluster.results = [True, True]
    retrainer.retrain_if_due()
    with pytest.raises(PromotionRefusedError, match="no previous model"):
        retrainer.rollback()
    clock.now_s += 100
    retrainer.retrain_if_due()
    assert retrainer.rollback("v2") == {"version": "v1", "before": "v2"}
    with pytest.raises(PromotionRefusedError, match="v1 is the champion, not v2"):
        retrainer.rollback("v2")  # who asks twice does not come back
    assert cluster.pointer == "v1"
    assert retrainer.promote("online") == {"version": "online", "before": "v1"}
    assert cluster.served[-1] == ("online", "")
    retrainer.trigger("now")
    with pytest.raises(TrainingError, match="been requested"):
        retrainer.trigger("again")


def test_mlflow_away_keeps_the_champion_and_is_reported_once(
    make: Make, cluster: FakeCluster, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While MLflow does not answer nothing is swapped; its going and its coming back are one event each."""
    retrainer = make()
    cluster.results = [True]
    retrainer.retrain_if_due()
    before = len(cluster.events)

    def away() -> str:
        raise RegistryError("MLflow does not answer at http://mlflow")

    with monkeypatch.context() as patch:
        patch.setattr(registry, "champion", away)
        for _ in range(3):
            retrainer.watch()
        assert "does not answer" in retrainer.status()["registry_error"]
    retrainer.watch()
    assert cluster.kinds()[before:] == ["error", "registry"]
    assert retrainer.status()["registry_error"] == ""
    assert cluster.pointer == "v1"


@pytest.mark.parametrize("cut_short", [False, True])
def test_a_training_outlasts_an_mlflow_that_is_away_at_its_end(
    make: Make, cluster: FakeCluster, registry: Registry, monkeypatch: pytest.MonkeyPatch, cut_short: bool
) -> None:
    """What was trained waits until it is registered, and is registered once, also where MLflow went in between."""
    monkeypatch.setattr("services.learn.loop.retrainer.REGISTER_S", 0.01)
    retrainer, register, waited = make(), registry.register, []
    cluster.results = [True]

    def away(*arguments: Any) -> str:
        waited.append(retrainer.status()["last_error"])
        if len(waited) < 3:
            if cut_short and len(waited) == 2:
                register(*arguments)
            raise RegistryError("MLflow does not answer at http://mlflow")
        return register(*arguments)

    monkeypatch.setattr(registry, "register", away)
    retrainer.retrain_if_due()
    assert "waits for MLflow" in waited[1]
    assert [row["version"] for row in registry.list()] == ["v1"]
    assert cluster.pointer == "v1"
    assert retrainer.status()["last_error"] == ""


def test_a_training_outlasts_a_disk_that_is_full_at_its_end(
    make: Make, cluster: FakeCluster, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow cannot keep its copy: what was trained for hours waits until there is room, and is registered once."""
    monkeypatch.setattr("services.learn.loop.retrainer.REGISTER_S", 0.01)
    retrainer, log_artifacts, waited = make(), MlflowClient.log_artifacts, []
    cluster.results = [True]

    def full(*arguments: Any) -> None:
        waited.append(retrainer.status()["last_error"])
        if len(waited) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        log_artifacts(*arguments)

    monkeypatch.setattr(MlflowClient, "log_artifacts", full)
    retrainer.retrain_if_due()
    assert "No space left on device" in waited[1]
    assert [row["version"] for row in registry.list()] == ["v1"]
    assert (cluster.pointer, len(cluster.orders)) == ("v1", 1)
    assert retrainer.status()["last_error"] == ""


def test_a_promotion_outlasts_an_mlflow_that_is_away(
    make: Make, cluster: FakeCluster, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first network that was registered is promoted once MLflow is back, and trained once."""
    retrainer, tried = make(), twice_away(monkeypatch, registry, "promote")
    cluster.results = [True]
    retrainer.retrain_if_due()
    assert tried == ["v1"] * 3
    assert (cluster.pointer, len(cluster.orders)) == ("v1", 1)
    assert retrainer.status()["last_error"] == ""


def test_a_training_waits_no_longer_for_mlflow_than_one_may_take(
    make: Make, cluster: FakeCluster, registry: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An MLflow that never takes it does not keep others from being trained for ever."""
    monkeypatch.setattr("services.learn.loop.retrainer.REGISTER_S", 0.01)
    retrainer = make(timeout_s=60)
    cluster.results = [True, True]

    def away(*_: Any) -> str:
        clock.now_s += 40
        raise RegistryError("MLflow does not answer at http://mlflow")

    with monkeypatch.context() as patch:
        patch.setattr(registry, "register", away)
        retrainer.retrain_if_due()
    assert cluster.kinds() == ["error"]
    assert "MLflow does not answer" in retrainer.status()["last_error"]
    clock.now_s += GRACE_MS / 1000
    retrainer._prune()
    assert not (cluster.folder / "run1").exists()  # no version will ever name it
    retrainer.trigger("operator")
    retrainer.retrain_if_due()
    assert cluster.pointer == "v1"
