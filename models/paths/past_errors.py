"""Step 7 of the way of a reading: how a zone's forecasts of whole days ahead were wrong, remembered together.

Four times a day of the site's clock a path is kept until its truth comes. What is remembered of it is where the truth
lay within the forecast, an hour at a time: the error in units of the distance from the median to p10 or p90. A day's
errors of all targets and of all zones of a site stay together, so that scenarios can be wrong together as the past was
(:mod:`models.paths.scenarios`). About 13 KB a zone with four targets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import HOUR_MS
from models.half_precision import cut
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays, ZoneState

__all__ = ["DAYS", "ORIGINS", "PastErrors"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

ORIGINS, DAYS = 4, 25
"""Paths a day that are kept, and for how many days: a site's scenarios have past days of two of them."""

SCALE, MISSING = 32.0, -128
"""Errors are kept in eight bits, in steps of a 32nd of the distance to p10 or p90, up to four such distances."""

HALF_MS = 1_800_000


class PastErrors(ZoneState):
    """Errors of past paths, vectorised over zones.

    Each step :meth:`learn`, then at the steps of :meth:`due` :meth:`issue`; :meth:`templates` changes nothing.
    """

    def __init__(self, spec: ForecastSpec, capacity: int = 16) -> None:
        self._day = spec.steps_per_day
        self.every = max(spec.steps_per_day // ORIGINS, 1)  # steps between the paths that are kept
        self._hour = max(HOUR_MS // spec.step_ms, 1)
        end = min(max(spec.horizon_steps), self._day)
        near = max(HALF_MS // spec.step_ms, 1)
        leads = np.unique([near, *range(self._hour, end + 1, self._hour)])
        self.steps: I64 = leads[leads <= end].astype(np.int64)
        shape = (len(self.steps), len(spec.targets))
        self._zones = ZoneArrays(
            capacity,
            origin=((ORIGINS, DAYS), np.int32, -1),
            error=((ORIGINS, DAYS, *shape), np.int8, MISSING),
            waiting=((ORIGINS, *shape, 3), np.float16, np.nan),
        )

    def __len__(self) -> int:
        return len(self._zones)

    def due(self, day_bin: I64) -> npt.NDArray[np.bool_]:
        """Of which zones, ``[Z]``, this step's path is kept."""
        return np.asarray((day_bin % self.every == 0) & (day_bin // self.every < ORIGINS))

    def learn(self, indices: I64, step: int, y: F32, day_bin: I64) -> None:
        """Truths ``y [Z, M]`` of the paths that wait for this step; NaN where unknown."""
        s = self._zones
        for now in np.unique(day_bin):
            back = (now - self.steps) % self._day
            due = np.flatnonzero((back % self.every == 0) & (back // self.every < ORIGINS))
            if not len(due):
                continue
            rows = np.flatnonzero(day_bin == now)
            zone, slot = indices[rows][:, None], back[due] // self.every
            origin = step - self.steps[due]
            place = origin // self._day % DAYS
            p10, p50, p90 = np.moveaxis(s["waiting"][zone, slot, due].astype(np.float32), -1, 0)  # [Z, P, M]
            off = y[rows][:, None] - p50
            side = np.maximum(np.where(off > 0, p90 - p50, p50 - p10), np.float32(1e-6))
            scaled = np.clip(np.rint(off / side * np.float32(SCALE)), -127, 127)
            known = np.isfinite(scaled) & (s["origin"][zone, slot, place] == origin)[..., None]
            held = s["error"][zone, slot, place, due]
            s["error"][zone, slot, place, due] = np.where(known, np.nan_to_num(scaled), held).astype(np.int8)

    def issue(self, indices: I64, step: int, day_bin: I64, path: F32) -> None:
        """Keep the paths of zones that are :meth:`due`, ``path [Z, J, M, Q]`` at :attr:`steps` ahead."""
        s, slot, place = self._zones, day_bin // self.every, step // self._day % DAYS
        s["origin"][indices, slot, place] = step
        s["error"][indices, slot, place] = MISSING
        s["waiting"][indices, slot] = cut(path)

    def templates(self, indices: I64, step: int, day_bin: int) -> F32:
        """Errors of past days from about this time of day, ``[R, Z, J, M]``, newest first; NaN where unknown.

        A row is one origin of the site, for whichever zones are asked. All of a row's truths are known by ``step``.
        """
        s, rows = self._zones, []
        slots = [day_bin // self.every % ORIGINS, (day_bin // self.every + 1) % ORIGINS]
        for back in range(1, DAYS):
            for slot in slots:
                origin = step - (day_bin - slot * self.every) % self._day - back * self._day
                # A change of the clock moves origins by an hour, perhaps into another day of the ring.
                apart = np.abs(s["origin"][indices, slot] - origin)
                place = apart.argmin(axis=1)
                there = apart[np.arange(len(indices)), place] <= self._hour
                there &= s["origin"][indices, slot, place] <= step - self._day
                error = s["error"][indices, slot, place]
                known = there[:, None, None] & (error != MISSING)
                rows.append(np.where(known, error / np.float32(SCALE), np.float32(np.nan)))
        return np.stack(rows)
