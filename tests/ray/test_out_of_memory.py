"""What Ray does with a training that memory runs out for."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from services.config import load_settings
from services.errors import TrainingError
from services.learn.training.task import RETRIES, result_of
from services.runtime.ray_runtime import RayRuntime
from tests.patience import patience_s

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


def test_a_training_without_memory_is_told_and_not_run_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that is short of memory, as Ray is made to take this one for, it would be ended again and again."""
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.001")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    begun = tmp_path / "begun"
    with RayRuntime(load_settings(data_dir=tmp_path / "data", ray={"num_cpus": 2, "object_store_mb": 100})):
        import ray

        def train() -> None:
            with begun.open("a") as file:
                file.write(".")
            threading.Event().wait()

        running = ray.remote(num_cpus=0, max_calls=1, max_retries=RETRIES)(train).remote()
        with pytest.raises(TrainingError, match="the training was ended because memory ran out") as told:
            result_of(running, patience_s(60), threading.Event(), "the training")
    assert "learn.window_days" in told.value.hint
    assert len(begun.read_text()) <= 1 + RETRIES
