"""Who may serve, and who has to go."""

import json
from dataclasses import replace

import numpy as np
import pytest

from models.evaluation.budget import level_of
from models.evaluation.gate import MIN_BLOCKS, judge, judge_worse
from models.network.training import Errors

HOUR_MS = 3_600_000


def errors(model=0.5, climatology=0.8, persistence=1.0, naive=1.0, n=40, apart_ms=HOUR_MS):
    """Constant errors of every forecaster, ``n`` origins one hour apart."""
    made = {"model": model, "climatology": climatology, "persistence": persistence, "naive_24h": naive}
    arrays = {name: np.full((n, 2, 3), value, dtype=np.float32) for name, value in made.items()}
    return Errors(
        origin_ms=np.arange(n, dtype=np.int64) * apart_ms, zone=np.zeros(n, dtype=np.int64),
        inside=np.ones((n, 2, 3), dtype=np.float32), **arrays,
    )  # fmt: skip


def days_of(ratios, reference=1.0):
    """A model and its rival, hour by hour, a ratio of errors a day."""
    n = 24 * len(ratios)
    level = np.repeat(np.asarray(ratios, dtype=np.float32), 24)[:, None, None]
    model = errors(n=n, climatology=9.0, persistence=9.0, naive=9.0)
    return replace(model, model=model.model / 0.5 * reference * level), errors(
        reference, n=n, persistence=9.0, naive=9.0
    )


def test_a_better_challenger_is_promoted_with_evidence():
    """One that beats all three is promoted, in a sentence and in numbers that JSON holds."""
    verdict = judge(errors(0.5), errors(0.8), "the climatology")
    assert verdict.promote
    assert "0.625 (0.625 to 0.625) of the climatology" in verdict.reason
    evidence = json.loads(json.dumps(verdict.evidence, allow_nan=False))
    assert evidence["mae_ratio"] == {"persistence": 0.5, "the 24-hour naive": 0.5, "the climatology": 0.625}
    assert (evidence["rows"], evidence["blocks"], evidence["block_min"]) == (40, 7, 360)
    assert evidence["newest_ms"] == 39 * HOUR_MS


@pytest.mark.parametrize(
    ("challenger", "champion", "named"),
    [
        (errors(1.1), errors(2.0), "persistence and the 24-hour naive"),
        (errors(0.9, naive=0.8), errors(2.0), "the 24-hour naive"),
        (errors(0.9, climatology=2.0), errors(0.8), "v3"),
        (errors(0.8, climatology=2.0), errors(0.8), "v3"),
        (errors(0.9, climatology=0.8), errors(2.0), "the climatology"),
        (errors(0.9), errors(0.8), "v3 and the climatology"),
    ],
)
def test_a_challenger_that_does_not_beat_everyone_is_refused(challenger, champion, named):
    """Whoever was not beaten is named; a draw is not a win."""
    verdict = judge(challenger, champion, "v3")
    assert not verdict.promote
    assert f"does not beat {named}" in verdict.reason


def test_luck_of_a_single_day_is_not_enough():
    """A challenger that gains on one day of ten, and loses a little on the others, is better on average and refused."""
    lucky = [0.7, *[1.01] * 9]
    verdict = judge(*days_of(lucky), "v3", level=0.05)
    assert np.mean(lucky) < 1
    assert not verdict.promote
    assert "not sure enough (level 0.05) that the challenger beats v3" in verdict.reason
    assert verdict.evidence["mae_ratio"]["v3"] < 1 < verdict.evidence["mae_ratio_upper"]["v3"]


def test_a_small_gain_on_every_day_is_enough():
    """What is better by a little, but always, passes, also at a level that many challengers share."""
    steady = [0.97, 0.98, 0.96, 0.99, 0.97, 0.98, 0.97]
    assert judge(*days_of(steady), "v3", level=level_of(0.2, 9)).promote


def test_the_margin_counts_beyond_the_interval():
    """A gain of less than the margin is refused, however sure it is."""
    assert judge(*days_of([0.995] * 8), "v3", margin=0.004).promote
    assert not judge(*days_of([0.995] * 8), "v3", margin=0.006).promote


def test_challengers_without_merit_rarely_pass():
    """Of 60 challengers whose days are as often better as worse, no more pass than the level says, and some luck."""
    rng = np.random.default_rng(1)
    passed = sum(judge(*days_of(np.exp(rng.normal(0, 0.05, 14))), "v3", level=0.05).promote for _ in range(60))
    assert passed <= 9  # 3 expected; the bootstrap over 14 days is a little too sure of itself


def test_one_budget_is_shared_by_all_challengers():
    """Levels of all challengers that may ever come add up to the budget and no more."""
    levels = [level_of(0.2, number) for number in range(1, 2000)]
    assert levels == sorted(levels, reverse=True)
    assert 0.199 < sum(levels) < 0.2


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


def test_many_rows_of_one_moment_prove_nothing():
    """A hundred zones within an hour are one block: they stood under one sky."""
    verdict = judge(errors(0.1, n=100, apart_ms=1000), errors(0.8, n=100, apart_ms=1000))
    assert not verdict.promote
    assert f"{MIN_BLOCKS} are needed" in verdict.reason


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


def test_a_champion_that_got_much_worse_goes_within_half_a_day():
    """Twice the error of its predecessor over half a day is enough to go back."""
    verdict = judge_worse(errors(1.0, n=13), errors(0.5, n=13), "v1")
    assert verdict.promote
    assert "2.000 (2.000 to 2.000) of v1" in verdict.reason


def test_a_little_worse_must_last():
    """One tenth more error is not enough within half a day, and is after a week."""
    assert not judge_worse(errors(0.55, n=13), errors(0.5, n=13), "v1").promote
    assert judge_worse(*days_of([1.1] * 7), "v1").promote


def test_a_champion_that_is_no_worse_stays():
    """Neither a better one nor one whose days differ to both sides has to go."""
    assert not judge_worse(*days_of([0.9] * 7), "v1").promote
    assert not judge_worse(*days_of([1.3, 0.8, 1.2, 0.9, 1.3, 0.8, 1.1]), "v1").promote


def test_a_champion_that_answers_nothing_goes():
    """No number where there was one before is worse than any number."""
    silent = errors(0.5)
    silent.model[5:] = np.nan
    verdict = judge_worse(silent, errors(0.5), "v1")
    assert verdict.promote
    assert "no number" in verdict.reason


def test_a_tolerance_lets_a_challenger_in_that_is_no_better():
    """With a negative margin it need not beat the champion, and may not be worse by more; all others it must beat."""
    assert judge(errors(0.8, climatology=2.0), errors(0.8), "v3", margin=-0.01).promote
    assert judge(errors(0.807, climatology=2.0), errors(0.8), "v3", margin=-0.01).promote
    worse = judge(errors(0.82, climatology=2.0), errors(0.8), "v3", margin=-0.01)
    assert not worse.promote
    assert "does not beat v3" in worse.reason
    for reference in ({"climatology": 0.8}, {"persistence": 0.8}, {"naive": 0.8}):
        assert not judge(errors(0.8, **({"climatology": 2.0} | reference)), errors(0.8), "v3", margin=-0.01).promote
    assert not judge(errors(0.8), errors(0.8), "the climatology", margin=-0.01).promote
