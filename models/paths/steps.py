"""Step 7 of the way of a reading: the times of a path, and what lies between learned horizons.

A path goes from the origin to 24 hours: every 5 minutes in the first hour, then every 30. Horizons are learned; between
two of them the path follows the zone's usual day. How far the forecast is off the usual value lies on a line between
the horizons, and an earlier forecast for the same time has its say: the one that the later horizon's learner gave when
that time was as far ahead as it learns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from models.durations import DAY_MS, HOUR_MS
from models.spec import ForecastSpec

__all__ = ["Knots", "between", "path_steps"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

SHORT_MS, LONG_MS = 300_000, 1_800_000
"""Between the times of a path, up to an hour and after it."""


EARLIER = 0.6
"""The most that an earlier forecast for the same time weighs. It knows that time, but not what happened since ..."""

EARLIER_MS = DAY_MS // 2
"""... which matters less the longer the way is still: it has its whole weight from here on. Towards the horizon before
it fades out, with the square root of the way, so that the path has no step there."""


def path_steps(spec: ForecastSpec) -> I64:
    """The times of a path in steps ahead, as dense as the rows are at most, up to a day or the longest horizon.

    Half hours are among them wherever rows fill them, for alerts look at these.

    >>> steps = path_steps(ForecastSpec(channels=()))
    >>> len(steps), steps[:14].tolist(), int(steps[-1])
    (58, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 18, 24], 288)
    """
    short, long = (-(-ms // spec.step_ms) for ms in (SHORT_MS, LONG_MS))
    hour, end = HOUR_MS // spec.step_ms, min(max(spec.horizon_steps), DAY_MS // spec.step_ms)
    steps = np.concatenate([np.arange(short, hour + 1, short), np.arange(long, end + 1, long)])
    return np.asarray(np.unique(steps[steps <= end]), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Knots:
    """Where ``T`` times lie between the learned horizons; now is the knot before the first."""

    steps: I64  # [T]
    before: I64  # [T], the knot before or at the time: 0 is now, k the learned horizon k - 1
    share: F32  # [T], of the way from there to the next knot
    earlier: F32  # [T], the weight of an earlier forecast for the same time
    hours: I64  # [P], whole hours ahead, in steps, and ...
    horizons: I64  # [P], ... horizons: the pairs of which widths are asked
    widths: I64  # [2, T], the pairs of each time: the horizon before it, and that at or after it

    @staticmethod
    def of(steps: I64, spec: ForecastSpec) -> Knots:
        """Times this many ``steps`` ahead, up to the longest horizon."""
        horizons = np.array(spec.horizon_steps, dtype=np.int64)
        knots = np.concatenate([[0], horizons])
        before = np.searchsorted(horizons, steps)  # a learned horizon is the end of its gap
        share = ((steps - knots[before]) / (knots[before + 1] - knots[before])).astype(np.float32)
        far = np.minimum(steps * spec.step_ms / EARLIER_MS, 1)
        hour = steps // max(HOUR_MS // spec.step_ms, 1) * max(HOUR_MS // spec.step_ms, 1)
        asked = np.stack([np.tile(hour, 2), np.concatenate([np.maximum(before - 1, 0), before])])
        pairs, at = np.unique(asked, axis=1, return_inverse=True)
        earlier = (EARLIER * np.sqrt(share) * far).astype(np.float32)
        return Knots(steps, before, share, earlier, pairs[0], pairs[1], at.reshape(2, -1))

    @property
    def after(self) -> I64:
        """The learned horizon at or after each time, ``[T]``."""
        return self.before

    @property
    def learned(self) -> npt.NDArray[np.bool_]:
        """Which times are learned horizons, ``[T]``."""
        return np.asarray(self.share == 1)


def between(knots: Knots, usual: F32, usual_at_knots: F32, now: F32, medians: F32) -> F32:
    """Medians ``[Z, T, M]`` at times between horizons, from those at horizons ``medians [Z, H, M]`` and ``now [Z, M]``.

    ``usual [Z, T, M]`` and ``usual_at_knots [Z, 1 + H, M]`` are the usual values at each time and at each knot; where
    any of a zone's target is unknown (NaN) its path is a line.
    """
    known = np.isfinite(np.concatenate([usual, usual_at_knots], axis=1)).all(axis=1, keepdims=True)  # [Z, 1, M]
    usual = np.where(known, usual, np.float32(0))
    values = np.concatenate([np.where(np.isfinite(now), now, medians[:, 0])[:, None], medians], axis=1)
    off = values - np.where(known, usual_at_knots, np.float32(0))
    before, share = off[:, knots.before], knots.share[:, None]
    return np.asarray(usual + before + share * (off[:, knots.before + 1] - before), dtype=np.float32)
