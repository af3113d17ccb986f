"""Steps 14 and 17 of the way of a reading: whether one model is better than another, and how sure that is.

A challenger must beat persistence, the 24-hour naive, the climatology and what serves now on rows that none of them was
trained on; a champion that is worse than the one before it must go. Every comparison is a mean over cells (target and
horizon) of the ratio of mean absolute errors, each over paired rows. Errors of one day resemble each other, and those
of all zones under one sky do: so the interval comes from drawing whole days again, all zones together (a paired block
bootstrap), or shorter blocks while there are too few days.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import MINUTE_MS
from models.evaluation.forecast_errors import Errors

__all__ = ["MIN_BLOCKS", "MIN_ROWS", "Verdict", "judge", "judge_no_worse", "judge_worse"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

_CLIMATOLOGY = "the climatology"

MIN_ROWS = 12
"""Fewer origins than this prove nothing."""
MIN_BLOCKS = 6
"""Fewer blocks than this prove nothing either."""
BLOCK_MIN = (1440, 720, 360, 180, 60, 15)
"""Lengths of blocks in minutes: the longest that leaves enough blocks is used; for a challenger an hour at least. With
blocks shorter than a day intervals are too narrow, because the errors of one day resemble each other."""
RESAMPLES = 10_000
_SEED = 7
"""The same rows always give the same verdict."""
_CHUNK = 1_000

DOUBT, LASTING_DOUBT = 0.5, 0.02
"""How much worse than its predecessor a champion must be, beyond its interval, before it has to go: blocks of a few
hours resemble each other more than the bootstrap knows. The first fades within two days of rows, the second stays.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes or no, one sentence why, and the numbers behind it (JSON-able)."""

    promote: bool
    reason: str
    evidence: dict[str, Any]


def judge(
    challenger: Errors, champion: Errors, champion_name: str = "what serves now", level: float = 0.1,
    margin: float = 0.0,
) -> Verdict:  # fmt: skip
    """Whether a challenger is better; raises ``ValueError`` if the origins differ.

    ``champion.model`` holds the errors of what serves now: at first the climatology's, as ``champion_name`` then says.
    The ratio of errors to each rival must be below ``1 - margin``, one-sided at significance ``level``. A negative
    ``margin`` allows the challenger to be worse than the champion by so much; against all others it counts as 0.
    """
    rivals = {
        "persistence": challenger.persistence,
        "the 24-hour naive": challenger.naive_24h,
        champion_name: champion.model,
    }
    if not champion_name.startswith(_CLIMATOLOGY):  # else it is what serves, or stands in for it
        rivals[_CLIMATOLOGY] = challenger.climatology
    evidence, refusal = _compare(challenger, champion, rivals, level, 60)
    evidence |= {"champion": champion_name, "margin": margin}
    if refusal:
        return Verdict(False, refusal, evidence)
    ratios, upper = evidence["mae_ratio"], evidence["mae_ratio_upper"]
    serves = not champion_name.startswith(_CLIMATOLOGY)
    bounds = {name: 1 - (margin if serves and name == champion_name else max(margin, 0.0)) for name in rivals}
    lost = [name for name in rivals if not _below(ratios[name], bounds[name])]
    unsure = [name for name in rivals if not _below(upper[name], bounds[name])]
    shown = _shown(evidence)
    if lost:
        return Verdict(False, f"The challenger does not beat {' and '.join(lost)}: its error is {shown}.", evidence)
    if unsure:
        sure = f"It is not sure enough (level {level:.2g}) that the challenger beats {' and '.join(unsure)}"
        return Verdict(False, f"{sure}: its error is {shown}.", evidence)
    return Verdict(True, f"The challenger's error is {shown}.", evidence)


def judge_worse(champion: Errors, previous: Errors, previous_name: str, level: float = 0.01) -> Verdict:
    """Whether a champion is worse than what served before it: then ``promote`` is true, and means to go back.

    Errors are as in :func:`judge`; ``level`` is the significance level of this one comparison.
    """
    evidence, refusal = _compare(champion, previous, {previous_name: previous.model}, level, 15)
    evidence |= {"previous": previous_name}
    if evidence["missing"]:
        return Verdict(True, f"It gave no number in {evidence['missing']} cases.", evidence)
    if refusal:
        return Verdict(False, refusal, evidence)
    days = (int(champion.origin_ms.max()) - int(champion.origin_ms.min())) / (1440 * MINUTE_MS)
    doubt = LASTING_DOUBT + DOUBT * math.exp(-2 * days)
    lower = evidence["mae_ratio_lower"][previous_name]
    worse = lower is not None and lower > 1 + doubt
    return Verdict(worse, f"Its live error is {_shown(evidence)}.", evidence | {"doubt": round(doubt, 3)})


def judge_no_worse(challenger: Errors, reference: Errors, reference_name: str, level: float = 0.1) -> Verdict:
    """Whether a challenger may stand beside what there is: not where it is surely worse, nor where nothing is known.

    For models whose share is learned online, so that one of no use costs little. Errors as in :func:`judge`.
    """
    evidence, refusal = _compare(challenger, reference, {reference_name: reference.model}, level, 60)
    if refusal:
        return Verdict(False, refusal, evidence)
    lower = evidence["mae_ratio_lower"][reference_name]
    return Verdict(lower is not None and lower <= 1, f"The challenger's error is {_shown(evidence)}.", evidence)


def _compare(
    mine: Errors, theirs: Errors, rivals: Mapping[str, F32], level: float, shortest_min: int
) -> tuple[dict[str, Any], str]:
    """The numbers, and a sentence on why they prove nothing; the sentence is empty if they can prove something."""
    if not (np.array_equal(mine.origin_ms, theirs.origin_ms) and np.array_equal(mine.zone, theirs.zone)):
        raise ValueError("the two were measured on different rows")
    comparable = np.asarray(np.isfinite(theirs.model) & np.isfinite(mine.persistence))
    has_case = np.asarray(comparable.any(axis=(1, 2)))
    rows, missing = int(has_case.sum()), int((comparable & ~np.isfinite(mine.model)).sum())
    newest_ms = int(mine.origin_ms[has_case].max(initial=0))
    evidence: dict[str, Any] = {"rows": rows, "newest_ms": newest_ms, "missing": missing, "level": level}
    if missing:
        return evidence, f"The challenger gave no number in {missing} cases."
    if rows < MIN_ROWS:
        return evidence, f"Only {rows} rows could be compared, {MIN_ROWS} are needed."
    blocks, minutes = _blocks(mine.origin_ms, has_case, shortest_min, max(MIN_BLOCKS, math.ceil(-math.log2(level))))
    count = int(blocks.max()) + 1
    evidence |= {"blocks": count, "block_min": minutes}
    # Were the two equally good, all blocks would speak for one of them with a chance of 2 to the minus their number:
    # no fewer can be as sure as the level asks.
    needed = max(MIN_BLOCKS, math.ceil(-math.log2(level)))
    if count < needed:
        return evidence, f"Only {count} blocks of {_length(minutes)} could be compared, {needed} are needed."
    points, lowers, uppers = {}, {}, {}
    for name, error in rivals.items():
        sums = _block_sums(mine.model, error, blocks, count)
        few = (sums[1] > 0).sum(axis=0) < MIN_BLOCKS  # an hour of truth must not speak for a horizon
        for part in sums:
            part[:, few] = 0
        points[name] = _number(float(_mean_ratio(*(part.sum(axis=0)[None] for part in sums))[0]))
        lowers[name], uppers[name] = _interval(sums, level)
    inside = mine.inside[np.isfinite(mine.inside)]
    evidence |= {
        "mae_ratio": points,
        "mae_ratio_lower": lowers,
        "mae_ratio_upper": uppers,
        "mae": _table(mine.mae()),
        "champion_mae": _table(theirs.mae()),
        "coverage": _number(float(inside.mean())) if len(inside) else None,
    }
    return evidence, ""


def _blocks(origin_ms: I64, has_case: npt.NDArray[np.bool_], shortest_min: int, needed: int) -> tuple[I64, int]:
    """Each origin's block, numbered from 0 over those that have a case (-1: none), and the minutes of a block."""
    numbered = np.full(len(origin_ms), -1, np.int64)
    for minutes in (length for length in BLOCK_MIN if length >= shortest_min):
        found, numbers = np.unique(origin_ms[has_case] // (minutes * MINUTE_MS), return_inverse=True)
        if len(found) >= needed:
            break
    numbered[has_case] = numbers
    return numbered, minutes


def _block_sums(mine: F32, theirs: F32, blocks: I64, count: int) -> tuple[F64, F64]:
    """Summed absolute errors of paired cases by block and cell, ``[B, H * M]`` each."""
    known = np.isfinite(mine) & np.isfinite(theirs) & (blocks >= 0)[:, None, None]
    tops, bottoms = (np.zeros((count, error[0].size)) for error in (mine, theirs))
    for sums, error in ((tops, mine), (bottoms, theirs)):
        np.add.at(sums, blocks, np.where(known, error, 0).reshape(len(error), -1).astype(np.float64))
    return tops, bottoms


def _interval(sums: tuple[F64, F64], level: float) -> tuple[float | None, float | None]:
    """The one-sided bounds of the ratio at ``level``: quantiles ``level`` and ``1 - level`` of the bootstrap."""
    rng = np.random.default_rng(_SEED)
    count = len(sums[0])
    ratios = []
    for _ in range(0, RESAMPLES, _CHUNK):
        drawn = rng.multinomial(count, np.full(count, 1 / count), size=_CHUNK).astype(np.float64)
        ratios.append(_mean_ratio(drawn @ sums[0], drawn @ sums[1]))
    ordered = np.sort(np.concatenate(ratios))  # NaN, where no cell could be compared, comes last
    at = int(level * RESAMPLES)
    return _number(float(ordered[at])), _number(float(ordered[RESAMPLES - 1 - at]))


def _mean_ratio(tops: F64, bottoms: F64) -> F64:
    """Mean over cells of the ratio of sums ``[R, H * M]``, ``[R]``; NaN where no cell can be compared."""
    cells = bottoms > 0
    ratio = np.where(cells, tops / np.where(cells, bottoms, 1), 0).sum(axis=1)
    many = cells.sum(axis=1)
    return np.asarray(np.where(many > 0, ratio / np.maximum(many, 1), np.nan))


def _below(value: float | None, bound: float) -> bool:
    return value is not None and value < bound


def _shown(evidence: Mapping[str, Any]) -> str:
    bounds = (evidence[name] for name in ("mae_ratio", "mae_ratio_lower", "mae_ratio_upper"))
    points, lowers, uppers = bounds
    parts = [
        f"{_text(points[name])} ({_text(lowers[name])} to {_text(uppers[name])}) of {name}" for name in points
    ]  # fmt: skip
    length = _length(evidence["block_min"])
    return f"{', '.join(parts)}, over {evidence['rows']:,} rows in {evidence['blocks']} blocks of {length}"


def _length(minutes: int) -> str:
    return "a day" if minutes == 1440 else f"{minutes // 60} h" if minutes >= 60 else f"{minutes} min"


def _text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def _table(mae: F32) -> list[list[float | None]]:
    return [[_number(float(value)) for value in row] for row in mae]


def _number(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None
