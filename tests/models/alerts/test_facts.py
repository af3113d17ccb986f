"""Rules of a state."""

from __future__ import annotations

import numpy as np

from models.alerts.alert_rule import AlertRule
from models.alerts.facts import Fact, finding_of, unplanned

PLAN = AlertRule(name="plan", kind="plan_not_followed", limit=1.0, for_min=60)


def test_facts_of_a_kind_are_told_together() -> None:
    """Since the first of them; those of other kinds are none of this rule's."""
    rule = AlertRule(name="faults", kind="sensor_fault")
    facts = [Fact("sensor_fault", 60, "a"), Fact("drift", 0, "b"), Fact("sensor_fault", 30, "c")]
    found = finding_of(rule, facts, 100)
    assert (found.is_now, found.from_ms, found.why) == (True, 30, "a; c")
    assert not finding_of(rule, [facts[1]], 100).is_now


def test_a_plan_counts_as_not_followed_from_when_it_was_not() -> None:
    """Within the limit it is followed; where the plan says nothing, too."""
    realised = {"sp_heat_c": np.array([18.0, 15.0, 15.0]), "sp_vent_c": np.array([24.0, 24.0, 24.0])}
    planned = {
        "sp_heat_c": np.full(3, 18.0),
        "sp_vent_c": np.array([20.0, 20.0, np.nan]),
        "sp_co2_ppm": np.full(3, 9.0),
    }
    [fact] = unplanned(PLAN, realised, planned, 3 * 300_000, 300_000)
    assert fact == Fact("plan_not_followed", 300_000, "sp_heat_c is 15, planned 18")
    assert finding_of(PLAN, [fact], 300_000 + 3_600_000).is_now
