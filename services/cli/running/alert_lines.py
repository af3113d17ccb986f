"""The line about alerts in the terminal of ``hothouse up``: how many fire, and the worst of them in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from edge.wire.topic import SITE_ZONE
from services.cli.base import print_news
from services.cli.running.client import connect
from services.config import Settings
from services.errors import HothouseError

if TYPE_CHECKING:
    from services.messages import ShownAlert  # `hothouse --help` must not pay for NumPy

__all__ = ["ALERTS_EVERY_S", "AlertLines", "alert_lines"]

ALERTS_EVERY_S = 10.0


class AlertLines:
    """``firing`` gives the alerts that fire now, the worst first; it may raise :class:`HothouseError`."""

    def __init__(self, firing: Callable[[], Sequence[ShownAlert]]) -> None:
        self._firing = firing
        self._known: frozenset[str] = frozenset()

    def line(self) -> str:
        """What is to be said since the last look; empty where the same alerts fire, or nobody answers."""
        try:
            alerts = self._firing()
        except HothouseError:
            return ""  # what does not answer is told elsewhere, and what it knew holds until it answers again
        before, self._known = self._known, frozenset(alert["id"] for alert in alerts)
        if self._known == before:
            return ""
        if not alerts:
            return "no alert fires any more"
        worst = alerts[0]
        where = worst["site"] if worst["zone"] == SITE_ZONE else f"{worst['site']}/{worst['zone']}"
        words = f"{where} {worst['text']} ({worst['severity']})"
        return f"1 alert fires: {words}" if len(alerts) == 1 else f"{len(alerts)} alerts fire, the worst: {words}"


def alert_lines(settings: Settings, url: str) -> Callable[[], None]:
    """A function that asks the system at ``url`` and prints what is new since its last call."""

    def firing() -> list[ShownAlert]:
        answer = connect(settings, url).get("/alerts", state="firing")
        return cast("list[ShownAlert]", answer["alerts"])  # in the order of /alerts: by severity, then the newest

    lines = AlertLines(firing)

    def look() -> None:
        if line := lines.line():
            print_news(line)

    return look
