"""Step 14 of the way of a reading: the gate, where a challenger earns its place.

It must beat persistence, the 24-hour naive and what serves now on rows that none of them was trained on. Every
comparison is a mean over cells (target and horizon) of the ratio of mean absolute errors, each over paired rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.training import Errors

__all__ = ["MIN_ROWS", "Verdict", "judge"]

MIN_ROWS = 12
"""Fewer held-back origins than this prove nothing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to promote, one sentence why, and the numbers behind it (JSON-able)."""

    promote: bool
    reason: str
    evidence: dict[str, Any]


def judge(challenger: Errors, champion: Errors, champion_name: str = "what serves now") -> Verdict:
    """Compare two models' errors on the same origins; raises ``ValueError`` where the origins differ.

    ``champion`` holds the errors of what serves now in ``champion.model`` (at first the climatology's).
    """
    if not (
        np.array_equal(challenger.origin_ms, champion.origin_ms) and np.array_equal(challenger.zone, champion.zone)
    ):
        raise ValueError("challenger and champion were measured on different rows")
    comparable = np.isfinite(champion.model) & np.isfinite(challenger.persistence)
    rows = int(comparable.any(axis=(1, 2)).sum())
    missing = int((comparable & ~np.isfinite(challenger.model)).sum())
    evidence: dict[str, Any] = {"rows": rows, "missing": missing, "champion": champion_name}
    if missing:
        return Verdict(False, f"The challenger gave no number in {missing} held-back cases.", evidence)
    if rows < MIN_ROWS:
        return Verdict(False, f"Only {rows} held-back rows could be compared, {MIN_ROWS} are needed.", evidence)
    rivals = {
        "persistence": challenger.persistence,
        "the 24-hour naive": challenger.naive_24h,
        champion_name: champion.model,
    }
    ratios = {name: _mean_ratio(challenger.model, error) for name, error in rivals.items()}
    inside = challenger.inside[np.isfinite(challenger.inside)]
    evidence |= {
        "mae_ratio": {name: _number(ratio) for name, ratio in ratios.items()},
        "mae": _table(challenger.mae()),
        "champion_mae": _table(champion.mae()),
        "coverage": _number(float(inside.mean())) if len(inside) else None,
    }
    lost = [name for name, ratio in ratios.items() if not ratio < 1]
    shown = ", ".join(f"{ratio:.3f} of {name}" for name, ratio in ratios.items())
    if lost:
        return Verdict(False, f"The challenger does not beat {' and '.join(lost)}: its error is {shown}.", evidence)
    return Verdict(True, f"The challenger's error is {shown}, over {rows} held-back rows.", evidence)


def _mean_ratio(error: npt.NDArray[np.float32], rival: npt.NDArray[np.float32]) -> float:
    """Mean over cells of the ratio of errors over paired rows; NaN where no cell can be compared."""
    known = np.isfinite(error) & np.isfinite(rival)
    top = np.where(known, error, 0).sum(axis=0, dtype=np.float64)
    bottom = np.where(known, rival, 0).sum(axis=0, dtype=np.float64)
    cells = bottom > 0
    return float(np.mean(top[cells] / bottom[cells])) if cells.any() else math.nan


def _table(mae: npt.NDArray[np.float32]) -> list[list[float | None]]:
    return [[_number(float(value)) for value in row] for row in mae]


def _number(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None
