"""Step 7 of the way of a reading: what is usual at each hour of day, at several rates of forgetting."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.day_knots import DayKnots
from models.masked import masked_mean
from models.running_mean import counted, moved_mean
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["RATES_DAYS", "USUAL", "DayProfiles"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

RATES_DAYS = (1.0, 3.0, 8.0)
"""How long a profile remembers. Several side by side beat any single one on real greenhouses."""

USUAL = 1
"""Which of these profiles is the shape of a path: it knows what the last days had in common, and is not one of them."""

SMOOTHING_MS = 900_000
"""A profile is smoothed over this much on either side."""


class DayProfiles:
    """Hour-of-day profiles of the targets, one a rate, vectorised over zones; they learn from every row."""

    def __init__(self, spec: ForecastSpec, capacity: int) -> None:
        self._knots, self._half = DayKnots(spec), round(SMOOTHING_MS / spec.step_ms)
        self._gains = np.array([1 - np.exp(-1 / days) for days in RATES_DAYS], dtype=np.float32)[:, None]
        targets, rates = len(spec.targets), len(RATES_DAYS)
        self.zones = ZoneArrays(
            capacity,
            recent=((2 * self._half + 1, targets), np.float32, np.nan),
            count=((self._knots.count, targets), np.uint8, 0),
            profile=((self._knots.count, rates, targets), np.float32, np.nan),
        )

    def at(self, zones: I64, day_bin: I64) -> F32:
        """The profiles ``[..., R, M]`` at steps of the day ``day_bin``, which broadcasts with ``zones``."""
        return self._knots.at(self.zones["profile"], zones, day_bin)

    def usual(self, zones: I64, day_bin: I64) -> F32:
        """The profile of a few days there, ``[..., M]``."""
        return self._knots.at(self.zones["profile"][:, :, USUAL], zones, day_bin)

    def days(self, zones: I64, day_bin: I64) -> F32:
        """How many days were seen there, ``[..., M]``, up to 255."""
        return np.asarray(self.zones["count"][zones, day_bin // self._knots.stride], dtype=np.float32)

    def learn(self, indices: I64, rows: I64, y: F32, day_bin: I64) -> None:
        """Take the rows ``y [Z, M]`` of numbers ``rows [Z]``. They move the knot ``SMOOTHING_MS`` back, where the
        centred mean is known now; later knots stay yesterday's.
        """
        s = self.zones
        width = 2 * self._half + 1
        s["recent"][indices, rows % width] = y
        knot, rest = np.divmod((day_bin - self._half) % self._knots.day, self._knots.stride)
        indices, at = indices[rest == 0], knot[rest == 0]
        if not len(indices):
            return
        mean = masked_mean(s["recent"][indices], axis=1)[:, None]  # [Z, 1, M]
        count, held = s["count"][indices, at], s["profile"][indices, at]
        s["profile"][indices, at] = moved_mean(held, count[:, None], mean, self._gains)
        s["count"][indices, at] = counted(count, ~np.isnan(mean[:, 0]))

    @property
    def reach(self) -> int:
        """How many of the newest rows are kept."""
        return int(self.zones["recent"].shape[1])

    def leave_out(self, indices: I64, rows: I64) -> None:
        """Forget the rows with these numbers, as if they had never been seen."""
        self.zones["recent"][indices, rows % self.reach] = np.nan
