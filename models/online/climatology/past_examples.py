"""Step 7 of the way of a reading: the newest examples of each zone, values and deviations from the profiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from models.day_knots import on_line
from models.half_precision import cut
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["PastExamples"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]


class PastExamples:
    """Rings of each zone: an entry an example, ``stride`` rows apart. Rows between two are taken to lie on a line."""

    def __init__(self, spec: ForecastSpec, values: int, deviations: int, rates: int, capacity: int) -> None:
        """``values`` and ``deviations`` are how many rows each is kept for; each of the ``rates`` has a profile."""
        self.stride, targets = spec.example_steps, len(spec.targets)
        self.zones = ZoneArrays(
            capacity,
            past=((values // self.stride + 2, targets), np.float16, np.nan),
            deviation=((deviations // self.stride + 2, rates, targets), np.float16, np.nan),
        )

    def keep(self, indices: I64, example: I64, y: F32, deviation: F32) -> None:
        """Examples of numbers ``example [Z]``: their ``y [Z, M]`` and ``deviation [Z, R, M]``."""
        past, held = self.zones["past"], self.zones["deviation"]
        past[indices, example % past.shape[1]] = y
        held[indices, example % held.shape[1]] = cut(deviation)

    def values(self, zones: I64, rows: I64, origins: I64) -> F32:
        """The values at ``rows``, but nothing of an example after the ``origins``; NaN where it is unknown."""
        return self._at(self.zones["past"], zones, rows, origins)

    def deviations(self, zones: I64, rows: I64, origins: I64) -> F32:
        """The deviations at ``rows``, but nothing of an example after the ``origins``; NaN where it is unknown."""
        return self._at(self.zones["deviation"], zones, rows, origins)

    @property
    def reach(self) -> int:
        """How many of the newest rows the examples span."""
        return int(max(self.zones[name].shape[1] for name in ("past", "deviation"))) * self.stride

    def leave_out(self, indices: I64, example: I64) -> None:
        """Forget the examples with these numbers, as if they had never been seen."""
        for ring in (self.zones["past"], self.zones["deviation"]):
            ring[indices, example % ring.shape[1]] = np.nan

    def _at(self, ring: _Array, zones: I64, rows: I64, origins: I64) -> F32:
        before, rest = np.divmod(rows, self.stride)
        size = ring.shape[1]
        low: F32 = ring[zones, before % size].astype(np.float32)
        if not rest.any():
            return low
        high = ring[zones, (before + 1) % size].astype(np.float32)
        high[(before + 1) * self.stride > origins] = np.nan
        return on_line(low, high, rest / self.stride)
