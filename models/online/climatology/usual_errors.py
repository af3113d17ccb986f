"""Step 7 of the way of a reading: how large the climatology's errors usually are, of all zones together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.masked import masked_mean
from models.spec import ForecastSpec

__all__ = ["UsualErrors"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

MEMORY_DAYS = 14.0


class UsualErrors:
    """The unit, a horizon and target, that experts' answers, plans and forecast errors are measured in."""

    def __init__(self, spec: ForecastSpec) -> None:
        cells = (len(spec.horizons_min), len(spec.targets))
        self._slowest = spec.example_steps / (MEMORY_DAYS * spec.steps_per_day)
        self._mean, self._seen = np.full(cells, np.nan), np.zeros(cells)

    @property
    def unit(self) -> F64:
        """Mean absolute errors, ``[H, M]``; 1 where none is known."""
        return np.where(self._mean > 1e-9, self._mean, 1.0)

    def learn(self, h: I64, residual: F32, part: float) -> None:
        """Take errors ``[Z, P, M]`` of horizons ``h [P]``; these zones are ``part`` (0 to 1) of those of a step."""
        mean = masked_mean(np.abs(residual), axis=0, dtype=np.float64)
        known = ~np.isnan(mean)
        self._seen[h] += known
        gain = np.maximum(1 / np.maximum(self._seen[h], 1), part * self._slowest)
        held = np.where(np.isnan(self._mean[h]), mean, self._mean[h])
        self._mean[h] = np.where(known, held + gain * (mean - held), self._mean[h])

    def state_dict(self) -> dict[str, _Array]:
        """Everything that was learned; copies."""
        return {"unit": self._mean.copy(), "seen": self._seen.copy()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave."""
        self._mean, self._seen = state["unit"].copy(), state["seen"].copy()
