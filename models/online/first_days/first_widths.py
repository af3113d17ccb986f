"""Step 7 of the way of a reading: how wide a forecast is in a zone's first days, from the first one on.

The widths are the errors' sizes: the prior's, corrected by those of the zone's own horizons around, of the horizon
itself, and of its partition's young zones, the pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.half_precision import LARGEST, cut
from models.spec import QUANTILES, ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["FirstWidths"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Bool = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

WIDTH = 1.8
"""Half an interval in mean absolute errors; a Laplace distribution has 1.61, and a mean of few is uncertain ..."""

UNSURE, SURE = 1.0, 192.0
"""... without errors it is more so: it is wider by this share, and half of that is left after this many examples."""

UNTOLD = WIDTH * (1 + UNSURE)
"""Half an interval of a zone that has no errors yet, in the prior's sizes."""

WIDTH_DAYS = 0.5
"""How long the size of errors is remembered."""

WIDTH_STEP = 0.04
"""The logarithm of a width moves up by four fifths of this after a miss, and down by a fifth after a hit."""

NEAR = 1.0
"""Errors of horizons within this many octaves tell about each other's size ..."""

WIDTH_OWN, WIDTH_PRIOR, WIDTH_POOL = 4.0, 8.0, 2.0
"""... and weigh as much as this many examples of the horizon itself; so does the pool in them, and the prior in the
pool."""


class FirstWidths:
    """Of many zones, vectorised over them. ``places`` are those in which forecasts wait for their truth."""

    def __init__(self, spec: ForecastSpec, places: int, examples_a_day: int, capacity: int) -> None:
        steps = np.array(spec.horizon_steps, dtype=np.int64)
        octaves = np.abs(np.log2(steps)[:, None] - np.log2(steps))
        self._near = np.exp(-octaves / NEAR).astype(np.float32)
        self._keep = np.float32(np.exp(-1 / (WIDTH_DAYS * examples_a_day)))
        targets = len(spec.targets)
        cells = (len(steps), targets)
        self._missed, self._counted = np.zeros(cells), np.zeros(cells)  # the pool's
        self.zones = ZoneArrays(
            capacity,
            issued=((places, targets), np.float16, np.nan),
            missed=(cells, np.float32, 0.0),  # sums of errors of what was issued, in the prior's sizes
            counted=(cells, np.float32, 0.0),
            swing=(cells, np.float32, 0.0),  # logarithm of what misses and hits made of the width
            bound=((places, targets), np.float16, np.nan),  # half the interval then, in the same
            half=(cells, np.float32, WIDTH),  # half an interval, in the prior's sizes
        )

    def issued(self, zones: I64, at: I64) -> F32:
        """What was forecast and waits at ``at [P]`` for its truth, ``[Z, P, M]``."""
        return np.asarray(self.zones["issued"][zones[:, None], at], dtype=np.float32)

    def issue(self, zones: I64, at: I64, median: F32, where: _Bool | None = None) -> None:
        """Keep what was forecast, ``median [Z, ..., M]``, at ``at`` until its truth comes; only ``where``, if given."""
        issued, clipped = self.zones["issued"], cut(median)
        issued[zones, at] = clipped if where is None else np.where(where, clipped, issued[zones, at])

    def bind(self, indices: I64, at: I64) -> None:
        """Keep how wide the intervals are now, of all horizons, at ``at [H]``."""
        self.zones["bound"][indices[:, None], at] = np.minimum(self.zones["half"][indices], np.float32(LARGEST))

    def learn(self, zones: I64, h: I64, at: I64, y: F32, size: F32, part: float) -> None:
        """Truths ``y [Z, P, M]`` at horizons ``h [P]`` of what waited at ``at [P]``, NaN where none is due, and the
        prior's ``size`` of its errors; of so large a ``part`` of a step's young zones.
        """
        s, zone = self.zones, zones[:, None]
        missed = np.abs(y - s["issued"][zone, at]) / size
        known = np.isfinite(missed)
        missed = np.where(known, missed, np.float32(0))
        beyond = (missed > s["bound"][zone, at]) - np.float32(2 * QUANTILES[0])
        s["swing"][zone, h] += np.float32(WIDTH_STEP) * np.where(known, beyond, np.float32(0))
        for name, pool, added in (("missed", self._missed, missed), ("counted", self._counted, known)):
            s[name][zone, h] = self._keep * s[name][zone, h] + added
            pool[h] = self._keep**part * pool[h] + added.sum(axis=0)

    def widen(self, zones: I64) -> None:
        """Find half an interval in the prior's sizes, as errors are known now."""
        s = self.zones
        missed, counted = s["missed"][zones], s["counted"][zones]
        pool = (WIDTH_POOL + self._missed) / (WIDTH_POOL + self._counted)
        near = [
            (self._near @ part.swapaxes(0, 1).reshape(len(self._near), -1)).reshape(len(self._near), *part[:, 0].shape)
            for part in (missed, counted)
        ]
        around = np.swapaxes((WIDTH_PRIOR * pool[:, None] + near[0]) / (WIDTH_PRIOR + near[1]), 0, 1)
        size = (WIDTH_OWN * around + missed) / (WIDTH_OWN + counted)
        wide = WIDTH * (1 + UNSURE / (1 + counted / SURE)) * np.exp(np.clip(s["swing"][zones], -3, 3))
        s["half"][zones] = size * wide

    def half(self, indices: I64, horizons: I64) -> F32:
        """Half an interval of these ``horizons [P]``, in the prior's sizes, ``[Z, P, M]``."""
        return np.asarray(self.zones["half"][indices][:, horizons])

    def pool_state(self) -> dict[str, _Array]:
        """What all zones share; copies."""
        return {"pool_missed": self._missed.copy(), "pool_counted": self._counted.copy()}

    def load_pool(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`pool_state` gave."""
        self._missed, self._counted = state["pool_missed"].copy(), state["pool_counted"].copy()
