"""Live errors of several shards become one table."""

from __future__ import annotations

from typing import Any

from models.evaluation.scoring import Score
from services.demo.pooled_scores import pooled_scores
from services.demo.watch import Seen


def score(model: float | None, n: int) -> Score:
    """A cell of a shard's table in which all forecasters err alike."""
    return Score(model=model, climatology=model, persistence=model, naive_24h=model, coverage=0.5, n=n)


def test_shards_count_by_how_many_forecasts_matured() -> None:
    """A shard that has scored thrice as much counts thrice; one without an error of its own adds none."""
    cells = (score(1.0, 30), score(3.0, 10), score(None, 5))
    shards: dict[str, Any] = {f"shard-{i}": {"scores": [{"rh_pct": {"60": cell}}]} for i, cell in enumerate(cells)}
    pooled = pooled_scores(Seen(components=shards))["rh_pct"]["60"]
    assert (pooled["model"], pooled["naive_24h"], pooled["n"]) == (1.5, 1.5, 45)
