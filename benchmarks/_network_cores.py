"""Cores of candidates for the global network, each small: DLinear, TiDE, N-HiTS, TSMixer, and the kept network's own.

A core maps what is known of an example to quantiles, in units of the baseline's errors and widths:
``core(course [N, T, F], still [N, S], ahead [N, H, A]) -> [N, H, Q * M]``. ``course`` is the window about its mean,
``still`` what is known at the origin (presence of channels, sun and calendar, how far the targets are off the
baseline), ``ahead`` what is known of each horizon. Every core starts by answering zero, which is the climatology.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.network.training import TrainingConfig

AVERAGE = 7
"""Tokens, odd: DLinear's trend is a moving average over so many."""
POOLS = (6, 3, 1)
KNOTS = (2, 3, 6)
"""N-HiTS' stacks: tokens that are pooled into one, and points between which a forecast is interpolated."""
NARROW = 32
"""Channels inside of TSMixer."""


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


CORES: dict[str, Callable[[Sizes, TrainingConfig], nn.Module]] = {
    "DLinear": DLinear, "TiDE": Tide, "N-HiTS": NHits, "TSMixer": TSMixer,
}  # fmt: skip
