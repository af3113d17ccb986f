"""Journals with changes of alerts, and who keeps what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from services.alert.delivery import DeliveryError
from services.ingest.alerts.alert_journal import AlertJournal
from services.messages import ShownAlert

__all__ = ["Clock", "Keeper", "change", "journal"]


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Keeper:
    """A channel that keeps what it is told; ``fails_at`` is the place of a change that it cannot tell."""

    name = "keeper"

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.begun = 0
        self.fails_at: int | None = None
        self.waits = False

    def begin(self) -> None:
        self.begun += 1

    def deliver(self, alerts: Sequence[ShownAlert]) -> int:
        if self.waits:
            return 0
        for done, alert in enumerate(alerts):
            if self.fails_at is not None and len(self.told) >= self.fails_at:
                raise DeliveryError("nobody is there", done)
            self.told.append((alert["id"], alert["change"]))
        return len(alerts)


def change(id: str = "a1", number: int = 1, state: str = "firing", **more: Any) -> ShownAlert:
    """A change of an alert about a cold night."""
    return {
        "id": id, "change": number, "site": "demo", "zone": "z1", "rule": "frost", "kind": "frost",
        "severity": "critical", "state": state, "chance": 0.72, "from_ms": 1000, "until_ms": 2000, "began_ms": 0,
        "changed_ms": number, "seen_ms": number, "fired_ms": 0, "came_ms": None, "came_true": None,
        "muted_until_ms": None, "text": "cold 72 % between 04:00 and 06:30; air 1.8 °C",
        "why": [{"name": "air", "label": "air", "value": 1.8, "unit": "°C"}], **more,
    }  # type: ignore[return-value]  # fmt: skip


def journal(root: Path, *changes: ShownAlert, partition: int = 0) -> None:
    """Write changes as a shard does."""
    kept = AlertJournal(root, partition)
    kept.put([(n, alert) for n, alert in enumerate(changes)])
