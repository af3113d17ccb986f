"""``/events`` and ``/quality``: what changes, as it changes, and how good forecasts have been."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from models.durations import DAY_MS, HOUR_MS
from models.spec import ForecastSpec
from services.messages import SaidAhead
from services.serve.api.answer_types import PastForecasts, QualityAnswer, described
from services.serve.api.begun_stream import BegunStream
from services.serve.api.middleware.head_requests import is_head
from services.serve.api.parameters import StrictRoute
from services.serve.api.problems import ProblemError
from services.serve.api.routes.several_zones import SeveralZones, each_zone, zones_asked
from services.serve.api.schemas import KEYED, PREDICT_ANSWERS, Since, SiteOfZone, Until
from services.serve.api.state import ApiState, Authorization

__all__ = ["live_routes"]

SPAN_MS = 48 * HOUR_MS
LONGEST_MS = 31 * DAY_MS

Seen = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID", max_length=2000, pattern=r"^[0-9]{1,19}(\.[0-9]{1,19})*$",
        description="The id of the last event that came.",
    ),
]  # fmt: skip
Zone = Annotated[str | None, Query(min_length=1, max_length=130, description="Zone, or site/zone.")]
Target = Annotated[str | None, Query(max_length=64, description="Adds what was said of it.", examples=["air_temp_c"])]
HorizonMin = Annotated[int | None, Query(ge=1, le=10_080, description="So long before, in minutes.", examples=[360])]

STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events, until the stream ends after most of a minute.", "content": {"text/event-stream": {}}},
    **KEYED, 503: PREDICT_ANSWERS[503],
}  # fmt: skip


def live_routes(state: ApiState) -> APIRouter:
    """What a page needs to show what happens now, and how good forecasts have been."""
    routes = APIRouter(route_class=StrictRoute, responses={422: PREDICT_ANSWERS[422], **KEYED})
    backend, spec = state.backend, state.spec

    @routes.get("/events", tags=["operation"], response_class=StreamingResponse, responses=STREAMED)
    async def events(
        request: Request, last_event_id: Seen = None, authorization: Authorization = None
    ) -> StreamingResponse:
        """Server-sent events: `hello` at first, then `forecasts`, `models`, `alert` and `health` as they change.

        A stream ends after most of a minute. Ask again with the id of the last event as `Last-Event-ID`; nothing is
        missed then, unless `hello` says `anew`.
        """
        reach = state.keys.require_reader(authorization)
        client = state.limits.client(request.scope)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

        async def stream() -> AsyncGenerator[bytes, None]:
            with state.limits.stream(client):
                said = state.events.stream(last_event_id, state.recent_readiness(), reach.sites)
                async with aclosing(said) as messages:
                    async for message in messages:
                        if is_head(request.scope):
                            return
                        yield message

        return BegunStream(stream(), media_type="text/event-stream", headers=headers)

    told: dict[int | str, dict[str, Any]] = {
        **described(QualityAnswer), **{status: PREDICT_ANSWERS[status] for status in (404, 503)},
    }  # fmt: skip

    @routes.get("/quality", tags=["forecasts"], response_model=None, responses=told)
    async def quality(
        zone: Zone = None, site: SiteOfZone = None, target: Target = None, horizon_min: HorizonMin = None,
        since_ms: Since = None, until_ms: Until = None, zones: SeveralZones = None, authorization: Authorization = None,
    ) -> QualityAnswer:  # fmt: skip
        """How good a zone's forecasts have been since it came: errors beside those of simple rules, and how often what
        came lay within the band. With `zones` that of several. Without any: how long each zone is known.

        With a zone, a target and a horizon also what was said so long before, beside what came.
        """
        view, asks_past = state.readable(authorization), target is not None or horizon_min is not None
        if asked := zones_asked(zone, zones):
            if asks_past:
                raise ProblemError(422, "query.zones: past forecasts are those of one zone; name it with zone")
            parts, problems = await each_zone(view, asked, site, backend.quality)
            return QualityAnswer(zones=[one for part in parts for one in part], past=None, problems=problems)
        if zone is None:
            if asks_past:
                raise ProblemError(422, "query.zone: past forecasts are those of a zone; name one")
            return QualityAnswer(zones=[one for one in await backend.quality(None) if view.has(one["site"])], past=None)
        key = view.find(zone, site)
        past_of = _past_asked(spec, target, horizon_min)
        found = await backend.quality(key)
        if past_of is None:
            return QualityAnswer(zones=found, past=None)
        since, until = _span(since_ms, until_ms, view.stream_ms(key[0]) or 0)
        said = await backend.said_ahead(*key, *past_of, since, until)
        name, _ = past_of
        came = await backend.series(*key, [name], since, until, spec.step_ms)
        past = _past(*past_of, said, dict(zip(came["end_ms"].tolist(), came["mean"][name], strict=True)))
        return QualityAnswer(zones=found, past=past)

    return routes


def _past_asked(spec: ForecastSpec, target: str | None, horizon_min: int | None) -> tuple[str, int] | None:
    """Of which target, and how long before, what was said is asked; None where it is not. Raises a 422 problem."""
    if target is None and horizon_min is None:
        return None
    if target is None or horizon_min is None:
        raise ProblemError(422, "query.target: past forecasts need both a target and horizon_min")
    if target not in spec.targets:
        raise ProblemError(422, f"query.target: {target!r} is not forecast; known are {', '.join(spec.targets)}")
    if horizon_min not in spec.horizons_min:
        known = ", ".join(map(str, spec.horizons_min))
        raise ProblemError(422, f"query.horizon_min: {horizon_min} is no learned horizon; known are {known}")
    return target, horizon_min


def _span(since_ms: int | None, until_ms: int | None, newest_ms: int) -> tuple[int, int]:
    """From when to when; left out: the 48 hours up to the newest row. Raises a 422 problem."""
    until = newest_ms if until_ms is None else until_ms
    since = max(until - SPAN_MS, 0) if since_ms is None else since_ms
    if not since <= until <= since + LONGEST_MS:
        raise ProblemError(422, "query.since_ms: the span must be 31 days at most, and end after it begins")
    return since, until


def _past(target: str, horizon_min: int, said: SaidAhead, came: dict[int, np.float32]) -> PastForecasts:
    times = said["time_ms"].tolist()
    return PastForecasts(
        target=target, horizon_min=horizon_min, time_ms=times, p10=_listed(said["p10"]), p50=_listed(said["p50"]),
        p90=_listed(said["p90"]), came=_listed([came.get(at, np.nan) for at in times]),
    )  # fmt: skip


def _listed(values: Any) -> list[float | None]:
    return [round(float(value), 3) if np.isfinite(value) else None for value in values]
