"""Step 9 of the way of a reading: an alert as it is stored, delivered and shown."""

from __future__ import annotations

from models.alerts.alert_book import CUT, Alert
from models.alerts.alert_rule import COURSES
from models.alerts.alert_words import INPUTS, NAMES, over_words
from services.messages import AlertReason, ShownAlert

__all__ = ["shown_alert", "why_cut"]

DECIMALS = 4


def shown_alert(alert: Alert) -> ShownAlert:
    """What everybody is told of it."""
    text = _sentence(alert.kind, alert.why)
    if alert.is_over and alert.kind in COURSES:
        text = over_words(text)
    shown = ShownAlert(
        id=alert.id, change=alert.revision, site=alert.site, zone=alert.zone, rule=alert.rule, kind=alert.kind,
        severity=alert.severity, state=alert.state, chance=round(alert.chance, DECIMALS), from_ms=alert.from_ms,
        until_ms=alert.to_ms, began_ms=alert.began_ms, changed_ms=alert.changed_ms, seen_ms=alert.seen_ms,
        fired_ms=alert.told_ms, came_ms=alert.came_ms, came_true=alert.came_true,
        muted_until_ms=alert.muted_until_ms, text=text, why=_reasons(alert),
    )  # fmt: skip
    if alert.limit is not None:
        shown["limit"] = round(alert.limit, DECIMALS)
    return shown


def why_cut(alert: ShownAlert) -> str:
    """Why it is over although nobody knows whether all is well, of :data:`CUT`; empty where that is known.

    >>> why_cut({"state": "resolved", "kind": "stale_zone", "text": "no fresh readings: the zone has left"})
    'the zone has left'
    >>> why_cut({"state": "resolved", "kind": "stale_zone", "text": "zone is silent: the zone has left"})
    'the zone has left'
    """
    # What a kind of rule is called may be another in a later release; the alert is of any.
    said = f": {alert['text']}"
    found = next((why for why in CUT if said.endswith(f": {why}")), "")
    return found if alert["state"] == "resolved" else ""


def _sentence(kind: str, why: str) -> str:
    """One sentence; the facts of a rule of a state begin with what they are about."""
    return why if kind in COURSES or not why else f"{NAMES[kind]}: {why}"


def _reasons(alert: Alert) -> list[AlertReason]:
    if alert.inputs:
        known = ((name, value, *INPUTS[name]) for name, value in alert.inputs)
        return [
            AlertReason(name=name, label=label, value=round(value, DECIMALS), unit=unit)
            for name, value, label, unit, _ in known
        ]
    if not alert.why or (alert.kind in COURSES and alert.why not in CUT):  # what a course says is told by its inputs
        return []
    return [AlertReason(name="fact", label=words, value=None, unit="") for words in alert.why.split("; ")]
