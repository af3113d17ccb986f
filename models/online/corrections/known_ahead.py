"""Step 8 of the way of a reading: what plans move a forecast by, learned from matured forecasts.

:class:`KnownAhead` regresses what the mixture of all experts leaves over on what was foreseen
(:mod:`models.features.plan_regressors`). What share of its answer is followed is learned from how far such answers were
right: for each horizon and target, of all zones together, and then of each zone. So plans without sense move little.
The intervals around what plans have moved are learned here too, from its own errors. No other part learns from plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.features.plan_regressors import Foreseen, KnownAheadFeatures, regressors, width
from models.features.plans import PLANNED
from models.online.basis import StepRows
from models.online.intervals import Intervals
from models.online.ridge import PooledRidge, prior_strength
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays, part_of

__all__ = ["KnownAhead"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

DAYS = 6.0
"""How long its regressions remember; several side by side gain nothing."""

PRIOR = 2.0
"""How many times stronger their prior is than that of the regressions on the rows: they have a good forecast to
spoil."""

LIMIT = 4.0
"""No regression moves a forecast by more than this many times the climatology's usual error."""

TRUST_DAYS = 20.0
"""How long it is remembered how far answers were right. A share that is late costs less than one that follows chance.
"""

TRUST_PRIOR = 100.0
"""At first answers are not followed at all, as if so many examples in which they moved by the usual error had shown
them to be useless; ..."""

ZONE_PRIOR = 20.0
"""... and a zone follows those of all zones, as if so many had shown them to be right there.

Like the regressions' prior these count examples a quarter of an hour apart. Where rows are further apart each example
tells as much as those between would have, and the priors are as many times weaker."""

_QUARTER_MS = 900_000
_HOURS = 24

LEAST = 0.3
"""Errors smaller than this share of the usual one count as this large when examples are weighed."""


class KnownAhead:
    """What plans move forecasts by, for many zones; ``slots`` and places are those of the forecaster's examples.

    Each step, for the zones that were ever given plans: :meth:`mature` with the truths that came, :meth:`see` with what
    is foreseen now; then, of an example, :meth:`keep`.
    """

    def __init__(self, spec: ForecastSpec, stride: int, slots: int, longest: int, capacity: int = 16) -> None:
        steps, targets, day = np.array(spec.horizon_steps), len(spec.targets), spec.steps_per_day
        k = len(PLANNED)
        self._stride, self._steps = stride, steps
        turn = np.arange(day) * (2 * np.pi / day)
        self._clock = np.stack([np.sin(turn), np.cos(turn)], axis=-1).astype(np.float32)
        self.features = KnownAheadFeatures(spec, capacity)
        quarters = max(stride * spec.step_ms / _QUARTER_MS, 1)
        self._trust_prior, self._zone_prior = TRUST_PRIOR / quarters, ZONE_PRIOR / quarters
        self.pooled = PooledRidge(PRIOR / quarters * prior_strength(spec), targets, width(), (DAYS,), day, stride)
        self.intervals = Intervals(len(steps), targets, max(day // stride // 24, 1), capacity)
        self._keep = np.float32(np.exp(-stride / (TRUST_DAYS * day)))
        cells = (len(steps), targets)
        self._moved, self._agreed = np.zeros(cells), np.zeros(cells)  # as of a zone, of all together
        self._zones = ZoneArrays(
            capacity,
            begun=((), np.bool_, False),
            stamp=((longest,), np.int32, -1),
            ahead=((slots, 3, k), np.int8, 0),
            now=((longest, 2, k), np.int8, 0),
            light=((slots,), np.float16, 0.0),
            said=((slots, targets), np.float16, 0.0),
            moves=((slots, targets), np.float16, 0.0),  # what the forecast was moved by, in the targets' units
            moved=(cells, np.float32, 0.0),  # sums of w c c, of what moved by c
            agreed=(cells, np.float32, 0.0),  # and of w c r, where r was wanted
        )

    def __len__(self) -> int:
        return len(self._zones)

    def add_zones(self, count: int = 1) -> None:
        """Make room for more zones."""
        self.features.add_zones(count)
        self.intervals.add_zones(count)
        self._zones.add(count)

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        for part in (self.features, self.intervals, self._zones):
            part.prepare(zones)

    def see(self, rows: StepRows) -> tuple[Foreseen, F32]:
        """What is foreseen from the rows of one step, and what that says, ``[Z, H, M]`` in usual errors."""
        assert rows.foreseen is not None
        seen = self.features.learn(rows.zones, rows.step, rows.values, rows.foreseen)
        light = np.nan_to_num(np.maximum(rows.sun[:, 1:], 0))
        clock = self._clock[(rows.day_bin[:, None] + self._steps) % len(self._clock)]
        x = regressors(seen.ahead, seen.now[:, None], light, clock)
        said = np.clip(self.pooled.predict(x[:, 0, :0], x)[..., 0], -LIMIT, LIMIT)
        return seen, np.where(seen.any[:, None, None], said, np.float32(0))

    def move(self, indices: I64, said: F32, unit: F64) -> F32:
        """What the forecasts are moved by, ``[Z, H, M]`` in the targets' units."""
        return np.asarray(said * self._share * self._share_of(indices) * unit.astype(np.float32))

    def keep(self, rows: StepRows, at: I64, seen: Foreseen, said: F32, moves: F32, plain: Intervals) -> None:
        """Remember an example until its truth comes: what :meth:`see` gave, and ``moves [Z, H, M]`` that its forecast
        was moved by.

        Intervals of a zone's first begin as those that were learned ``plain``, without plans.
        """
        s, indices, step, zone = self._zones, rows.zones, rows.step, rows.zones[:, None]
        place = step // self._stride % s["stamp"].shape[1]
        new = indices[seen.any & ~s["begun"][indices]]
        self.intervals.take(new, plain)
        s["begun"][new] = True
        s["stamp"][indices, place] = np.where(seen.any, step, -1)
        s["ahead"][zone, at], s["light"][zone, at] = seen.ahead, np.nan_to_num(np.maximum(rows.sun[:, 1:], 0))
        s["now"][indices, place] = seen.now
        s["said"][zone, at], s["moves"][zone, at] = said, moves

    def moved(self, zones: I64, step: int, at: I64) -> F32:
        """What the forecasts of ``step`` that wait at ``at [N]`` were moved by, ``[N, M]``."""
        s = self._zones
        there = s["stamp"][zones, step // self._stride % s["stamp"].shape[1]] == step
        return np.where(there[:, None], s["moves"][zones, at].astype(np.float32), np.float32(0))

    def moves_of_matured(self, zones: I64, step: int, h: I64, at: I64) -> F32:
        """What the forecasts of horizons ``h [P]`` whose truth comes at ``step``, and which wait at ``at [P]``, were
        moved by: ``[Z, P, M]``.
        """
        moves = [self.moved(zones, int(step - self._steps[one]), np.full(len(zones), place))
                 for one, place in zip(h.tolist(), at.tolist(), strict=True)]  # fmt: skip
        return np.stack(moves, axis=1)

    def mature(
        self, rows: StepRows, h: I64, at: I64, missed: F32, unit: F64, taking_part: npt.NDArray[np.bool_]
    ) -> None:  # fmt: skip
        """Learn from the examples of horizons ``h [P]`` at places ``at [P]`` whose truth has come in ``rows``.
        Forecasts without plans were off by ``missed [Z, P, M]``, NaN where unknown; ``taking_part`` says which of all
        zones had rows of late.
        """
        indices, step, day_bin = rows.zones, rows.step, rows.day_bin
        s, zone, origins = self._zones, indices[:, None], step - self._steps[h]
        place = origins // self._stride % s["stamp"].shape[1]
        due = s["stamp"][zone, place] == origins
        if not due.any():
            return
        missed = np.where(due[..., None], missed, np.float32(np.nan))
        part = part_of(int(due.any(axis=1).sum()), taking_part & s["begun"][: len(s)])
        hour = day_bin * _HOURS // len(self._clock)
        self.intervals.learn(indices, h, hour, missed - s["moves"][zone, at], part)
        wanted = (missed / unit[h]).astype(np.float32)
        there = np.broadcast_to(self._clock[day_bin][:, None], (*due.shape, 2))
        x = regressors(s["ahead"][zone, at], s["now"][zone, place], s["light"][zone, at].astype(np.float32), there)
        self._learn_shares(zone, h, s["said"][zone, at].astype(np.float32), wanted, part)
        self.pooled.learn(h, step, x, wanted)

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """Everything that was learned."""
        return {
            "features": self.features.state_dict(copy), "pooled": self.pooled.state_dict(),
            "intervals": self.intervals.state_dict(copy),
            "zones": self._zones.state_dict(copy), "moved": self._moved.copy(), "agreed": self._agreed.copy(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` where it does not fit."""
        for name in ("features", "pooled", "intervals"):
            getattr(self, name).load_state_dict(state[name])
        self._zones.load_state_dict(state["zones"])
        self._moved, self._agreed = state["moved"].copy(), state["agreed"].copy()

    @property
    def _share(self) -> F32:
        """What share of the answers is followed, ``[H, M]``, 0 to 1."""
        return _share(self._moved + self._trust_prior, self._agreed)

    def _share_of(self, indices: I64) -> F32:
        """And what share of that by each zone, ``[Z, H, M]``, 0 to 1."""
        s, prior = self._zones, np.float32(self._zone_prior)
        return _share(s["moved"][indices] + prior, s["agreed"][indices] + prior)

    def _learn_shares(self, zone: I64, h: I64, said: F32, wanted: F32, part: float) -> None:
        """Learn from answers ``said [Z, P, M]`` and what was ``wanted``; ``part`` as in :meth:`Intervals.learn`."""
        s, ok = self._zones, np.isfinite(wanted)
        r, followed = np.where(ok, wanted, np.float32(0)), said * self._share[h]
        w = ok / np.maximum(np.abs(r - said), np.float32(LEAST))
        keep = self._keep ** np.float32(part)
        self._moved[h] = self._moved[h] * keep + (w * said * said).sum(axis=0)
        self._agreed[h] = self._agreed[h] * keep + (w * said * r).sum(axis=0)
        w = ok / np.maximum(np.abs(r - followed), np.float32(LEAST))
        for name, other in (("moved", followed), ("agreed", r)):
            held = s[name][zone, h]
            s[name][zone, h] = np.where(ok, held * self._keep + w * followed * other, held)


def _share(moved: _Array, agreed: _Array) -> F32:
    """The factor that the answers should have had, by least squares."""
    return np.asarray(np.clip(agreed / moved, 0, 1), np.float32)
