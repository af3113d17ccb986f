"""Step 13 of the way of a reading: a pre-trained network is fine-tuned to the houses that it answers in.

Its target is what the whole forecaster leaves over there: the examples have the forecasts that were issued without it,
and what came. Equal examples and an equal configuration give equal bytes on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from models.masked import masked_mean
from models.network.pretrained import PretrainedNetwork
from models.network.residual_network import check_finite
from models.spec import ForecastSpec

__all__ = ["FineTuning", "Tuner", "TuningExamples", "fine_tune"]

F16 = npt.NDArray[np.float16]
F32 = npt.NDArray[np.float32]
Arrays = Mapping[str, npt.NDArray[Any]]

FULL_DAYS = 10
"""With fewer days the steps of a training are smaller in proportion: days, not examples, are what differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FineTuning:
    """Everything besides its examples that a fine-tuning depends on."""

    epochs: int = 10
    batch_size: int = 256
    learning_rate: float = 2e-3
    silence: float = 0.5
    """As in pre-training: few days of a site have few of the ways in which its sensors belong together."""
    noise: float = 0.2
    dropout: float = 0.1
    seed: int = 1

    def of_days(self, days: float) -> FineTuning:
        """For the examples of so many days."""
        return replace(self, learning_rate=self.learning_rate * min(1.0, days / FULL_DAYS))


@dataclass(frozen=True, slots=True)
class TuningExamples:
    """``N`` examples of a site: features of :class:`HouseFeatures`, what was forecast without the network, and what
    came (NaN where it is not known yet).
    """

    origin: F16  # [N, D]
    ahead: F16  # [N, H, E]
    baseline: F32  # [N, H, M, Q]
    truth: F32  # [N, H, M]

    def __len__(self) -> int:
        return len(self.origin)


Tuner = Callable[[Arrays, ForecastSpec, TuningExamples, FineTuning], Arrays]
"""What to go on from, the schema, examples, how -> a network's arrays."""


def fine_tune(start: Arrays, spec: ForecastSpec, examples: TuningExamples, config: FineTuning | None = None) -> Arrays:
    """The arrays of a network that goes on from ``start``; ``start`` itself with fewer examples than a batch has.

    Each target and horizon counts in its usual error, so that none is learned at another's cost.
    """
    config = config or FineTuning()
    known = np.flatnonzero(np.isfinite(examples.truth).any(axis=(1, 2)))
    if len(known) < config.batch_size:
        return start
    rng, threads = np.random.default_rng(config.seed), torch.get_num_threads()
    usual = masked_mean(np.abs(examples.truth[known] - examples.baseline[known][..., 1]), axis=0)
    unit = torch.from_numpy(np.where(np.isfinite(usual) & (usual > 0), usual, 1).astype(np.float32))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        torch.set_num_threads(1)  # sums in another order would give other bytes on another machine
        try:
            network = PretrainedNetwork(spec, *_sizes(start), config.dropout, config.silence, config.noise)
            network.load_arrays(start)
            network.train()
            steps = len(known) // config.batch_size
            optimiser = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=0.0)
            schedule = torch.optim.lr_scheduler.OneCycleLR(
                optimiser, config.learning_rate, total_steps=max(config.epochs * steps, 2)
            )
            for _ in range(config.epochs):
                order = rng.permutation(known)[: steps * config.batch_size]
                for batch in order.reshape(steps, config.batch_size):
                    loss = _loss(network, examples, batch, unit)
                    optimiser.zero_grad(set_to_none=True)
                    torch.autograd.backward(loss)
                    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                    optimiser.step()
                    schedule.step()
        finally:
            torch.set_num_threads(threads)
    tuned = network.arrays()
    try:
        check_finite(tuned)
    except ValueError as error:
        raise ValueError(f"the fine-tuning diverged: {error}") from error
    return tuned


def _loss(
    network: PretrainedNetwork, examples: TuningExamples, batch: npt.NDArray[np.int64], unit: torch.Tensor
) -> torch.Tensor:
    """The median's mean absolute error, in usual ones."""
    origin, ahead, baseline, truth = (
        torch.from_numpy(array[batch]).float()
        for array in (examples.origin, examples.ahead, examples.baseline, examples.truth)
    )
    median = network.corrected(origin, ahead, baseline)[..., 1]
    known = torch.isfinite(truth) & torch.isfinite(median)
    off = (torch.where(known, median, 0) - torch.where(known, truth, 0)).abs() / unit
    return off.sum() / known.sum().clamp(min=1)


def _sizes(arrays: Arrays) -> tuple[int, int]:
    return len(arrays["encode.bias"]), len(arrays["narrow.bias"])
