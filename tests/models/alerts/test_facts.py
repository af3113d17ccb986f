"""Rules of a state."""

from __future__ import annotations

import numpy as np
import pytest

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
    [fact] = unplanned(PLAN, realised, planned, 3 * 300_000, 300_000).values()
    assert fact == Fact("plan_not_followed", 300_000, "sp_heat_c is 15.0 °C, planned 18.0 °C", 1.0)
    assert finding_of(PLAN, [fact], 300_000 + 3_600_000).is_now


def test_a_fact_beyond_a_limit_is_one_for_rules_with_that_limit() -> None:
    """Others look at their own."""
    fact = Fact("plan_not_followed", 0, "sp_heat_c is 16.5, planned 18", 1.0)
    far = AlertRule(name="far", kind="plan_not_followed", limit=4.0)
    assert finding_of(PLAN, [fact], 3_600_000).is_now
    assert not finding_of(far, [fact], 3_600_000).is_now


@pytest.mark.parametrize(
    ("planned", "since_row"),
    [
        ([18.0, 18.0, 18.0, 18.0], 0),  # off all the time
        ([np.nan, np.nan, 18.0, 18.0], 0),  # a new plan, which says nothing of before
        ([np.nan, np.nan, np.nan, 18.0], 0),
        ([18.0, 18.0, 15.0, 18.0], 3),  # as planned once since the last look
        ([15.0, 15.0, 18.0, 18.0], 0),  # ... before which it was looked at by the plan of then
    ],
)
def test_what_was_found_goes_on_until_a_row_is_as_planned(planned: list[float], since_row: int) -> None:
    """It was looked at after the second row, and had been off since the beginning of the first."""
    realised = {"sp_heat_c": np.full(4, 15.0)}
    found = unplanned(
        PLAN, realised, {"sp_heat_c": np.array(planned)}, 4 * 300, 300, looked_ms=2 * 300, since={"sp_heat_c": 0}
    )
    assert found["sp_heat_c"].since_ms == since_row * 300


def test_of_what_is_first_heard_or_planned_the_end_of_that_row_counts() -> None:
    """When within the row it began to be off is not known."""
    planned = {"sp_heat_c": np.array([np.nan, 18.0, 18.0])}
    assert unplanned(PLAN, {"sp_heat_c": np.full(3, 15.0)}, planned, 900, 300)["sp_heat_c"].since_ms == 600
