"""A what-if, answered: the effect of changes on a zone's path, and whether there is evidence for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from models.effects.effect_inputs import effect_inputs, state_at
from models.effects.effect_network import EffectNetwork
from models.effects.effect_support import Support, TimesSeen, support_of, vague
from models.effects.plan_change import GRID_MIN, STEP_MIN, PlanChange
from models.effects.situation import EFFECT_TARGETS, PATH_TARGETS, Situation
from models.online.bounds import Bounds
from models.online.prior import Prior
from models.spec import ForecastSpec

__all__ = ["ZoneEffect", "changed_path", "path_on_grid", "zone_effect"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ZoneEffect:
    """``effect [T, M, Q]`` on the targets of a path; None where there is no evidence, NaN for a target of which no
    effects are known.
    """

    support: Support
    effect: F32 | None


def zone_effect(
    network: EffectNetwork, situation: Situation, changes: Sequence[PlanChange], minutes: I64, spec: ForecastSpec,
    times_seen: TimesSeen,
) -> ZoneEffect:  # fmt: skip
    """What ``changes`` do to one zone (``situation`` of length 1) at ``minutes [T]`` after its origin."""
    grid = np.clip(minutes // STEP_MIN, 1, len(GRID_MIN)) * STEP_MIN
    support = support_of(situation, changes, state_at(situation, grid)[0], network, times_seen)
    if support.level == "none":
        return ZoneEffect(support, None)
    moved, state = effect_inputs(situation, [changes], grid)
    said = network.effect(moved[0], state[0])
    if why := vague(said):
        return ZoneEffect(Support("none", tuple(why)), None)
    effect = np.full((len(minutes), len(spec.targets), 3), np.nan, np.float32)
    for m, target in enumerate(spec.targets):
        if target in EFFECT_TARGETS:
            effect[:, m] = said[:, EFFECT_TARGETS.index(target)]
    return ZoneEffect(support, effect)


def changed_path(path: F32, effect: F32, minutes: I64, spec: ForecastSpec) -> F32:
    """The path ``[T, M, Q]`` at ``minutes [T]`` with the effect. What is uncertain of both is taken to be independent.
    Quantiles of the result keep to the same :class:`~models.online.bounds.Bounds`.
    """
    median = path[..., 1] + effect[..., 1]
    down, up = (
        np.sqrt((path[..., q] - path[..., 1]) ** 2 + (effect[..., q] - effect[..., 1]) ** 2) for q in (0, 2)
    )  # fmt: skip
    bounds = Bounds(spec, Prior(spec))
    return bounds.keep(np.stack([median - down, median, median + up], axis=-1), bounds.thinnest_at(minutes))


def path_on_grid(medians: F32, now: F32, minutes: I64, spec: ForecastSpec) -> F32:
    """Medians ``[T, M]`` of a path at ``minutes [T]``, from ``now [M]`` on, as ``Situation.path [G, PATH_TARGETS]``."""
    path = np.full((len(GRID_MIN), len(PATH_TARGETS)), np.nan, np.float32)
    for k, target in enumerate(PATH_TARGETS):
        if target in spec.targets:
            m = spec.targets.index(target)
            first = now[m] if np.isfinite(now[m]) else medians[0, m]
            path[:, k] = np.interp(GRID_MIN, np.r_[0, minutes], np.r_[first, medians[:, m]])
    return path
