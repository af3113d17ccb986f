"""Step 7 of the way of a reading: the minima of past nights and the maxima of past days.

They say three things that scenarios do not know. How far values between two times of a path go beyond both. How often a
night falls below a limit, whatever is forecast: a chance is the mean of what scenarios and past nights say, and the
scenarios count twice (a linear pool; Ranjan and Gneiting 2010 say why it is not used for intervals). And how good the
scenarios' own minima and maxima were: the next ones are moved and stretched as the past ones of all zones say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.half_precision import LARGEST, cut
from models.running_mean import counted, moved_mean
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays, ZoneState

__all__ = ["DAY", "LEAST", "NIGHT", "PastNights", "pooled_chance", "usual_limit"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

NIGHT, DAY = 0, 1
"""A night has a minimum, a day a maximum."""

KEPT = 64
"""Nights, and days, that are remembered of a zone."""

RATED = 256
"""Newest forecasts of nights, and of days, of all zones together, of which it is remembered how good they were."""

PRIOR = 100.0
"""The prior, that scenarios are right, weighs as much as this many of those: nights of one date are alike in all zones,
so that they tell less than their number."""

TRUST = 2 / 3
"""The weight of scenarios in a chance."""

KNOWN = 0.8
"""A night counts if it was seen from its beginning, and this share of its rows is known, or at most an hour older."""

HALF_MS = 1_800_000
BEYOND_DAYS = 14
"""How long it is remembered how far values go beyond a path's times."""

LEAST, RARE = 5, 0.1
"""What an unusually cold night is, is known from ``LEAST`` nights on: as cold as the coldest ``RARE`` of them."""

_HOURS = 24


def pooled_chance(values: F32, past: F32, limit: float, sign: int) -> float:
    """The chance that a minimum or maximum is above (``sign`` 1) or below (-1) a limit, from those of scenarios
    ``values [S]`` and of past nights or days ``past [N]``; without a past the scenarios count alone.

    >>> round(pooled_chance(np.array([10.0, 16.0]), np.array([12.0, 15.0, 15.0, 15.0]), 13.0, -1), 3)
    0.417
    """
    said = float((sign * values > sign * limit).mean())
    return said if not len(past) else TRUST * said + (1 - TRUST) * float((sign * past > sign * limit).mean())


def usual_limit(past: F32, sign: int) -> float | None:
    """What one in ten of past minima is below (``sign`` -1), or of past maxima above (1); None where too few are known.

    >>> usual_limit(np.arange(11, dtype=np.float32), -1), usual_limit(np.arange(11, dtype=np.float32), 1)
    (1.0, 9.0)
    >>> usual_limit(np.arange(4, dtype=np.float32), -1) is None
    True
    """
    if len(past) < LEAST:
        return None
    return float(np.quantile(past.astype(np.float64), RARE if sign < 0 else 1 - RARE))


class PastNights(ZoneState):
    """Vectorised over zones; each step :meth:`learn`, after a gap :meth:`skip` first; where a night or day lies ahead
    :meth:`expect`.
    """

    def __init__(self, spec: ForecastSpec, capacity: int = 16) -> None:
        targets = len(spec.targets)
        self._day, self._half = spec.steps_per_day, max(HALF_MS // spec.step_ms, 1)
        self._zones = ZoneArrays(
            capacity,
            part=((), np.int8, -1),  # NIGHT or DAY, -1 before the first row, also after a gap
            whole=((), np.bool_, False),
            rows=((), np.int32, 0),
            known=((targets,), np.int32, 0),
            run=((targets,), np.float32, np.nan),
            past=((2, KEPT, targets), np.float16, np.nan),
            count=((2,), np.int32, 0),
            said=((2, targets, 3), np.float32, np.nan),  # of the next one
            mark=((targets,), np.float32, np.nan),  # at the last half hour; lowest and highest since
            lowest=((targets,), np.float32, np.nan),
            highest=((targets,), np.float32, np.nan),
            beyond=((_HOURS, 2, targets), np.float16, 0.0),
            marks=((_HOURS,), np.uint8, 0),
        )
        self._off = np.full((2, targets, RATED), np.nan)
        self._rated = np.zeros((2, targets), dtype=np.int64)

    def learn(self, indices: I64, y: F32, day_bin: I64, is_night: Bool, known: Bool | None = None) -> None:
        """Take a row's targets ``y [Z, M]``, NaN where unknown; ``is_night [Z]`` at its end.

        ``known [Z, M]`` says what counts as known, also of a sensor that reports less often than rows close; by default
        what ``y`` has.
        """
        s, part = self._zones, np.where(is_night, NIGHT, DAY)
        over = (s["part"][indices] != part) & (s["part"][indices] >= 0)
        if over.any():
            self._end(indices[over])
        new = s["part"][indices] != part
        if new.any():
            zones = indices[new]
            s["whole"][zones] = s["part"][zones] >= 0
            s["part"][zones], s["rows"][zones], s["known"][zones] = part[new], 0, 0
            s["run"][zones] = np.nan
        s["rows"][indices] += 1
        s["known"][indices] += np.isfinite(y) if known is None else known
        run = s["run"][indices]
        s["run"][indices] = np.where((part == NIGHT)[:, None], np.fmin(run, y), np.fmax(run, y))
        self._learn_beyond(indices, y, day_bin)

    def skip(self, zones: I64) -> None:
        """These zones had no rows for a while: the nights and days around it were not seen as a whole."""
        s = self._zones
        s["part"][zones], s["whole"][zones] = -1, False
        for name in ("said", "mark", "lowest", "highest"):
            s[name][zones] = np.nan

    def _end(self, zones: I64) -> None:
        """Nights or days are over: keep their extremes, and how good they were foreseen."""
        s = self._zones
        part, rows = s["part"][zones], s["rows"][zones]
        counts = s["whole"][zones][:, None] & (s["known"][zones] >= KNOWN * rows[:, None])
        seen = np.where(counts, s["run"][zones], np.float32(np.nan))
        place = s["count"][zones, part] % KEPT
        s["past"][zones, part, place] = cut(seen)
        s["count"][zones, part] += 1
        low, median, high = np.moveaxis(s["said"][zones, part], -1, 0)
        off = (seen - median) / np.maximum((high - low) / 2, np.float32(1e-3))
        for kind in (NIGHT, DAY):
            for m in range(off.shape[1]):
                new = off[part == kind, m]
                new = new[np.isfinite(new)]
                at = (self._rated[kind, m] + np.arange(len(new))) % RATED
                self._off[kind, m, at] = new
                self._rated[kind, m] += len(new)
        s["said"][zones, part] = np.nan

    def expect(self, indices: I64, kind: int, said: F32) -> None:
        """What scenarios say of the next night or day, ``said [Z, M, 3]``: p10, p50, p90; uncorrected."""
        self._zones["said"][indices, kind] = said

    def corrected(self, kind: int, values: F32) -> F32:
        """Minima or maxima of scenarios, ``[S, Z, M]``, moved and stretched as past ones of all zones say."""
        low, median, high = np.quantile(values, [0.1, 0.5, 0.9], axis=0).astype(np.float32)
        half = (high - low) / 2
        wanted = self._levels(kind)  # [3, M]
        below = np.maximum(median - low, np.float32(1e-6))
        above = np.maximum(high - median, np.float32(1e-6))
        scaled = np.where(values < median, (values - median) / below, (values - median) / above)
        to = np.where(scaled < 0, wanted[1] - wanted[0], wanted[2] - wanted[1])
        return np.asarray(median + half * (wanted[1] + scaled * to), dtype=np.float32)

    def past(self, index: int, kind: int) -> F32:
        """The zone's past minima or maxima ``[N, M]``, oldest first, NaN where not known; without those of which none
        is: a zone may have no sensor of a target.
        """
        s = self._zones
        count = int(s["count"][index, kind])
        order = np.arange(max(count - KEPT, 0), count) % KEPT
        held = s["past"][index, kind, order].astype(np.float32)
        return np.asarray(held[np.isfinite(held).any(axis=1)])

    def beyond(self, indices: I64, day_bin: I64, steps: I64, sign: int) -> F32:
        """How far values usually go beyond both ends of the half hours that end ``steps [T]`` ahead, ``[Z, T, M]``."""
        hour = (day_bin[:, None] + steps - 1) % self._day * _HOURS // self._day
        return np.asarray(self._zones["beyond"][indices[:, None], hour, int(sign > 0)], dtype=np.float32)

    def state_dict(self, copy: bool = True) -> dict[str, _Array]:
        """Everything that was learned (see :meth:`ZoneArrays.state_dict`)."""
        return {**self._zones.state_dict(copy), "off": self._off.copy(), "rated": self._rated.copy()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        self._zones.load_state_dict({name: held for name, held in state.items() if name not in ("off", "rated")})
        self._off, self._rated = state["off"].copy(), state["rated"].copy()

    def _levels(self, kind: int) -> F32:
        """Where p10, p50 and p90 of what came lay, in half widths from the scenarios' median: ``[3, M]``.

        Of what came they are those levels between which, and beyond, the next one is as likely as they say (as in
        conformal prediction; Vovk, Gammerman and Shafer 2005): of few they lie further out.
        """
        levels = np.empty((3, self._off.shape[1]))
        for m, held in enumerate(self._off[kind]):
            known = held[np.isfinite(held)]
            high = min(0.9 * (1 + 1 / max(len(known), 1)), 1.0)
            found = np.quantile(known, [1 - high, 0.5, high]) if len(known) else np.zeros(3)
            levels[:, m] = (len(known) * found + PRIOR * np.array([-1.0, 0.0, 1.0])) / (len(known) + PRIOR)
        return np.asarray(levels, dtype=np.float32)

    def _learn_beyond(self, indices: I64, y: F32, day_bin: I64) -> None:
        s = self._zones
        s["lowest"][indices] = np.fmin(s["lowest"][indices], y)
        s["highest"][indices] = np.fmax(s["highest"][indices], y)
        ends = day_bin % self._half == 0
        if not ends.any():
            return
        zones, y = indices[ends], y[ends]
        hour = (day_bin[ends] - 1) % self._day * _HOURS // self._day
        mark = s["mark"][zones]
        low = np.minimum(mark, y) - s["lowest"][zones]
        high = s["highest"][zones] - np.maximum(mark, y)
        count, held = s["marks"][zones, hour], s["beyond"][zones, hour].astype(np.float32)
        new = np.clip(np.stack([low, high], axis=1), 0, LARGEST)
        slowest = np.float32(1 / (BEYOND_DAYS * 2))
        s["beyond"][zones, hour] = moved_mean(held, count[:, None, None], new, slowest)
        s["marks"][zones, hour] = counted(count, known=True)
        for name in ("mark", "lowest", "highest"):
            s[name][zones] = y
