"""Training and forecasting on a GPU, where there is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from models.network.progress import TrainingProgress
from models.network.quantile import QuantileNetwork
from models.network.training import TrainingConfig, fit, split
from tests.models.worlds import SPEC, window_set

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

CONFIG = TrainingConfig(epochs=3, batch_size=64, hidden=16, max_windows=1000)


def test_a_gpu_learns_what_a_cpu_learns() -> None:
    """The same training on both: nearly the same losses, in bfloat16 too, and a state that a CPU can serve."""
    windows = window_set(4)
    origins = split(windows, 0.2).train
    on_cpu, on_gpu = (fit(windows, origins, CONFIG, device=device) for device in ("cpu", "cuda"))
    losses = [[epoch.loss for epoch in result.history] for result in (on_cpu, on_gpu)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    network = QuantileNetwork(SPEC, hidden=16)
    network.load_arrays(on_gpu.state)
    network.eval()
    inputs = windows.inputs(origins[:50])
    forecast = network.predict(inputs)
    assert np.isfinite(forecast).any()
    network.to("cuda")
    assert np.allclose(network.predict(inputs), forecast, rtol=1e-3, atol=1e-3, equal_nan=True)


def test_a_training_that_was_stopped_goes_on(tmp_path: Path) -> None:
    """From a file, moments and all: the losses go on from where they were."""
    windows = window_set(4)
    origins = split(windows, 0.2).train
    kept: list[TrainingProgress] = []
    whole = fit(windows, origins, CONFIG, device="cuda", on_epoch=kept.append)
    kept[0].save(tmp_path)
    rest = fit(windows, origins, CONFIG, device="cuda", progress=TrainingProgress.load(tmp_path))
    assert [epoch.number for epoch in rest.history] == [1, 2, 3]
    assert rest.history[-1].loss == pytest.approx(whole.history[-1].loss, rel=0.05)
