"""Step 7 of the way of a reading: how much each answer of a zone's first days counts.

An answer weighs a power of how wrong it has been. Before a zone has errors of its own they are those of simulated zones
(:mod:`models.online.prior`), in proportion to what its partition's young zones, the pool, are wrong by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["AnswerWeights"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Bool = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

POWER = 2.5
"""Answers are weighed by their errors to this negative power: 2 is best for errors that are independent."""

UNTRIED = 2.0
"""Before a day has been seen it may be no guide: until then yesterday's errors count as this many times the prior's.
Simulated houses are more regular than real ones, and a zone's first hours are often not its usual ones."""

OWN, POOL = 8.0, 2.0
"""The pool's errors weigh as much as this many examples of a zone's own, and the prior's as this many of the pool's."""

OWN_HOURS, OWN_HORIZONS = 3.0, 1.0
"""A zone's own errors fade with this time constant and this many times the horizon, counted in examples: on a day that
is unlike yesterday what yesterday says is soon distrusted at short horizons, at which errors come back soon."""

POOL_DAYS = 14.0
"""How long the pool remembers."""


class AnswerWeights:
    """Of many zones, vectorised over them; ``weight [Z, H, M, K]`` of ``zones`` are those of now."""

    def __init__(self, spec: ForecastSpec, answers: int, examples_a_day: int, capacity: int) -> None:
        cells = (len(spec.horizons_min), len(spec.targets), answers)
        fade_days = (OWN_HOURS + OWN_HORIZONS * np.array(spec.horizons_min)[:, None, None] / 60) / 24
        self._own_keep = np.exp(-1 / (fade_days * examples_a_day)).astype(np.float32)  # [H, 1, 1]
        self._keep = np.exp(-1 / (POOL_DAYS * examples_a_day))
        self._off, self._expected = np.zeros(cells), np.zeros(cells)  # the pool's
        self.zones = ZoneArrays(
            capacity,
            off=(cells, np.float32, 0.0),  # fading sums of errors, and of what the prior says of them
            expected=(cells, np.float32, 0.0),
            weight=(cells, np.float32, 0.0),
        )

    def learn(self, zones: I64, h: I64, off: F32, size: F32, part: float) -> None:
        """Errors ``off [Z, P, M, K]`` at horizons ``h [P]``, NaN where none is due, and the prior's ``size`` of them;
        of so large a ``part`` of a step's young zones.
        """
        s, zone, known = self.zones, zones[:, None], np.isfinite(off)
        off, size = np.where(known, off, np.float32(0)), np.where(known, size, np.float32(0))
        keep = np.where(known.any(axis=-1, keepdims=True), self._own_keep[h], np.float32(1))
        s["off"][zone, h] = keep * s["off"][zone, h] + off
        s["expected"][zone, h] = keep * s["expected"][zone, h] + size
        self._off[h] = self._keep**part * self._off[h] + off.sum(axis=0)
        self._expected[h] = self._keep**part * self._expected[h] + size.sum(axis=0)

    def weigh(self, zones: I64, mean: F32, size: F32, unit: F32, tried: _Bool) -> None:
        """Find each answer's weight, as errors are known now.

        The prior says ``mean [H, M, K]`` of the whole day and ``size [Z, H, M, K]`` at the hours that are forecast, in
        units ``[Z, M]`` of each zone; ``tried [Z, 1, M]`` is where a day has been seen.
        """
        s, unit = self.zones, unit[:, None, :, None]
        own, prior = np.float32(OWN) * mean, np.float32(POOL) * mean
        pool = ((prior + self._off) / (prior + self._expected)).astype(np.float32)
        factor = (own * unit * pool + s["off"][zones]) / (own * unit + s["expected"][zones])
        size = factor * size * unit
        size[..., 1] *= np.where(tried, np.float32(1), np.float32(UNTRIED))
        s["weight"][zones] = (size / size.min(axis=-1, keepdims=True)) ** np.float32(-POWER)

    def pool_state(self) -> dict[str, _Array]:
        """What all zones share; copies."""
        return {"pool_off": self._off.copy(), "pool_expected": self._expected.copy()}

    def load_pool(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`pool_state` gave."""
        self._off, self._expected = state["pool_off"].copy(), state["pool_expected"].copy()
