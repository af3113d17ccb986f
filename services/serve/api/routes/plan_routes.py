"""``/zones/{zone}/plan``: what is foreseen for a zone, and an operator's own plan for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, Path
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat, WithJsonSchema

from edge.wire.plan import MAX_POINTS, PlanKind, decode_plan, encode_plan, next_issue_ms, plan_topic
from edge.wire.topic import SITE_ZONE
from services.serve.api.answer_types import PlanPublished, ZonePlans, described
from services.serve.api.parameters import keyed_route
from services.serve.api.problems import ProblemError
from services.serve.api.schemas import PREDICT_ANSWERS, SiteOfZone, few_members
from services.serve.api.state import ApiState, Authorization
from services.serve.view import View

__all__ = ["PlanIn", "plan_routes"]

DEVICE = "operator"
"""In the topic of what is published for an operator."""

Zone = Annotated[str, Path(min_length=1, max_length=64, description="Zone; `_site` for the whole site.")]


def _unix_ms(said: Any) -> Any:
    """ISO 8601 as Unix time in ms. A plan may be of a whole site or made elsewhere, so no clock is guessed."""
    if not isinstance(said, str) or said.isdecimal():
        return said
    try:
        at = datetime.fromisoformat(said)
    except ValueError:
        raise ValueError(f"{said[:40]!r} is no time; write {_WRITE}") from None
    if at.tzinfo is None:
        raise ValueError(f"{said[:40]!r} has no offset from UTC; write {_WRITE}")
    return round(at.timestamp() * 1000)


_WRITE = "Unix time in ms, or ISO 8601 with an offset: 2026-03-01T22:00Z, 2026-03-01T23:00+01:00"
_TIME = {"anyOf": [{"type": "integer"}, {"type": "string", "format": "date-time"}]}
Time = Annotated[int, BeforeValidator(_unix_ms), WithJsonSchema(_TIME)]
"""Of a plan, in ms."""


class PlanIn(BaseModel):
    """A plan: what will be, by metric, at which times."""

    model_config = ConfigDict(extra="forbid")

    values: Annotated[
        dict[str, Annotated[list[tuple[Time, FiniteFloat | None]], Field(max_length=MAX_POINTS, fail_fast=True)]],
        BeforeValidator(few_members),
        Field(
            min_length=1,
            description="metric: [[time it is valid at, in Unix ms or ISO 8601 with an offset; value], ...]",
        ),
    ]
    source: Annotated[str, Field(min_length=1, max_length=64, description="Who plans; a newer plan replaces it.")] = (
        "operator"
    )
    kind: Annotated[PlanKind | None, Field(description="Left out: the kind that its metrics are of.")] = None
    issued: Annotated[Time | None, Field(description="Unix ms, or ISO 8601 with an offset; left out: now.")] = None


EXAMPLE = {"values": {"sp_heat_c": [[1_646_110_800_000, 18.5], [1_646_154_000_000, 21.0]]}}


def plan_routes(state: ApiState, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> APIRouter:
    """The routes about plans."""
    routes = APIRouter(
        tags=["plans"], route_class=keyed_route(state.keys, "operate"), responses={422: PREDICT_ANSWERS[422]}
    )
    backend = state.backend
    issued: dict[tuple[str, str], int] = {}  # zone -> when the newest plan was issued that this replica published
    problems: dict[int | str, dict[str, Any]] = {status: PREDICT_ANSWERS[status] for status in (401, 403, 404, 503)}

    @routes.get("/zones/{zone}/plan", response_model=None, responses={**described(ZonePlans), **problems})
    async def plan(zone: Zone, site: SiteOfZone = None, authorization: Authorization = None) -> ZonePlans:
        """What is foreseen for the zone: the newest plan of each source, its own before those of the whole site.

        Rows that end at `known_ms` or later use a plan; until then the one before it.
        """
        view = state.readable(authorization)
        key = _key(view, zone, site)
        stream_ms, plans = view.stream_ms(key[0]), await backend.plan(*key)
        return ZonePlans(site=key[0], zone=key[1], stream_ms=stream_ms, plans=plans)

    published = {**described(PlanPublished, status=202), **problems}

    @routes.put("/zones/{zone}/plan", status_code=202, response_model=None, responses=published)
    async def put_plan(
        zone: Zone, given: Annotated[PlanIn, Body(examples=[EXAMPLE])], site: SiteOfZone = None,
        authorization: Authorization = None,
    ) -> PlanPublished:  # fmt: skip
        """Publish a plan for the zone, which replaces the one before of its source; needs the operator's key.

        It goes the way of a device's plan, through the broker into the log, and holds from the next row on. It is
        issued now, and later than the plan that it replaces.
        """
        view = state.orderable(authorization)
        key = _key(view, zone, site)
        now_ms = _now_ms(view, key[0])
        issued_ms = given.issued
        if issued_ms is None:
            try:
                issued_ms = await backend.next_issue(
                    *key, given.source, next_issue_ms(now_ms, issued.get(key, 0))
                )  # fmt: skip
            except ProblemError:  # its shard takes the plan from the log later
                # Nothing is awaited from here until it is remembered: two requests here never have the same.
                issued_ms = next_issue_ms(now_ms, issued.get(key, 0))
        topic = plan_topic(*key, DEVICE)
        body = given.model_dump(exclude_none=True) | {"issued": issued_ms}
        try:
            payload = msgspec.json.encode(body)
        except UnicodeEncodeError as error:  # JSON may hold half of a surrogate pair
            raise ProblemError(422, "body.values: the name of a metric must be Unicode text") from error
        decoded = decode_plan(topic, payload, now_ms)
        if decoded.plan is None or decoded.refusals:
            errors = [{"reason": one.reason, "message": one.detail} for one in decoded.refusals]
            raise ProblemError(422, f"body: {decoded.refusals[0].detail}", errors=errors[:20])
        issued[key] = max(issued.get(key, 0), issued_ms)
        await backend.publish(topic, encode_plan(decoded.plan))
        return PlanPublished(
            site=key[0], zone=key[1], source=given.source, kind=decoded.plan.kind, issued_ms=decoded.plan.issued_ms,
            topic=topic,
        )  # fmt: skip

    def _key(view: View, zone: str, site: str | None) -> tuple[str, str]:
        if zone != SITE_ZONE:
            return view.find(zone, site)
        if site is None or view.stream_ms(site) is None:
            known = ", ".join(sorted({key[0] for key in view.answers})) or "none yet"
            raise view.absent(f"name the site of {SITE_ZONE} with ?site=; known are {known}")
        return site, SITE_ZONE

    def _now_ms(view: View, site: str) -> int:
        """Now, by the clock that the site's gateway goes by (``gateway.clock``): that of the stream in a replay.

        Else the wall's: how far the stream was read says too little while nothing comes, or while much of the log waits
        to be read, in which newer plans may stand.
        """
        return (view.stream_ms(site) or 0) + 1 if state.receive_clock == "replayed" else wall_ms()

    return routes
