"""Step 8 of the way of a reading: what plans move a forecast by, learned from matured forecasts.

:class:`KnownAhead` regresses what the mixture of all experts leaves over on what was foreseen
(:mod:`models.features.known_ahead`). A mixture weighs its regressions, cell by cell, against leaving the forecast as it
is, and each zone learns how far they are to be trusted there. So plans that say nothing move nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.features.known_ahead import Foreseen, KnownAheadFeatures, regressors, width
from models.features.plans import PLANNED
from models.online.mixture import Mixture
from models.online.ridge import PooledRidge, prior_strength
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["KnownAhead"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

DAYS = (6.0,)
"""How long its regressions remember: one, since several gain nothing."""

PRIOR = 2.0
"""Their prior is so many times that of the regressions on the rows: they have a good forecast to spoil."""

LIMIT = 4.0
"""No regression moves a forecast by more than this many times the climatology's usual error."""

TRUST_DAYS = 4.0
"""How long a zone's errors with and without what is known ahead are remembered."""

TRUST_PRIOR = 30.0
"""At first a zone trusts what all zones have learned, as if so many examples that move its forecast by the usual error
had said so."""

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
        self.pooled = PooledRidge(PRIOR * prior_strength(spec), targets, width(), DAYS, day)
        self.mixture = Mixture(len(steps), targets, 1 + len(DAYS), day)
        self._keep = np.float32(np.exp(-1 / (TRUST_DAYS * day / stride)))
        cells = (len(steps), targets)
        self._zones = ZoneArrays(
            capacity,
            stamp=((slots,), np.int64, -1),
            ahead=((slots, 3, k), np.int8, 0),
            now=((longest, 2, k), np.int8, 0),
            light=((slots,), np.float16, 0.0),
            said=((slots, targets, len(DAYS)), np.float16, 0.0),
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
        """What is foreseen from the rows of one step, and what each regression says, ``[Z, H, M, R]`` in usual errors.

        ``foreseen`` is as :meth:`Plans.ahead` gives it, ``sun [Z, 1 + H]`` as for the forecaster, ``clock [Z, H, 2]``
        sine and cosine of the hour at each horizon.
        """
        seen = self.features.learn(indices, step, values, foreseen)
        light = np.nan_to_num(np.maximum(sun[:, 1:], 0))
        x = regressors(seen.ahead, seen.now[:, None], light, clock)
        said = np.clip(self.pooled.predict(x[:, 0, :0], x), -LIMIT, LIMIT)
        return seen, np.where(seen.any[:, None, None, None], said, np.float32(0))

    def move(self, indices: I64, said: F32, unit: F64) -> F32:
        """What the forecasts are moved by, ``[Z, H, M]`` in the targets' units."""
        mixed = self.mixture.predict(said) * self._trust(indices)
        return np.asarray(mixed * unit.astype(np.float32))

    def keep(self, indices: I64, step: int, at: I64, seen: Foreseen, said: F32, plain: F32, sun: F32) -> None:
        """Remember an example until its truth comes: ``plain [Z, H, M]`` is the forecast that was moved."""
        s, zone = self._zones, indices[:, None]
        s["stamp"][zone, at] = np.where(seen.any, step, -1)[:, None]
        s["ahead"][zone, at], s["light"][zone, at] = seen.ahead, np.nan_to_num(np.maximum(sun[:, 1:], 0))
        s["now"][indices, step // self._stride % s["now"].shape[1]] = seen.now
        s["said"][zone, at], s["plain"][zone, at] = said, plain

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
        said = s["said"][zone, at].astype(np.float32)
        self._learn_trust(zone, h, (said * self._weights[h]).sum(axis=-1), wanted)
        self.pooled.learn(h, step, x, wanted)
        self.mixture.learn(h, step, said, wanted)

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """Everything that was learned."""
        return {
            "features": self.features.state_dict(copy), "pooled": self.pooled.state_dict(),
            "mixture": self.mixture.state_dict(), "zones": self._zones.state_dict(copy),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` where it does not fit."""
        for name in ("features", "pooled", "mixture"):
            getattr(self, name).load_state_dict(state[name])
        self._zones.load_state_dict(state["zones"])

    @property
    def _weights(self) -> F32:
        """Of each regression, ``[H, M, R]``."""
        return np.asarray(self.mixture.weights[..., 1:], np.float32)

    def _trust(self, indices: I64) -> F32:
        """What share of what all zones have learned holds in each, ``[Z, H, M]``, 0 to 1."""
        s, prior = self._zones, np.float32(TRUST_PRIOR)
        share = (s["agreed"][indices] + prior) / (s["moved"][indices] + prior)
        return np.asarray(np.clip(share, 0, 1), np.float32)

    def _learn_trust(self, zone: I64, h: I64, moved: F32, wanted: F32) -> None:
        s, ok = self._zones, np.isfinite(wanted)
        r = np.where(ok, wanted, np.float32(0))
        w = ok / np.maximum(np.abs(r - moved), np.float32(LEAST))
        for name, other in (("moved", moved), ("agreed", r)):
            held = s[name][zone, h]
            s[name][zone, h] = np.where(ok, held * self._keep + w * moved * other, held)
