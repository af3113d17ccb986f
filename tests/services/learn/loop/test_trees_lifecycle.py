"""Trees from the first of them to a replay, by the job, gate, registry, shadow and watch that networks have.

Everything is real but Ray: a training runs in this process, and so does what compares.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from models import artefact
from models.online.online_forecaster import OnlineForecaster
from models.trees.family import Trees
from models.trees.forest import Forest
from services.config import Settings
from services.errors import ModelFilesError, PromotionRefusedError
from services.ingest.figures import Failures
from services.ingest.models_in_use.trees_in_use import TreesInUse
from services.learn.experts import TREES
from services.learn.loop.cluster import RayCluster
from services.learn.loop.retrainer import Retrainer
from services.learn.promotion.comparison_actor import ComparisonActor
from services.learn.promotion.comparison_process import ComparisonProcess
from services.learn.promotion.registry import Registry
from services.learn.records import Candidate, TrainingRequest
from services.learn.training.challenger import learn, train_again
from services.learn.training.recipe import job_of
from services.messages import ModelRow
from tests.services.learn.fakes import Clock
from tests.services.learn.synthetic import small_settings, write_history

ZONES = ("z1", "z2", "z3")
FIRST_DAYS = 8.0


class ComparisonHere(ComparisonProcess):
    """Compares in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = ComparisonActor()

    def ask(self, method: str, *arguments: Any) -> Any:
        return getattr(self.actor, method)(*arguments)


class Here(RayCluster):
    """A cluster in this process: shards that have read everything, and no live state but two lists."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, TREES)
        self._comparison = ComparisonHere()
        self.events: list[dict[str, Any]] = []
        self.orders: list[TrainingRequest] = []

    def _shards(self) -> list[dict[str, Any]]:
        return [{"behind": False, "events": [], "zone_rows": 100, "zones": list(ZONES)}]

    def flush(self) -> dict[str, int]:
        return {"0": 17}

    def train(self, order: TrainingRequest, cancelled: threading.Event) -> Candidate:
        self.orders.append(order)
        return cast(Candidate, learn(self._job(order)))

    def event(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def show(self, models: list[ModelRow], status: dict[str, Any]) -> None:
        pass


@dataclass
class OnePartition:
    """What a shard's partition is to its trees."""

    forecaster: OnlineForecaster

    def use_trees(self, forest: Forest) -> None:
        self.forecaster.forest = forest


class World:
    """A slow loop for trees over a history that grows, and a shard's forecaster that follows it."""

    def __init__(self, folder: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.nice", lambda by: by)  # what compares would lower this process for good
        self.settings = small_settings(folder, shadow_hours=6, watch_hours=12, gate_budget=0.4)
        self.cluster, self.clock, self.days = Here(self.settings), Clock(), 0.0
        self.registry = registry
        self.grow(FIRST_DAYS)
        self.retrainer = self.start()
        self.partition = OnePartition(OnlineForecaster(self.cluster._spec))
        self.trees = TreesInUse(self.settings.storage_folder, self.cluster._spec, Failures(), self.clock)

    def start(self) -> Retrainer:
        """A retrainer, as after a start of its process."""
        return Retrainer(self.cluster.learn, self.registry, self.cluster, lambda: 5, self.clock)

    def grow(self, days: float) -> None:
        """So many days of rows come."""
        self.days += days
        write_history(self.settings, self.days, ZONES, after_days=self.days - days)

    def turn(self) -> None:
        """Time passes, and the loop looks at everything once; twice, because a history must be settled."""
        for _ in range(2):
            self.clock.now_s += 200
            self.retrainer.watch()
            self.retrainer.prove()
            self.retrainer._learning_status.show()
            self.retrainer.retrain_if_due()

    def used(self) -> str:
        """What a shard uses now."""
        self.clock.now_s += 1
        self.trees.look([self.partition], lambda: None)
        return self.trees.version

    def stages(self) -> dict[str, str]:
        return {row["version"]: row["stage"] for row in self.retrainer.models()}

    def row(self, version: str) -> ModelRow:
        return next(row for row in self.retrainer.models() if row["version"] == version)

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.cluster.events]


@pytest.fixture
def world(tmp_path: Path, empty_mlflow: bytes, monkeypatch: pytest.MonkeyPatch) -> World:
    """Eight days of rows, and no model."""
    (tmp_path / "mlflow.sqlite").write_bytes(empty_mlflow)
    settings = small_settings(tmp_path)
    spec_hash = Here(settings)._spec.hash
    registry = Registry(f"sqlite:///{tmp_path / 'mlflow.sqlite'}", settings.storage_folder, spec_hash, TREES)
    return World(tmp_path, registry, monkeypatch)


def spoiled(world: World, version: str, folder: Path) -> Path:
    """Trees that say the opposite, and five times as much."""
    found = artefact.load(world.registry.folder(version))
    assert isinstance(found.model, Trees)
    arrays = found.model.arrays()
    arrays |= {name: -5 * arrays[name] for name in ("value", "start")}
    forest = Forest(len(found.spec.horizons_min), len(found.spec.targets), arrays)
    model = replace(found.model, forest=forest)
    artefact.save(folder, model, found.golden[0], trained_on={"to_ms": 1}, seed=7, metrics={}, kind="trees")
    return folder


def test_submitted_trees_do_not_end_the_training_of_others(world: World) -> None:
    """They know no row of this history: all of it is new, as it is without a model."""
    newest_ms = world.cluster.newest_ms()
    assert [round(world.cluster.news(since_ms).days) for since_ms in (newest_ms - 86_400_000, 0)] == [1, FIRST_DAYS]


def test_a_training_is_told_what_its_champion_was_trained_on(world: World) -> None:
    """As the registry has it: the manifest of one that was submitted knows nothing of the rows here."""
    order = TrainingRequest(
        champion="trees-v1", champion_folder="", log_offsets={}, started_ms=1, level=0.1, champion_to_ms=7
    )
    job = world.cluster._job(order)
    assert (job.champion, job.champion_to_ms) == ("trees-v1", 7)


@pytest.mark.thorough
def test_the_life_of_trees(world: World, tmp_path: Path) -> None:
    """Trained when there is history enough, judged, promoted, used; trained again by the days of the stream, in shadow,
    promoted; a worse one is taken back by itself, an operator goes back and forth, and a replay gives the same bytes.
    """
    assert world.used() == "online"
    world.turn()
    assert world.stages() == {"trees-v1": "champion"}
    first = world.row("trees-v1")
    assert (first["expert"], first["kind"], first["passed"]) == ("trees", "trees", True)
    assert "of the climatology" in first["reason"]
    assert "Judged by a twin that was fitted without the held-back rows." in first["reason"]
    assert first["trained_on"]["to_ms"] == first["trained_on"]["known_to_ms"], "all rows are in what serves"
    assert world.used() == "trees-v1"
    assert world.retrainer.status()["last_run"]["kind"] == "first"

    world.turn()
    assert len(world.cluster.orders) == 1, "no new rows, no training"
    world.grow(4.9)
    world.turn()
    assert len(world.cluster.orders) == 1
    world.grow(0.1)
    world.turn()
    assert world.retrainer.status()["last_run"]["reason"] == "5.0 days of new rows"
    assert world.stages() == {"trees-v2": "shadow", "trees-v1": "champion"}
    assert world.row("trees-v2")["judged_against"] == ""
    assert world.used() == "trees-v1"

    world.grow(0.5)
    world.retrainer = world.start()  # a shadow outlives its retrainer
    world.turn()
    assert world.stages() == {"trees-v2": "champion", "trees-v1": "previous"}
    assert world.row("trees-v2")["reason"].startswith("In shadow: The challenger's error is ")
    assert world.used() == "trees-v2"

    bad = spoiled(world, "trees-v2", tmp_path / "spoiled")
    assert world.retrainer.submit(str(bad)) == {"accepted": True, "version": "trees-v3", "against": "trees-v2"}
    world.retrainer.promote("trees-v3")
    assert world.used() == "trees-v3"
    for days in (0.1, 1.0):  # the watch begins with the next row
        world.grow(days)
        world.turn()
    assert world.stages()["trees-v3"] == "withdrawn"
    assert world.row("trees-v3")["reason"].startswith("Worse than trees-v2 on live rows.")
    assert world.used() == "trees-v2"
    assert world.kinds().count("rollback") == 1

    with pytest.raises(PromotionRefusedError, match="trees-v3 served before, and was taken back"):
        world.retrainer.rollback()
    world.retrainer.promote("trees-v1")
    assert world.used() == "trees-v1"
    assert world.retrainer.rollback() == {"version": "trees-v2", "before": "trees-v1"}
    assert world.used() == "trees-v2"
    world.retrainer.promote("online")
    assert (world.used(), len(world.partition.forecaster.forest)) == ("online", 0)

    for version in ("trees-v1", "trees-v2"):
        candidate = world.registry.candidate(version)
        recipe = candidate["recipe"]
        assert train_again(job_of(recipe), recipe["rows"], recipe["started_from"]) == candidate["weights_sha256"]


@pytest.mark.thorough
def test_trees_that_learned_nothing_are_refused(world: World) -> None:
    """A challenger that is no better than the climatology and persistence does not serve, and says why."""
    rng = np.random.default_rng(0)
    fit = Trees.answer

    def noise(self: Trees, inputs: Any) -> Any:
        return fit(self, inputs) + rng.normal(0, 5, inputs.base.shape)[..., None].astype(np.float32)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trees, "answer", noise)
        patch.setattr(artefact.Artefact, "verify_golden", lambda *_: None)
        world.turn()
    assert world.stages() == {"trees-v1": "refused"}
    assert "does not beat" in world.row("trees-v1")["reason"]
    assert world.used() == "online"
    assert world.kinds()[-1] == "refused"


@pytest.mark.thorough
def test_torn_trees_are_not_promoted(world: World) -> None:
    """Files that are not what was registered cannot serve; what serves stays."""
    world.turn()
    world.retrainer.promote("online")
    weights = world.registry.folder("trees-v1") / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(PromotionRefusedError, match="trees-v1 cannot serve"):
        world.retrainer.promote("trees-v1")
    assert world.used() == "online"


def test_a_version_of_another_expert_is_none(world: World) -> None:
    """``v1`` is a network's: the trees know of no such version, and take no network that is submitted."""
    with pytest.raises(PromotionRefusedError, match="'v1' is not a model version"):
        world.retrainer.promote("v1")
    with pytest.raises(ModelFilesError, match="cannot be read"):
        world.retrainer.submit(str(_copy_of_nothing(world.settings.storage_folder / "elsewhere")))


def _copy_of_nothing(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    return folder


def test_too_little_history_is_a_failed_training(world: World, tmp_path: Path, empty_mlflow: bytes) -> None:
    """Where an operator asks for trees too early, the reason is recorded and nothing is registered."""
    world.settings.storage_folder.rename(tmp_path / "away")
    world.days = 0.0
    world.grow(2.0)
    world.retrainer.trigger("operator")
    world.turn()
    assert world.stages() == {}
    assert "the history is too short to grow trees on" in world.retrainer.status()["last_error"]


def test_trees_of_zones_that_joined_late_wait(world: World, tmp_path: Path, empty_mlflow: bytes) -> None:
    """All zones are there by the time that few zones need, but most of them for hours only: there is no fault."""
    world.settings.storage_folder.rename(tmp_path / "away")
    write_history(world.settings, 6.3, ZONES[:1])
    world.days = 6.3
    world.grow(0.1)
    for _ in range(2):
        world.retrainer.retrain_if_due()
        world.clock.now_s += 3
    status = world.retrainer.status()
    assert (status["last_run"]["result"], status["failed"], status["last_error"]) == ("too early", 0, "")
    assert "too few rows to learn from so far: none begins by itself within" in status["next_training"]
