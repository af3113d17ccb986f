"""``/rules``: what a site is warned of."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query

from edge.wire.alert_orders import ChangeRules, encode_order, order_topic
from edge.wire.topic import SITE_ZONE
from models.alerts.rules_document import DocumentError, RulesDocument
from services.messages import SiteRulesShown
from services.serve.api.answer_types import described
from services.serve.api.answers.alert_answers import RulesAnswer, RulesIn, RulesPatch, rules_answer
from services.serve.api.parameters import StrictRoute
from services.serve.api.problems import ProblemError
from services.serve.api.schemas import KEYED, PREDICT_ANSWERS
from services.serve.api.state import ApiState, Authorization

__all__ = ["rule_routes"]

Site = Annotated[str | None, Query(max_length=64, description="Site; left out where there is one.")]
EXAMPLE = {"crop": "tomato", "stage": "fruiting", "changes": {"frost": {"limit": 9.0}}}
EXAMPLE_PATCH: dict[str, Any] = {"changes": {"frost": {"chance": 0.2}, "co2_high": None}}


def rule_routes(state: ApiState) -> APIRouter:
    """The routes about rules."""
    routes = APIRouter(tags=["alerts"], route_class=StrictRoute, responses={422: PREDICT_ANSWERS[422], **KEYED})
    view, backend = state.view, state.backend
    problems: dict[int | str, dict[str, Any]] = {status: PREDICT_ANSWERS[status] for status in (404, 503)}

    @routes.get("/rules", response_model=None, responses={**described(RulesAnswer), **problems})
    async def rules(site: Site = None, authorization: Authorization = None) -> RulesAnswer:
        """The rules of a site: what each watches, its limit and options, and what of them differs from the crop's."""
        state.keys.require_reader(authorization)
        shown = await backend.alert_rules(_site(site))
        return rules_answer(shown, RulesDocument.of(shown["document"]), shown["version"])

    published = {**described(RulesAnswer, status=202), **problems}

    @routes.put("/rules", status_code=202, response_model=None, responses=published)
    async def put_rules(
        given: Annotated[RulesIn, Body(examples=[EXAMPLE])], site: Site = None, authorization: Authorization = None
    ) -> RulesAnswer:
        """Give a site these rules; needs the operator's key. They go through broker and log, and are answered as they
        will be.
        """
        state.keys.require_operator(authorization)
        shown = await backend.alert_rules(_site(site))
        said = given.model_dump()
        return await _publish(shown, _checked(lambda: RulesDocument.of(said)), ChangeRules(said))

    @routes.patch("/rules", status_code=202, response_model=None, responses=published)
    async def patch_rules(
        given: Annotated[RulesPatch, Body(examples=[EXAMPLE_PATCH])], site: Site = None,
        authorization: Authorization = None,
    ) -> RulesAnswer:  # fmt: skip
        """Change some of a site's rules; needs the operator's key. Null takes back an option, or all of a rule."""
        state.keys.require_operator(authorization)
        shown = await backend.alert_rules(_site(site))
        said = {name: value for name, value in given.model_dump().items() if value is not None}
        before = RulesDocument.of(shown["document"])
        return await _publish(shown, _checked(lambda: before.merged(said)), ChangeRules(said, merge=True))

    async def _publish(shown: SiteRulesShown, document: RulesDocument, order: ChangeRules) -> RulesAnswer:
        await backend.publish(order_topic(shown["site"], SITE_ZONE), encode_order(order))
        is_new = document.as_dict() != shown["document"]
        return rules_answer(shown, document, shown["version"] + is_new)

    def _site(site: str | None) -> str:
        known = view.sites
        if site in known:
            return site or ""
        listed = ", ".join(known) or "none yet"
        if site is not None:
            raise ProblemError(404, f"there is no site {site}; known are {listed}")
        if len(known) != 1:
            raise ProblemError(422, f"query.site: name the site; known are {listed}", sites=known)
        return known[0]

    return routes


def _checked(make: Any) -> RulesDocument:
    try:
        made: RulesDocument = make()
    except DocumentError as error:
        errors = [{"where": f"changes.{where}"[:100], "message": sentence} for where, sentence in error.mistakes]
        raise ProblemError(422, str(error)[:1000], errors=errors[:20]) from error
    return made
