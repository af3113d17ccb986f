"""A network that is fine-tuned, by the loop, registry and pointer that all models have.

Everything is real but Ray, and what trains.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from services.config import Settings
from services.errors import TrainingError
from services.learn.experts import TUNED
from services.learn.loop.cluster import RayCluster
from services.learn.loop.retrainer import Retrainer
from services.learn.promotion.registry import Registry
from services.learn.records import Candidate, TrainingRequest
from services.learn.training.fine_tuning.tuned_challenger import learn_tuned
from services.messages import ONLINE_VERSION, ModelRow
from services.store.pointer import Pointer
from tests.services.learn.fakes import Clock
from tests.services.learn.synthetic import small_settings, write_history
from tests.services.learn.tuning_examples import saying, write_examples
from tests.services.tuned import save_tuned

ZONES = ("z1", "z2", "z3")


class Here(RayCluster):
    """A cluster in this process; ``bias`` is what the next training comes to."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, TUNED)
        self.bias, self.events = 0.6, list[dict[str, Any]]()

    def _shards(self) -> list[Any]:
        return [{"behind": False, "events": [], "zone_rows": 100}]

    def flush(self) -> dict[str, int]:
        return {"0": 17}

    def train(self, order: TrainingRequest, cancelled: threading.Event) -> Candidate:
        return learn_tuned(self._job(order), saying(self.bias))

    def event(self, event: Any) -> None:
        self.events.append(event)

    def show(self, models: list[ModelRow], status: Any) -> None:
        pass


class World:
    """A loop over a history that grows."""

    def __init__(self, folder: Path) -> None:
        self.settings = small_settings(folder, shadow_hours=24, watch_hours=48)
        self.cluster, self.clock, self.days = Here(self.settings), Clock(), 0.0
        registry = Registry(
            f"sqlite:///{folder / 'mlflow.sqlite'}", self.settings.storage_folder, self.cluster._spec.hash, TUNED
        )
        self.retrainer = Retrainer(self.cluster.learn, registry, self.cluster, lambda: 5, self.clock)

    def grow(self, days: float, examples: bool = True) -> None:
        """So many days of rows come."""
        self.days += days
        write_history(self.settings, self.days, ZONES, after_days=self.days - days)
        if examples:
            write_examples(self.settings, ZONES)

    def turn(self) -> dict[str, str]:
        """Time passes, and the loop looks at everything; the versions and their stages."""
        for _ in range(3):
            self.clock.now_s += 200
            self.retrainer.watch()
            self.retrainer.prove()
            self.retrainer._learning_status.show()
            self.retrainer.retrain_if_due()
        return {row["version"]: row["stage"] for row in self.retrainer.models()}

    @property
    def followed(self) -> str:
        """What the pointer names."""
        return Pointer(self.settings.storage_folder, "tuned").read().version


@pytest.fixture
def world(tmp_path: Path, empty_mlflow: bytes) -> World:
    """Without rows."""
    (tmp_path / "mlflow.sqlite").write_bytes(empty_mlflow)
    return World(tmp_path)


def test_from_the_first_to_one_that_is_refused_and_back(world: World) -> None:
    """It begins when there are examples enough, not rows; comes again every three days of rows; one that is worse is
    recorded with its reason; an operator goes back and forth. No shadow holds it up.
    """
    world.grow(5, examples=False)
    assert world.turn() == {}
    assert world.retrainer.status()["next_training"] == "once there are 2 days of recorded forecasts"
    world.grow(1)
    assert world.turn() == {"tuned-v1": "champion"}
    assert world.followed == "tuned-v1"
    world.grow(2)
    assert world.turn() == {"tuned-v1": "champion"}
    world.cluster.bias = -2.0
    world.grow(1.1)
    assert world.turn() == {"tuned-v2": "refused", "tuned-v1": "champion"}
    assert "of the untuned forecast" in world.retrainer.models()[0]["reason"]
    assert world.followed == "tuned-v1"
    world.cluster.bias = 0.7
    world.grow(3.1)
    assert world.turn() == {"tuned-v3": "champion", "tuned-v2": "refused", "tuned-v1": "previous"}
    assert world.followed == "tuned-v3"
    assert world.retrainer.rollback() == {"version": "tuned-v1", "before": "tuned-v3"}
    assert world.followed == "tuned-v1"
    world.retrainer.promote(ONLINE_VERSION)
    assert world.followed == ONLINE_VERSION
    assert {event["kind"] for event in world.cluster.events} == {"retrain", "swap", "refused"}


def test_one_that_was_made_elsewhere_is_not_taken(world: World, tmp_path: Path) -> None:
    """Its examples were of other sites."""
    world.grow(2)
    folder = save_tuned(tmp_path / "made", world.cluster._spec, 0.5)
    with pytest.raises(TrainingError, match="not taken from elsewhere"):
        world.retrainer.submit(str(folder))
    assert world.followed == ONLINE_VERSION
