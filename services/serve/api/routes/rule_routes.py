"""``/rules``: what a site is warned of.

Documents are read in threads: one of a thousand zones takes .3 s, and nobody else would be answered meanwhile.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query

from edge.wire.alert_orders import ChangeRules, encode_order, order_topic
from edge.wire.topic import SITE_ZONE
from models.alerts.foreseen import STEP_MS, reach_steps
from models.alerts.rules_document import DocumentError, RulesDocument
from services.messages import SiteRulesShown
from services.serve.api.answer_types import described
from services.serve.api.answers.alert_answers import RulesAnswer, RulesIn, RulesPatch, rules_answer
from services.serve.api.parameters import keyed_route
from services.serve.api.problems import ProblemError
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
    Header(max_length=64, description='`"7"`: a version of the rules; 412 where they are newer. Left out: any.'),
]
HOUR_MS = 3_600_000
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
        412: {**PREDICT_ANSWERS[404], "description": "The rules are newer than the version in `If-Match`."}
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
        view = state.orderable(authorization)
        of_site, of_zone = _place(view, site, zone)
        shown = await backend.alert_rules(of_site)
        seen = _seen(if_match, shown)
        before = await to_thread(RulesDocument.of, shown["document"])
        if of_zone is not None:
            if given.zones is not None:
                raise ProblemError(422, "body.zones: a zone has no zones; leave query.zone out")
            own = given.model_dump(exclude_unset=True)
            document = await to_thread(_checked, lambda: before.with_zone(of_zone, own))
            return await _publish(shown, document, ChangeRules(own, version=seen), of_zone)
        said = given.model_dump(exclude={"zones"})
        if given.zones is None:  # what they have when the order is taken, and not what was seen here
            kept = {**said, "zones": before.as_dict().get("zones", {})}
            return await _publish(
                shown,
                await to_thread(_checked, lambda: RulesDocument.of(kept)),
                ChangeRules(said, keep_zones=True, version=seen),
            )
        _check_zones(given.zones, shown, before)
        zones = {name: own.model_dump(exclude_unset=True) for name, own in given.zones.items()}
        said |= {"zones": zones} if zones else {}
        return await _publish(
            shown, await to_thread(_checked, lambda: RulesDocument.of(said)), ChangeRules(said, version=seen)
        )

    @routes.patch("/rules", status_code=202, response_model=None, responses=published)
    async def patch_rules(
        given: Annotated[RulesPatch, Body(examples=[EXAMPLE_PATCH])], site: Site = None, zone: Zone = None,
        if_match: IfMatch = None, authorization: Authorization = None,
    ) -> RulesAnswer:  # fmt: skip
        """Change some of a site's rules; needs the operator's key. Null takes back an option, or all of a rule.

        With a zone, of what that zone has of its own: what is taken back is as the site has it. `If-Match` as with PUT.
        """
        view = state.orderable(authorization)
        of_site, of_zone = _place(view, site, zone)
        shown = await backend.alert_rules(of_site)
        seen = _seen(if_match, shown)
        before = await to_thread(RulesDocument.of, shown["document"])
        if of_zone is not None:
            if given.zones:
                raise ProblemError(422, "body.zones: a zone has no zones; leave query.zone out")
            own = given.model_dump(exclude_unset=True, exclude={"zones"})
            document = await to_thread(_checked, lambda: before.with_zone(of_zone, own, merge=True))
            return await _publish(shown, document, ChangeRules(own, merge=True, version=seen), of_zone)
        _check_zones(given.zones, shown, before)
        said = {
            name: value
            for name, value in given.model_dump(exclude={"zones"}).items() if value is not None or name == "changes"
        }  # fmt: skip
        if given.zones:
            said["zones"] = {n: None if own is None else own.model_dump(exclude_unset=True)
                             for n, own in given.zones.items()}  # fmt: skip
        order = ChangeRules(said, merge=True, version=seen)
        return await _publish(shown, await to_thread(_checked, lambda: before.merged(said)), order)

    async def _publish(
        shown: SiteRulesShown, document: RulesDocument, order: ChangeRules, zone: str | None = None
    ) -> RulesAnswer:
        try:
            payload = encode_order(order)
        except ValueError as error:
            raise ProblemError(422, f"body: {error}") from error
        await backend.publish(order_topic(shown["site"], zone or SITE_ZONE), payload)
        is_new = document.as_dict() != shown["document"]
        return await to_thread(rules_answer, shown, document, shown["version"] + is_new, reach_h, zone)

    def _place(view: View, site: str | None, zone: str | None) -> tuple[str, str | None]:
        return (_site(view, site), None) if zone is None else view.find(zone, site)

    def _site(view: View, site: str | None) -> str:
        if site is not None:
            return view.find_site(site)
        known = view.sites
        if len(known) != 1:
            listed = ", ".join(known) or "none yet"
            raise ProblemError(422, f"query.site: name the site; known are {listed}", sites=known)
        return known[0]

    return routes


def _seen(if_match: str | None, shown: SiteRulesShown) -> int:
    """The version that a caller has seen, 0 for any; raises a 412 problem for one of before.

    A later one is let through: a change of a moment ago may not have been taken yet. Its order counts only if the rules
    have that version when it is taken.
    """
    said = (if_match or "*").strip().removeprefix("W/").strip('"')
    if said == "*":
        return 0
    if not said.isascii() or not said.isdigit() or not 0 < int(said) < 2**53:
        raise ProblemError(422, 'header.If-Match: give a version as rules have it, such as "7"')
    if int(said) < shown["version"]:
        raise ProblemError(
            412, f"the rules of {shown['site']} were changed meanwhile: they have version {shown['version']}, and "
            f"version {said} was to be replaced; look at them again",
        )  # fmt: skip
    return int(said)


def _check_zones(given: Iterable[str], shown: SiteRulesShown, before: RulesDocument) -> None:
    """Raises a 422 problem for a zone that is not there; one that has rules already may be away."""
    known = {*shown.get("zones", ()), *before.zones}
    for name in given:
        if name not in known:
            listed = ", ".join(sorted(known)[:20]) or "none yet"
            raise ProblemError(422, f"body.zones: there is no zone {name[:64]} in {shown['site']}; known are {listed}")


def _checked(make: Any) -> RulesDocument:
    try:
        made: RulesDocument = make()
    except DocumentError as error:
        errors = [
            {"where": (where if where.startswith("zones.") else f"changes.{where}")[:100], "message": sentence}
            for where, sentence in error.mistakes
        ]
        raise ProblemError(422, str(error)[:1000], errors=errors[:20]) from error
    return made
