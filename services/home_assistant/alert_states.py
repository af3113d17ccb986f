"""Step 9 of the way of a reading: alerts as states, one a rule and zone.

A rule is on in a zone while an alert of it is firing or acknowledged there. One that is pending, muted or over is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from models.alerts.alert_rule import COURSES, STATES
from services.home_assistant.names import rule_key

__all__ = ["RULES", "SITE_RULES", "ZoneAlerts"]

RULES = (*COURSES, *STATES)
"""The rules that every zone has; others appear with their first alert."""
SITE_RULES = ("drift",)
"""The same of a site as a whole."""
ON = ("firing", "acknowledged")

LONGEST_TEXT = 3000
"""Characters of a sentence: of 4 bytes each they are less than Home Assistant keeps of an entity."""


class _Seen(NamedTuple):
    order: tuple[int, int]  # a newer one has a larger one
    alert: Mapping[str, Any]


class ZoneAlerts:
    """The newest alert of each rule in one zone, or of a site as a whole."""

    def __init__(self, rules: Iterable[str] = RULES) -> None:
        self._newest: dict[str, _Seen] = {}
        self.rules: dict[str, str] = {rule_key(rule): rule for rule in rules}  # key -> rule

    def take(self, alerts: Iterable[Mapping[str, Any]]) -> bool:
        """Take alerts of this zone (``ShownAlert``) in any order; whether they changed what is known."""
        changed = False
        for alert in alerts:
            key, order = rule_key(alert["rule"]), (alert["began_ms"], alert["change"])
            known = self._newest.get(key)
            if known is not None and (known.order > order or known.alert == alert):
                continue
            self._newest[key] = _Seen(order, alert)
            self.rules.setdefault(key, alert["rule"])
            changed = True
        return changed

    def state(self, timezone: str) -> dict[str, Any]:
        """Each rule's ``value`` and ``attributes``."""
        return {key: self._of(key, timezone) for key in self.rules}

    def _of(self, key: str, timezone: str) -> dict[str, Any]:
        seen = self._newest.get(key)
        if seen is None:
            return {"value": "OFF", "attributes": {}}
        alert = seen.alert
        attributes = {name: alert[name] for name in ("text", "state", "severity", "chance", "id")}
        attributes |= {name: _local(alert[f"{name}_ms"], timezone) for name in ("from", "until")}
        if len(text := alert["text"]) > LONGEST_TEXT:
            attributes["text"] = text[: LONGEST_TEXT - 1] + "…"
        return {"value": "ON" if alert["state"] in ON else "OFF", "attributes": attributes}


def _local(ms: int, timezone: str) -> str:
    zone = UTC if timezone == "UTC" else ZoneInfo(timezone)
    return datetime.fromtimestamp(ms / 1000, zone).isoformat(timespec="minutes")
