"""Step 8 of the way of a reading: what plans move a forecast by, learned from matured forecasts.

:class:`KnownAhead` regresses what the mixture of all experts leaves over on what was foreseen
(:mod:`models.features.known_ahead`). What share of its answer is followed is learned from how far such answers were
right: for each horizon and target, of all zones together, and then of each zone. So plans without sense move little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.features.known_ahead import Foreseen, KnownAheadFeatures, regressors, width
from models.features.plans import PLANNED
from models.online.ridge import PooledRidge, prior_strength
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["KnownAhead"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

DAYS = 6.0
"""How long its regressions remember; several side by side gain nothing."""

PRIOR = 2.0
"""Their prior is so many times that of the regressions on the rows: they have a good forecast to spoil."""

LIMIT = 4.0
"""No regression moves a forecast by more than this many times the climatology's usual error."""

TRUST_DAYS = (20.0, 15.0)
"""How long it is remembered how far answers were right: of all zones, and of one. A share that is late costs less than
one that follows chance."""

TRUST_PRIOR = (15.0, 20.0)
"""At first answers are followed whole, as if so many examples that they moved by the usual error had said so; a zone
those of all zones."""

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
        self._spec, self._stride, self._steps = spec, stride, steps
        self._horizons, self._targets = len(steps), targets
        self.features = KnownAheadFeatures(spec, capacity)
        self.pooled = PooledRidge(PRIOR * prior_strength(spec), targets, width(), (DAYS,), day)
        examples = np.array(TRUST_DAYS) * day / stride
        self._forget = np.exp(-1 / examples).astype(np.float32)
        cells = (len(steps), targets)
        self._moved, self._agreed = np.zeros(cells), np.zeros(cells)  # as of a zone, of all together
        self._zones = ZoneArrays(
            capacity,
            stamp=((slots,), np.int64, -1),
            ahead=((slots, 3, k), np.int8, 0),
            now=((longest, 2, k), np.int8, 0),
            light=((slots,), np.float16, 0.0),
            said=((slots, targets), np.float16, 0.0),
            followed=((slots, targets), np.float16, 0.0),
            plain=((slots, targets), np.float16, np.nan),
            moved=(cells, np.float32, 0.0),  # sums of w c c, of what moved by c
            agreed=(cells, np.float32, 0.0),  # and of w c r, where r was wanted
        )

    def __len__(self) -> int:
        return len(self._zones)

    def add_zones(self, count: int = 1) -> None:
        """Make room for more zones."""
        self.features.add_zones(count)
        self._zones.add(count)

    def see(self, indices: I64, step: int, values: F32, foreseen: F32, sun: F32, clock: F32) -> tuple[Foreseen, F32]:
        """What is foreseen from the rows of one step, and what that says, ``[Z, H, M]`` in usual errors.

        ``foreseen`` is as :meth:`Plans.ahead` gives it, ``sun [Z, 1 + H]`` as for the forecaster, ``clock [Z, H, 2]``
        sine and cosine of the hour at each horizon.
        """
        seen = self.features.learn(indices, step, values, foreseen)
        light = np.nan_to_num(np.maximum(sun[:, 1:], 0))
        x = regressors(seen.ahead, seen.now[:, None], light, clock)
        said = np.clip(self.pooled.predict(x[:, 0, :0], x)[..., 0], -LIMIT, LIMIT)
        return seen, np.where(seen.any[:, None, None], said, np.float32(0))

    def move(self, indices: I64, said: F32, unit: F64) -> F32:
        """What the forecasts are moved by, ``[Z, H, M]`` in the targets' units."""
        return np.asarray(said * self._share * self._share_of(indices) * unit.astype(np.float32))

    def keep(self, indices: I64, step: int, at: I64, seen: Foreseen, said: F32, plain: F32, sun: F32) -> None:
        """Remember an example until its truth comes: ``plain [Z, H, M]`` is the forecast that was moved."""
        s, zone = self._zones, indices[:, None]
        s["stamp"][zone, at] = np.where(seen.any, step, -1)[:, None]
        s["ahead"][zone, at], s["light"][zone, at] = seen.ahead, np.nan_to_num(np.maximum(sun[:, 1:], 0))
        s["now"][indices, step // self._stride % s["now"].shape[1]] = seen.now
        s["said"][zone, at], s["followed"][zone, at], s["plain"][zone, at] = said, said * self._share, plain

    def mature(self, indices: I64, step: int, h: I64, at: I64, y: F32, clock: F32, unit: F64) -> None:
        """Learn from the examples of horizons ``h [P]`` at places ``at [P]``, whose truth is ``y [Z, M]``.

        ``clock [Z, 2]`` is the hour now.
        """
        s, zone, origins = self._zones, indices[:, None], step - self._steps[h]
        due = s["stamp"][zone, at] == origins
        if not due.any():
            return
        plain = s["plain"][zone, at].astype(np.float32)
        wanted = np.where(due[..., None], (y[:, None] - plain) / unit[h], np.nan).astype(np.float32)  # [Z, P, M]
        now = s["now"][zone, origins // self._stride % s["now"].shape[1]]
        there = np.broadcast_to(clock[:, None], (*due.shape, 2))
        x = regressors(s["ahead"][zone, at], now, s["light"][zone, at].astype(np.float32), there)
        self._learn_shares(zone, h, *(s[name][zone, at].astype(np.float32) for name in ("said", "followed")), wanted)
        self.pooled.learn(h, step, x, wanted)

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """Everything that was learned."""
        return {
            "features": self.features.state_dict(copy), "pooled": self.pooled.state_dict(),
            "zones": self._zones.state_dict(copy), "moved": self._moved.copy(), "agreed": self._agreed.copy(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` where it does not fit."""
        for name in ("features", "pooled"):
            getattr(self, name).load_state_dict(state[name])
        self._zones.load_state_dict(state["zones"])
        self._moved, self._agreed = state["moved"].copy(), state["agreed"].copy()

    @property
    def _share(self) -> F32:
        """What share of the answers is followed, ``[H, M]``, 0 to 1."""
        return _share(self._moved, self._agreed, TRUST_PRIOR[0])

    def _share_of(self, indices: I64) -> F32:
        """And what share of that by each zone, ``[Z, H, M]``, 0 to 1."""
        return _share(self._zones["moved"][indices], self._zones["agreed"][indices], TRUST_PRIOR[1])

    def _learn_shares(self, zone: I64, h: I64, said: F32, followed: F32, wanted: F32) -> None:
        """Answers ``[Z, P, M]`` that were given, what of them all zones were to follow, and what had been right."""
        s, ok = self._zones, np.isfinite(wanted)
        r = np.where(ok, wanted, np.float32(0))
        w = ok / np.maximum(np.abs(r - said), np.float32(LEAST))
        self._moved[h] = self._moved[h] * self._forget[0] + (w * said * said).sum(axis=0)
        self._agreed[h] = self._agreed[h] * self._forget[0] + (w * said * r).sum(axis=0)
        w = ok / np.maximum(np.abs(r - followed), np.float32(LEAST))
        for name, other in (("moved", followed), ("agreed", r)):
            held = s[name][zone, h]
            s[name][zone, h] = np.where(ok, held * self._forget[1] + w * followed * other, held)


def _share(moved: _Array, agreed: _Array, prior: float) -> F32:
    """The factor that the answers should have had, by least squares."""
    return np.asarray(np.clip((agreed + prior) / (moved + prior), 0, 1), np.float32)
