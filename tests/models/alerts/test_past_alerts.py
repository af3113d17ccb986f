"""How good the alerts of a running system were."""

from __future__ import annotations

import math

from models.alerts.scoring.alert_scores import EARLY_MS
from models.alerts.scoring.past_alerts import PastAlert, tally


def test_each_alert_has_one_outcome() -> None:
    """What came counts as come, whatever else; what is not over is open; what was cut off says nothing."""
    assert PastAlert(0, 5, True, acted=True, was_cut=True).outcome == "came"
    assert PastAlert(0, 5, False).outcome == "came"
    assert PastAlert(0, None, False, acted=True).outcome == "open"
    assert PastAlert(0, None, True, acted=True).outcome == "set_aside"
    assert PastAlert(0, None, True, acted=True, was_cut=True).outcome == "ended"
    assert PastAlert(0, None, True).outcome == "false"


def test_an_event_is_told_from_an_hour_before() -> None:
    """To the millisecond; one that was told when it was there already has no lead."""
    alerts = [PastAlert(0, EARLY_MS, True), PastAlert(0, EARLY_MS - 1, True), PastAlert(9, 3, True)]
    found = tally(alerts, 0.5)
    assert (found.events, found.told, found.lead_h) == (3, 1, 1.0)
    assert alerts[2].lead_h == 0


def test_only_false_ones_count_as_false() -> None:
    """Set aside, cut off and open ones do not; without time or events there is no share."""
    alerts = [
        PastAlert(0, None, True), PastAlert(0, None, True, acted=True), PastAlert(0, None, True, was_cut=True),
        PastAlert(0, None, False),
    ]  # fmt: skip
    found = tally(alerts, 2.0)
    assert (found.alerts, found.false, found.set_aside, found.false_a_week) == (3, 1, 1, 0.5)
    assert math.isnan(found.hit_rate)
    assert math.isnan(tally([], 0.0).false_a_week)
