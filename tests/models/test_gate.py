"""Who may serve."""

import json
from dataclasses import replace

import numpy as np
import pytest

from models.gate import judge
from models.training import Errors


def errors(model=0.5, climatology=0.8, persistence=1.0, naive=1.0, n=40):
    """Constant errors of every forecaster."""
    made = {"model": model, "climatology": climatology, "persistence": persistence, "naive_24h": naive}
    arrays = {name: np.full((n, 2, 3), value, dtype=np.float32) for name, value in made.items()}
    return Errors(
        origin_ms=np.arange(n, dtype=np.int64), zone=np.zeros(n, dtype=np.int64),
        inside=np.ones((n, 2, 3), dtype=np.float32), **arrays,
    )  # fmt: skip


def test_a_better_challenger_is_promoted_with_evidence():
    """One that beats all three is promoted, in a sentence and in numbers that JSON holds."""
    verdict = judge(errors(0.5), errors(0.8), "the climatology")
    assert verdict.promote
    assert "0.625 of the climatology" in verdict.reason
    evidence = json.loads(json.dumps(verdict.evidence, allow_nan=False))
    assert evidence["mae_ratio"] == {"persistence": 0.5, "the 24-hour naive": 0.5, "the climatology": 0.625}
    assert evidence["rows"] == 40


@pytest.mark.parametrize(
    ("challenger", "champion", "named"),
    [
        (errors(1.1), errors(2.0), "persistence and the 24-hour naive"),
        (errors(0.9, naive=0.8), errors(2.0), "the 24-hour naive"),
        (errors(0.9), errors(0.8), "v3"),
        (errors(0.8), errors(0.8), "v3"),
    ],
)
def test_a_challenger_that_does_not_beat_everyone_is_refused(challenger, champion, named):
    """Whoever was not beaten is named; a draw is not a win."""
    verdict = judge(challenger, champion, "v3")
    assert not verdict.promote
    assert f"does not beat {named}" in verdict.reason


def test_a_challenger_that_answers_nan_is_refused():
    """One missing number is enough."""
    challenger = errors(0.1)
    challenger.model[3, 1, 1] = np.nan
    verdict = judge(challenger, errors(0.8))
    assert not verdict.promote
    assert "no number in 1 " in verdict.reason


def test_too_few_rows_prove_nothing():
    """A handful of rows promotes nobody."""
    verdict = judge(errors(0.1, n=3), errors(0.8, n=3))
    assert not verdict.promote
    assert "Only 3" in verdict.reason


def test_no_truth_at_all_proves_nothing():
    """Where nothing could be compared, the champion stays."""
    nothing = errors()
    missing = {name: np.full_like(nothing.model, np.nan) for name in ("model", "persistence", "naive_24h")}
    verdict = judge(replace(nothing, **missing), replace(nothing, **missing))
    assert not verdict.promote


def test_other_rows_are_an_error():
    """Models that were measured on different rows cannot be compared."""
    with pytest.raises(ValueError, match="different rows"):
        judge(errors(n=40), errors(n=41))
