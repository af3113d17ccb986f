"""Step 7 of the way of a reading: how wide a forecast is around its median.

:class:`Widths` composes what the learners' intervals, those of plans and those of a zone's first days say, within
:class:`~models.online.bounds.Bounds`. It learns nothing itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.durations import MINUTE_MS
from models.online.basis import PLANS, TUNED, moves_of
from models.online.bounds import Bounds
from models.online.first_days.first_days import FirstDays
from models.online.intervals import Intervals
from models.paths.steps import Knots
from models.spec import ForecastSpec

__all__ = ["Widths"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

MOST_SCALED = 3.0
"""Between horizons no width is more than this many times its usual one, or less than this part of it."""

_HOURS = 24


class Widths:
    """Quantiles around medians, from what ``intervals`` and ``first`` have learned.

    Where plans have moved a median, intervals that were learned from such medians (``planned``) are those around it.
    """

    def __init__(self, spec: ForecastSpec, intervals: Intervals, first: FirstDays, bounds: Bounds) -> None:
        self.intervals, self._first, self._bounds, self._day = intervals, first, bounds, spec.steps_per_day
        self._steps, self._step_ms = np.array(spec.horizon_steps, dtype=np.int64), spec.step_ms

    def hours(self, day_bin: I64, steps: I64) -> I64:
        """The hours of the day ``steps [T]`` after ``day_bin [Z]``, ``[Z, T]``."""
        return (day_bin[:, None] + steps) % self._day * _HOURS // self._day

    def around(self, zones: I64, day_bin: I64, median: F32, experts: F32, planned: Intervals | None) -> F32:
        """The quantiles around ``median [Z, H, M]`` at the learned horizons, ``[Z, H, M, Q]``."""
        below, above = self._at_horizons(zones, self.hours(day_bin, self._steps), experts, planned)
        return self._bounds.around(median, below, above, self._bounds.thinnest)

    def with_tuned(self, quantiles: F32, experts: F32) -> F32:
        """``quantiles [Z, H, M, Q]`` with what a network that was fine-tuned adds, where one is followed."""
        moves = moves_of(experts, TUNED)
        if moves is None:
            return quantiles
        return self._bounds.keep(quantiles + moves[..., None], self._bounds.thinnest)

    def path(self, zones: I64, day_bin: I64, median: F32, quantiles: F32, knots: Knots, *, any_plans: bool) -> F32:
        """The quantiles around a path's ``median [Z, T, M]``, whose ``quantiles`` at learned horizons are issued
        already: ``[Z, T, M, Q]``. With ``any_plans`` plans may have changed the width of the issued ones.
        """
        below, above = self._between(zones, day_bin, knots)
        if any_plans:
            below, above = self._as_issued(zones, day_bin, quantiles, knots, below, above)
        thinnest = self._bounds.thinnest_at(knots.steps * self._step_ms // MINUTE_MS)
        path = self._bounds.around(median, below, above, thinnest)
        path[:, knots.learned] = quantiles[:, knots.after[knots.learned]]
        return path

    def _at_horizons(self, zones: I64, hours: I64, experts: F32, planned: Intervals | None) -> tuple[F32, F32]:
        """How far p10 lies below and p90 above the median, ``[Z, H, M]``: learned from medians that plans moved where
        they move this one.
        """
        moves = moves_of(experts, PLANS)
        if planned and moves is not None:
            moved = moves != 0
            some, rest = moved.any(axis=(1, 2)), ~moved.all(axis=(1, 2))
            below, above = np.zeros((2, *moved.shape), np.float32)
            for part, of, where in ((some, planned, moved), (rest, self.intervals, ~moved)):
                sides = of.predict(zones[part], hours[part])
                for held, side in zip((below, above), sides, strict=True):
                    held[part] = np.where(where[part], side, held[part])
        else:
            below, above = self.intervals.predict(zones, hours)
        return self._with_first_days(zones, hours, np.arange(len(self._steps)), below, above)

    def _with_first_days(self, zones: I64, hours: I64, horizons: I64, below: F32, above: F32) -> tuple[F32, F32]:
        """The widths ``below`` and ``above`` at these hours and horizons, ``[Z, H, M]``, blended with those of a zone's
        first days.
        """
        share = self._first.share(zones)[:, None]
        if not share.any():
            return below, above
        width = self._first.widths(zones, hours, horizons)
        return below + share * (width - below), above + share * (width - above)

    def _between(self, zones: I64, day_bin: I64, knots: Knots) -> tuple[F32, F32]:
        """How far p10 lies below and p90 above the median, ``[Z, T, M]``: between those of the horizons around, at the
        hour of each time. Before the first horizon they grow with the square root of the time.
        """
        hours = self.hours(day_bin, knots.hours)
        below, above = self.intervals.predict(zones, hours, knots.horizons)
        sides = self._with_first_days(zones, hours, knots.horizons, below, above)
        share: F32 = np.where(knots.before == 0, np.sqrt(knots.share), knots.share).astype(np.float32)[:, None]
        rest = np.where(knots.before == 0, 0, 1 - share[:, 0]).astype(np.float32)[:, None]
        below, above = (rest * side[:, knots.widths[0]] + share * side[:, knots.widths[1]] for side in sides)
        return below, above

    def _as_issued(
        self, zones: I64, day_bin: I64, quantiles: F32, knots: Knots, below: F32, above: F32
    ) -> tuple[F32, F32]:
        """Widths between horizons, ``[Z, T, M]``, narrower or wider as those that were issued at the horizons around
        are: plans change widths where they move medians.
        """
        hours, own = self.hours(day_bin, self._steps), np.arange(len(self._steps))
        plain = self._with_first_days(zones, hours, own, *self.intervals.predict(zones, hours, own))
        p10, p50, p90 = np.moveaxis(quantiles, -1, 0)
        scaled = []
        for width, usual, issued in zip((below, above), plain, (p50 - p10, p90 - p50), strict=True):
            ratio = np.clip(issued / np.maximum(usual, np.float32(1e-6)), 1 / MOST_SCALED, MOST_SCALED)
            ratio = np.concatenate([ratio[:, :1], ratio], axis=1).astype(np.float32)  # now as at the first horizon
            before = ratio[:, knots.before]
            scaled.append(width * (before + knots.share[:, None] * (ratio[:, knots.before + 1] - before)))
        return scaled[0], scaled[1]
