"""Files of old models go, their records stay, and what somebody may load is never touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner

from services.cli import app
from services.errors import ModelFilesError, PromotionRefusedError, RegistryError
from services.learn.promotion.pruning import GRACE_MS, Pruner
from services.learn.promotion.registry import Registry
from services.messages import ModelRow, Pruned, Shadow
from tests.services.learn.fakes import Clock, FakeCluster, Make
from tests.services.learn.synthetic import SCHEMA, make_candidate


class Kept:
    """A registry in memory: which rows there are, and whose files are still there."""

    def __init__(self, models: int) -> None:
        self.rows = {f"v{number}": self._row(f"v{number}") for number in range(models, 0, -1)}
        self.files = set(self.rows)
        self.away = False

    def _row(self, version: str) -> ModelRow:
        row: Any = dict.fromkeys(ModelRow.__annotations__)
        return cast(ModelRow, row | {"version": version, "aliases": [], "folder": f"/models/{version}"})

    def list(self) -> list[ModelRow]:
        return [deepcopy(row) for row in self.rows.values()]

    def mark_pruned(self, version: str, pruned: Pruned | None) -> None:
        if self.away:
            raise RegistryError("MLflow does not answer")
        self.rows[version]["pruned"] = pruned

    def remove_files(self, version: str) -> None:
        self.files.discard(version)


class Pruning:
    """A pruner that keeps the newest of some models, and a clock."""

    def __init__(self, models: Any, keep: int = 1) -> None:
        self.models, self.now_ms, self.serving = models, 1_000_000, "online"
        self.pruner = Pruner(models, keep, lambda: self.serving, lambda: self.now_ms)

    def turn(self, after_ms: int = GRACE_MS) -> list[str]:
        self.now_ms += after_ms
        return self.pruner.turn()


def registered(registry: Registry, storage: Path, models: int) -> None:
    """Refused models ``v1, v2, ...``, each in a folder of the storage."""
    for number in range(1, models + 1):
        made = make_candidate(storage / "models" / f"v{number}", passed=False)
        assert registry.register(made, created_ms=number) == f"v{number}"


def copies(registry: Registry) -> list[str]:
    """The models whose files MLflow has a copy of."""
    client, rows = MlflowClient(registry._uri), reversed(registry.list())
    runs = {row["version"]: client.get_model_version("hothouse", row["version"][1:]).run_id for row in rows}
    return [version for version, run_id in runs.items() if client.list_artifacts(run_id, "model")]


def test_files_of_old_models_go_and_their_records_stay(registry: Registry, tmp_path: Path) -> None:
    """The newest keeps its own; of the others artefact and copy are removed, figures, lineage and reason remain."""
    storage = tmp_path / "storage"
    registered(registry, storage, 3)
    pruning = Pruning(registry)
    before = {row["version"]: row for row in registry.list()}
    assert pruning.turn() == []
    assert len(list((storage / "models").iterdir())) == 3
    assert pruning.turn() == ["v2", "v1"]
    assert [path.name for path in (storage / "models").iterdir()] == copies(registry) == ["v3"]
    rows = {row["version"]: row for row in registry.list()}
    assert rows["v1"] | {"pruned": None} == before["v1"]
    assert [rows[name]["pruned"] is not None for name in ("v1", "v2", "v3")] == [True, True, False]
    assert registry.candidate("v1")["held_back_mae"] == before["v1"]["held_back_mae"]
    assert pruning.turn() == []


def test_a_pruned_model_cannot_serve_again(registry: Registry, tmp_path: Path) -> None:
    """Promotion and rollback are refused in one sentence, from the moment on that its files are to go."""
    registered(registry, tmp_path / "storage", 2)
    pruning = Pruning(registry)
    pruning.turn()
    for _ in range(2):
        with pytest.raises(
            PromotionRefusedError, match="v1 cannot serve: its files were pruned on 1970-01-01"
        ) as caught:
            registry.promote("v1")
        assert "hothouse retrain" in caught.value.hint
        with pytest.raises(ModelFilesError, match=r"learn\.keep_models"):
            registry.folder("v1")
        pruning.turn()
    MlflowClient(registry._uri).set_registered_model_alias("hothouse", "previous", "1")
    with pytest.raises(PromotionRefusedError, match="v1 cannot serve: its files were pruned"):
        registry.rollback()


def test_models_in_use_keep_their_files() -> None:
    """Champion, previous, any alias, what is in shadow or watched, its rival, and what the model pointer names."""
    models = Kept(9)
    for version, alias in (("v1", "champion"), ("v2", "previous"), ("v3", "ours")):
        models.rows[version]["aliases"] = [alias]
    models.rows["v1"]["watch"] = Shadow(against="v4", from_ms=0, until_ms=1)
    models.rows["v6"]["shadow"] = Shadow(against="v5", from_ms=0, until_ms=1)
    pruning = Pruning(models)
    pruning.serving = "v7"
    pruning.turn()
    assert pruning.turn() == ["v8"]
    assert models.files == {"v1", "v2", "v3", "v4", "v5", "v6", "v7", "v9"}


def test_what_was_watched_once_is_not_in_use_for_ever() -> None:
    """A champion whose place another took is not watched any more, nor is its rival needed."""
    models = Kept(4)
    models.rows["v3"] |= {"watch": Shadow(against="v2", from_ms=0, until_ms=1), "aliases": ["champion"]}
    pruning = Pruning(models)
    pruning.turn()
    pruning.turn()
    assert models.files == {"v4", "v3", "v2"}
    models.rows["v3"] |= {"watch": None, "aliases": []}
    models.rows["v4"] |= {"aliases": ["champion"]}
    pruning.turn()
    pruning.turn()
    assert models.files == {"v4"}


def test_all_files_are_kept_where_that_is_wanted() -> None:
    """0 keeps every model's."""
    models = Kept(50)
    pruning = Pruning(models, keep=0)
    assert [pruning.turn(), pruning.turn()] == [[], []]
    assert len(models.files) == 50


def test_a_model_that_is_used_again_in_time_is_spared() -> None:
    """Aliases are read again right before files go: one that was moved in MLflow's page meanwhile counts."""
    models = Kept(3)
    pruning = Pruning(models)
    pruning.turn()
    models.rows["v1"]["aliases"] = ["champion"]
    assert pruning.turn() == ["v2"]
    assert (models.files, models.rows["v1"]["pruned"]) == ({"v1", "v3"}, None)


def test_within_the_time_of_grace_nothing_goes() -> None:
    """A replica may still be loading what was champion a moment ago."""
    models = Kept(2)
    pruning = Pruning(models)
    pruning.turn()
    assert pruning.turn(GRACE_MS - 1) == []
    assert models.files == {"v1", "v2"}
    assert pruning.turn(1) == ["v1"]


def test_a_clock_that_was_ahead_keeps_no_files() -> None:
    """As of a machine that learns the time after its start: what was marked meanwhile does not wait for that day."""
    models = Kept(2)
    pruning = Pruning(models)
    pruning.turn(365 * 86_400_000)
    assert models.files == {"v1", "v2"}
    assert pruning.turn(-365 * 86_400_000) == ["v1"]


def test_what_was_cut_short_is_finished() -> None:
    """Where MLflow goes away once files are gone, the next turn records it."""
    models = Kept(2)
    pruning = Pruning(models)
    pruning.turn()
    models.away = True
    with pytest.raises(RegistryError):
        pruning.turn()
    assert models.files == {"v2"}
    models.away = False
    assert [pruning.turn(), pruning.turn()] == [["v1"], []]


def test_a_folder_elsewhere_is_left_alone(registry: Registry, tmp_path: Path) -> None:
    """A tag may name any folder; only those among the storage's models are ours to remove, and all of none."""
    elsewhere = tmp_path / "precious"
    registry.register(make_candidate(elsewhere, passed=False), created_ms=9)
    for _ in range(2):
        registry.remove_files("v1")
    assert (elsewhere / "weights.safetensors").exists()


def test_the_retrainer_prunes_and_goes_on_without_its_pointer(make: Make, cluster: FakeCluster, clock: Clock) -> None:
    """Between trainings old files go; a model pointer that does not answer stops that, says why, and stops nothing
    else.
    """
    now_ms, away, whole = [1_000_000], [True], cluster.serving
    cluster.serving = lambda: _no_pointer() if away[0] and len(cluster.orders) == 3 else whole()  # type: ignore[method-assign]
    retrainer = make(wall_ms=lambda: now_ms[0], keep_models=1, retrain_every_s=1000)
    cluster.results = [True, False, False]

    def turn() -> None:
        clock.now_s += 100
        now_ms[0] += GRACE_MS
        retrainer.retrain_if_due()

    for _ in range(3):
        clock.now_s += 1000
        retrainer.retrain_if_due()
        retrainer.watch()
    turn()
    assert "could not be removed: ConnectionError: the model pointer is away" in retrainer.status()["last_error"]
    away[0] = False
    turn()
    turn()
    assert sorted(path.name for path in cluster.folder.iterdir()) == ["run1", "run3"]
    assert retrainer.status()["last_error"] == ""


def _no_pointer() -> str:
    raise ConnectionError("the model pointer is away")


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The recipes that `hothouse replay-training` ran; the weights come out as ``v1``'s."""
    ran: list[dict[str, Any]] = []

    @contextmanager
    def no_runtime(*_: Any, **__: Any) -> Iterator[None]:
        yield

    def run_again(recipe: dict[str, Any], files: tuple[str, ...]) -> str:
        ran.append(recipe)
        return "the digest"

    monkeypatch.setattr("services.runtime.ray_runtime.RayRuntime", no_runtime)
    monkeypatch.setattr("services.learn.loop.training_replay.replay_training", run_again)
    monkeypatch.setattr("services.learn.training.recipe.job_of", lambda recipe: _Job(recipe["champion"]))
    return ran


class _Job:
    """As much of a job as the command reads itself."""

    def __init__(self, champion: str) -> None:
        self.champion, self.after_ms, self.to_ms = champion, 0, 1
        self.spec = type("Spec", (), {"channels": (), "step_ms": 300_000})()


def test_a_pruned_model_is_trained_again_from_its_recipe(
    empty_mlflow: bytes, tmp_path: Path, replays: list[dict[str, Any]]
) -> None:
    """Where the recipe is all it takes it works; where it began with weights that are gone, a sentence says so."""
    (tmp_path / "mlflow.sqlite").write_bytes(empty_mlflow)
    registry = Registry(f"sqlite:///{tmp_path / 'mlflow.sqlite'}", tmp_path / "storage", SCHEMA)
    for number, started_from in ((1, ""), (2, "weights of v1")):
        made = make_candidate(tmp_path / "storage" / "models" / str(number), passed=False)
        recipe = {"started_from": started_from, "champion": "v1", "rows": {"demo/z1": 5}}
        registry.register(made | {"recipe": recipe, "weights_sha256": "the digest"}, created_ms=number)  # type: ignore[arg-type]
    registry.register(make_candidate(tmp_path / "storage" / "models" / "3", passed=False), created_ms=3)
    pruner = Pruner(registry, 1, lambda: "online", iter(range(0, 10 * GRACE_MS, GRACE_MS)).__next__)
    pruner.turn()
    assert pruner.turn() == ["v2", "v1"]
    runner = CliRunner()
    first = runner.invoke(app, ["--data-dir", str(tmp_path), "replay-training", "v1"])
    assert (first.exit_code, len(replays)) == (0, 1), first.output
    second = runner.invoke(app, ["--data-dir", str(tmp_path), "replay-training", "v2"])
    words = " ".join(second.output.split())
    assert second.exit_code == 1
    assert "v2 began with the weights of v1, and its files were pruned on 1970-01-01" in words
    assert len(replays) == 1
