"""Step 13 of the way of a reading: pre-training, in plain PyTorch.

Read it from the top: :func:`train` fits a :class:`~models.network.pretrained.PretrainedNetwork` to what the online
layer leaves over, and says how good it is on zones that it was not trained on. Real houses lie at the edge of what
simulated ones show, and there networks that differ only by chance say different things. Their mean is better
(Lakshminarayanan and others 2017). So some larger networks, the teachers, learn from what came, and the one
that is kept learns what they say in the mean (Hinton and others 2015). On a CPU equal examples and an equal
configuration give equal bytes; a graphics card rounds differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from models.network.pretrained import PretrainedNetwork
from models.network.training import pinball
from models.pretraining.fleet_examples import FleetExamples
from models.spec import ForecastSpec

__all__ = ["PretrainingConfig", "Trained", "ratios", "train"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Of features of the origin and ahead, baseline, and truth."""

LEAST_BATCHES = 4
"""A small fleet has smaller batches, so that an epoch has this many steps or more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainingConfig:
    """Everything besides its examples that a pre-training depends on."""

    epochs: int = 8
    batch_size: int = 1024
    learning_rate: float = 5e-3
    weight_decay: float = 0.01
    held_back: float = 0.1
    """The share of zones that is not trained on."""
    seed: int = 1
    hidden: int = 96
    shared: int = 64
    dropout: float = 0.1
    silence: float = 0.5
    noise: float = 0.2
    teacher_noise: tuple[float, ...] = (0.2, 0.3, 0.4, 0.2, 0.3)
    """One larger network is trained first with each of these; without any the network learns from what came."""
    teacher_hidden: int = 256
    teacher_shared: int = 128


@dataclass(frozen=True, slots=True)
class Trained:
    """A network, the loss of each epoch (of one that is taught: how far it is from its teachers), and on the zones held
    back its errors as shares of the online layer's. ``config`` is what was asked, with the batch that was used.
    """

    network: PretrainedNetwork
    config: PretrainingConfig
    losses: list[float]
    alone: F32  # [H, M], of the network alone
    halves: F32  # [H, M], of the mean of both
    silent: F32  # [H, M], of the network alone, without plans
    held_back: int  # examples


def train(
    examples: FleetExamples, spec: ForecastSpec, config: PretrainingConfig, *, device: torch.device | str = "cpu",
    told: Callable[[int, int, float], None] = lambda step, steps, loss: None,
) -> Trained:  # fmt: skip
    """Fit a network; ``told(step, steps, loss)`` is called after each step of the teachers', then of its own training.

    A small fleet has smaller batches. Raises ``ValueError`` where there is next to nothing to train on, and where the
    network or a teacher diverged.
    """
    zones = np.unique(examples.zone)
    away = np.random.default_rng(config.seed).permutation(zones)[: round(len(zones) * config.held_back)]
    held_back = np.isin(examples.zone, away)
    old, new = np.flatnonzero(~held_back), np.flatnonzero(held_back)
    config = replace(config, batch_size=min(config.batch_size, len(old) // LEAST_BATCHES))
    if config.batch_size < 1:
        raise ValueError(f"{len(old)} examples to train on are too few")
    steps = len(old) // config.batch_size
    taught_epochs = 2 * config.epochs if config.teacher_noise else config.epochs
    all_steps = (len(config.teacher_noise) * config.epochs + taught_epochs) * steps
    threads = torch.get_num_threads()

    def built(number: int, hidden: int, shared: int, noise: float) -> PretrainedNetwork:
        torch.manual_seed(config.seed * 1000 + number)
        return PretrainedNetwork(spec, hidden, shared, config.dropout, config.silence, noise).to(device)

    def fitted(number: int, network: PretrainedNetwork, loss_of: _Loss, epochs: int) -> list[float]:
        def advance(step: int, loss: float) -> None:
            told(number * config.epochs * steps + step, all_steps, loss)

        return _fit(network, loss_of, examples, old, config, epochs, number, device, advance)

    with torch.random.fork_rng(devices=[]):
        if torch.device(device).type == "cpu":
            torch.set_num_threads(1)  # sums in another order would give other bytes on another machine
        try:
            teachers = list[PretrainedNetwork]()
            for number, noise in enumerate(config.teacher_noise):
                teacher = built(number, config.teacher_hidden, config.teacher_shared, noise)
                fitted(number, teacher.train(), _of_what_came(teacher), config.epochs)
                _check_finite(teacher, f"teacher {number + 1}")
                teachers.append(teacher.eval())
            network = built(len(teachers), config.hidden, config.shared, config.noise)
            # Taught, it needs no dropout: its targets are means of networks, not single outcomes.
            loss_of = _of_teachers(network.eval(), teachers) if teachers else _of_what_came(network.train())
            losses = fitted(len(teachers), network, loss_of, taught_epochs)
            _check_finite(network, "the network")
            network.eval()
            alone, halves = ratios(network, examples.take(new), device)
            silent, _ = ratios(network, examples.take(new), device, plans=False)
            network.to("cpu")
        finally:
            torch.set_num_threads(threads)
    return Trained(network, config, losses, alone, halves, silent, len(new))


def _check_finite(network: PretrainedNetwork, name: str) -> None:
    if not all(bool(torch.isfinite(weights).all()) for weights in network.parameters()):
        raise ValueError(f"{name} diverged: its weights are not numbers; learn more slowly")


def _of_what_came(network: PretrainedNetwork) -> _Loss:
    """The loss of a network that learns from what came."""

    def loss(origin: Tensor, ahead: Tensor, baseline: Tensor, truth: Tensor) -> Tensor:
        return pinball(network.corrected(origin, ahead, baseline), truth, network.residual)

    return loss


def _of_teachers(network: PretrainedNetwork, teachers: Sequence[PretrainedNetwork]) -> _Loss:
    """The loss of a network that learns what ``teachers`` say in the mean, all of features that are spoilt alike."""

    def loss(origin: Tensor, ahead: Tensor, baseline: Tensor, truth: Tensor) -> Tensor:
        origin, ahead = network.spoilt(origin, ahead)
        with torch.no_grad():
            said = torch.stack([teacher.corrected(origin, ahead, baseline) for teacher in teachers]).mean(0)
        off = (network.corrected(origin, ahead, baseline) - said) / network.residual[..., None]
        return torch.nan_to_num(off).abs().mean()

    return loss


def _fit(
    network: PretrainedNetwork, loss_of: _Loss, examples: FleetExamples, chosen: I64, config: PretrainingConfig,
    epochs: int, number: int, device: torch.device | str, told: Callable[[int, float], None],
) -> list[float]:  # fmt: skip
    """Train one network on the ``chosen`` examples; the loss of each epoch. ``number`` is the network's, so that no two
    see them in the same order.
    """
    rng = np.random.default_rng([config.seed, number])
    steps = len(chosen) // config.batch_size
    optimiser = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, config.learning_rate, total_steps=max(epochs * steps, 2))
    losses: list[float] = []
    for epoch in range(epochs):
        order, total = rng.permutation(chosen), 0.0
        for step in range(steps):
            loss = loss_of(*_batch(examples, order[step * config.batch_size : (step + 1) * config.batch_size], device))
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += float(loss.detach())
            told(epoch * steps + step + 1, total / (step + 1))
        losses.append(total / steps)
    return losses


@torch.inference_mode()
def ratios(
    network: PretrainedNetwork, examples: FleetExamples, device: torch.device | str = "cpu", plans: bool = True
) -> tuple[F32, F32]:
    """Mean absolute errors ``[H, M]`` as shares of the baseline's: of the network, and of the mean of both."""
    said = []
    for at in range(0, len(examples), 4096):
        origin, ahead, baseline, _ = _batch(examples, np.arange(at, min(at + 4096, len(examples))), device)
        if not plans:
            source = network.features.sources.index("plans")
            ahead[..., torch.from_numpy(network.features.ahead_groups == source)] = torch.nan
        said.append(network.corrected(origin, ahead, baseline)[..., 1].float().cpu().numpy())
    if not said:
        nothing = np.full(examples.truth.shape[1:], np.nan, np.float32)
        return nothing, nothing
    mine: F32 = np.concatenate(said)
    base, truth = examples.baseline[..., 1], examples.truth
    known = np.isfinite(truth) & np.isfinite(base)

    def error(median: F32) -> F32:
        off = np.where(known, np.abs(median - truth), 0).sum(axis=0)
        return np.asarray(off / np.maximum(known.sum(axis=0), 1), np.float32)

    usual = np.maximum(error(base), 1e-9)
    alone, halves = error(mine) / usual, error(np.asarray((mine + base) / 2, np.float32)) / usual
    return np.asarray(alone, np.float32), np.asarray(halves, np.float32)


def _batch(examples: FleetExamples, at: I64, device: torch.device | str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    arrays = (examples.origin[at], examples.ahead[at], examples.baseline[at], examples.truth[at])
    origin, ahead, baseline, truth = (torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in arrays)
    return origin.float(), ahead.float(), baseline, truth
