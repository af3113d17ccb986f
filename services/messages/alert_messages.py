"""What travels about alerts: between shards, live state, deliveries and clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from edge.wire.trace_id import in_step
from models.alerts.alert_book import AlertState

__all__ = ["AlertCount", "AlertReason", "AlertState", "ShownAlert", "ShownAlerts", "SiteRulesShown", "in_alert"]

MOST_RESOLVED = 500
"""Alerts that are over and still shown; the newest are kept."""


class AlertReason(TypedDict):
    """An input that speaks for an alert; of a fact ``label`` is a sentence, and there is no number."""

    name: Annotated[str, Meta(description="air, leaf, fruit, dew_point ...; `fact` for a sentence.")]
    label: str
    value: float | None
    unit: str
    code: NotRequired[Annotated[str, Meta(description="Of a fact: which sentence it is, for programs.")]]
    values: NotRequired[Annotated[dict[str, str | float], Meta(description="Of a fact: the values in its sentence.")]]


class ShownAlert(TypedDict):
    """An alert, as it is now."""

    id: str
    change: Annotated[int, Meta(description="Counts its changes of state, from 1.")]
    site: str
    zone: str
    rule: str
    kind: str
    severity: Annotated[str, Meta(description="info, warning or critical.")]
    state: AlertState
    chance: float
    from_ms: Annotated[int, Meta(description="When the event is expected to begin, or began.")]
    until_ms: int
    began_ms: int
    changed_ms: Annotated[int, Meta(description="When its state changed.")]
    seen_ms: Annotated[int, Meta(description="Chance, span and sentence are of then.")]
    fired_ms: int | None
    came_ms: Annotated[int | None, Meta(description="When the event was seen.")]
    came_true: Annotated[
        bool | None,
        Meta(description="Null while that is open, where nobody was told, and where nobody looks any more."),
    ]
    muted_until_ms: int | None
    limit: NotRequired[Annotated[float, Meta(description="The limit of its rule that holds then, if it has one.")]]
    text: Annotated[str, Meta(description="One sentence; times by the site's clock.")]
    why: list[AlertReason]


def in_alert(alert: ShownAlert, **more: Any) -> dict[str, Any]:
    """The argument ``extra`` of a log line about a change of an alert. It has the id of the step that the alert is of;
    a change by an order was made in no step, and has an id of its own.
    """
    named = {"alert": alert["id"], "change": alert["change"], **more}
    return in_step(alert["site"], alert["seen_ms"], alert["zone"], **named)


class AlertCount(TypedDict):
    """How many alerts are in each state."""

    pending: int
    firing: int
    acknowledged: int
    muted: int
    resolved: int


class SiteRulesShown(TypedDict):
    """The rules of a site, as a document, and who changed them last."""

    site: str
    version: int
    changed_ms: int | None
    changed_by: Literal["defaults", "file", "api"]
    document: dict[str, Any]
    file: NotRequired[str]
    zones: NotRequired[list[str]]  # those that the site has now


class ShownAlerts(dict[str, ShownAlert]):
    """The newest of each alert, by id; of those that are over some hundred.

    >>> alerts = ShownAlerts()
    >>> alert = {"id": "a", "change": 2, "state": "firing", "seen_ms": 7, "changed_ms": 7}
    >>> alerts.take([alert])[0]["id"], alerts.take([alert | {"change": 1}])
    ('a', [])
    """

    def take(self, alerts: Iterable[ShownAlert]) -> list[ShownAlert]:
        """Take alerts that are as new as what is known, or newer; gives these."""
        taken = [alert for alert in alerts if self._is_news(alert)]
        self.update({alert["id"]: alert for alert in taken})
        over = [alert for alert in self.values() if alert["state"] == "resolved"]
        if len(over) > MOST_RESOLVED:
            for alert in sorted(over, key=lambda alert: alert["changed_ms"])[: len(over) - MOST_RESOLVED]:
                del self[alert["id"]]
        return taken

    def _is_news(self, alert: ShownAlert) -> bool:
        known = self.get(alert["id"])
        return known is None or (known["change"], known["seen_ms"]) <= (alert["change"], alert["seen_ms"])
