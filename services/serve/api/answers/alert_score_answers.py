"""How good a zone's alerts were: ``GET /alerts/scores``, from the journal's changes and the zone's rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, TypedDict

import numpy as np
from msgspec import Meta

from models.alerts.alert_rule import COURSES
from models.alerts.scoring.alert_scores import ACTIONS, acted, day_before
from models.alerts.scoring.past_alerts import Outcome, PastAlert, tally
from models.durations import DAY_MS, WEEK_MS
from models.features.inputs import local_ms
from models.spec import Place
from services.ingest.alerts.shown_alert import why_cut
from services.messages import F32, I64, Resampled, ShownAlert

__all__ = ["SETPOINTS", "AlertScores", "PastAlertShown", "RuleScoreShown", "alert_scores"]

LEAST_EVENTS = 5
"""Of fewer events a hit rate says nothing ..."""

LEAST_WEEKS = 1.0
"""... and of less time the number of false alerts a week."""

MOST_ALERTS = 200
"""Only the newest alerts are listed; all are counted."""

SETPOINTS = tuple(sorted({metric for moved in ACTIONS.values() for metric in moved}))
"""What somebody may move to help against what an alert says."""


class RuleScoreShown(TypedDict):
    """How good the alerts of a rule were."""

    rule: str
    kind: str
    alerts: Annotated[int, Meta(description="That are over.")]
    events: Annotated[int, Meta(description="Alerts whose event came.")]
    told: Annotated[int, Meta(description="Events of which an alert fired an hour before they began, or earlier.")]
    false: Annotated[int, Meta(description="Over, and no event came.")]
    set_aside: Annotated[
        int, Meta(description="The same, but a setpoint was moved that helps: nobody knows what would have come.")
    ]
    hit_rate: Annotated[float | None, Meta(description="The share of events that were told; null: not enough yet.")]
    false_a_week: Annotated[float | None, Meta(description="False alerts a week; null: not enough yet.")]
    lead_h: Annotated[float | None, Meta(description="How long before its event an alert fired, median of those told.")]
    not_enough: Annotated[list[str], Meta(description="What is missing for a hit rate, or for false alerts a week.")]


class PastAlertShown(TypedDict):
    """An alert that fired, and what became of it."""

    id: str
    rule: str
    kind: str
    severity: str
    fired_ms: int
    chance: Annotated[float | None, Meta(description="When it fired; null where that is not kept any more.")]
    event_ms: Annotated[int | None, Meta(description="When its event began; null where none was seen.")]
    over_ms: Annotated[int | None, Meta(description="When it was resolved; null while it is not.")]
    lead_h: Annotated[float | None, Meta(description="From when it fired until its event began.")]
    outcome: Annotated[
        Outcome,
        Meta(description="`ended`: with its rule or zone, so nobody knows what would have come; `open`: not over yet."),
    ]


class AlertScores(TypedDict):
    """How good a zone's alerts about the climate were."""

    site: str
    zone: str
    since_ms: int
    until_ms: int
    weeks: Annotated[float, Meta(description="For how long the zone was watched: rows since the site's first alert.")]
    rules: list[RuleScoreShown]
    alerts: Annotated[list[PastAlertShown], Meta(description="Newest first.")]


def alert_scores(
    key: tuple[str, str], changes: Iterable[ShownAlert], first_ms: int | None, rows: Resampled, since_ms: int,
    until_ms: int, step_ms: int, place: Place,
) -> AlertScores:  # fmt: skip
    """Judge the alerts of a zone that fired in a span; ``rows`` begin a day before it, and have :data:`SETPOINTS`,
    which go by the clock of ``place``.

    Alerts of a state foresee nothing, and who was told of none that was always muted: both are left out.
    """
    by_id: dict[str, list[ShownAlert]] = {}
    for change in changes:
        if change["kind"] in COURSES and change["fired_ms"] is not None and since_ms <= change["fired_ms"] <= until_ms:
            by_id.setdefault(change["id"], []).append(change)
    ends, held = _setpoints(rows, since_ms, until_ms, step_ms)
    before = day_before(local_ms(place, ends), step_ms)
    for of in by_id.values():
        of.sort(key=lambda change: (change["change"], change["seen_ms"]))
    judged = [(of[-1], *_past(of, ends, held, before)) for of in by_id.values() if _was_told(of)]
    judged.sort(key=lambda each: (-(each[0]["fired_ms"] or 0), each[0]["id"]))
    watched = rows["end_ms"] > max(since_ms, until_ms if first_ms is None else first_ms)
    weeks = float(watched.sum() * step_ms / WEEK_MS)
    kinds = {alert["rule"]: alert["kind"] for alert, _, _ in judged}
    return AlertScores(
        site=key[0], zone=key[1], since_ms=since_ms, until_ms=until_ms, weeks=round(weeks, 3),
        rules=[_score(rule, kinds[rule], [past for one, past, _ in judged if one["rule"] == rule], weeks)
               for rule in sorted(kinds)],
        alerts=[_shown(*each) for each in judged[:MOST_ALERTS]],
    )  # fmt: skip


def _was_told(changes: Sequence[ShownAlert]) -> bool:
    states = {change["state"] for change in changes}
    return "muted" not in states or bool(states & {"firing", "acknowledged"})


def _past(
    changes: Sequence[ShownAlert], ends: I64, held: Mapping[str, F32], before: I64
) -> tuple[PastAlert, float | None]:
    """The alert, and its chance when it fired."""
    newest, fired_ms = changes[-1], changes[-1]["fired_ms"] or 0
    came_ms = newest["came_ms"]
    told, until = (int(np.searchsorted(ends, ms, "right")) - 1 for ms in (fired_ms, newest["until_ms"]))
    past = PastAlert(
        fired_ms=fired_ms,
        event_ms=None if came_ms is None else min(came_ms, newest["from_ms"]),
        is_over=newest["state"] == "resolved",
        acted=acted(newest["kind"], held, told, until, before),
        was_cut=bool(why_cut(newest)),
    )
    first = changes[0]
    return past, first["chance"] if first["changed_ms"] == fired_ms else None


def _setpoints(rows: Resampled, since_ms: int, until_ms: int, step_ms: int) -> tuple[I64, dict[str, F32]]:
    """The ends of steps from a day before the span, and the setpoints in them."""
    start_ms = (since_ms - DAY_MS) // step_ms * step_ms + step_ms
    count = max((until_ms - start_ms) // step_ms + 1, 0)
    at = (rows["end_ms"] - start_ms) // step_ms
    inside = (at >= 0) & (at < count)
    held = {}
    for metric in SETPOINTS:
        held[metric] = np.full(count, np.nan, np.float32)
        held[metric][at[inside]] = rows["mean"][metric][inside]
    return start_ms + np.arange(count, dtype=np.int64) * step_ms, held


def _score(rule: str, kind: str, alerts: Sequence[PastAlert], weeks: float) -> RuleScoreShown:
    found, missing = tally(alerts, weeks), []
    if found.events < LEAST_EVENTS:
        missing.append(f"{found.events} of {LEAST_EVENTS} events")
    if weeks < LEAST_WEEKS:
        missing.append(f"{weeks * 7:.1f} of {LEAST_WEEKS * 7:.0f} days")
    return RuleScoreShown(
        rule=rule, kind=kind, alerts=found.alerts, events=found.events, told=found.told, false=found.false,
        set_aside=found.set_aside, hit_rate=round(found.hit_rate, 3) if found.events >= LEAST_EVENTS else None,
        false_a_week=round(found.false_a_week, 3) if weeks >= LEAST_WEEKS else None,
        lead_h=round(found.lead_h, 2) if math.isfinite(found.lead_h) else None, not_enough=missing,
    )  # fmt: skip


def _shown(alert: ShownAlert, past: PastAlert, chance: float | None) -> PastAlertShown:
    return PastAlertShown(
        id=alert["id"], rule=alert["rule"], kind=alert["kind"], severity=alert["severity"], fired_ms=past.fired_ms,
        chance=chance, event_ms=past.event_ms, over_ms=alert["changed_ms"] if past.is_over else None,
        lead_h=None if past.lead_h is None else round(past.lead_h, 2), outcome=past.outcome,
    )  # fmt: skip
