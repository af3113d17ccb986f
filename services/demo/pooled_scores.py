"""The live errors of all shards together."""

from __future__ import annotations

from models.evaluation.scoring import Score
from services.demo.watch import Seen

__all__ = ["pooled_scores"]

NO_SCORE = Score(model=None, climatology=None, persistence=None, naive_24h=None, coverage=None, n=0)


def pooled_scores(seen: Seen) -> dict[str, dict[str, Score]]:
    """Live errors by target and horizon in minutes, of all shards, each by its number of matured forecasts."""
    pooled: dict[str, dict[str, Score]] = {}
    for table in (table for shard in seen.shards for table in shard["scores"]):
        for target, horizons in table.items():
            of_target = pooled.setdefault(target, {})
            for horizon, cell in horizons.items():
                of_target[str(horizon)] = _pool(of_target.get(str(horizon), NO_SCORE), cell)
    return pooled


def _pool(one: Score, other: Score) -> Score:
    n, more = one["n"], other["n"]

    def mean(first: float | None, second: float | None) -> float | None:
        known = [(value, cases) for value, cases in ((first, n), (second, more)) if value is not None]
        total = sum(cases for _, cases in known)
        return round(sum(value * cases for value, cases in known) / total, 5) if total else None

    return Score(
        model=mean(one["model"], other["model"]), climatology=mean(one["climatology"], other["climatology"]),
        persistence=mean(one["persistence"], other["persistence"]),
        naive_24h=mean(one["naive_24h"], other["naive_24h"]),
        coverage=mean(one["coverage"], other["coverage"]), n=n + more,
    )  # fmt: skip
