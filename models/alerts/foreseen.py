"""Step 9 of the way of a reading: what scenarios say of a rule: the chance of an event, when, and with which inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from models.alerts.alert_rule import AlertRule
from models.alerts.measures import Track, evidence, is_read, margin
from models.alerts.occurrences import occurring
from models.durations import MINUTE_MS
from models.spec import ForecastSpec

__all__ = ["STEP_MS", "ForeseenEvent", "foresee", "joined", "reach_steps", "steps_of"]

Bool = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

STEP_MS = 1_800_000
"""Scenarios are looked at every half hour, as paths are made."""

SPAN = 0.5
"""The span of an event is where its chance is at least this part of the greatest."""

SHOWN = 0.05
"""Nobody asks what speaks for an event of a smaller chance."""


@dataclass(frozen=True, slots=True)
class ForeseenEvent:
    """What scenarios say of a rule from one origin; steps are half hours ahead, 1 is the first.

    ``chance`` is the share of scenarios with an event within the lead; ``first`` to ``last`` is its likeliest span, and
    ``at`` its likeliest time; 0 where no scenario has one. ``inputs`` speak for it: medians at that time, of the
    scenarios that have the event then; of now, where it goes on and no scenario says that it will. So is ``limit``.
    """

    chance: float
    is_now: bool
    first: int
    last: int
    at: int
    inputs: Mapping[str, float]
    limit: float


def steps_of(minutes: float, step_ms: int = STEP_MS) -> int:
    """Minutes as steps, rounded up."""
    return int(-(-minutes * MINUTE_MS // step_ms))


def reach_steps(spec: ForecastSpec) -> int:
    """How many half hours ahead rules can look: as scenarios go, up to a day or the longest horizon, and one at least.

    >>> reach_steps(ForecastSpec(channels=())), reach_steps(ForecastSpec(channels=(), horizons_min=(5, 100)))
    (48, 3)
    """
    return max(min(max(spec.horizon_steps), spec.steps_per_day) * spec.step_ms // STEP_MS, 1)


def joined(past: Track, ahead: Track) -> Track:
    """The past ``[P]`` and scenarios of what follows ``[S, T]`` on one time line ``[S, P + T]``."""
    values: dict[str, _Array] = {}
    for name in {*past.values, *ahead.values}:
        after = ahead[name]
        values[name] = np.concatenate(
            [np.broadcast_to(past[name], (*after.shape[:-1], len(past.minute))), after], axis=-1
        )
    return replace(
        past, values=values, night=np.concatenate([past.night, ahead.night]),
        minute=np.concatenate([past.minute, ahead.minute]),
    )  # fmt: skip


def foresee(
    rule: AlertRule, past: Track, ahead: Track, goes_on: bool = False, whole: Track | None = None,
    before: _Array | None = None,
) -> ForeseenEvent | None:  # fmt: skip
    """What scenarios ``ahead [S, T]`` say, after the rows of the ``past [P]``, of which the last is now.

    None where the number is unknown both now and in every scenario, or nothing of it was read in the past. Where an
    event ``goes_on``, as finer rows may know, its inputs are given however unlikely it is to last. ``whole`` is both
    :func:`joined`, for who has several rules. ``before [P]`` are the margins of the past as they were when they were
    now: of numbers of 24 hours, which the rows of one day do not tell.
    """
    if not is_read(rule, past):
        return None
    whole = whole or joined(past, ahead)
    beyond = np.atleast_2d(margin(rule, whole))
    start, window = len(past.minute), min(steps_of(rule.lead_h * 60), len(ahead.minute))
    if before is not None:
        beyond[:, :start] = before
    if np.isnan(beyond[:, start - 1 : start + window]).all():
        return None
    on = occurring(beyond, rule.hysteresis, steps_of(rule.for_min), steps_of(rule.keep_min))
    inside = on[:, start : start + window]
    is_now = bool(np.isfinite(beyond[0, start - 1]) and on[:, start - 1].mean() > 0.5)
    share = inside.mean(axis=0)
    if not share.any():
        now = np.array([True])
        shown = is_now or goes_on
        inputs = _medians(rule, past, now, start - 1) if shown else {}
        return ForeseenEvent(0.0, is_now, 0, 0, 0, inputs, rule.limit_at(bool(past.night[-1])))
    at = int(np.argmax(share))
    likely = share >= SPAN * share[at]
    first, last = at, at
    while first > 0 and likely[first - 1]:
        first -= 1
    while last + 1 < window and likely[last + 1]:
        last += 1
    chance = float(inside.any(axis=1).mean())
    inputs = _medians(rule, whole, inside[:, at], start + at) if is_now or goes_on or chance >= SHOWN else {}
    limit = rule.limit_at(bool(ahead.night[at]))
    return ForeseenEvent(chance, is_now, first + 1, last + 1, at + 1, inputs, limit)


def _medians(rule: AlertRule, track: Track, those: Bool, at: int) -> dict[str, float]:
    """Medians of the rule's inputs at one step of those scenarios."""
    found = {}
    for name, values in evidence(rule, track).items():
        value = np.broadcast_to(values[..., at], those.shape)[those]
        if np.isfinite(value).any():
            found[name] = float(np.nanmedian(value))
    return found
