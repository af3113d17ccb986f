"""``/alerts``: what needs somebody, and what operators say about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Body, Path, Query, Response

from edge.wire.alert_orders import AcknowledgeAlert, AlertOrder, MuteRule, encode_order, order_topic
from services.messages import AlertState, ShownAlert
from services.messages.sentences import with_codes
from services.serve.api.answer_types import described
from services.serve.api.answers.alert_answers import (
    AlertChange,
    AlertDetails,
    AlertsAnswer,
    MuteIn,
    OrderPublished,
    counted,
    in_order,
)
from services.serve.api.answers.forecast_answers import ZoneProblem
from services.serve.api.parameters import keyed_route
from services.serve.api.problems import ProblemError, encoded
from services.serve.api.routes.several_zones import SeveralZones, zones_asked
from services.serve.api.schemas import KEYED, ORDERED, PREDICT_ANSWERS
from services.serve.api.state import ApiState, Authorization
from services.serve.view import View

__all__ = ["alert_routes"]

Id = Annotated[str, Path(min_length=1, max_length=64, examples=["6f0c1d2e3a4b5c6d"])]
Zone = Annotated[str | None, Query(max_length=130, description="Only those of one zone, or site/zone.")]
Site = Annotated[str | None, Query(max_length=64, description="Only those of one site.")]
Rule = Annotated[str | None, Query(max_length=64, description="Only those of one rule.")]
State = Annotated[
    str | None,
    Query(
        max_length=100,
        examples=["firing"],
        description="pending, firing, acknowledged, muted, resolved; several with commas.",
    ),
]


def alert_routes(state: ApiState) -> APIRouter:
    """The routes about alerts."""
    routes = APIRouter(
        tags=["alerts"], route_class=keyed_route(state.keys, "operate"), responses={422: PREDICT_ANSWERS[422], **KEYED}
    )
    backend = state.backend

    absent: dict[int | str, dict[str, Any]] = {status: PREDICT_ANSWERS[status] for status in (404, 503)}
    alerts_known = {**described(AlertsAnswer), **absent}

    @routes.get("/alerts", response_model=None, responses=alerts_known)
    async def alerts(
        site: Site = None, zone: Zone = None, rule: Rule = None, state_: Annotated[State, Query(alias="state")] = None,
        zones: SeveralZones = None, authorization: Authorization = None,
    ) -> Response:  # fmt: skip
        """Alerts, what needs somebody first: firing, acknowledged, muted, pending, then the newest resolved ones."""
        view = state.readable(authorization)
        site, zone = site or None, zone or None
        asked = zones_asked(zone, zones)
        found = [alert for alert in view.alerts.values() if site in (None, alert["site"])]
        if site is not None and not found:
            view.find_site(site)
        problems: list[ZoneProblem] = []
        if named := [zone] if zone is not None else asked:
            meant, problems = _meant(view, named, site, found)
            found = [alert for alert in found if (alert["site"], alert["zone"]) in meant]
        if problems and zone is not None:
            view.find(zone, site)  # says so
        if rule:
            found = [alert for alert in found if alert["rule"] == rule]
        states = _states(state_)
        answer = AlertsAnswer(alerts=in_order(a for a in found if a["state"] in states), counts=counted(found))
        if asked:
            answer["problems"] = problems
        return encoded(answer)

    @routes.get("/alerts/{id}", response_model=None, responses={**described(AlertDetails), **absent})
    async def alert(id: Id, authorization: Authorization = None) -> AlertDetails:
        """An alert with its changes, oldest first; also one that has been over for long, as far as they are kept."""
        view = state.readable(authorization)
        changes, newest = await backend.alert_changes(id), view.alerts.get(id)
        if newest is None and changes:
            newest = with_codes(changes[-1])
        if newest is None or not view.has(newest["site"]):
            raise view.absent(f"there is no alert {id}")
        return AlertDetails(
            **newest,
            changes=[
                AlertChange(
                    change=one["change"], state=one["state"], changed_ms=one["changed_ms"], chance=one["chance"],
                    text=one["text"],
                )
                for one in changes
            ],
        )  # fmt: skip

    ordered = {**described(OrderPublished, status=202), **ORDERED, 404: PREDICT_ANSWERS[404]}

    @routes.post("/alerts/{id}/acknowledge", status_code=202, response_model=None, responses=ordered)
    async def acknowledge(id: Id, authorization: Authorization = None) -> OrderPublished:
        """Say that somebody has seen it; needs the operator's key. It goes through broker and log."""
        view = state.orderable(authorization)
        return await _order("acknowledge", _known(view, id, "firing", "muted"), AcknowledgeAlert(id))

    @routes.post("/alerts/{id}/mute", status_code=202, response_model=None, responses=ordered)
    async def mute(
        id: Id, given: Annotated[MuteIn, Body(examples=[{"hours": 8}])], authorization: Authorization = None
    ) -> OrderPublished:
        """Let its rule say nothing in its zone for a time; needs the operator's key."""
        view = state.orderable(authorization)
        found = _known(view, id, "firing", "acknowledged", "muted")
        now_ms = view.stream_ms(found["site"]) or found["seen_ms"]
        until_ms = given.end_ms(now_ms)
        if until_ms <= now_ms:  # the log would take it for the end of a mute
            raise ProblemError(422, "body.until_ms: that time is past; give Unix time in ms, or unmute it")
        return await _order("mute", found, MuteRule(found["rule"], until_ms))

    @routes.post("/alerts/{id}/unmute", status_code=202, response_model=None, responses=ordered)
    async def unmute(id: Id, authorization: Authorization = None) -> OrderPublished:
        """End a mute; needs the operator's key."""
        view = state.orderable(authorization)
        found = _known(view, id, "muted")
        return await _order("unmute", found, MuteRule(found["rule"], 0))

    async def _order(
        what: Literal["acknowledge", "mute", "unmute"], found: ShownAlert, order: AlertOrder
    ) -> OrderPublished:
        await backend.publish(order_topic(found["site"], found["zone"]), encode_order(order))
        return OrderPublished(
            id=found["id"], order=what, site=found["site"], zone=found["zone"], rule=found["rule"]
        )  # fmt: skip

    return routes


def _meant(
    view: View, asked: Sequence[str], site: str | None, found: Sequence[ShownAlert]
) -> tuple[set[tuple[str, str]], list[ZoneProblem]]:
    """The zones of these names that have alerts, also such as have left; a name of no zone is a problem."""
    having = {(alert["site"], alert["zone"]) for alert in found}
    meant: set[tuple[str, str]] = set()
    problems = []
    for name in asked:
        of_site, _, of_zone = name.rpartition("/")
        same = {key for key in having if key[1] == of_zone and (of_site or site or key[0]) == key[0]}
        meant |= same
        try:
            if not same:
                view.find(name, site)
        except ProblemError as error:
            if error.status != 422:
                problems.append(ZoneProblem(zone=name[:130], status=error.status, detail=error.detail))
    return meant, problems


def _known(view: View, id: str, *states: AlertState) -> ShownAlert:
    """The alert, which must be in one of these states; raises a 404 or 409 problem."""
    found = view.alerts.get(id)
    if found is None:
        raise view.absent(f"there is no alert {id}")
    if found["state"] not in states:
        raise ProblemError(409, f"the alert is {found['state']}; it must be {' or '.join(states)}")
    return found


def _states(said: str | None) -> tuple[str, ...]:
    known = get_args(AlertState)
    names = known if said is None else tuple(part.strip() for part in said.split(","))
    for name in names:
        if name not in known:
            raise ProblemError(422, f"query.state: there is no state {name[:64]!r}; known are {', '.join(known)}")
    return names
