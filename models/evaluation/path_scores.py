"""How good paths and scenarios are: intervals of what is said of a night, and chances beside what came.

Chances are judged by the Brier score beside a rival's. Its skill has an interval from drawing blocks of days anew, all
zones of a day together, because nights that follow each other are alike (a moving-block bootstrap, Künsch 1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["IntervalScore", "Reliability", "Skill", "brier_skill", "interval_score", "reliability"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

BLOCK_DAYS, DRAWS, LEVEL = 3, 1000, 0.95

LEAST_BLOCKS = 2
"""Of fewer whole blocks no interval is known: each draw would be the same days again, and the interval a point."""


@dataclass(frozen=True, slots=True)
class IntervalScore:
    """Of intervals from p10 to p90: the share of truths inside, on either side of them, and how wide they are.

    ``winkler`` is the mean of the width and ten times how far a truth is outside (Gneiting and Raftery 2007): of two
    ways to say it, the better one has less.
    """

    cases: int
    coverage: float
    below: float
    above: float
    width: float
    winkler: float


def interval_score(low: F64, high: F64, truth: F64) -> IntervalScore:
    """Score intervals; cases without a truth are left out.

    >>> score = interval_score(np.array([0.0, 0.0]), np.array([2.0, 2.0]), np.array([1.0, 3.0]))
    >>> score.coverage, score.above, score.width, score.winkler
    (0.5, 0.5, 2.0, 7.0)
    """
    known = np.isfinite(low) & np.isfinite(high) & np.isfinite(truth)
    low, high, truth = low[known], high[known], truth[known]
    if not len(truth):
        return IntervalScore(0, *(float("nan"),) * 5)
    outside = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    below, above = float((truth < low).mean()), float((truth > high).mean())
    width = float((high - low).mean())
    return IntervalScore(len(truth), 1 - below - above, below, above, width, width + 10 * float(outside.mean()))


@dataclass(frozen=True, slots=True)
class Skill:
    """1 - Brier score / the rival's, with its interval: above 0 is better than the rival. ``low`` and ``high`` are NaN
    where days are too few to tell.
    """

    skill: float
    low: float
    high: float


def brier_skill(chance: F64, came: F64, rival: F64, day: I64) -> Skill:
    """``chance`` and ``rival`` of what ``came`` (1) or did not (0), each on a ``day``.

    >>> day, came = np.arange(40), np.tile([1.0, 0.0], 20)
    >>> found = brier_skill(0.2 + 0.6 * came, came, np.full(40, 0.5), day)
    >>> round(found.skill, 2), found.low > 0
    (0.84, True)
    >>> brier_skill(0.2 + 0.6 * came[:5], came[:5], np.full(5, 0.5), day[:5]).low
    nan
    """
    days, at = np.unique(day, return_inverse=True)
    ours, theirs = (np.bincount(at, (said - came) ** 2) for said in (chance, rival))
    if not theirs.sum():
        return Skill(float("nan"), float("nan"), float("nan"))
    all_days = float(1 - ours.sum() / theirs.sum())
    if len(days) < LEAST_BLOCKS * BLOCK_DAYS:
        return Skill(all_days, float("nan"), float("nan"))
    drawn = _drawn_days(len(days), BLOCK_DAYS)
    found = 1 - ours[drawn].sum(axis=1) / np.maximum(theirs[drawn].sum(axis=1), 1e-12)
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Skill(all_days, float(low), float(high))


@dataclass(frozen=True, slots=True)
class Reliability:
    """Chances in a few groups: how many, their mean, and the share that came; ``off`` is their mean distance.

    ``low`` and ``high`` are the interval of the share that came: what a group of few days cannot tell from what was
    said lies between them; NaN where days are too few to tell. ``days`` are those on which a group has a case.
    """

    cases: tuple[int, ...]
    chance: tuple[float, ...]
    came: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    off: float
    days: tuple[int, ...]


def reliability(
    chance: F64, came: F64, day: I64, edges: Sequence[float] = (0.05, 0.15, 0.35), block_days: int = BLOCK_DAYS,
) -> Reliability:  # fmt: skip
    """Group chances by ``edges``; groups without a case are left out. Intervals as those of :func:`brier_skill`.

    >>> found = reliability(np.array([0.1, 0.1, 0.5, 0.5]), np.array([0.0, 0.0, 1.0, 0.0]), np.arange(4), block_days=1)
    >>> found.cases, found.came, found.low, found.high, round(found.off, 2)
    ((2, 2), (0.0, 0.5), (0.0, 0.0), (0.0, 1.0), 0.05)
    """
    group = np.searchsorted(edges, chance, side="right")
    kinds = np.unique(group)
    cases = [int((group == kind).sum()) for kind in kinds]
    said = [float(chance[group == kind].mean()) for kind in kinds]
    seen = [float(came[group == kind].mean()) for kind in kinds]
    apart = sum(count * abs(a - b) for count, a, b in zip(cases, said, seen, strict=True))
    days, at = np.unique(day, return_inverse=True)
    drawn = _drawn_days(max(len(days), 1), block_days)
    on_days = tuple(len(np.unique(at[group == kind])) for kind in kinds)
    low: list[float] = []
    high: list[float] = []
    for kind in kinds:
        mine = group == kind
        hits, all_cases = (np.bincount(at[mine], weight, len(days)) for weight in (came[mine], np.ones(mine.sum())))
        count = all_cases[drawn].sum(axis=1)
        share = hits[drawn].sum(axis=1)[count > 0] / count[count > 0]
        if len(days) < LEAST_BLOCKS * block_days:
            share = share[:0]
        for ends, level in ((low, (1 - LEVEL) / 2), (high, (1 + LEVEL) / 2)):
            ends.append(float(np.quantile(share, level)) if len(share) else float("nan"))
    return Reliability(
        tuple(cases), tuple(said), tuple(seen), tuple(low), tuple(high), apart / max(len(chance), 1), on_days
    )  # fmt: skip


def _drawn_days(count: int, block_days: int) -> I64:
    """Places of days in blocks that follow each other, ``[DRAWS, count]``; the same each time."""
    starts = np.random.default_rng(0).integers(0, count, (DRAWS, -(-count // block_days), 1))
    return np.asarray((starts + np.arange(block_days)).reshape(DRAWS, -1)[:, :count] % count)
