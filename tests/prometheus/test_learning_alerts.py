"""Each alert on the learning loop is caused: the real loop on a real registry is harmed, a real Prometheus watches.

No network is trained: what a training and a comparison give comes from a stand-in. Rules are those of
``deploy/prometheus`` but quicker (see ``rule_file.quickened``).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from models.spec import Place
from services.config import LearnSettings
from services.errors import HothouseError, TrainingError
from services.learn.loop.retrainer import Retrainer
from services.learn.promotion.registry import Registry
from services.learn.records import Candidate, TrainingRequest
from services.messages import RETRAINER_ACTOR, ForecasterFigures
from services.serve.components import FORECASTER
from services.serve.models.forecaster import Forecaster
from services.serve.models.model_loading import load_model
from tests.patience import patience_s, until
from tests.prometheus.server import Prometheus
from tests.prometheus.told_figures import ends, fires, watched
from tests.services.learn.fakes import Clock, FakeCluster
from tests.services.learn.synthetic import SCHEMA
from tests.services.serve.fakes import SPEC
from tests.services.serve.models.links import Link

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

HOUR_MS = 3_600_000


class Trainings(FakeCluster):
    """Trainings that hang until they are ``released``."""

    released = threading.Event()

    def train(self, order: TrainingRequest, cancelled: threading.Event) -> Candidate:
        self.released.wait()
        return super().train(order, cancelled)


@dataclass(frozen=True)
class Loop:
    """What runs."""

    retrainer: Retrainer
    cluster: Trainings
    clock: Clock
    mlflow: Path
    prometheus: Prometheus

    def train(self, result: bool | Exception) -> None:
        """A training by the schedule that gives this."""
        self.cluster.results = [result]
        self.clock.now_s += 1000
        self.retrainer.retrain_if_due()


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    """v1 serves."""
    folder = tmp_path_factory.mktemp("learning")
    cluster, clock, mlflow = Trainings(folder / "storage" / "models"), Clock(), folder / "mlflow.sqlite"
    cluster.released.set()
    registry = Registry(f"sqlite:///{mlflow}", folder / "storage", SCHEMA)
    learn = LearnSettings(retrain_every_s=100, cool_down_s=0, shadow_hours=0, watch_hours=4)
    retrainer = Retrainer(learn, registry, cluster, wall_ms=lambda: 5, monotonic_s=clock)
    with watched(folder, RETRAINER_ACTOR, retrainer.status) as prometheus:
        found = Loop(retrainer, cluster, clock, mlflow, prometheus)
        found.train(True)
        assert cluster.pointer == "v1"
        yield found


def test_a_training_that_hangs_and_is_lost_is_told(loop: Loop) -> None:
    """HothouseTrainingLong while it runs; HothouseTrainingFailed and HothouseLearningFailing when its process is lost.
    The next one that works ends them.
    """
    loop.cluster.released.clear()
    lost = TrainingError("the process of the training was lost")
    training = threading.Thread(target=loop.train, args=(lost,), daemon=True)
    training.start()
    fires(loop.prometheus, "HothouseTrainingLong")
    loop.cluster.released.set()
    training.join(patience_s(30))
    fires(loop.prometheus, "HothouseTrainingFailed", "HothouseLearningFailing")
    loop.train(False)
    ends(loop.prometheus, "HothouseTrainingLong", "HothouseTrainingFailed", "HothouseLearningFailing")


def test_a_registry_that_is_damaged_is_told(loop: Loop) -> None:
    """HothouseRegistryAway: MLflow's file is no database any more, until it is brought back."""
    kept = loop.mlflow.read_bytes()
    loop.mlflow.write_bytes(b"no database" * 1000)
    with suppress(HothouseError):
        loop.retrainer.watch()
    fires(loop.prometheus, "HothouseRegistryAway")
    loop.mlflow.write_bytes(kept)
    loop.retrainer.watch()
    ends(loop.prometheus, "HothouseRegistryAway")


def test_a_champion_whose_files_are_damaged_is_told(loop: Loop) -> None:
    """HothouseRollback: the one before it serves again, and nothing more goes back."""
    loop.train(True)
    loop.retrainer.prove()
    folder = loop.cluster.served[-1][1]
    assert loop.cluster.pointer != "v1"
    Path(folder, "weights.safetensors").write_bytes(b"torn")

    def back() -> bool:
        loop.cluster.now_ms += 2 * HOUR_MS
        loop.clock.now_s += 1000
        with suppress(HothouseError):
            loop.retrainer.prove()
        return loop.cluster.pointer == "v1"

    until(back, "v1 serves again")
    fires(loop.prometheus, "HothouseRollback")
    ends(loop.prometheus, "HothouseRollback")


def test_a_champion_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    """HothouseModelNotLoaded: a real replica finds no artefact in the folder; ends when another model is named."""
    link = Link(tmp_path / "storage")
    events = asyncio.new_event_loop()
    thread = threading.Thread(target=events.run_forever, daemon=True)
    thread.start()

    def run(what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, events).result(patience_s(120))

    def figures() -> ForecasterFigures:
        return cast(ForecasterFigures, run(link.pointer.figures()))

    replica = Forecaster(SPEC, lambda _: Place(), load_model, link)
    try:
        run(replica.start())
        with watched(tmp_path, FORECASTER, figures) as prometheus:
            run(link.pointer.set("v1", str(tmp_path / "gone")))
            fires(prometheus, "HothouseModelNotLoaded")
            assert "v1 cannot be loaded" in figures()["last_error"]
            run(link.pointer.set("online", ""))
            ends(prometheus, "HothouseModelNotLoaded")
        run(replica.stop())
    finally:
        events.call_soon_threadsafe(events.stop)
        thread.join(patience_s(30))
