"""``/rules``: what a site is warned of.

Rules are read in threads: those of a thousand zones take .3 s, and nobody else would be answered meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import to_thread
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query

from edge.wire.alert_orders import encode_order, order_topic
from edge.wire.topic import SITE_ZONE
from models.alerts.foreseen import STEP_MS, reach_steps
from models.alerts.rules_document import RulesDocument
from models.durations import HOUR_MS
from services.messages import SiteRulesShown
from services.serve.api.answer_types import described
from services.serve.api.answers.alert_answers import RulesAnswer, RulesIn, RulesPatch, rules_answer
from services.serve.api.parameters import keyed_route
from services.serve.api.problems import ProblemError
from services.serve.api.routes.rule_changes import RuleChange, check_version, patched, replaced, version_seen
from services.serve.api.schemas import KEYED, PREDICT_ANSWERS
from services.serve.api.state import ApiState, Authorization
from services.serve.view import View

__all__ = ["rule_routes"]

Site = Annotated[str | None, Query(max_length=64, description="Site; left out where there is one.")]
Zone = Annotated[
    str | None, Query(min_length=1, max_length=130, description="Zone, or site/zone: what holds in it alone.")
]
IfMatch = Annotated[
    str | None,
    Header(max_length=64, description='`"7"`: a version of the rules; 412 where they have another. Left out: any.'),
]
TAKEN_S = 5.0
"""A change of rules is taken within it, unless much of the log is still read."""
EXAMPLE = {"crop": "tomato", "stage": "fruiting", "changes": {"frost": {"limit": 9.0}}}
EXAMPLE_PATCH: dict[str, Any] = {"changes": {"frost": {"chance": 0.2}, "co2_high": None}}


def rule_routes(state: ApiState) -> APIRouter:
    """The routes about rules."""
    routes = APIRouter(
        tags=["alerts"], route_class=keyed_route(state.keys, "operate"), responses={422: PREDICT_ANSWERS[422], **KEYED}
    )
    backend, reach_h = state.backend, reach_steps(state.spec) * STEP_MS / HOUR_MS
    problems: dict[int | str, dict[str, Any]] = {status: PREDICT_ANSWERS[status] for status in (404, 503)}
    outdated: dict[int | str, dict[str, Any]] = {
        412: {**PREDICT_ANSWERS[404], "description": "The rules do not have the version in `If-Match`."}
    }

    @routes.get("/rules", response_model=None, responses={**described(RulesAnswer), **problems})
    async def rules(site: Site = None, zone: Zone = None, authorization: Authorization = None) -> RulesAnswer:
        """The rules of a site: what each watches, its limit and options, and what of them differs from the crop's.

        With a zone: those that hold there.
        """
        view = state.readable(authorization)
        of_site, of_zone = _place(view, site, zone)
        shown = await backend.alert_rules(of_site)
        return await to_thread(
            lambda: rules_answer(shown, RulesDocument.of(shown["document"]), shown["version"], reach_h, of_zone)
        )

    published = {**described(RulesAnswer, status=202), **problems, **outdated}

    @routes.put("/rules", status_code=202, response_model=None, responses=published)
    async def put_rules(
        given: Annotated[RulesIn, Body(examples=[EXAMPLE])], site: Site = None, zone: Zone = None,
        if_match: IfMatch = None, authorization: Authorization = None,
    ) -> RulesAnswer:  # fmt: skip
        """Give a site these rules; needs the operator's key. They go through broker and log, and are answered as they
        will be.

        With a zone they are what that zone has of its own, over the rules of the site; an empty body takes that back.
        With `If-Match` and a version they count only if the rules are still those of that version.
        """
        place = _place(state.orderable(authorization), site, zone)
        return await publish(*place, if_match, partial(replaced, given))

    @routes.patch("/rules", status_code=202, response_model=None, responses=published)
    async def patch_rules(
        given: Annotated[RulesPatch, Body(examples=[EXAMPLE_PATCH])], site: Site = None, zone: Zone = None,
        if_match: IfMatch = None, authorization: Authorization = None,
    ) -> RulesAnswer:  # fmt: skip
        """Change some of a site's rules; needs the operator's key. Null takes back an option, or all of a rule.

        With a zone, of what that zone has of its own: what is taken back is as the site has it. `If-Match` as with PUT.
        """
        place = _place(state.orderable(authorization), site, zone)
        return await publish(*place, if_match, partial(patched, given))

    async def publish(
        site: str,
        zone: str | None,
        if_match: str | None,
        change: Callable[[SiteRulesShown, str | None, int], RuleChange],
    ) -> RulesAnswer:
        seen, until_s = version_seen(if_match), time.monotonic() + TAKEN_S
        while (shown := await backend.alert_rules(site))["version"] < seen and time.monotonic() < until_s:
            await asyncio.sleep(0.1)  # a change of a moment ago is on its way through the log
        check_version(seen, shown)
        document, order = await to_thread(change, shown, zone, seen)
        try:
            payload = encode_order(order)
        except ValueError as error:
            raise ProblemError(422, f"body: {error}") from error
        await backend.publish(order_topic(site, zone or SITE_ZONE), payload)
        is_new = document.as_dict() != shown["document"]
        return await to_thread(rules_answer, shown, document, shown["version"] + is_new, reach_h, zone)

    return routes


def _place(view: View, site: str | None, zone: str | None) -> tuple[str, str | None]:
    """The site and zone that are meant; the only site there is where neither is named."""
    if zone is not None:
        return view.find(zone, site)
    if site is not None:
        return view.find_site(site), None
    known = view.sites
    if len(known) != 1:
        listed = ", ".join(known) or "none yet"
        raise view.absent(f"query.site: name the site; known are {listed}", 422, sites=known)
    return known[0], None
