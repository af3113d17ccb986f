"""``/alerts/scores``: how good a zone's alerts were."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from models.durations import DAY_MS
from services.serve.api.answer_types import described
from services.serve.api.answers.alert_score_answers import SETPOINTS, AlertScores, alert_scores
from services.serve.api.parameters import StrictRoute
from services.serve.api.schemas import KEYED, PREDICT_ANSWERS, SiteOfZone
from services.serve.api.state import ApiState, Authorization

__all__ = ["alert_score_routes"]

Zone = Annotated[str, Query(min_length=1, max_length=130, description="Zone, or site/zone.")]
Days = Annotated[int, Query(ge=1, le=90, description="Alerts that fired in the past so many days.")]


def alert_score_routes(state: ApiState) -> APIRouter:
    """Included before ``/alerts/{id}``, which would take it for an alert."""
    routes = APIRouter(tags=["alerts"], route_class=StrictRoute, responses={422: PREDICT_ANSWERS[422], **KEYED})
    backend, step_ms = state.backend, state.spec.step_ms
    told: dict[int | str, dict[str, Any]] = {
        **described(AlertScores),
        **{status: PREDICT_ANSWERS[status] for status in (404, 503)},
    }

    @routes.get("/alerts/scores", response_model=None, responses=told)
    async def scores(
        zone: Zone, site: SiteOfZone = None, days: Days = 28, authorization: Authorization = None
    ) -> AlertScores:
        """How good a zone's alerts about the climate were: whether each came true, how early it was told, whether
        somebody did something about it; and by rule the share of events that were told, and false alerts a week.

        Where there are too few events, or too little time, the share is null, and `not_enough` says what is missing.
        """
        view = state.readable(authorization)
        key = view.find(zone, site)
        until_ms = view.stream_ms(key[0]) or 0
        since_ms = max(until_ms - days * DAY_MS, 0)
        changes, first_ms = await backend.zone_alerts(*key)
        newest = [alert for alert in view.alerts.values() if (alert["site"], alert["zone"]) == key]
        rows = await backend.series(*key, SETPOINTS, max(since_ms - DAY_MS, 0), until_ms, step_ms)
        place = state.place_of(key[0])
        return alert_scores(key, [*changes, *newest], first_ms, rows, since_ms, until_ms, step_ms, place)

    return routes
