"""Step 9 of the way of a reading: what the journal says of records that are read again after a crash.

What is read again makes the same changes, but for one thing: a forecast whose network answered after the next row had
closed may move a chance in its last digits. What was told holds then: nobody is told of another change in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.alerts.alert_book import Alert
from models.alerts.alert_rule import COURSES
from services.messages import ShownAlert

__all__ = ["SAME", "Journaled", "Key", "alert_of"]

Key = tuple[str, str, str]
"""Site, zone and rule."""

SAME = ("id", "change", "state")
"""Two changes that agree in these are one, whatever else they say."""


class Journaled:
    """Changes by the offset of the record that they came with; ``changes`` are all from some offset on."""

    def __init__(self, changes: Sequence[tuple[int, ShownAlert]]) -> None:
        self._by_offset: dict[int, dict[Key, ShownAlert]] = {}
        for offset, alert in changes:
            self._by_offset.setdefault(offset, {})[alert["site"], alert["zone"], alert["rule"]] = alert
        self._first, self._last = min(self._by_offset, default=0), max(self._by_offset, default=-1)

    def knows(self, offset: int) -> bool:
        """Whether everything that came with a record was told: changes are kept in the order of records."""
        return self._first <= offset <= self._last

    def told(self, offset: int) -> Mapping[Key, ShownAlert]:
        """The changes that came with a record; of a rule in a zone the last."""
        return self._by_offset.get(offset, {})


def alert_of(shown: ShownAlert, before: Alert | None = None) -> Alert:
    """An alert again, as it was shown. That it was acknowledged before it was muted is not shown: ``before`` tells."""
    acknowledged = before is not None and before.id == shown["id"] and before.was_acknowledged
    inputs = tuple((reason["name"], reason["value"]) for reason in shown["why"] if reason["value"] is not None)
    facts = "; ".join(reason["label"] for reason in shown["why"] if reason["value"] is None)
    return Alert(
        id=shown["id"], revision=shown["change"], site=shown["site"], zone=shown["zone"], rule=shown["rule"],
        kind=shown["kind"], severity=shown["severity"], state=shown["state"], began_ms=shown["began_ms"],
        changed_ms=shown["changed_ms"], seen_ms=shown["seen_ms"], chance=shown["chance"], from_ms=shown["from_ms"],
        to_ms=shown["until_ms"], why=shown["text"] if shown["kind"] in COURSES else facts, inputs=inputs,
        told_ms=shown["fired_ms"], came_ms=shown["came_ms"], muted_until_ms=shown["muted_until_ms"],
        acknowledged_before=acknowledged,
    )  # fmt: skip
