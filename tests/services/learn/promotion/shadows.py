"""For tests of challengers in shadow and champions under watch: time, comparisons that fail, and what MLflow keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from services.errors import TrainingError
from services.learn.loop.retrainer import Retrainer
from services.learn.promotion.live_comparison import PATIENCE
from services.learn.promotion.registry import Registry
from tests.services.learn.fakes import Clock, FakeCluster

HOUR_MS = 3_600_000


def later(cluster: FakeCluster, clock: Clock, hours: float) -> None:
    """Rows of so many hours come, and time passes until a comparison is due."""
    cluster.now_ms += round(hours * HOUR_MS)
    clock.now_s += 1000


def evidence(registry: Registry, version: str, folder: Path) -> dict[str, Any]:
    """What MLflow keeps of a verdict."""
    client = MlflowClient(registry._uri)
    run_id = client.get_model_version("hothouse", version[1:]).run_id
    return dict(json.loads(Path(client.download_artifacts(run_id, "shadow.json", str(folder))).read_bytes()))


def compare_in_vain(retrainer: Retrainer, cluster: FakeCluster, clock: Clock) -> None:
    """Have a comparison fail as often as it is tried."""
    cluster.verdicts = [TrainingError("lost")] * PATIENCE
    for _ in range(PATIENCE - 1):
        with pytest.raises(TrainingError):
            retrainer.prove()
        clock.now_s += 1000
    retrainer.prove()
