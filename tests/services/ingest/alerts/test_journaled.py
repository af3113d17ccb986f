"""An alert that is taken up again as it was told."""

from __future__ import annotations

from dataclasses import replace

from models.alerts.alert_book import Alert, AlertBook, RuleFinding
from models.alerts.alert_rule import AlertRule
from services.ingest.alerts.journaled import alert_of
from services.ingest.alerts.shown_alert import shown_alert

KEY = ("site", "north", "cold")
HOUR_MS = 3_600_000


def test_who_acknowledged_before_a_mute_is_not_forgotten() -> None:
    """The journal does not say so: what stood before the change tells."""
    book = AlertBook([AlertRule(name="cold", kind="frost", chance=0.5)])
    [firing] = book.see(0, *KEY, RuleFinding(0.9, True))
    [acknowledged] = book.acknowledge(HOUR_MS, firing.id)
    [muted] = book.mute(2 * HOUR_MS, *KEY, 5 * HOUR_MS)
    assert muted.acknowledged_before
    told = shown_alert(muted)
    assert alert_of(told, acknowledged).acknowledged_before
    assert alert_of(told, muted).acknowledged_before
    assert not alert_of(told, firing).acknowledged_before
    assert not alert_of(told).acknowledged_before
    another: Alert = replace(acknowledged, id="another")
    assert not alert_of(told, another).acknowledged_before
