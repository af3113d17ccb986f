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


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"limit": 1e9}, "limit is 1e+09; it must be between -20 and 60 °C"),
        ({"night_limit": -40}, "night_limit is -40; it must be between -20 and 60 °C"),
        ({"hysteresis": 90}, "hysteresis is 90; it must be between 0 and 80 °C"),
        ({"kind": "vpd_low", "limit": 12}, "limit is 12; it must be between 0 and 10 kPa"),
        ({"kind": "co2_high", "limit": 15_000}, "limit is 15000; it must be between 0 and 5000 ppm"),
        ({"kind": "botrytis", "limit": 30}, "limit is 30; it must be between 0 and 24 h"),
        ({"kind": "mean_low", "limit": -25}, "limit is -25; it must be between -20 and 20 °C"),
        ({"kind": "plan_not_followed", "limit": -1}, "limit is -1; it must be between 0 and 100"),
        ({"band_c": (15.0, 1e6)}, "band_c is 1e+06; it must be between -20 and 60 °C"),
        ({"base_c": 165}, "base_c is 165; it must be between -20 and 60 °C"),
        ({"per_100_j_cm2": 20}, "per_100_j_cm2 is 20; it must be between 0 and 5 °C"),
    ],
)
def test_a_number_that_no_greenhouse_has_is_told(said: dict[str, Any], sentence: str) -> None:
    """A rule that would warn always or never is a slip of the pen; rules of a state have no limit."""
    assert AlertRule(**({"name": "cold", "kind": "frost"} | said)).beyond() == [sentence]
    assert AlertRule(name="silent", kind="stale_zone", limit=1e6).beyond() == []


@pytest.mark.parametrize("crop", CROPS)
@pytest.mark.parametrize("stage", STAGES)
def test_every_crop_begins_with_every_kind(crop: str, stage: str) -> None:
    """One rule a kind, called as its kind; fruit has its size while there is fruit."""
    rules = rules_for(crop, stage)
    assert [rule.name for rule in rules] == [rule.kind for rule in rules]
    assert {rule.kind for rule in rules} == {*COURSES, *STATES}
    assert [rule.beyond() for rule in rules] == [[]] * len(rules)
    wet = next(rule for rule in rules if rule.kind == "condensation")
    assert (wet.fruit_mm is not None) == (stage == "fruiting" and CROPS[crop].fruit_mm is not None)


def test_a_crop_that_is_not_known_is_refused() -> None:
    """Those that are known are named."""
    with pytest.raises(ValueError, match="crop 'moss' is not one of tomato"):
        rules_for("moss")
    with pytest.raises(ValueError, match="stage 'old' is not one of young"):
        rules_for("tomato", "old")
