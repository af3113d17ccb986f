"""A registry without models, quickly made, and a slow loop on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.config import LearnSettings
from services.learn.loop.retrainer import Retrainer
from services.learn.promotion.registry import Registry
from tests.services.learn.fakes import Clock, FakeCluster, Make
from tests.services.learn.synthetic import SCHEMA


@pytest.fixture(scope="session")
def empty_mlflow(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An empty MLflow file: making one takes seconds, copying it does not."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.sqlite"
    Registry(f"sqlite:///{path}", path.parent, SCHEMA).champion()
    return path.read_bytes()


@pytest.fixture
def registry(empty_mlflow: bytes, tmp_path: Path) -> Registry:
    """A registry of its own for each test."""
    (tmp_path / "mlflow.sqlite").write_bytes(empty_mlflow)
    return Registry(f"sqlite:///{tmp_path / 'mlflow.sqlite'}", tmp_path / "storage", SCHEMA)


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    """A cluster with ten days of history."""
    return FakeCluster(tmp_path / "storage" / "models")


@pytest.fixture
def clock() -> Clock:
    """A fake clock."""
    return Clock()


@pytest.fixture
def make(registry: Registry, cluster: FakeCluster, clock: Clock) -> Make:
    """Makes a retrainer on this registry and cluster; its threads are not started."""

    def build(wall_ms: Callable[[], int] = lambda: 5, **learn: Any) -> Retrainer:
        settings = LearnSettings(**{"retrain_every_s": 100, "cool_down_s": 0, **learn})
        return Retrainer(settings, registry, cluster, wall_ms=wall_ms, monotonic_s=clock)

    return build
