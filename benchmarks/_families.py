"""Other forms of the global network, each small and on the kept network's inputs, for ``benchmarks.families``.

A :class:`Candidate` scales its inputs and makes its quantiles as the kept network does; what lies between is its core:
``core(course [N, T, F], still [N, S], ahead [N, H, A]) -> [N, H, Q * M]``. ``course`` is the window about its mean,
``still`` what is known at the origin (presence of channels, sun and calendar, how far the targets are off the
baseline), ``ahead`` what is known of each horizon. Every core starts by answering zero, which is the climatology.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from edge.wire.vocabulary import VOCABULARY
from models.features.inputs import Inputs, input_channels, window_tokens
from models.network.quantile import _CLIP, _UNIT_SOFTPLUS, QuantileNetwork, to_tensors
from models.network.training import TrainingConfig
from models.spec import QUANTILES, ForecastSpec

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

AVERAGE = 7
"""Tokens, odd: DLinear's trend is a moving average over so many."""
POOLS = (6, 3, 1)
KNOTS = (2, 3, 6)
"""N-HiTS' stacks: tokens that are pooled into one, and points between which a forecast is interpolated."""
NARROW = 32
"""Channels inside of TSMixer."""
STRENGTHS = (100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0)
"""The ridge's prior may weigh as much as so many examples of a regressor of size one."""


def planned_channels(spec: ForecastSpec) -> tuple[int, ...]:
    """The columns of a row that a climate computer sets: actuators and setpoints, which keep their value until told."""
    return tuple(i for i, name in enumerate(spec.channels) if name in VOCABULARY and _is_set(name))


def _is_set(name: str) -> bool:
    return VOCABULARY[name].hold_s is not None and VOCABULARY[name].kind == "gauge"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a core's input and output."""

    tokens: int  # T
    channels: int  # F
    still: int  # S
    horizons: int  # H
    ahead: int  # A
    out: int  # Q * M
    targets: tuple[int, ...]  # where they are among the channels

    @property
    def flat(self) -> int:
        """All that is known of one example."""
        return self.tokens * self.channels + self.still + self.horizons * self.ahead


class Candidate(QuantileNetwork):
    """The kept network with another core; ``plans``: as known ahead too, how far what is set will be from now."""

    def __init__(
        self, spec: ForecastSpec, config: TrainingConfig, core: Callable[[Sizes, TrainingConfig], nn.Module],
        plans: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(spec, config.hidden, config.mixes, config.dropout, config.silence)
        del self.mix, self.encode, self.horizon, self.decode, self.head
        names, targets = input_channels(spec), len(spec.targets)
        self._plans = [names.index(spec.channels[i]) for i in planned_channels(spec)] if plans else []
        self.core = core(Sizes(
            tokens=window_tokens(spec), channels=len(names), still=len(names) + 7 + targets,
            horizons=len(spec.horizons_min), ahead=7 + 4 * targets + len(self._plans), out=targets * len(QUANTILES),
            targets=tuple(names.index(name) for name in spec.targets),
        ), config)  # fmt: skip

    def forward(
        self, window: Tensor, now: Tensor, calendar: Tensor, sun: Tensor, yesterday: Tensor, future: Tensor,
        baseline: Tensor,
    ) -> Tensor:  # fmt: skip
        """As :meth:`QuantileNetwork.forward`."""
        known = torch.isfinite(baseline)
        below, median, above = torch.where(known, baseline, 0).unbind(-1)
        out = self.core(*self.prepared(window, now, calendar, sun, yesterday, future, baseline))
        shift, lower, upper = out.unflatten(-1, (len(QUANTILES), -1)).unbind(-2)
        middle = median + self.trust * self.residual * shift
        factors = functional.softplus(torch.stack([lower, upper]) + _UNIT_SOFTPLUS)
        down, up = (1 + self.trust * (factors - 1)).unbind(0)
        quantiles = torch.stack([middle - (median - below) * down, middle, middle + (above - median) * up], dim=-1)
        return torch.where(known, torch.minimum(torch.maximum(quantiles, self.low), self.high), torch.nan)

    def prepared(
        self, window: Tensor, now: Tensor, calendar: Tensor, sun: Tensor, yesterday: Tensor, future: Tensor,
        baseline: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """What the core is given, all of it finite."""
        below, median, above = torch.where(torch.isfinite(baseline), baseline, 0).unbind(-1)
        window = self._silence(window)
        present = torch.isfinite(window)
        course = (window - torch.nanmean(window, dim=1, keepdim=True)) / self.spread
        course = torch.where(present, course.clamp(-_CLIP, _CLIP), 0)
        sky = torch.cat([calendar, torch.nan_to_num(sun), torch.isfinite(sun[..., :1]).to(sun.dtype)], dim=-1)
        off = self._off(now[:, None], median)
        widths = torch.log1p(torch.cat([(median - below) / self.residual, (above - median) / self.residual], dim=-1))
        still = torch.cat([present.to(window.dtype).mean(1), sky[:, 0], off[:, 0]], dim=-1)
        ahead = [sky[:, 1:], off, self._off(yesterday, median), widths]
        if self._plans:
            moved = (future - window[:, -1:, self._plans]) / self.spread[self._plans]
            ahead.append(torch.where(torch.isfinite(moved), moved.clamp(-_CLIP, _CLIP), 0))
        return course, still, torch.cat(ahead, dim=-1)


def _zero(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class Kept(nn.Module):
    """The kept network's own core, for what is changed around it."""

    def __init__(self, sizes: Sizes, config: TrainingConfig) -> None:
        super().__init__()
        self.mix = nn.Linear(sizes.tokens, config.mixes)
        self.encode = nn.Linear(sizes.channels * config.mixes + sizes.still, config.hidden)
        self.horizon = nn.Parameter(torch.zeros(sizes.horizons, config.hidden))
        self.decode = nn.Linear(config.hidden + sizes.ahead, config.hidden)
        self.head = _zero(nn.Linear(config.hidden, sizes.out))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, course: Tensor, still: Tensor, ahead: Tensor) -> Tensor:
        mixed = self.mix(course.transpose(1, 2)).flatten(1)
        encoded = self.dropout(functional.gelu(self.encode(torch.cat([mixed, still], dim=-1))))
        decoded = self.decode(torch.cat([encoded[:, None] + self.horizon, ahead], dim=-1))
        return cast(Tensor, self.head(self.dropout(functional.gelu(decoded))))


class DLinear(nn.Module):
    """Trend and remainder, each mapped linearly to the horizons (Zeng and others 2023).

    As it is, it sees one channel at a time and no covariates; here a linear map follows over channels and covariates,
    one for each horizon.
    """

    def __init__(self, sizes: Sizes, config: TrainingConfig) -> None:
        super().__init__()
        self.trend, self.rest = (nn.Linear(sizes.tokens, sizes.horizons) for _ in range(2))
        width = sizes.channels + sizes.still + sizes.ahead
        self.across = nn.Parameter(torch.zeros(sizes.horizons, width, sizes.out))
        self.bias = nn.Parameter(torch.zeros(sizes.horizons, sizes.out))

    def forward(self, course: Tensor, still: Tensor, ahead: Tensor) -> Tensor:
        course = course.transpose(1, 2)
        trend = functional.avg_pool1d(functional.pad(course, (AVERAGE // 2, AVERAGE // 2), "replicate"), AVERAGE, 1)
        own = (self.trend(trend) + self.rest(course - trend)).transpose(1, 2)
        still = still[:, None].expand(-1, ahead.shape[1], -1)
        return torch.einsum("nhd,hdo->nho", torch.cat([own, still, ahead], dim=-1), self.across) + self.bias


class _Block(nn.Module):
    """TiDE's: a dense layer, dropout, a linear way round it, a norm."""

    def __init__(self, width: int, hidden: int, out: int, dropout: float) -> None:
        super().__init__()
        self.inner, self.outer, self.round = nn.Linear(width, hidden), nn.Linear(hidden, out), nn.Linear(width, out)
        self.dropout, self.norm = nn.Dropout(dropout), nn.LayerNorm(out)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.norm(self.dropout(self.outer(functional.relu(self.inner(x)))) + self.round(x)))


class Tide(nn.Module):
    """Dense encoder and decoder of residual blocks over the whole past (Das and others 2023).

    The other channels are projected to four numbers a token, the targets' own past also goes linearly to the horizons.
    """

    def __init__(self, sizes: Sizes, config: TrainingConfig) -> None:
        super().__init__()
        hidden, dropout, few = config.hidden, config.dropout, 4
        self.targets, self.horizons = list(sizes.targets), sizes.horizons
        own = len(self.targets)
        self.project = _Block(sizes.channels, hidden, few, dropout)
        self.soon = _Block(sizes.ahead, hidden, few, dropout)
        flat = sizes.tokens * (own + few) + sizes.still + sizes.horizons * few
        self.encode = nn.Sequential(_Block(flat, hidden, hidden, dropout), _Block(hidden, hidden, hidden, dropout))
        self.decode = _Block(hidden, hidden, sizes.horizons * 2 * few, dropout)
        self.each = _Block(2 * few + sizes.ahead, hidden, hidden, dropout)
        self.head = _zero(nn.Linear(hidden, sizes.out))
        self.skip = _zero(nn.Linear(sizes.tokens, sizes.horizons))

    def forward(self, course: Tensor, still: Tensor, ahead: Tensor) -> Tensor:
        own = course[..., self.targets]
        past = torch.cat([own, self.project(course)], dim=-1).flatten(1)
        encoded = self.encode(torch.cat([past, still, self.soon(ahead).flatten(1)], dim=-1))
        decoded = self.decode(encoded).unflatten(1, (self.horizons, -1))
        out = self.head(self.each(torch.cat([decoded, ahead], dim=-1)))
        skip = self.skip(own.transpose(1, 2)).transpose(1, 2)
        # The head's first outputs are the shifts of the medians: only those have a linear way round.
        return cast(Tensor, out + functional.pad(skip, (0, out.shape[-1] - skip.shape[-1])))


class NHits(nn.Module):
    """Stacks that pool the past at several rates and interpolate their forecasts (Challu and others 2023).

    Each takes its own account of the targets' past away before the next sees it.
    """

    def __init__(self, sizes: Sizes, config: TrainingConfig) -> None:
        super().__init__()
        self.register_buffer("targets", torch.tensor(sizes.targets), persistent=False)
        self.sizes, hidden = sizes, config.hidden
        self.inner, self.back, self.fore = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for pool, knots in zip(POOLS, KNOTS, strict=True):
            short = -(-sizes.tokens // pool)
            width = sizes.channels * short + sizes.still + sizes.horizons * sizes.ahead
            self.inner.append(nn.Sequential(
                nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(config.dropout), nn.Linear(hidden, hidden), nn.ReLU(),
            ))  # fmt: skip
            self.back.append(nn.Linear(hidden, len(sizes.targets) * short))
            self.fore.append(_zero(nn.Linear(hidden, sizes.out * min(knots, sizes.horizons))))

    def forward(self, course: Tensor, still: Tensor, ahead: Tensor) -> Tensor:
        past, beside = course.transpose(1, 2), torch.cat([still, ahead.flatten(1)], dim=-1)
        total = course.new_zeros(len(course), self.sizes.out, self.sizes.horizons)
        for pool, inner, back, fore in zip(POOLS, self.inner, self.back, self.fore, strict=True):
            pooled = functional.max_pool1d(past, pool, ceil_mode=True)
            hidden = inner(torch.cat([pooled.flatten(1), beside], dim=-1))
            known = back(hidden).unflatten(1, (len(self.sizes.targets), -1))
            past = past.index_add(1, cast(Tensor, self.targets), -_stretched(known, self.sizes.tokens))
            total = total + _stretched(fore(hidden).unflatten(1, (self.sizes.out, -1)), self.sizes.horizons)
        return total.transpose(1, 2)


def _stretched(knots: Tensor, length: int) -> Tensor:
    return functional.interpolate(knots, length, mode="linear", align_corners=True)


class _Mixer(nn.Module):
    """TSMixer's: a layer shared by all channels over time, then one shared by all times over channels."""

    def __init__(self, length: int, width: int, dropout: float) -> None:
        super().__init__()
        self.over_time, self.dropout = nn.Linear(length, length), nn.Dropout(dropout)
        self.over_channels = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout),
                                           nn.Linear(width, width), nn.Dropout(dropout))  # fmt: skip
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(functional.relu(self.over_time(self.norms[0](x).transpose(1, 2)))).transpose(1, 2)
        return cast(Tensor, x + self.over_channels(self.norms[1](x)))


class TSMixer(nn.Module):
    """Layers that mix time and channels in turns, then the horizons with what is known ahead (Chen and others 2023)."""

    def __init__(self, sizes: Sizes, config: TrainingConfig) -> None:
        super().__init__()
        self.narrow = nn.Linear(sizes.channels, NARROW)
        self.past = nn.Sequential(*(_Mixer(sizes.tokens, NARROW, config.dropout) for _ in range(2)))
        self.to_horizons = nn.Linear(sizes.tokens, sizes.horizons)
        self.beside = nn.Linear(sizes.still + sizes.ahead, NARROW)
        self.join = nn.Linear(2 * NARROW, config.hidden)
        self.soon = _Mixer(sizes.horizons, config.hidden, config.dropout)
        self.head = _zero(nn.Linear(config.hidden, sizes.out))

    def forward(self, course: Tensor, still: Tensor, ahead: Tensor) -> Tensor:
        past = self.to_horizons(self.past(self.narrow(course)).transpose(1, 2)).transpose(1, 2)
        still = still[:, None].expand(-1, ahead.shape[1], -1)
        beside = self.beside(torch.cat([still, ahead], dim=-1))
        return cast(Tensor, self.head(self.soon(self.join(torch.cat([past, beside], dim=-1)))))


class Flat(nn.Module):
    """Linear in all that is known of an example and in what is known of the horizon, for medians only: the ridge's."""

    weight: Tensor

    def __init__(self, sizes: Sizes, config: TrainingConfig) -> None:
        super().__init__()
        self.medians, self.widths = len(sizes.targets), sizes.out - len(sizes.targets)
        width = sizes.tokens * sizes.channels + sizes.still + sizes.ahead + 1
        self.register_buffer("weight", torch.zeros(sizes.horizons, width, self.medians))

    def regressors(self, course: Tensor, still: Tensor, ahead: Tensor, horizon: int) -> Tensor:
        """``[N, D]``, the last of them 1."""
        one = ahead.new_ones(len(ahead), 1)
        return torch.cat([course.flatten(1), still, ahead[:, horizon], one], dim=-1)

    def forward(self, course: Tensor, still: Tensor, ahead: Tensor) -> Tensor:
        each = [self.regressors(course, still, ahead, h) @ self.weight[h] for h in range(len(self.weight))]
        return functional.pad(torch.stack(each, dim=1), (0, self.widths))


@torch.no_grad()
def ridge(
    spec: ForecastSpec, config: TrainingConfig, inputs: Inputs, truth: F32, older: npt.NDArray[np.bool_], days: int
) -> Candidate:
    """Least squares of the baseline's errors, in units of their usual size, ``truth [N, H, M]``.

    The prior's strength is that which does best on the examples that are not ``older``, fitted on those that are: one
    for all cells. The constant has no prior. The learned correction is shrunken by ``days``, as a network's.
    """
    made = Candidate(spec, config, Flat).eval()
    made.set_scaling(inputs, truth)
    core = cast(Flat, made.core)
    prepared = made.prepared(*to_tensors(inputs))
    wanted = (truth - inputs.baseline[..., 1]) / made.residual.numpy()
    known = np.isfinite(wanted).all(axis=-1)
    wanted = np.clip(np.where(known[..., None], wanted, 0), -_CLIP, _CLIP)
    found = np.zeros((len(STRENGTHS), *core.weight.shape), dtype=np.float32)
    lost = np.zeros(len(STRENGTHS))
    for h in range(len(core.weight)):
        x = core.regressors(*prepared, h).numpy()
        live = np.append(x[:, :-1].std(axis=0) > 1e-6, True)  # a channel that never comes needs no weight
        x, y = x[:, live], wanted[:, h]
        parts = [known[:, h] & older, known[:, h] & ~older]
        (gram, moment), (newer_gram, newer_moment) = (_moments(x[part], y[part]) for part in parts)
        for s, strength in enumerate(STRENGTHS):
            error = y[parts[1]] - x[parts[1]] @ _solved(gram, moment, strength)
            lost[s] += np.abs(error).sum()
            found[s, h, live] = _solved(gram + newer_gram, moment + newer_moment, strength)
    core.weight.copy_(torch.from_numpy(found[int(np.argmin(lost))]))
    made.trust.fill_(days / (days + config.trust_days))
    return made


def _moments(x: F32, y: F32) -> tuple[F64, F64]:
    return (x.T @ x).astype(np.float64), (x.T @ y).astype(np.float64)


def _solved(gram: F64, moment: F64, strength: float) -> F32:
    prior = np.full(len(gram), strength)
    prior[-1] = 1e-6
    return np.linalg.solve(gram + np.diag(prior), moment).astype(np.float32)


CORES: dict[str, Callable[[Sizes, TrainingConfig], nn.Module]] = {
    "DLinear": DLinear, "TiDE": Tide, "N-HiTS": NHits, "TSMixer": TSMixer,
}  # fmt: skip


def average(forecasters: Sequence[Callable[[Inputs], F32]]) -> Callable[[Inputs], F32]:
    """The mean of their quantiles."""

    def predict(inputs: Inputs) -> F32:
        return np.asarray(np.mean([forecast(inputs) for forecast in forecasters], axis=0, dtype=np.float32))

    return predict
