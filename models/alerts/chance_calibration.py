"""Step 9 of the way of a reading: chances that come true as often as they say, learned from the zones' own past.

Scenarios are too sure of some rules and not sure enough of others. Each half hour the share of scenarios with an event
is kept until its time is over. Then a logistic regression learns from it, of all zones together, how the share and the
zone's climatology (how often such an hour of day was followed by an event) make a chance: log-odds of both, and a
constant (Platt 1999, with the climatology beside the score). Its prior leaves the share two thirds of the say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.zone_arrays import ZoneArrays, ZoneState

__all__ = ["ChanceCalibration"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

PRIOR = np.array([0.0, 0.7, 0.3])
STRENGTH = np.array([1.0, 4.0, 4.0])
"""Weights of constant, scenarios and climatology before anything is known, and how firmly they are held."""

RARE = 0.05
"""The climatology of a rule of which nothing is known ..."""

RARE_CASES, POOLED_CASES = 20.0, 2.0
"""... counts as ``RARE_CASES`` cases; what all zones know of an hour of day counts as ``POOLED_CASES`` of a zone."""

FORGET = 1 / 60
"""A case of the climatology is forgotten after some thirty days: an hour of day has two a day."""

EXAMPLES = 8192
ZONES = 8
"""Examples that are kept, and zones that give one each half hour, in turn: three weeks of them."""

REFIT = 12
"""Half hours after which weights are learned anew."""

STEPS, ROUNDING = 20, 1e-6
"""Steps of Newton's method at most, and what counts as none: in weights, and in the logarithm of a likelihood."""

SURE = 0.01
"""Neither scenarios nor climatology are ever surer than this."""

_HOURS, _SLOTS = 24, 48


class ChanceCalibration(ZoneState):
    """One rule's chances, for many zones; each half hour, for the zones that have a forecast: :meth:`step`.

    >>> learner = ChanceCalibration(lead_steps=2)
    >>> zone = np.array([learner.add_zones()])
    >>> unknown = np.array([np.nan], dtype=np.float32)
    >>> chance, usual = learner.step(zone, 0, 12, np.array([0.5], dtype=np.float32), unknown)
    >>> round(float(chance[0]), 2), round(float(usual[0]), 2)
    (0.29, 0.05)
    """

    def __init__(self, lead_steps: int, capacity: int = 16) -> None:
        if not 1 <= lead_steps <= _SLOTS:
            raise ValueError(f"a lead of {lead_steps} half hours: it must be 1 to {_SLOTS}")
        self._lead = lead_steps
        self._zones = ZoneArrays(
            capacity,
            issued=((_SLOTS,), np.int64, -1),
            share=((_SLOTS,), np.float16, np.nan),  # of scenarios
            usual=((_SLOTS,), np.float16, np.nan),
            hour=((_SLOTS,), np.int8, 0),
            came=((_HOURS,), np.float32, 0.0),
            cases=((_HOURS,), np.float32, 0.0),
        )
        self._examples = np.full((EXAMPLES, 3), np.nan, dtype=np.float32)  # log-odds of both, and whether it came
        self._count = 0
        self._weights: F64 = PRIOR.copy()
        self._fitted = -1  # at this half hour

    def __len__(self) -> int:
        return len(self._zones)

    @property
    def weights(self) -> F64:
        """Of a constant, the scenarios' log-odds and the climatology's."""
        return self._weights.copy()

    def step(self, indices: I64, half_hour: int, hour: int, share: F32, came: F32) -> tuple[F32, F32]:
        """Take what came of the chances issued a lead before, 1 or 0, NaN where that is unknown or an event went on
        then; and give chances and climatologies ``[Z]`` for ``share [Z]`` of scenarios, NaN where there are none.

        ``half_hour`` counts up, ``hour`` is that of the zones' day.
        """
        self._learn(indices, half_hour, came)
        if half_hour // REFIT > self._fitted // REFIT or self._fitted < 0:
            self._fit()
            self._fitted = half_hour
        usual = self._usual(indices, hour)
        s, slot = self._zones, half_hour % _SLOTS
        s["issued"][indices, slot] = half_hour
        s["share"][indices, slot] = share
        s["usual"][indices, slot] = usual
        s["hour"][indices, slot] = hour
        said = self._weights[0] + self._weights[1] * _log_odds(share) + self._weights[2] * _log_odds(usual)
        return np.asarray(1 / (1 + np.exp(-said)), dtype=np.float32), usual

    def take_over(self, other: ChanceCalibration, own: I64, theirs: I64) -> None:
        """Take what ``other``, of the same lead, knows of its zones ``theirs``, which are ``own`` here; and what it has
        learned of all, where nothing is known here yet.
        """
        for name in ("issued", "share", "usual", "hour", "came", "cases"):
            self._zones[name][own] = other._zones[name][theirs]
        if not self._count:
            self._examples, self._weights = other._examples.copy(), other._weights.copy()
            self._count, self._fitted = other._count, other._fitted

    def state_dict(self, copy: bool = True) -> dict[str, _Array]:
        """Everything that was learned (see :meth:`ZoneArrays.state_dict`)."""
        return {
            **self._zones.state_dict(copy), "examples": self._examples.copy(), "weights": self._weights.copy(),
            "counters": np.array([self._count, self._fitted]),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave, bit for bit; raises ``ValueError`` if it does not fit."""
        own = ("examples", "weights", "counters")
        self._zones.load_state_dict({name: held for name, held in state.items() if name not in own})
        self._examples, self._weights = state["examples"].copy(), state["weights"].copy()
        self._count, self._fitted = (int(number) for number in state["counters"])

    def _learn(self, indices: I64, half_hour: int, came: F32) -> None:
        origin = half_hour - self._lead
        s, slot = self._zones, origin % _SLOTS
        due = np.isfinite(came) & (s["issued"][indices, slot] == origin)
        zones, truth = indices[due], came[due]
        hour = s["hour"][zones, slot]
        s["came"][zones, hour] += truth - FORGET * s["came"][zones, hour]
        s["cases"][zones, hour] += 1 - FORGET * s["cases"][zones, hour]
        turn = max(-(-len(self._zones) // ZONES), 1)
        mine = np.isfinite(s["share"][zones, slot]) & ((origin + zones) % turn == 0)
        odds = [_log_odds(s[name][zones[mine], slot].astype(np.float32)) for name in ("share", "usual")]
        new = np.stack([*odds, truth[mine]], axis=-1)
        self._examples[(self._count + np.arange(len(new))) % EXAMPLES] = new
        self._count += len(new)

    def _fit(self) -> None:
        """The most probable weights, by Newton's method from the prior.

        Where scenarios are sure of what does not come a whole step goes far beyond, and the next one further. So a step
        is halved until the weights are no less likely.

        Half hours within a lead of each other wait for the same event, and zones of a site tell nearly the same. So a
        zone counts once a lead, and zones as the root of their number.
        """
        held = self._examples[: min(self._count, EXAMPLES)].astype(np.float64)
        if not len(held):
            return
        x = np.concatenate([np.ones((len(held), 1)), held[:, :2]], axis=1)
        weight = 1 / (self._lead * np.sqrt(min(len(self._zones), ZONES)))

        def likelihood(weights: F64) -> float:
            odds = x @ weights
            fits = held[:, 2] @ odds - np.logaddexp(0, odds).sum()
            return float(weight * fits - STRENGTH @ (weights - PRIOR) ** 2 / 2)

        found = PRIOR.copy()
        for _ in range(STEPS):
            said = 1 / (1 + np.exp(-(x @ found)))
            slope = weight * (x.T @ (held[:, 2] - said)) - STRENGTH * (found - PRIOR)
            curve = (x.T * (weight * said * (1 - said))) @ x + np.diag(STRENGTH)
            step, least = np.linalg.solve(curve, slope), likelihood(found) - ROUNDING
            while likelihood(found + step) < least:
                step = step / 2
            found = found + step
            if np.abs(step).max() < ROUNDING:
                break
        self._weights = found

    def _usual(self, indices: I64, hour: int) -> F32:
        """How often an event followed this hour of day: of the zone, and the less is known of it, of all zones."""
        s, count = self._zones, len(self._zones)
        came, cases = s["came"][:count], s["cases"][:count]
        rare = (came.sum() + RARE * RARE_CASES) / (cases.sum() + RARE_CASES)
        pooled = (came[:, hour].sum() + POOLED_CASES * rare) / (cases[:, hour].sum() + POOLED_CASES)
        own = (came[indices, hour] + POOLED_CASES * pooled) / (cases[indices, hour] + POOLED_CASES)
        return np.asarray(own, dtype=np.float32)


def _log_odds(chance: F32) -> F32:
    within = np.clip(chance, SURE, 1 - SURE)
    return np.asarray(np.log(within / (1 - within)))
