"""``/status``, ``/deadletters``, ``/health`` and ``/metrics``: what operators and their tools see."""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from services.messages.sentences import codes_of
from services.observe.metrics import CONTENT_TYPE, prometheus_text
from services.serve.api.answer_types import (
    DeadLettersAnswer,
    KeptOut,
    KeptOutLetter,
    LiveAnswer,
    ReadyAnswer,
    StatusAnswer,
    described,
)
from services.serve.api.parameters import keyed_route
from services.serve.api.problems import ProblemError, problem
from services.serve.api.schemas import KEYED, PREDICT_ANSWERS
from services.serve.api.state import ApiState, Authorization
from services.serve.components import ApiFigures, told_by
from services.serve.health import summarise_errors
from services.serve.models.model_pointer import PointerAnswer

__all__ = ["operate_routes"]

Reason = Annotated[str | None, Query(max_length=64, description="Only those of one reason, such as late.")]
Newest = Annotated[int, Query(ge=0, le=1000, description="List that many letters, too.")]


def operate_routes(state: ApiState) -> APIRouter:
    """The routes that operators and their tools use."""
    routes = APIRouter(
        tags=["operation"], route_class=keyed_route(state.keys, "operate"), responses={422: PREDICT_ANSWERS[422]}
    )
    backend = state.backend

    @routes.get("/status", response_model=None, responses={**described(StatusAnswer), **KEYED})
    async def status(authorization: Authorization = None) -> Response:
        """Everything that the parts report: readiness, figures, champion and replicas, models, events, errors."""
        state.keys.require_reader(authorization).require_all()
        try:
            known = await backend.pointer()
            pointer = PointerAnswer(champion=known["champion"], replicas=known["replicas"])
        except ProblemError as error:
            pointer = PointerAnswer(error=error.detail)
        view = state.view
        said = [model.get("reason", "") for model in view.models]  # a part of another version may say less
        for event in view.events:
            said += (event[name] for name in ("reason", "trigger", "message") if name in event)
        for figures in cast(dict[str, dict[str, Any]], view.stats).values():
            said += [figures.get("next_training") or "", (figures.get("running") or {}).get("reason", "")]
        answer = StatusAnswer(
            health=state.readiness(), slot=pointer, components=view.stats,
            component_age_s=state.view.component_age_s(),
            errors=summarise_errors(state.view.stats, pointer), models=view.models, events=view.events,
            codes=codes_of(said),
        )  # fmt: skip
        return Response(msgspec.json.encode(answer), media_type="application/json")

    known_letters = {**described(DeadLettersAnswer), **KEYED, 503: PREDICT_ANSWERS[503]}

    @routes.get("/deadletters", response_model=None, responses=known_letters)
    async def dead_letters(
        reason: Reason = None, newest: Newest = 0, authorization: Authorization = None
    ) -> DeadLettersAnswer:
        """What was kept out: late samples, refused messages and values, by reason and topic."""
        state.keys.require_reader(authorization).require_all()
        counts, found = await backend.dead_letters(reason, newest)
        kept_out = [
            KeptOut(reason=one.reason, topic=one.topic, count=one.count, newest_ms=one.receive_ms, detail=one.detail)
            for one in counts
        ]
        letters = [
            KeptOutLetter(
                partition=one.partition, offset=one.offset, item=one.item, receive_ms=one.receive_ms,
                topic=one.topic, reason=one.reason, detail=one.detail,
                payload=one.payload[:1000].decode(errors="replace"),
            )
            for one in found
        ]  # fmt: skip
        return DeadLettersAnswer(kept_out=kept_out, letters=letters)

    @routes.get("/health/live", response_model=None, responses=described(LiveAnswer))
    async def live() -> LiveAnswer:
        """Say that this replica answers."""
        return LiveAnswer(status="live")

    @routes.get("/health/ready", responses={**described(ReadyAnswer), 503: PREDICT_ANSWERS[503]})
    async def ready(authorization: Authorization = None) -> Response:
        """200 once a zone has a usable forecast and the log is read; before, a 503 problem that says what is awaited.

        A gap in what comes, or a backlog, does not take it back; a stream that is silent, or closes no row, for
        `forecast.stale_after_s` does. Both name the components that report an error; /status has their words.
        """
        found = state.readiness(names_zones=state.keys.reads_all(authorization))
        if found["ready"]:
            return JSONResponse(ReadyAnswer(status="ready", **found))
        return problem(
            503, f"not ready: {found['reasons'][-1]}", {"Retry-After": "1"},
            reasons=found["reasons"], degraded=found["degraded"],
        )  # fmt: skip

    figures = {
        200: {"description": "Prometheus text", "content": {CONTENT_TYPE: {"schema": {"type": "string"}}}},
        **KEYED,
    }

    @routes.get("/metrics", response_class=Response, responses=figures)
    async def metrics(authorization: Authorization = None) -> Response:
        """All components' figures for Prometheus, without those of which this replica hears nothing new."""
        state.keys.require_reader(authorization).require_all()
        found, view = state.readiness(), state.view
        own = ApiFigures(
            refused=state.limits.refused, streams=state.events.open, zones=found["zones"],
            zones_usable=found["zones_usable"], zones_degraded=sum(bool(view.degraded(key)) for key in view.answers),
            ready=found["ready"], component_age_s=view.component_age_s(), live_state_age_s=state.live_state_age_s(),
            trace_spans_dropped=state.spans.dropped if state.spans else 0,
        )  # fmt: skip
        return Response(prometheus_text(told_by(state.current_stats(), own)), media_type=CONTENT_TYPE)

    return routes
