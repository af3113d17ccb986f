"""Step 13 of the way of a reading: training, in plain PyTorch.

Read it from the top: a :class:`WindowSet` holds rows of many zones on a regular grid and cuts windows from them;
:func:`split` holds the newest back; :func:`fit` trains a network on the rest; :func:`evaluate` measures any
forecaster on the rows held back, beside the baselines on the same rows. Equal seeds give equal weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, distributed, nn

from models.durations import DAY_MS
from models.evaluation.forecast_errors import Errors, evaluate
from models.families import TooLittleError
from models.features.inputs import Inputs
from models.features.windows import Split, WindowSet, split
from models.network.progress import Epoch, TrainingProgress
from models.network.quantile import QuantileNetwork
from models.network.residual_network import ResidualNetwork, to_tensors
from models.spec import QUANTILES, ForecastSpec

__all__ = [
    "Epoch",
    "Errors",
    "FitResult",
    "Split",
    "TrainingConfig",
    "TrainingProgress",
    "WindowSet",
    "evaluate",
    "fit",
    "quantile_network",
    "split",
]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingConfig:
    """Everything besides its data that a training depends on."""

    epochs: int = 6
    max_windows: int = 20_000
    batch_size: int = 256
    learning_rate: float = 4e-3
    weight_decay: float = 0.05
    trust_days: float = 20.0
    """With this many days of history half of the learned correction is used: days, not rows, are what differ."""
    seed: int = 7
    hidden: int = 64
    mixes: int = 6
    dropout: float = 0.2
    silence: float = 0.3


@dataclass(frozen=True, slots=True)
class FitResult:
    """The network's state, NumPy arrays by name, and how it got there; ``resumed``: by way of a checkpoint,
    or by fewer workers than were planned.

    ``cost_s``: wall and CPU seconds of each epoch of this process, if the caller has a clock.
    """

    state: dict[str, npt.NDArray[Any]]
    history: list[Epoch] = field(default_factory=list)
    resumed: bool = False
    cost_s: list[tuple[float, float]] = field(default_factory=list)


def quantile_network(spec: ForecastSpec, config: TrainingConfig) -> QuantileNetwork:
    """A new network of the configured sizes."""
    return QuantileNetwork(spec, config.hidden, config.mixes, config.dropout, config.silence)


def fit(
    windows: WindowSet,
    origins: I64,
    config: TrainingConfig,
    *,
    cut_ms: int | None = None,
    initial_state: Mapping[str, npt.NDArray[Any]] | None = None,
    progress: TrainingProgress | None = None,
    on_epoch: Callable[[TrainingProgress], None] | None = None,
    make: Callable[[ForecastSpec, TrainingConfig], ResidualNetwork] = quantile_network,
    wrap: Callable[[nn.Module], nn.Module] = lambda network: network,
    device: torch.device | str = "cpu",
    steps_per_epoch: int | None = None,
) -> FitResult:
    """Train on ``origins`` (of :func:`split`), knowing nothing after ``cut_ms``, and return the last epoch's state.

    ``initial_state`` continues an earlier network; ``progress``, which ``on_epoch`` was given, this very training.
    ``make`` gives the network its form. For several workers: ``wrap`` makes the network distributed, and
    ``steps_per_epoch`` must then be the same number everywhere. There is no early stopping: the days of a short history
    resemble each other too much for a tail of them to judge; shrinking by ``trust_days`` does better. Raises
    :class:`TooLittleError` without origins.
    """
    if not len(origins):
        raise TooLittleError("there is no origin to train on: the history is too short")
    rng = np.random.default_rng(config.seed)
    days = len(np.unique(windows.times(origins) // DAY_MS))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = make(windows.spec, config)
        drawn = None if progress else _draw(windows, origins, config, cut_ms, rng)
        if progress is not None:
            network.load_arrays(progress.state)
        elif initial_state is not None:
            network.load_arrays(initial_state)
        elif drawn is not None:
            network.set_scaling(*drawn)
        network.trust.fill_(1.0)
        network.to(device)
        module = wrap(network)
        steps = steps_per_epoch or -(-min(len(origins), config.max_windows) // config.batch_size)
        history = list(progress.history) if progress else []
        optimiser = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
        schedule = _schedule(optimiser, config, steps, len(history))
        if progress is not None:
            progress.restore(network, optimiser, rng)
        descent = _Descent(network, module, optimiser, schedule, device)
        for number in range(len(history) + 1, config.epochs + 1):
            if drawn is None or (number > 1 and len(origins) > config.max_windows):
                drawn = _draw(windows, origins, config, cut_ms, rng)
            order = np.resize(rng.permutation(len(drawn[0])), (steps, config.batch_size))
            history.append(Epoch(number, descent.epoch(*drawn, order)))
            if on_epoch is not None:
                on_epoch(TrainingProgress.of(_shrunken(network, days, config), history, network, optimiser, rng))
    return FitResult(_shrunken(network, days, config), history, resumed=progress is not None)


@dataclass(frozen=True, slots=True)
class _Descent:
    """How weights go down the loss; ``module`` is the ``network``, or what makes it distributed."""

    network: ResidualNetwork
    module: nn.Module
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    device: torch.device | str

    def epoch(self, inputs: Inputs, truth: F32, order: I64) -> float:
        """A step a batch of ``order [steps, batch_size]``; the mean loss, of all workers."""
        low_precision = torch.device(self.device).type == "cuda" and torch.cuda.is_bf16_supported()
        self.module.train()
        total = torch.zeros((), device=self.device)
        for batch in order:
            arguments = to_tensors(inputs.take(batch), self.device)
            goal = torch.from_numpy(truth[batch]).to(self.device)
            with torch.autocast("cuda", torch.bfloat16, enabled=low_precision):
                forecast = self.module(*arguments)
            loss = pinball(forecast.float(), goal, self.network.residual)
            self.optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimiser.step()
            self.schedule.step()
            total += loss.detach()
        return float(_mean_of_workers(total)) / len(order)


def _schedule(
    optimiser: torch.optim.Optimizer, config: TrainingConfig, steps: int, epochs_done: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """One cycle over all epochs, at the end of those that are done; a rate depends on the step alone."""
    total = max(config.epochs * steps, 2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, config.learning_rate, total_steps=total)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the steps were taken, by another optimiser
        for _ in range(min(epochs_done * steps, total - 1)):
            schedule.step()
    return schedule


def _draw(
    windows: WindowSet, origins: I64, config: TrainingConfig, cut_ms: int | None, rng: np.random.Generator
) -> tuple[Inputs, F32]:
    """An epoch's windows: all, or as many as the configuration allows."""
    if len(origins) > config.max_windows:
        origins = np.sort(rng.choice(origins, config.max_windows, replace=False))
    return windows.inputs(origins), windows.truth(origins, cut_ms)


def _shrunken(network: ResidualNetwork, days: int, config: TrainingConfig) -> dict[str, npt.NDArray[Any]]:
    trust = np.array(days / (days + config.trust_days), dtype=np.float32)
    return {**network.arrays(), "trust": trust}


def pinball(forecast: Tensor, truth: Tensor, scale: Tensor) -> Tensor:
    """Mean quantile loss of ``[N, H, M, Q]`` against ``[N, H, M]`` in units of ``scale [H, M]``; NaN is left out.

    In a process group every worker calls it; the mean of what they get is the loss over the examples of all.
    """
    known = torch.isfinite(truth) & torch.isfinite(forecast).all(-1)
    error = torch.where(known, truth, 0)[..., None] - torch.where(known[..., None], forecast, 0)
    levels = torch.tensor(QUANTILES, device=forecast.device)
    loss = torch.maximum(levels * error, (levels - 1) * error).mean(-1) / scale
    count = _mean_of_workers(known.sum())
    return torch.where(known, loss, 0).sum() / torch.where(count > 0, count, 1)


def _mean_of_workers(number: Tensor) -> Tensor:
    """The mean over all workers of a process group, each of which calls this; without a group the number itself."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return number
    total = number.clone()
    distributed.all_reduce(total)
    return total / distributed.get_world_size()
