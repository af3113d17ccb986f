"""Rules, and those that crops begin with."""

from __future__ import annotations

from typing import Any

import pytest

from models.alerts.alert_rule import COURSES, STATES, AlertRule
from models.alerts.crop_rules import CROPS, STAGES, rules_for


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"kind": "snow"}, "kind 'snow' is not one of frost"),
        ({"severity": "loud"}, "severity 'loud' is not one of info, warning, critical"),
        ({"chance": 60}, "chance is 60; it must be between 0.01 and 0.99"),
        ({"lead_h": 48}, "lead_h is 48; it must be between 0.5 and 24"),
        ({"hysteresis": -1}, "hysteresis is -1; it must be 0 or more"),
        ({"fruit_mm": 2}, "fruit_mm is 2; it must be between 5 and 200"),
        ({"band_c": (25.0, 15.0)}, "band_c goes from 25 to 15; it must go up"),
        ({"limit": float("nan")}, "limits must be numbers"),
        ({"hours": (-1, 60)}, "hours must be two times of a day"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_in_a_sentence(said: dict[str, Any], sentence: str) -> None:
    """The sentence names the rule, what was said and what is allowed."""
    with pytest.raises(ValueError, match=f"^cold: {sentence}"):
        AlertRule(**({"name": "cold", "kind": "frost"} | said))


@pytest.mark.parametrize("crop", CROPS)
@pytest.mark.parametrize("stage", STAGES)
def test_every_crop_begins_with_every_kind(crop: str, stage: str) -> None:
    """One rule a kind, called as its kind; fruit has its size while there is fruit."""
    rules = rules_for(crop, stage)
    assert [rule.name for rule in rules] == [rule.kind for rule in rules]
    assert {rule.kind for rule in rules} == {*COURSES, *STATES}
    wet = next(rule for rule in rules if rule.kind == "condensation")
    assert (wet.fruit_mm is not None) == (stage == "fruiting" and CROPS[crop].fruit_mm is not None)


def test_a_crop_that_is_not_known_is_refused() -> None:
    """Those that are known are named."""
    with pytest.raises(ValueError, match="crop 'moss' is not one of tomato"):
        rules_for("moss")
    with pytest.raises(ValueError, match="stage 'old' is not one of young"):
        rules_for("tomato", "old")
