"""Who may be in shadow beside whom, when the next training may begin, and which share of the budget each has."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from models.evaluation.budget import level_of
from services.config import LearnSettings
from services.learn.promotion.live_comparison import LiveComparison
from services.learn.promotion.shadow_capacity import gives_way, wait_of
from services.messages import ModelRow, Shadow


def row(version: str, stage: str, against: str = "", begun: int = 0, until: int = 100, judged: str = "") -> ModelRow:
    """A model; with ``against`` it is in shadow."""
    empty: Any = dict.fromkeys(ModelRow.__annotations__)
    shadow = Shadow(against=against, from_ms=0, until_ms=until) if against else None
    known = {"version": version, "stage": stage, "shadow": shadow, "judged_against": judged}
    return cast(ModelRow, empty | known | {"trained_on": {"known_to_ms": begun, "to_ms": 0}})


CHAMPION = row("v1", "champion")


def test_nothing_in_shadow_keeps_nobody_waiting() -> None:
    """No model, a champion alone, refused ones."""
    for models in ([], [CHAMPION], [row("v2", "refused", judged="v1"), CHAMPION]):
        assert wait_of(models, 2) is None


@pytest.mark.parametrize(("places", "free_from"), [(2, 60), (4, 40)])
def test_the_next_one_begins_after_its_part_of_the_newest_ones_time(places: int, free_from: int) -> None:
    """Of a shadow from 20 to 100 that is half with two places, a quarter with four; a drift need not wait."""
    wait = wait_of([row("v2", "shadow", "v1", begun=20), CHAMPION], places)
    assert wait is not None
    assert [wait.is_over(at, urgent=False) for at in (free_from - 1, free_from)] == [False, True]
    assert wait.is_over(0, urgent=True)


def test_with_all_places_taken_everything_waits_for_a_verdict() -> None:
    """Also a drift, and also once the rows are there: the verdict itself frees the place."""
    models = [row("v3", "shadow", "v1", 50, 150), row("v2", "shadow", "v1"), CHAMPION]
    wait = wait_of(models, 2)
    assert wait is not None
    assert "the verdict on v2" in wait.why
    assert not any(wait.is_over(10_000, urgent=urgent) for urgent in (False, True))
    alone = wait_of(models[1:], 1)
    assert alone is not None
    assert alone.full


def test_who_is_compared_with_a_champion_of_before_holds_no_place() -> None:
    """It gets no verdict; whoever waited for one would wait in vain."""
    assert wait_of([row("v3", "shadow", "v2"), row("v2", "previous"), CHAMPION], 1) is None


def test_who_has_waited_least_gives_way() -> None:
    """So verdicts go on coming; before it goes whoever gets none at all. Where there is room nobody does."""
    old, new, come = row("v2", "shadow", "v1"), row("v3", "shadow", "v1"), row("v4", "shadow", "v1")
    outdated = row("v5", "shadow", "online")
    assert gives_way([come, new, old, CHAMPION], "v4", 3) == []
    assert gives_way([come, new, old, CHAMPION], "v4", 2) == [new]
    assert gives_way([come, new, old, CHAMPION], "v4", 1) == [new, old]
    assert gives_way([outdated, come, new, old, CHAMPION], "v4", 2) == [outdated, new]


def test_no_order_of_verdicts_spends_more_than_the_budget() -> None:
    """Numbers go by who came first. Whoever is judged first, leaves without a verdict or gives way, the shares of all
    that are judged add up to no more than those of the first, the second and so on.
    """
    rng, budget = random.Random(7), 0.2
    comparison = LiveComparison(LearnSettings(gate_budget=budget), cast(Any, None), cast(Any, None), lambda: 0.0)
    for _ in range(300):
        models, spent, number = [CHAMPION], [], 2
        for _ in range(30):
            in_shadow = [model for model in models if model["stage"] == "shadow"]
            if in_shadow and rng.random() < 0.5:
                model = rng.choice(in_shadow)
                kind = rng.choice(["verdict", "unjudged", "gave way"])
                if kind == "verdict":
                    spent.append(comparison.level(models, "v1", model["version"]))
                model["stage"], model["shadow"] = "refused", None
                model["judged_against"] = "" if kind == "unjudged" else "v1"
            else:
                models.insert(0, row(f"v{number}", "shadow", "v1"))
                number += 1
        assert sum(spent) <= sum(level_of(budget, k) for k in range(1, len(spent) + 1)) + 1e-12
        assert sum(spent) < budget
