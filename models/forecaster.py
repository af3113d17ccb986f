"""Step 7 of the way of a reading: the whole forecast of a zone, learned online.

:class:`OnlineForecaster` composes the three-rate climatology, ridges and trees on what it leaves over, the network's
answer where there is one, the mixture that weighs them and the intervals around it. It has no clock, no I/O and no
torch, so that whoever has rows can run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.baselines import Climatology
from models.features import targets_of
from models.growing import Growing
from models.intervals import Intervals
from models.mixture import Mixture
from models.online import Features, PooledRidge, ZoneRidge, prior_strength
from models.spec import QUANTILES, ForecastSpec
from models.trees import Forest

__all__ = ["EXPERTS", "Example", "Learned", "OnlineForecaster"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

EXAMPLE_MS = 900_000
"""Learners take an example every quarter of an hour: rows between say nearly the same."""

POOLED_DAYS = (2.5, 6.0, 15.0)
ZONE_DAYS = 7.0
REFITS_A_DAY = 4
UNIT_DAYS = 14.0
LIMIT = 6.0
"""No expert departs from the climatology by more than this many times its usual error."""

EXPERTS = (
    "climatology", "climatology 1 d", "profile 1 d", *(f"pooled ridge {days:g} d" for days in POOLED_DAYS),
    "zone ridge", "trees", "network",
)  # fmt: skip
"""The first is what the others correct, and answers where they do not."""

_HOURS = 24


@dataclass(frozen=True, slots=True)
class Example:
    """What was known of zones at one step, and the targets there: an earlier example's truth."""

    step: int
    zones: I64  # [Z]
    common: F32  # [Z, D']
    ahead: F32  # [Z, H, E']
    base: F32  # [Z, H, M], the climatology's forecast
    y: F32  # [Z, M]


@dataclass(frozen=True, slots=True)
class Learned:
    """What a forecast from one step's rows needs: given by :meth:`OnlineForecaster.learn`, taken by ``predict``."""

    step: int
    zones: I64  # [Z]
    day_bin: I64  # [Z]
    experts: F32  # [Z, H, M, K], in the order of EXPERTS; the network's place is NaN
    example: Example

    @property
    def baseline(self) -> F32:
        """The climatology's median, ``[Z, H, M]``."""
        return self.experts[..., 0]


class OnlineForecaster:
    """Forecasts of many zones, vectorised over them, with bounded state.

    Each step, for the zones whose rows closed: :meth:`learn`, then :meth:`predict`, now or some steps later, when the
    network's answer is there; the latter remembers the newest forecast of an origin, so that intervals and mixture
    learn how good it was. ``step`` numbers steps of ``spec.step_ms`` on one time line and never goes back; a zone
    without a row takes part with NaN, or is left out for a while.
    """

    def __init__(self, spec: ForecastSpec, capacity: int = 16) -> None:
        self._spec = spec
        steps = self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        horizons, targets, day = len(steps), len(spec.targets), spec.steps_per_day
        self._stride = max(round(EXAMPLE_MS / spec.step_ms), 1)
        self._refit_every = max(day // self._stride // REFITS_A_DAY, 1)
        self.climatology = Climatology(spec, capacity)
        self.features = Features(spec, capacity)
        d, e = self.features.width
        own_common, own_ahead = self.features.zone_columns
        self._own = own_common, own_ahead
        prior = prior_strength(spec)
        self.pooled = PooledRidge(prior, targets, d + e, POOLED_DAYS, day)
        self.zonal = ZoneRidge(prior, targets, len(own_common) + len(own_ahead), ZONE_DAYS, day, capacity)
        self.mixture = Mixture(horizons, targets, len(EXPERTS), day)
        self.intervals = Intervals(horizons, targets, max(day // self._stride // _HOURS, 1), capacity)
        # An origin of horizon h waits in one of this many slots until its truth comes.
        self._slots = steps // self._stride + 1
        self._first = np.concatenate([[0], np.cumsum(self._slots)[:-1]])
        total, longest = int(self._slots.sum()), int(self._slots.max())
        self._zones = Growing(
            capacity,
            stamp=((longest,), np.int64, -1),
            common=((longest, d), np.float32, 0.0),
            ahead=((total, e), np.float32, 0.0),
            experts=((total, targets, len(EXPERTS)), np.float32, np.nan),
            median=((total, targets), np.float32, np.nan),
            base=((total, targets), np.float32, np.nan),
            error=((horizons, targets), np.float32, np.nan),
        )
        self.forest = Forest(horizons, targets)
        self._unit = np.full((horizons, targets), np.nan)
        self._unit_seen = np.zeros((horizons, targets))
        low, high = zip(*spec.limits, strict=True)
        self._low, self._high = np.array(low, dtype=np.float32), np.array(high, dtype=np.float32)

    def __len__(self) -> int:
        return len(self._zones)

    def add_zone(self) -> int:
        """Make room for one more zone and return its index; the first is 0."""
        for part in (self.climatology, self.features, self.zonal, self.intervals):
            part.add_zone()
        return self._zones.add()

    def learn(self, indices: I64, step: int, values: F32, day_bin: I64, sun: F32) -> Learned:
        """Take the rows of one step: ``values [Z, C]``, ``day_bin [Z]``, ``sun [Z, 1 + H]`` (see :class:`Features`)."""
        y = targets_of(values, self._spec)
        y = np.where(np.isfinite(y), y, np.float32(np.nan))
        self._mature(indices, step, y, day_bin)
        self.climatology.learn(indices, y, day_bin)
        profiles, members = self.climatology.members(indices, y, day_bin)
        base = self.climatology.predict(indices, y, day_bin)[..., 1]
        unit = self.unit
        error = self.climatology.latest_errors(indices)
        common, ahead, detail, planned = self.features.learn(
            indices, step, values, day_bin, sun, base, profiles[:, [0, -1]], error, unit
        )
        example = step % self._stride == 0
        if example:
            self._refit(indices, step // self._stride)
        small = np.concatenate(
            [np.repeat(common[:, None, self._own[0]], len(self._steps), axis=1), ahead[..., self._own[1]]], axis=-1
        )
        room = (LIMIT * unit).astype(np.float32)
        ridges = np.concatenate(
            [self.pooled.predict(common, ahead), self.zonal.predict(indices, small)[..., None]], axis=-1
        )
        ridges = np.clip(ridges * unit[..., None], -room[..., None], room[..., None]) + base[..., None]
        none = np.full_like(base, np.nan)
        seen = Example(step, indices.copy(), np.concatenate([common, detail], axis=1),
                       np.concatenate([ahead, planned], axis=-1), base, y)  # fmt: skip
        trees = self._trees(seen, unit)
        experts = np.stack(
            [base, members[:, 0], profiles[:, 0], *np.moveaxis(ridges, -1, 0), trees, none], axis=-1, dtype=np.float32
        )
        if example:
            s = self._zones
            place = step // self._stride
            at = self._first + place % self._slots
            longest = s["stamp"].shape[1]
            s["stamp"][indices, place % longest] = step
            s["common"][indices, place % longest] = common
            s["ahead"][indices[:, None], at] = ahead
            s["experts"][indices[:, None], at] = experts
            s["base"][indices[:, None], at] = base
            s["median"][indices[:, None], at] = np.nan
        return Learned(step, seen.zones, day_bin.copy(), experts, seen)

    def predict(self, learned: Learned, network: F32 | None = None) -> F32:
        """Forecast from the rows that were ``learned``: ``[Z, H, M, Q]``, p10 <= p50 <= p90.

        ``network [Z, H, M]`` is the network's median for the same origins, NaN or ``None`` where there is none.
        """
        experts = learned.experts
        if network is not None:
            experts = experts.copy()
            experts[..., -1] = network
        base = experts[..., 0]
        unit = self.unit.astype(np.float32)
        deviations = np.asarray((experts - base[..., None]) / unit[..., None], dtype=np.float32)
        mixed = base + self.mixture.predict(deviations) * unit
        median = np.asarray(np.clip(mixed, self._low, self._high), dtype=np.float32)
        self._remember(learned, median, experts[..., -1])
        below, above = self.intervals.predict(learned.zones, self._hours(learned.day_bin, self._steps))
        low, high = self._low[:, None], self._high[:, None]
        quantiles = np.stack([median - below, median, median + above], axis=-1)
        return np.asarray(np.clip(quantiles, low, high), dtype=np.float32)

    def state_dict(self) -> dict[str, Any]:
        """Everything that was learned, as nested maps of arrays; copies."""
        parts = {name: getattr(self, name).state_dict() for name in _PARTS}
        return {**parts, "zones": self._zones.state_dict(), "unit": self._unit.copy(), "seen": self._unit_seen.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` where it does not fit."""
        for name in _PARTS:
            getattr(self, name).load_state_dict(state[name])
        self._zones.load_state_dict(state["zones"])
        self._unit, self._unit_seen = state["unit"].copy(), state["seen"].copy()

    @property
    def unit(self) -> F64:
        """The climatology's usual error, ``[H, M]``: what experts' answers are measured in."""
        return np.where(self._unit > 1e-9, self._unit, 1.0)

    def _remember(self, learned: Learned, median: F32, network: F32) -> None:
        """Keep a forecast until its truth comes, in those slots that no newer origin has taken."""
        if learned.step % self._stride:
            return
        s, place = self._zones, learned.step // self._stride
        at = self._first + place % self._slots
        newest = s["stamp"][learned.zones].max(axis=1) // self._stride
        z, h = np.nonzero(newest[:, None] - place < self._slots)
        s["median"][learned.zones[z], at[h]] = median[z, h]
        s["experts"][learned.zones[z], at[h], :, -1] = network[z, h]

    def _trees(self, seen: Example, unit: F64) -> F32:
        """The forest's answers; NaN where there is none. Between examples nobody learns from them."""
        answer = self.forest.predict(seen.common, seen.ahead) * unit + seen.base
        return np.asarray(answer, dtype=np.float32)

    def _hours(self, day_bin: I64, steps: I64) -> I64:
        return (day_bin[:, None] + steps) % self._spec.steps_per_day * _HOURS // self._spec.steps_per_day

    def _refit(self, indices: I64, place: int) -> None:
        """Solve the horizons whose turn it is: the work is spread over the day."""
        for h in range(len(self._steps)):
            if (place - h * self._refit_every // len(self._steps)) % self._refit_every == 0:
                self.pooled.refit(h)
                self.zonal.refit(indices, h)
                self.mixture.refit(h)

    def _mature(self, indices: I64, step: int, y: F32, day_bin: I64) -> None:
        """Let every part learn from the forecasts whose truth this row is."""
        s = self._zones
        hour = self._hours(day_bin, np.zeros(1, np.int64))[:, 0]
        unit_before = self.unit.astype(np.float32)
        for h, ahead in enumerate(self._steps):
            origin = step - ahead
            if origin < 0 or origin % self._stride:
                continue
            place = origin // self._stride
            common_at, at = place % s["stamp"].shape[1], self._first[h] + place % self._slots[h]
            due = s["stamp"][indices, common_at] == origin
            if not due.any():
                continue
            zones, truth = indices[due], y[due]
            base = s["base"][zones, at]
            residual = truth - base
            self._learn_unit(h, residual)
            scaled = residual / unit_before[h]
            common, further = s["common"][zones, common_at], s["ahead"][zones, at]
            self.pooled.learn(h, step, np.concatenate([common, further], axis=1), scaled)
            small = np.concatenate([common[:, self._own[0]], further[:, self._own[1]]], axis=1)
            self.zonal.learn(zones, h, step, small, scaled)
            experts = (s["experts"][zones, at] - base[..., None]) / unit_before[h][:, None]
            self.mixture.learn(h, step, experts, scaled)
            self.intervals.learn(zones, h, hour[due], truth - s["median"][zones, at])

    def _learn_unit(self, horizon: int, residual: F32) -> None:
        known = np.isfinite(residual)
        count = known.sum(axis=0)
        mean = np.where(known, np.abs(residual), 0).sum(axis=0, dtype=np.float64) / np.maximum(count, 1)
        self._unit_seen[horizon] += count > 0
        slowest = self._stride / (UNIT_DAYS * self._spec.steps_per_day)
        gain = np.maximum(1 / np.maximum(self._unit_seen[horizon], 1), slowest)
        held = np.where(np.isnan(self._unit[horizon]), mean, self._unit[horizon])
        self._unit[horizon] = np.where(count > 0, held + gain * (mean - held), self._unit[horizon])


_PARTS = ("climatology", "features", "pooled", "zonal", "forest", "mixture", "intervals")
assert QUANTILES == (0.1, 0.5, 0.9)
