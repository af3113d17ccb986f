"""``/predict``: forecasts from memory, and what-if questions through the model."""

from __future__ import annotations

import asyncio
import time
from asyncio import to_thread
from typing import Annotated

import msgspec
from fastapi import APIRouter, Body, Query, Response
from fastapi.responses import JSONResponse

from models.features.inputs import targets_of
from services.messages import ZoneForecast, ZoneOutlook
from services.serve.api.answer_types import WhatIfAnswer, described
from services.serve.api.answers.forecast_answers import ForecastAnswer, ForecastsAnswer
from services.serve.api.parameters import keyed_route
from services.serve.api.predict_parameters import Asked, answer_of
from services.serve.api.problems import ProblemError
from services.serve.api.routes.several_zones import SeveralZones, each_zone, zones_asked
from services.serve.api.schemas import EXAMPLE_FORECAST, EXAMPLE_WHAT_IF, KEYED, PREDICT_ANSWERS, SiteOfZone, WhatIf
from services.serve.api.state import ApiState, Authorization
from services.serve.api.what_if import answer_to_rows, changes_asked, rows_request, what_if_answer, window_of_rows

__all__ = ["predict_routes"]

MOST_WITH_SCENARIOS = 10
"""Zones a call: scenarios of one are a quarter of a megabyte."""
PUBLISHED_S = 0.5
"""A shard has scenarios of a new forecast some moments before the forecast itself gets here, which is waited for: both
are of the same origin. A live state that is away holds up no answer for longer.
"""

OneZone = Annotated[
    str | None,
    Query(
        min_length=1, max_length=130, examples=["north-1"],
        description="Zone, or site/zone; needed where `zones` is left out.",
    ),
]  # fmt: skip
Targets = Annotated[str | None, Query(max_length=1000, description="Only these, such as air_temp_c,rh_pct.")]
Horizons = Annotated[
    str | None, Query(max_length=1000, description="Minutes: learned horizons or times of the path, such as 30,120.")
]
Quantiles = Annotated[str | None, Query(max_length=200, description="Between 0.01 and 0.99, such as 0.05,0.5,0.95.")]
Scenarios = Annotated[bool, Query(description="Add 100 joint scenarios of the path.")]
Events = Annotated[
    str | None,
    Query(
        max_length=1000, examples=["night,below:air_temp_c:12:60"],
        description="night, day, mean, night_below:TARGET[:LIMIT], day_above:TARGET[:LIMIT], outside:TARGET:LOW:HIGH, "
        "below:TARGET:LIMIT[:MINUTES], above:TARGET:LIMIT[:MINUTES]; several with commas.",
    ),
]  # fmt: skip


def predict_routes(state: ApiState) -> APIRouter:
    """Forecasts and what-if questions, for readers."""
    routes = APIRouter(
        tags=["forecasts"], route_class=keyed_route(state.keys, "read"), responses={422: PREDICT_ANSWERS[422], **KEYED}
    )
    backend, spec = state.backend, state.spec

    forecasts = {**PREDICT_ANSWERS, **described(ForecastAnswer, ForecastsAnswer)}
    forecasts[200]["content"]["application/json"]["example"] = EXAMPLE_FORECAST

    @routes.get("/predict", responses=forecasts, response_model=None)
    async def predict(
        zone: OneZone = None, site: SiteOfZone = None, targets: Targets = None, horizons: Horizons = None,
        quantiles: Quantiles = None, scenarios: Scenarios = False, events: Events = None, zones: SeveralZones = None,
        authorization: Authorization = None,
    ) -> Response:  # fmt: skip
        """The zone's newest forecast, from memory; scenarios and events are made when they are asked for.

        With `zones` those of several: each as it is alone, and why a zone has none. A wrong parameter refuses all.
        """
        if zone is None and zones is None:
            errors = [{"where": "query.zone", "message": "Field required"}]
            raise ProblemError(422, "query.zone: field required", errors=errors)
        view = state.readable(authorization)
        named, wanted = zones_asked(zone, zones), bool(targets or horizons or quantiles or scenarios or events)

        async def answer(key: tuple[str, str]) -> bytes:
            body = view.body(key)
            if not wanted:
                return body
            asked = Asked.of(spec, targets, horizons, quantiles, events)
            outlook = None
            if scenarios or asked.events:
                body, outlook = await _of_one_origin(state, key, body)

            def said() -> bytes:
                found = answer_of(msgspec.json.decode(body), asked, outlook, spec, with_scenarios=scenarios)
                return JSONResponse(found).body  # type: ignore[return-value]  # bytes, as it is made here

            # Of a hundred zones and as many quantiles it takes seconds, and others are answered meanwhile.
            return await to_thread(said)

        if zone is not None:
            return Response(await answer(view.find(zone, site)), media_type="application/json")
        if scenarios and len(named) > MOST_WITH_SCENARIOS:
            raise ProblemError(422, f"query.scenarios: {MOST_WITH_SCENARIOS} zones a call have them at most")
        Asked.of(spec, targets, horizons, quantiles, events)
        found, problems = await each_zone(view, named, site, answer)
        return Response(
            b'{"zones":[%s],"problems":%s}' % (b",".join(found), msgspec.json.encode(problems)),
            media_type="application/json",
        )

    answers_to_questions = {**PREDICT_ANSWERS, **described(WhatIfAnswer, ForecastAnswer)}

    @routes.post("/predict", response_model=None, responses=answers_to_questions)
    async def what_if(
        question: Annotated[WhatIf, Body(examples=[EXAMPLE_WHAT_IF])], authorization: Authorization = None
    ) -> WhatIfAnswer | ZoneForecast:
        """What if? With changes of the plan or of the weather over a time: both paths, and their difference with its
        80 % interval, where there is evidence for it.

        With rows of your own instead: the forecast that the network alone makes of them.
        """
        view = state.readable(authorization)
        site, zone = key = view.find(question.zone, question.site)
        if question.rows:
            values, origin_ms = window_of_rows(question.rows, spec)
            baseline = await backend.baseline(site, zone, origin_ms, targets_of(values[-1:], spec))
            reply = await backend.forecast(rows_request(site, values, origin_ms, baseline, spec))
            return answer_to_rows(site, zone, values, origin_ms, reply["version"], reply["quantiles"][0], spec)
        view.body(key)  # refuses to answer from a forecast that is too old
        forecast, degraded = view.answers[key].forecast, view.degraded(key)  # the zone may leave meanwhile
        asked = changes_asked(question.changes or (), forecast["origin_ms"], state.place_of(site))
        found = await backend.what_if(site, zone, asked)
        return what_if_answer(forecast, degraded, asked, found, spec)

    return routes


async def _of_one_origin(state: ApiState, key: tuple[str, str], body: bytes) -> tuple[bytes, ZoneOutlook]:
    """A zone's answer and the scenarios of the same forecast; ``body`` where that does not get here in time."""
    until_s, outlook = time.monotonic() + PUBLISHED_S, await state.backend.outlook(*key)
    # Where a key is limited its view is a copy, which hears no news: that of all does.
    while (known := state.view.answers.get(key)) and time.monotonic() < until_s:
        if known.forecast["origin_ms"] == outlook["origin_ms"]:
            return state.view.body(key), outlook
        await asyncio.sleep(0.1)
        outlook = await state.backend.outlook(*key)
    return body, outlook
