"""Step 13 of the way of a reading: training, in plain PyTorch.

Read it from the top: a :class:`WindowSet` holds rows of many zones on a regular grid and cuts windows from them;
:func:`split` holds the newest back; :func:`fit` trains a network on the rest; :func:`evaluate` measures any
forecaster on the rows held back, beside the baselines on the same rows. Equal seeds give equal weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from models.baselines import Climatology, naive_24h, persistence
from models.features import Inputs, build_inputs, day_bins, targets_of
from models.network import QuantileNetwork, to_tensors
from models.spec import QUANTILES, ForecastSpec, Place

__all__ = ["Epoch", "Errors", "FitResult", "Split", "TrainingConfig", "WindowSet", "evaluate", "fit", "split"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Predict = Callable[[Inputs], F32]

_CHUNK = 2048
_DAY_MS = 86_400_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingConfig:
    """What decides a training besides its data."""

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


class WindowSet:
    """Rows of ``Z`` zones on one regular grid of ``T`` steps, and the windows that can be cut from them.

    An *origin* is one integer, ``zone * T + t``. Forecasts of the climatology are made once, prequentially, when the
    set is built: the one at ``t`` has seen rows up to ``t`` only, exactly as in service.
    """

    def __init__(self, zone_ids: Sequence[str], first_end_ms: int, values: F32, places: Sequence[Place],
                 spec: ForecastSpec) -> None:  # fmt: skip
        self.zone_ids, self.first_end_ms, self.places, self.spec = tuple(zone_ids), first_end_ms, tuple(places), spec
        self.length = values.shape[1]
        # One look-back of nothing before the first row, so that every row can be an origin.
        before = np.full((len(values), spec.lookback_steps - 1, values.shape[2]), np.nan, dtype=np.float32)
        self._values = np.concatenate([before, values], axis=1)
        self.targets = targets_of(values, spec)
        self.end_ms = first_end_ms + np.arange(self.length, dtype=np.int64) * spec.step_ms
        bins = np.array([day_bins(place, self.end_ms, spec) for place in places], dtype=np.int64)
        self.baseline = Climatology.run_over(self.targets, bins.reshape(len(values), self.length), spec)

    @classmethod
    def from_columns(cls, zone_ids: Sequence[str] | npt.NDArray[Any], end_ms: I64, values: F32,
                     places: Mapping[str, Place], spec: ForecastSpec) -> WindowSet:  # fmt: skip
        """Lay out ``R`` rows, in any order: ``zone_ids [R]``, ``end_ms [R]``, ``values [R, C]``; gaps become NaN.

        ``places`` has an entry for every zone id. Raises ``ValueError`` without rows, for rows off the grid and for
        two rows of one zone and step.
        """
        names, zone = np.unique(np.asarray(zone_ids, dtype=str), return_inverse=True)
        if not len(names):
            raise ValueError("there are no rows")
        end_ms = np.asarray(end_ms, dtype=np.int64)
        if np.any(end_ms % spec.step_ms):
            raise ValueError(f"rows do not end on the grid of {spec.step_ms} ms")
        first = int(end_ms.min())
        at = (end_ms - first) // spec.step_ms
        if len(np.unique(zone * (at.max() + 1) + at)) != len(at):
            raise ValueError("two rows of one zone end at the same time")
        grid = np.full((len(names), int(at.max()) + 1, values.shape[1]), np.nan, dtype=np.float32)
        grid[zone, at] = values
        return cls([str(name) for name in names], first, grid, [places[str(name)] for name in names], spec)

    @property
    def rows(self) -> F32:
        """The rows on their grid, ``[Z, T, C]``; a view."""
        return self._values[:, self.spec.lookback_steps - 1 :]

    def origins(self, warm_steps: int = 0) -> I64:
        """Every origin that has a row, a forecast of the climatology and at least one truth, ordered by time.

        The first ``warm_steps`` of each zone are left out: the climatology is still learning there, and what it
        leaves over is not what it will leave over in service.
        """
        present = np.asarray(np.isfinite(self.targets).any(axis=-1))
        start = np.argmax(present, axis=1)
        old = np.arange(self.length) >= (start + warm_steps)[:, None]
        answered = np.isfinite(self.baseline[..., 0, :, 1]).any(axis=-1)
        followed = np.zeros_like(present)
        for steps in self.spec.horizon_steps:
            followed[:, :-steps] |= present[:, steps:]
        zone, t = np.nonzero(present & old & answered & followed)
        order = np.lexsort((zone, t))
        return np.asarray((zone * self.length + t)[order], dtype=np.int64)

    def times(self, origins: I64) -> I64:
        """When each origin is, Unix time in ms."""
        return np.asarray(self.end_ms[origins % self.length])

    def inputs(self, origins: I64) -> Inputs:
        """The input of each origin, by the same function as in service."""
        zone, t = np.divmod(origins, self.length)
        parts = []
        for at in range(0, max(len(origins), 1), _CHUNK):
            z, here = zone[at : at + _CHUNK], t[at : at + _CHUNK]
            rows = here[:, None] + np.arange(self.spec.lookback_steps)
            values, baseline = self._values[z[:, None], rows], self.baseline[z, here]
            parts.append(build_inputs(values, self.end_ms[here], [self.places[i] for i in z], baseline, self.spec))
        return Inputs.concatenate(parts)

    def truth(self, origins: I64, known_until_ms: int | None = None) -> F32:
        """What happened, ``[N, H, M]``; NaN where it is missing or was not known yet at ``known_until_ms``."""
        zone, t = np.divmod(origins, self.length)
        last = self.length - 1
        if known_until_ms is not None:
            last = min(last, (known_until_ms - self.first_end_ms) // self.spec.step_ms)
        at = t[:, None] + np.array(self.spec.horizon_steps)
        picked: F32 = self.targets[zone[:, None], np.minimum(at, self.length - 1)]
        picked[at > last] = np.nan
        return picked

    def recent_targets(self, origins: I64) -> F32:
        """The targets of the last day up to each origin, ``[N, steps_per_day, M]``."""
        zone, t = np.divmod(origins, self.length)
        at = t[:, None] + np.arange(1 - self.spec.steps_per_day, 1)
        picked = self.targets[zone[:, None], np.maximum(at, 0)]
        picked[at < 0] = np.nan
        return picked


@dataclass(frozen=True, slots=True)
class Split:
    """Origins to train on and origins held back; nothing after ``cut_ms`` may be known in training."""

    train: I64
    held_back: I64
    cut_ms: int


def split(windows: WindowSet, share: float, origins: I64 | None = None, warm_steps: int | None = None) -> Split:
    """Hold the newest ``share`` of the time range back.

    The embargo is exact, not a gap: pass ``cut_ms`` to :meth:`WindowSet.truth`, and a training example knows of each
    horizon only what had happened by the cut. Warm-up, by default, is one day a zone.
    """
    if origins is None:
        origins = windows.origins(windows.spec.steps_per_day if warm_steps is None else warm_steps)
    times = windows.times(origins)
    if not len(times):
        return Split(origins, origins, windows.first_end_ms)
    first, last = int(times.min()), int(times.max())
    cut = last - round((last - first) * share)
    return Split(origins[times < cut], origins[times >= cut], cut)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass: the mean pinball loss in units of the climatology's mean absolute error."""

    number: int
    loss: float


@dataclass(frozen=True, slots=True)
class FitResult:
    """The network's state, NumPy arrays by name, and how it got there; ``resumed``: by way of a checkpoint."""

    state: dict[str, npt.NDArray[Any]]
    history: list[Epoch] = field(default_factory=list)
    resumed: bool = False


def fit(
    windows: WindowSet,
    origins: I64,
    config: TrainingConfig,
    *,
    cut_ms: int | None = None,
    initial_state: Mapping[str, npt.NDArray[Any]] | None = None,
    on_epoch: Callable[[Epoch, Mapping[str, npt.NDArray[Any]]], None] | None = None,
    wrap: Callable[[nn.Module], nn.Module] = lambda network: network,
    device: torch.device | str = "cpu",
    steps_per_epoch: int | None = None,
) -> FitResult:
    """Train on ``origins`` (of :func:`split`), knowing nothing after ``cut_ms``, and return the last epoch's state.

    ``initial_state`` continues an earlier network. For several workers: ``wrap`` makes the network distributed, and
    ``steps_per_epoch`` must then be the same number everywhere. There is no early stopping: the days of a short
    history resemble each other too much for a tail of them to judge; shrinking by ``trust_days`` does better.
    Raises ``ValueError`` without origins.
    """
    if not len(origins):
        raise ValueError("there is no origin to train on: the history is too short")
    rng = np.random.default_rng(config.seed)
    days = len(np.unique(windows.times(origins) // _DAY_MS))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = QuantileNetwork(windows.spec, config.hidden, config.mixes, config.dropout, config.silence)
        inputs, truth = _draw(windows, origins, config, cut_ms, rng)
        if initial_state is None:
            network.set_scaling(inputs, truth)
        else:
            network.load_arrays(initial_state)
        network.trust.fill_(1.0)
        network.to(device)
        module = wrap(network)
        steps = steps_per_epoch or -(-len(inputs) // config.batch_size)
        optimiser = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, config.learning_rate, total_steps=max(config.epochs * steps, 2)
        )
        low_precision = torch.device(device).type == "cuda" and torch.cuda.is_bf16_supported()
        history: list[Epoch] = []
        for number in range(1, config.epochs + 1):
            if number > 1 and len(origins) > config.max_windows:
                inputs, truth = _draw(windows, origins, config, cut_ms, rng)
            module.train()
            total = torch.zeros((), device=device)
            order = np.resize(rng.permutation(len(inputs)), (steps, config.batch_size))
            for batch in order:
                arguments = to_tensors(inputs.take(batch), device)
                goal = torch.from_numpy(truth[batch]).to(device)
                with torch.autocast("cuda", torch.bfloat16, enabled=low_precision):
                    forecast = module(*arguments)
                loss = pinball(forecast.float(), goal, network.residual)
                optimiser.zero_grad(set_to_none=True)
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimiser.step()
                schedule.step()
                total += loss.detach()
            history.append(Epoch(number, float(total) / steps))
            if on_epoch is not None:
                on_epoch(history[-1], _shrunken(network, days, config))
    return FitResult(_shrunken(network, days, config), history)


def _draw(
    windows: WindowSet, origins: I64, config: TrainingConfig, cut_ms: int | None, rng: np.random.Generator
) -> tuple[Inputs, F32]:
    """An epoch's windows: all, or as many as the configuration allows."""
    if len(origins) > config.max_windows:
        origins = np.sort(rng.choice(origins, config.max_windows, replace=False))
    return windows.inputs(origins), windows.truth(origins, cut_ms)


def _shrunken(network: QuantileNetwork, days: int, config: TrainingConfig) -> dict[str, npt.NDArray[Any]]:
    trust = np.array(days / (days + config.trust_days), dtype=np.float32)
    return {**network.arrays(), "trust": trust}


def pinball(forecast: Tensor, truth: Tensor, scale: Tensor) -> Tensor:
    """Mean quantile loss of ``[N, H, M, Q]`` against ``[N, H, M]`` in units of ``scale [H, M]``; NaN is left out."""
    known = torch.isfinite(truth) & torch.isfinite(forecast).all(-1)
    error = torch.where(known, truth, 0)[..., None] - torch.where(known[..., None], forecast, 0)
    levels = torch.tensor(QUANTILES, device=forecast.device)
    loss = torch.maximum(levels * error, (levels - 1) * error).mean(-1) / scale
    return torch.where(known, loss, 0).sum() / known.sum().clamp(min=1)


@dataclass(frozen=True, slots=True)
class Errors:
    """Absolute errors of a forecaster and the baselines, ``[N, H, M]`` each, on the same origins.

    NaN wherever the truth or any of the four is missing, so that every comparison is paired.
    """

    origin_ms: I64
    zone: I64
    model: F32
    climatology: F32
    persistence: F32
    naive_24h: F32
    inside: F32  # 1 where the truth lay within p10 ... p90

    def mae(self, name: str = "model") -> F32:
        """Mean absolute error a cell, ``[H, M]``; NaN where nothing could be compared."""
        errors = getattr(self, name)
        known = np.isfinite(errors)
        n = known.sum(axis=0)
        return np.where(n > 0, np.where(known, errors, 0).sum(axis=0) / np.maximum(n, 1), np.nan).astype(np.float32)


def evaluate(predict: Predict, windows: WindowSet, origins: I64, known_until_ms: int | None = None) -> Errors:
    """Measure ``predict`` and the baselines on ``origins``, by truths known until then (:meth:`WindowSet.truth`)."""
    truth = windows.truth(origins, known_until_ms)
    inputs = windows.inputs(origins)
    quantiles = predict(inputs)
    references = {
        "model": quantiles[..., 1],
        "climatology": inputs.baseline[..., 1],
        "persistence": persistence(inputs.now, windows.spec),
        "naive_24h": naive_24h(windows.recent_targets(origins), windows.spec),
    }
    errors = {name: np.abs(forecast - truth) for name, forecast in references.items()}
    # A model that answers NaN where the climatology answers must not hide there: the gate sees it.
    known = np.isfinite(errors["climatology"] + errors["persistence"] + errors["naive_24h"])
    inside = np.where(known, (truth >= quantiles[..., 0]) & (truth <= quantiles[..., 2]), np.nan).astype(np.float32)
    return Errors(
        origin_ms=windows.times(origins),
        zone=origins // windows.length,
        inside=inside,
        **{name: np.where(known, error, np.nan).astype(np.float32) for name, error in errors.items()},
    )
