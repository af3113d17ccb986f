"""Step 10 of the way of a reading: how good the alerts of a running system were, from what it kept of them.

Events are those that the system saw itself: one that nobody was warned of has an alert, too, from when it was seen.
So no rule has to be followed again, and each alert is judged by the rule that made it. Otherwise they are counted
as :func:`~models.alerts.scoring.alert_scores.score_rule` counts those of a recording.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Literal

from models.alerts.scoring.alert_scores import EARLY_MS, AlertTally
from models.durations import HOUR_MS

__all__ = ["Outcome", "PastAlert", "tally"]

Outcome = Literal["came", "false", "set_aside", "open", "ended"]


@dataclass(frozen=True, slots=True)
class PastAlert:
    """An alert that fired. ``event_ms`` is when its event began, None if none was seen; ``acted`` says whether somebody
    did something about it meanwhile, ``was_cut`` whether it ended although nobody knew what would come.
    """

    fired_ms: int
    event_ms: int | None
    is_over: bool
    acted: bool = False
    was_cut: bool = False

    @property
    def outcome(self) -> Outcome:
        """What became of it; it is open until its event came or it is over.

        >>> [PastAlert(0, *said).outcome for said in ((None, True), (None, True, True), (5, True))]
        ['false', 'set_aside', 'came']
        """
        if self.event_ms is not None:
            return "came"
        if not self.is_over:
            return "open"
        return "ended" if self.was_cut else "set_aside" if self.acted else "false"

    @property
    def lead_h(self) -> float | None:
        """Hours from when it fired until its event began, 0 where it began before; None without an event."""
        return None if self.event_ms is None else max(self.event_ms - self.fired_ms, 0) / HOUR_MS


def tally(alerts: Iterable[PastAlert], zone_weeks: float) -> AlertTally:
    """Count the alerts of a rule; ``zone_weeks`` is for how long zones were watched.

    >>> found = tally([PastAlert(0, 7_200_000, True), PastAlert(0, 60_000, False), PastAlert(0, None, True)], 2.0)
    >>> found.hit_rate, found.false_a_week, found.lead_h
    (0.5, 0.5, 2.0)
    """
    listed = list(alerts)
    outcomes = [alert.outcome for alert in listed]
    early = [alert.lead_h for alert in listed if alert.lead_h is not None and alert.lead_h * HOUR_MS >= EARLY_MS]
    return AlertTally(
        events=outcomes.count("came"), told=len(early), alerts=sum(alert.is_over for alert in listed),
        false=outcomes.count("false"), set_aside=outcomes.count("set_aside"), zone_weeks=zone_weeks,
        lead_h=median(early) if early else float("nan"),
    )  # fmt: skip
