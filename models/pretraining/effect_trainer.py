"""Training of the network of effects on pairs of simulated runs, in plain PyTorch.

Read it from the top: :func:`train_effects` makes a network that answers in NumPy. What the forecast of a real zone says
wrong, the path of a pair must be wrong in, too: it gets errors as large, as lasting and growing as fast. Houses are
held back: they say how far intervals have to be stretched to hold four in five, and how good the network is. Equal
pairs, configuration and thread count give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from models.effects.effect_inputs import MOVED, STATE, effect_inputs
from models.effects.effect_network import (
    KINDS_CHANGED,
    SIZES_FORESEEN,
    STATE_MOST,
    TARGET_SCALES,
    WIDTH_SHIFT,
    EffectNetwork,
    kind_changed,
)
from models.effects.plan_change import GRID_MIN, STEP_MIN
from models.effects.situation import EFFECT_TARGETS, Situation
from models.pretraining.effect_pairs import EffectPairs

__all__ = ["PATH_MIN", "EffectTraining", "EffectsTrained", "train_effects", "with_forecast_errors"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

PATH_MIN: I64 = np.array([*range(5, 61, 5), *range(90, 1441, 30)], np.int64)
"""The times of a path with rows of five minutes."""

_FIRST = np.array([0.15, 0.8, 10.0])
_A_DAY_AHEAD = np.array([1.1, 5.5, 65.0])
_GROWS_IN_H, _LASTS_H = 5.0, 4.0
"""Errors of a forecast's path, in the order of ``PATH_TARGETS``: standard deviations at first and a day ahead."""

_ROUNDS = 2
_LEAST_ROWS = 1000
"""Times in houses held back at which a metric was changed, for it to be stretched by itself; in so many rounds."""

_RANGE = 0.0005
"""Share of the states on either side of the range that the network is said to know."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EffectTraining:
    """Everything besides its pairs that a training depends on."""

    epochs: int = 6
    batch_size: int = 2048
    learning_rate: float = 3e-3
    weight_decay: float = 1e-3
    hidden: int = 112
    members: int = 3
    """Networks that answer together."""
    dropout: float = 0.25
    draws: int = 2
    """Errors of the path are drawn so often; each time half of the times are looked at."""
    held_back: float = 0.12
    """The share of houses that is not trained on."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class EffectsTrained:
    """A network, inputs and what it says of them, and what it is worth on houses held back."""

    network: EffectNetwork
    golden: tuple[F32, F32]
    metrics: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Rows:
    moved: F32  # [R, MOVED]
    state: F32  # [R, STATE]
    effect: F32  # [R, EFFECT_TARGETS], in usual sizes; NaN where it was not measured

    def tensors(self, network_state: F32) -> tuple[Tensor, Tensor, Tensor]:
        return torch.from_numpy(self.moved), torch.from_numpy(network_state), torch.from_numpy(self.effect)


def with_forecast_errors(situation: Situation, rng: np.random.Generator) -> Situation:
    """The situation with a path that is as wrong as a forecast's."""
    n, grid = len(situation), len(GRID_MIN)
    grown = 1 - np.exp(-GRID_MIN[:, None] / 60 / _GROWS_IN_H)
    spread = _FIRST + grown * (_A_DAY_AHEAD - _FIRST)
    keep = np.exp(-STEP_MIN / 60 / _LASTS_H)
    kicks = rng.standard_normal((grid, n, 3))
    wrong, now = np.empty((n, grid, 3), np.float32), kicks[0]
    for g in range(grid):
        now = keep * now + np.sqrt(1 - keep**2) * kicks[g]
        wrong[:, g] = now
    each = np.exp(rng.normal(0.0, 0.4, (n, 1, 1)))
    return replace(situation, path=(situation.path + wrong * spread * each).astype(np.float32))


def train_effects(
    pairs: EffectPairs, config: EffectTraining, told: Callable[[int, int], None] = lambda step, steps: None
) -> EffectsTrained:
    """``told`` is called with the steps done and those there are. Raises ``ValueError`` for too few houses."""
    rng = np.random.default_rng([config.seed, 71])
    houses = np.unique(pairs.house)
    if len(houses) < 10:
        raise ValueError(f"{len(houses)} houses are too few: at least 10 are needed, and thousands are better")
    back = rng.permutation(houses)[: max(round(config.held_back * len(houses)), 1)]
    held = np.isin(pairs.house, back)
    train, test = (_rows(pairs, np.flatnonzero(mask), rng, draws) for mask, draws in ((~held, config.draws), (held, 1)))
    mean, spread, low, high = _about(train.state)
    standard = _standard(train.state, mean, spread)
    members = [_fit(train, standard, config, number, told) for number in range(config.members)]
    arrays = {name: np.stack([member[name] for member in members]) for name in members[0]}
    arrays |= {"state_mean": mean, "state_spread": spread, "state_low": low, "state_high": high}
    network = _stretched(arrays, test)
    few = np.linspace(0, len(test.moved) - 1, min(40, len(test.moved))).astype(np.int64)
    metrics = {
        "houses": len(houses) - len(back), "houses_held_back": len(back), "pairs": len(pairs.changes),
        "rows": len(train.moved), **_worth(network, test),
    }  # fmt: skip
    return EffectsTrained(network, (test.moved[few], test.state[few]), {"training": asdict(config), **metrics})


def _rows(pairs: EffectPairs, at: I64, rng: np.random.Generator, draws: int) -> _Rows:
    """Of pairs at these places, the times at which something is moved."""
    parts: list[tuple[F32, F32, F32]] = []
    for first in range(0, len(at), 512):
        some = at[first : first + 512]
        for _ in range(draws):
            situation = with_forecast_errors(pairs.situation.take(some), rng)
            moved, state = effect_inputs(situation, [pairs.changes[i] for i in some.tolist()], PATH_MIN)
            effect = pairs.effect[some][:, PATH_MIN // STEP_MIN - 1] / TARGET_SCALES
            used = np.isfinite(moved).all(axis=-1) & (moved != 0).any(axis=-1) & np.isfinite(effect).any(axis=-1)
            if draws > 1:
                used &= rng.random(used.shape) < 0.5
            parts.append((moved[used], state[used], effect[used].astype(np.float32)))
    return _Rows(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _about(state: F32) -> tuple[F32, F32, F32, F32]:
    """Mean, spread and both ends of the range of each part of the state, of those that are known."""
    found = np.tile(np.array([0, 1, -np.inf, np.inf], np.float32), (state.shape[1], 1))
    for k, column in enumerate(state.T):
        known = column[np.isfinite(column)]
        if len(known):
            ends = np.quantile(known, [_RANGE, 1 - _RANGE])
            found[k] = known.mean(dtype=np.float64), known.std(dtype=np.float64) + 1e-3, *ends
    mean, spread, low, high = found.T
    return mean, spread, low, high


def _standard(state: F32, mean: F32, spread: F32) -> F32:
    off = (state - mean) / spread
    return np.asarray(np.nan_to_num(np.clip(off, -STATE_MOST, STATE_MOST)), np.float32)


def _fit(
    rows: _Rows, standard: F32, config: EffectTraining, member: int, told: Callable[[int, int], None]
) -> dict[str, npt.NDArray[Any]]:
    torch.manual_seed(1000 * config.seed + member)
    width = config.hidden
    net = [
        nn.Linear(len(MOVED) + len(STATE), width), nn.Linear(width, width), nn.Linear(width, 3 * len(EFFECT_TARGETS)),
    ]  # fmt: skip
    weights = [weight for layer in net for weight in layer.parameters()]
    moved, state, effect = rows.tensors(standard)
    batches = max(len(moved) // config.batch_size, 1)
    steps = config.epochs * batches
    optimizer = torch.optim.AdamW(weights, config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.learning_rate, steps)
    for epoch in range(config.epochs):
        order = torch.randperm(len(moved))
        for batch in range(batches):
            at = order[batch * config.batch_size : (batch + 1) * config.batch_size]
            loss = _loss(_both(net, moved[at], state[at], config.dropout), moved[at], effect[at])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            schedule.step()
            told(member * steps + epoch * batches + batch + 1, config.members * steps)
    made = {f"weight{n}": layer.weight.detach().numpy().T.copy() for n, layer in enumerate(net)}
    return made | {f"bias{n}": layer.bias.detach().numpy().copy() for n, layer in enumerate(net)}


def _both(net: Sequence[nn.Linear], moved: Tensor, state: Tensor, dropout: float) -> Tensor:
    """The answers with what is moved and with nothing moved, ``[2, N, outputs]``; the same units are silent in both."""
    held = torch.stack([torch.cat([part, state], -1) for part in (moved, torch.zeros_like(moved))])
    for layer in net[:-1]:
        held = nn.functional.silu(layer(held))
        held = held * (torch.rand(held.shape[1:]) >= dropout) / (1 - dropout)
    answer: Tensor = net[-1](held)
    return answer


def _loss(answers: Tensor, moved: Tensor, effect: Tensor) -> Tensor:
    """The pinball loss of p10, p50 and p90, as ``EffectNetwork`` makes them of both answers."""
    targets = len(EFFECT_TARGETS)
    median = answers[0, :, :targets] - answers[1, :, :targets]
    much = torch.tanh(moved.norm(dim=-1, keepdim=True))
    down, up = (
        nn.functional.softplus(answers[0, :, targets * k : targets * (k + 1)] - WIDTH_SHIFT) * much for k in (1, 2)
    )
    known = torch.isfinite(effect)
    truth = torch.nan_to_num(effect)
    middle = median.detach()  # widths do not move the median
    total = 2 * _pinball(truth - median, 0.5)
    total = total + _pinball(truth - (middle - down), 0.1) + _pinball(truth - (middle + up), 0.9)
    return (total * known).sum() / known.sum()


def _pinball(off: Tensor, level: float) -> Tensor:
    return torch.maximum(level * off, (level - 1) * off)


def _stretched(arrays: dict[str, npt.NDArray[Any]], rows: _Rows) -> EffectNetwork:
    """The network with intervals that are stretched, either side, so that one truth in ten lies beyond it: by what is
    changed, and by how large the effect is foreseen to be. Of what was hardly tried, as far as of all.
    """
    targets, kind = len(EFFECT_TARGETS), kind_changed(rows.moved)
    by_kind, by_size = np.ones((len(KINDS_CHANGED), targets, 2)), np.ones((len(SIZES_FORESEEN), targets, 2))
    for _ in range(_ROUNDS):
        for held, groups in ((by_size, None), (by_kind, kind)):
            network = EffectNetwork({**arrays, "stretch": by_kind, "stretch_by_size": by_size})
            said = network.effect(rows.moved, rows.state) / TARGET_SCALES[:, None]
            for m in range(targets):
                size = np.abs(np.log(np.maximum(np.abs(said[:, m, 1:2]), 1e-6) / SIZES_FORESEEN)).argmin(axis=1)
                held[:, m] *= _beyond(rows.effect[:, m], said[:, m], size if groups is None else groups, len(held))
    return EffectNetwork({**arrays, "stretch": by_kind, "stretch_by_size": by_size})


def _beyond(truth: F32, said: F32, group: I64, count: int) -> npt.NDArray[np.float64]:
    """By how much each group's intervals are too narrow on either side: ``[count, 2]``."""
    found, known = np.ones((count, 2)), np.isfinite(truth)
    for side, (sign, q) in enumerate(((-1, 0), (1, 2))):
        beyond = sign * (truth - said[:, 1]) / np.maximum(np.abs(said[:, q] - said[:, 1]), 1e-6)
        for k in range(count):
            here = known & (group == k)
            here = here if here.sum() >= _LEAST_ROWS else known
            if here.any():
                found[k, side] = min(max(float(np.quantile(beyond[here], 0.9)), 0.1), 10.0)
    return found


def _worth(network: EffectNetwork, rows: _Rows) -> dict[str, Any]:
    """On houses held back: error and share of squares explained, sign, and what intervals hold, by target."""
    said = network.effect(rows.moved, rows.state) / TARGET_SCALES[:, None]
    worth: dict[str, Any] = {}
    for m, (target, least) in enumerate(zip(EFFECT_TARGETS, (0.3, 0.5, 0.5, 0.5), strict=True)):
        truth, known = rows.effect[:, m], np.isfinite(rows.effect[:, m])
        if not known.any():
            continue
        low, median, high = (said[known, m, q] for q in range(3))
        truth = truth[known]
        large = np.abs(truth) > least
        worth[target] = {
            "explained": round(1 - float(((truth - median) ** 2).sum() / max((truth**2).sum(), 1e-9)), 3),
            "error_of_none": round(float(np.abs(truth - median).mean() / max(np.abs(truth).mean(), 1e-9)), 3),
            "sign_right": round(float((np.sign(truth) == np.sign(median))[large].mean()), 3) if large.any() else None,
            "held": round(float(((low <= truth) & (truth <= high)).mean()), 3),
        }
    return {"held_back": worth}
