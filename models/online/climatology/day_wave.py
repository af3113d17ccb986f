"""Step 7 of the way of a reading: what the last day's deviations from a profile have in common.

A level and one period a day. Three numbers from a whole day are less noisy than that day itself, and less behind than a
mean of days.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.online.climatology.three_by_three import solve_symmetric
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["DayWave"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

TERMS = 3

MEMORY_DAYS = 1.0
"""How long the wave remembers."""

PRIOR = 2.0
"""Its prior says that there is no wave, and weighs as much as this many examples."""


class DayWave:
    """Ridge regression with forgetting of deviations on the hour of day, vectorised over zones."""

    def __init__(self, spec: ForecastSpec, examples_a_day: int, capacity: int) -> None:
        day, targets = spec.steps_per_day, len(spec.targets)
        turn = np.arange(day) * (2 * np.pi / day)
        self._terms = np.stack([np.ones(day), np.sin(turn), np.cos(turn)], axis=-1).astype(np.float32)
        self._keep = np.float32(np.exp(-1 / (MEMORY_DAYS * examples_a_day)))
        self.zones = ZoneArrays(
            capacity,
            wave_moment=((targets, TERMS, TERMS), np.float32, 0),
            wave_product=((targets, TERMS), np.float32, 0),
            wave=((targets, TERMS), np.float32, 0),
        )

    def learn(self, indices: I64, day_bin: I64, deviation: F32) -> None:
        """Take the ``deviation [Z, M]`` of an example at ``day_bin [Z]``, NaN where it is unknown."""
        s, x = self.zones, self._terms[day_bin][:, None]
        known = np.isfinite(deviation)[..., None]
        x = np.where(known, x, np.float32(0))
        moment = s["wave_moment"][indices] * self._keep + x[..., :, None] * x[..., None, :]
        product = s["wave_product"][indices] * self._keep + x * np.nan_to_num(deviation)[..., None]
        s["wave_moment"][indices], s["wave_product"][indices] = moment, product
        prior = np.float32(PRIOR) * np.eye(TERMS, dtype=np.float32)
        s["wave"][indices] = solve_symmetric(moment + prior, product)

    def at(self, indices: I64, day_bin: I64) -> F32:
        """The wave at steps of the day ``day_bin [Z, T]``, ``[Z, T, M]``."""
        return np.asarray(self._terms[day_bin] @ self.zones["wave"][indices].swapaxes(1, 2))
