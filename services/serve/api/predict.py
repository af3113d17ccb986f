"""``/predict``, ``/zones`` and ``/history``: forecasts from memory, and what-if questions through the model."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Body, Query, Response
from fastapi.responses import JSONResponse

from edge.wire.vocabulary import VOCABULARY
from models.features.inputs import targets_of
from services.serve.api.answer_types import HistoryAnswer, ZoneNow, ZonesAnswer, described
from services.serve.api.parameters import StrictRoute
from services.serve.api.problems import ProblemError
from services.serve.api.schemas import EXAMPLE_WHAT_IF, PREDICT_ANSWERS, WhatIf
from services.serve.api.state import ApiState, Authorization
from services.serve.api.what_if import apply_changes, forecast_request, moved, what_if_answer, window_of_rows

__all__ = ["predict_routes"]

UNITS = {name: metric.unit for name, metric in VOCABULARY.items()} | {"vpd_kpa": "kPa"}
LABELS = {name: metric.label for name, metric in VOCABULARY.items()} | {"vpd_kpa": "vapour pressure deficit"}

Zone = Annotated[str, Query(min_length=1, max_length=130, description="Zone, or site/zone.", examples=["north-1"])]
Site = Annotated[str | None, Query(max_length=64, description="Site, where two sites have such a zone.")]


def predict_routes(state: ApiState) -> APIRouter:
    """The routes that readers use."""
    routes = APIRouter(tags=["forecasts"], route_class=StrictRoute, responses={422: PREDICT_ANSWERS[422]})
    view, backend, spec = state.view, state.backend, state.spec

    @routes.get("/predict", responses=PREDICT_ANSWERS, response_class=JSONResponse)
    async def predict(zone: Zone, site: Site = None, authorization: Authorization = None) -> Response:
        """The zone's newest forecast, from memory."""
        state.keys.require_reader(authorization)
        return Response(view.body(view.find(zone, site)), media_type="application/json")

    @routes.post("/predict", responses=PREDICT_ANSWERS, response_class=JSONResponse)
    async def what_if(
        question: Annotated[WhatIf, Body(examples=[EXAMPLE_WHAT_IF])], authorization: Authorization = None
    ) -> Response:
        """What if? Changed inputs, a window of rows of your own, or both.

        The answer is the zone's newest forecast, as GET says it, moved by as much as the change moves the network's
        median; while no network serves, by as much as it moves the climatology. Rows that end at another time than
        that forecast's origin are answered by the network alone.
        """
        state.keys.require_reader(authorization)
        site, zone = view.find(question.zone, question.site)
        window = await backend.window(site, zone)
        values, origin_ms, quantiles = window["values"], window["origin_ms"], window["quantiles"]
        if question.rows:
            values, origin_ms = window_of_rows(question.rows, spec)
        if question.changes:
            values = apply_changes(values, question.changes, spec)
        windows = np.stack([values, window["values"]] if origin_ms == window["origin_ms"] else [values])
        baseline = await backend.baseline(site, zone, origin_ms, targets_of(windows[:, -1], spec))
        reply = await backend.forecast(forecast_request(site, windows, origin_ms, baseline, spec))
        said = reply["quantiles"]
        quantiles = said[0] if len(windows) == 1 else moved(quantiles, said[0], said[1], spec)
        return JSONResponse(what_if_answer(site, zone, values, origin_ms, reply["version"], quantiles, spec))

    @routes.get("/zones", response_model=None, responses=described(ZonesAnswer))
    async def zones(authorization: Authorization = None) -> ZonesAnswer:
        """All zones, with what is known of each now, and the unit and label of every metric."""
        state.keys.require_reader(authorization)
        listed = []
        for key in sorted(view.answers):
            forecast = view.answers[key].forecast
            listed.append(
                ZoneNow(
                    site=key[0], zone=key[1], origin=forecast["origin"], origin_ms=forecast["origin_ms"],
                    model_version=forecast["model_version"], degraded=view.degraded(key), now=forecast["now"],
                )
            )  # fmt: skip
        return ZonesAnswer(zones=listed, units=UNITS, labels=LABELS)

    known_past = {**described(HistoryAnswer), 404: PREDICT_ANSWERS[404], 503: PREDICT_ANSWERS[503]}

    @routes.get("/history", response_model=None, responses=known_past)
    async def history(zone: Zone, site: Site = None, authorization: Authorization = None) -> HistoryAnswer:
        """The zone's targets over the past 48 h; each list as long as ``end_ms``, null where missing."""
        state.keys.require_reader(authorization)
        key = view.find(zone, site)
        past = await backend.past(*key)
        if not past["end_ms"]:
            raise ProblemError(503, f"the past of {'/'.join(key)} is not known yet", {"Retry-After": "5"})
        return HistoryAnswer(site=key[0], zone=key[1], **past)

    return routes
