"""The slow loop on Ray: history in, a model in the model pointer, with MLflow's record of how it came there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from models import artefact
from services.config import Settings
from services.errors import PromotionRefusedError, TrainingError
from services.forecast_spec import forecast_spec
from services.learn.experts import TREES
from services.learn.loop.retrainer_actor import start_retrainer
from services.learn.loop.training_replay import replay_training
from services.learn.promotion.registry import open_registry
from services.messages import MODEL_POINTER_ACTOR, RETRAINER_ACTOR, live_state_actor, shard_actor
from services.store.history import History
from services.store.pointer import Pointed, Pointer
from tests.patience import patience_s, until
from tests.ray.runtime import NAMESPACE, installed, local_ray
from tests.services.learn.synthetic import small_settings, write_history

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1200)]


class _Shard:
    """Has written everything already."""

    def stats(self) -> dict[str, Any]:
        return {"backlog": 0, "behind": False, "zones": ["demo/z1", "demo/z2"]}

    def flush(self) -> dict[str, int]:
        return {"0": 42}


class _LiveState:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.models: list[dict[str, Any]] = []
        self.stats: dict[str, Any] = {}

    def put_event(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def set_models(self, models: list[dict[str, Any]]) -> None:
        self.models = models

    def put_stats(self, component: str, stats: dict[str, Any]) -> None:
        self.stats[component] = stats

    def seen(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return self.events, self.models


class _ModelPointer:
    """The model pointer without its file."""

    def __init__(self) -> None:
        self.champion: dict[str, Any] = {"generation": 1, "version": "online", "folder": ""}

    def get(self) -> dict[str, Any]:
        return self.champion

    def expect_network(self) -> None:
        pass

    def set(self, version: str, folder: str) -> dict[str, Any]:
        self.champion = {"generation": self.champion["generation"] + 1, "version": version, "folder": folder}
        return self.champion


@pytest.fixture(scope="module")
def runtime() -> Iterator[None]:
    """A Ray runtime of two logical CPUs with stand-ins for shard, live state and model pointer."""
    stand_ins = {shard_actor(0): _Shard, live_state_actor(): _LiveState, MODEL_POINTER_ACTOR: _ModelPointer}
    with local_ray(namespace=NAMESPACE):
        handles = [ray.remote(num_cpus=0)(kind).options(name=name).remote() for name, kind in stand_ins.items()]
        yield
        del handles


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings with eight days of history."""
    settings = installed(small_settings(tmp_path_factory.mktemp("data")))
    write_history(settings, days=8)
    return settings


@pytest.fixture(scope="module")
def retrainer(runtime: None, settings: Settings) -> Iterator[Any]:
    """The actor, stopped afterwards."""
    handle = start_retrainer(settings)
    ray.get(handle.status.remote(), timeout=patience_s(120))
    yield handle
    ray.get(handle.stop.remote(), timeout=patience_s(60))


def _status(retrainer: Any) -> dict[str, Any]:
    return ray.get(retrainer.status.remote(), timeout=patience_s(30))


def _pointer() -> dict[str, Any]:
    return ray.get(ray.get_actor(MODEL_POINTER_ACTOR).get.remote(), timeout=patience_s(30))


def _networks(retrainer: Any) -> list[dict[str, Any]]:
    rows = ray.get(retrainer.models.remote(), timeout=patience_s(30))
    return [row for row in rows if row["expert"] == "network"]


def _run(retrainer: Any, reason: str) -> dict[str, Any]:
    """One retraining to its end; returns the status."""
    before = (_status(retrainer)["last_run"] or {}).get("started_ms")
    assert ray.get(retrainer.trigger.remote(reason), timeout=patience_s(30))["accepted"]

    def ended() -> bool:
        return (_status(retrainer)["last_run"] or {}).get("started_ms") not in (None, before)

    until(ended, f"retraining: {reason}", 280)
    return _status(retrainer)


def test_history_becomes_a_served_model_and_back(retrainer: Any, settings: Settings) -> None:
    """A learnable history gives v1 in the model pointer with lineage; the next is judged against it; roll back and
    on.
    """
    status = _run(retrainer, "first")
    assert status["last_run"]["result"] == "promoted", status
    until(lambda: _pointer()["version"] == "v1", "v1 in the model pointer")
    model = artefact.load(Path(_pointer()["folder"]), forecast_spec(settings).hash)
    model.verify_golden()
    assert model.manifest["trained_on"]["log_offsets"] == {"0": 42}
    (row,) = _networks(retrainer)
    assert (row["stage"], row["passed"], row["forced"]) == ("champion", True, False)
    assert row["weights_sha256"] == model.manifest["weights_sha256"]
    assert row["trained_on"]["zones"] == 2
    errors = row["held_back_mae"]["air_temp_c"]["60"]
    assert errors["model"] < min(errors["persistence"], errors["naive_24h"], errors["climatology"])
    with pytest.raises(PromotionRefusedError, match="no previous model"):
        ray.get(retrainer.rollback.remote(), timeout=patience_s(30))

    recorded = open_registry(settings).candidate("v1")
    assert not recorded["params"]["warm_start"]
    assert replay_training(recorded["recipe"], ()) == row["weights_sha256"]

    # One day more, so that the ranges differ; whatever the gate says of the second, it is recorded with its reason.
    write_history(settings, days=9)
    status = _run(retrainer, "second")
    assert status["last_run"]["result"] in ("promoted", "refused")
    rows = _networks(retrainer)
    assert [row["version"] for row in rows] == ["v2", "v1"]
    assert rows[0]["trained_on"]["to_ms"] > rows[1]["trained_on"]["to_ms"]
    assert rows[0]["weights_sha256"] != rows[1]["weights_sha256"]
    assert rows[0]["reason"]
    if status["last_run"]["result"] == "refused":
        ray.get(retrainer.promote.remote("v2"), timeout=patience_s(30))
    assert _pointer()["version"] == "v2"
    assert ray.get(retrainer.rollback.remote(), timeout=patience_s(30)) == {"version": "v1", "before": "v2"}
    assert _pointer()["version"] == "v1"

    def shown() -> tuple[list[str], dict[str, str]]:
        events, models = ray.get(ray.get_actor(live_state_actor()).seen.remote())
        told = [event["kind"] for event in events if event["kind"] in ("swap", "error") and "trees" not in str(event)]
        return told, {model["version"]: model["stage"] for model in models if model["expert"] == "network"}

    until(lambda: shown() == (["swap"] * 3, {"v1": "champion", "v2": "previous"}), "the live state shows it", 10)


@pytest.mark.thorough
def test_a_recorded_training_gives_the_same_weights_again(retrainer: Any, settings: Settings) -> None:
    """From the recipe in MLflow, also where the champion of then lent its weights."""
    candidate = open_registry(settings).candidate("v2")
    assert candidate["params"]["warm_start"]
    assert replay_training(candidate["recipe"], ()) == candidate["weights_sha256"]


def test_a_training_is_not_run_again_on_other_rows(retrainer: Any, settings: Settings) -> None:
    """Rows that came late into the range, or a GPU, are named instead of other weights."""
    recipe = open_registry(settings).candidate("v2")["recipe"]
    zone, count = next(iter(recipe["rows"].items()))
    with pytest.raises(TrainingError, match=rf"has changed since the training: \d+ rows then, \d+ now \({zone}\)"):
        replay_training(recipe | {"rows": recipe["rows"] | {zone: count - 1}}, ())
    with pytest.raises(TrainingError, match="on a GPU"):
        replay_training(recipe | {"not_replayable": "it was trained on a GPU"}, ())


def _trees(settings: Settings) -> Pointed:
    return Pointer(settings.storage_folder, "trees").read()


def test_trees_are_trained_without_being_asked_for(retrainer: Any, settings: Settings) -> None:
    """Eight days of history are enough for trees: the job trains them, the gate judges, the pointer names them."""
    served = until(lambda: _trees(settings) if _trees(settings).folder else None, "trees are promoted", 280)
    assert served.version == "trees-v1"
    model = artefact.load(Path(served.folder), forecast_spec(settings).hash)
    model.verify_golden()
    assert model.kind == "trees"
    (row,) = [row for row in ray.get(retrainer.models.remote(), timeout=patience_s(30)) if row["expert"] == "trees"]
    assert (row["version"], row["stage"]) == ("trees-v1", "champion")
    assert row["trained_on"]["zones"] == 2

    def told() -> list[dict[str, Any]]:
        events, models = ray.get(ray.get_actor(live_state_actor()).seen.remote())
        assert {model["expert"] for model in models} <= {"network", "trees"}
        return [event for event in events if event["kind"] == "swap" and event["version"] == "trees-v1"]

    assert until(told, "the live state is told", 60)[0]["before"] == "online"


def test_trees_are_taken_back_and_promoted_by_an_operator(retrainer: Any, settings: Settings) -> None:
    """The actor's orders reach the expert that they name, and no other one."""
    until(lambda: _trees(settings).folder, "trees are promoted", 280)
    before = _pointer()
    out = ray.get(retrainer.promote.remote("online", "trees"), timeout=patience_s(30))
    assert out == {"version": "online", "before": "trees-v1"}
    assert _trees(settings).version == "online"
    assert ray.get(retrainer.rollback.remote("trees"), timeout=patience_s(30)) == {
        "version": "trees-v1", "before": "online",
    }  # fmt: skip
    assert _trees(settings).version == "trees-v1"
    assert _pointer() == before
    with pytest.raises(PromotionRefusedError, match="'oracle' has no models; network and trees and tuned have"):
        ray.get(retrainer.rollback.remote("oracle"), timeout=patience_s(30))


@pytest.mark.thorough
def test_trees_are_replayed_byte_for_byte(retrainer: Any, settings: Settings) -> None:
    """Their recorded recipe, run again as a Ray task of its own, gives the registered bytes."""
    until(lambda: _trees(settings).folder, "trees are promoted", 280)
    candidate = open_registry(settings, TREES).candidate("trees-v1")
    files = tuple(History(settings.storage_folder, (), settings.stream.step_s).files())
    assert replay_training(candidate["recipe"], files) == candidate["weights_sha256"]


def test_torn_artefact_is_refused_and_the_champion_stays(retrainer: Any) -> None:
    """Promoting a model whose weights were cut short is refused with the reason; the model pointer does not move."""
    rows = {row["version"]: row for row in ray.get(retrainer.models.remote(), timeout=patience_s(30))}
    weights = Path(rows["v2"]["folder"], "weights.safetensors")
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    try:
        with pytest.raises(PromotionRefusedError, match="v2 cannot serve"):
            ray.get(retrainer.promote.remote("v2"), timeout=patience_s(30))
    finally:
        weights.write_bytes(whole)
    assert _pointer()["version"] == "v1"


@pytest.mark.thorough
def test_torn_history_is_a_reported_failure(retrainer: Any, settings: Settings) -> None:
    """A history file that is not Parquet fails the training with its name; nothing is swapped, the actor lives."""
    file = next((settings.storage_folder / "history" / "zone_rows").rglob("2022-03-04-*.parquet"))
    whole = file.read_bytes()
    file.write_bytes(b"torn")
    try:
        status = _run(retrainer, "over a torn file")
    finally:
        file.write_bytes(whole)
    assert status["last_run"]["result"] == "failed"
    assert "cannot be read" in status["last_error"]
    assert _pointer()["version"] == "v1"
    assert len(_networks(retrainer)) == 2


def test_killed_retrainer_comes_back_with_its_models(retrainer: Any) -> None:
    """After a kill the actor is restarted, knows its models and champion from MLflow, and swaps nothing."""
    generation = _pointer()["generation"]
    ray.kill(retrainer, no_restart=False)

    def back() -> bool:
        try:
            status = _status(ray.get_actor(RETRAINER_ACTOR))
        except ray.exceptions.RayError:
            return False
        return status["serving"] == "v1" and status["retrains"] == 0  # the one that is being killed has counted some

    until(back, "the retrainer is back", 60)
    assert len(_networks(retrainer)) == 2
    assert _pointer()["generation"] == generation
