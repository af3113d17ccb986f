"""``/models``: the registered models, what serves, and the orders that operators may give about them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from services.messages import ModelSubmitted, Moved, TrainingAccepted
from services.serve.api.answer_types import ModelsAnswer, ZonesServed, described
from services.serve.api.backend import OrderAnswer
from services.serve.api.parameters import keyed_route
from services.serve.api.problems import encoded
from services.serve.api.schemas import KEYED, ORDERED, PREDICT_ANSWERS, ExpertName, Submission
from services.serve.api.state import ApiState, Authorization
from services.serve.components import retrainers_of

__all__ = ["model_routes"]

Version = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,64}$", examples=["v3"])]

Left = Annotated[
    str | None,
    Query(
        pattern=r"^[A-Za-z0-9._-]{1,64}$", examples=["v3"],
        description="The champion to go back from; refused where another serves.",
    ),
]  # fmt: skip


def model_routes(state: ApiState) -> APIRouter:
    """What is known of models, for readers; orders need the operator's key."""
    routes = APIRouter(
        tags=["models"], route_class=keyed_route(state.keys, "operate"), responses={422: PREDICT_ANSWERS[422]}
    )
    backend = state.backend

    @routes.get("/models", response_model=None, responses={**described(ModelsAnswer), **KEYED})
    async def models(authorization: Authorization = None) -> ModelsAnswer:
        """The registered models, newest first, which one is served, and what fails in training or registry now."""
        view = state.readable(authorization)
        serving = sorted({answer.forecast["model_version"] for answer in view.answers.values()})
        wrong = [
            words
            for figures in retrainers_of(view.stats).values()
            for words in (figures.get("registry_error", ""), figures.get("last_error", ""))
        ]
        errors = [words for words in dict.fromkeys(wrong) if words]
        return ModelsAnswer(models=view.models, serving=serving, errors=errors)

    served = {**described(ZonesServed), **KEYED, 503: PREDICT_ANSWERS[503]}

    @routes.get("/models/zones", response_model=None, responses=served)
    async def served_zones(authorization: Authorization = None) -> Response:
        """What each zone is served by: the version of each expert that has models, and what each expert of the mixture
        weighs in the newest forecast, by horizon in minutes, as the mean over the targets that
        are forecast there.
        """
        view = state.readable(authorization)
        return encoded(ZonesServed(zones=[one for one in await backend.mixtures() if view.has(one["site"])]))

    accepted = {**described(TrainingAccepted, status=202), **ORDERED}

    @routes.post("/models/retrain", status_code=202, response_model=None, responses=accepted)
    async def retrain(expert: ExpertName = "network", authorization: Authorization = None) -> OrderAnswer:
        """Ask for a retraining of an expert's model now; needs the operator's key."""
        state.keys.require_operator(authorization).require_all()
        return await backend.order("trigger", "operator", expert)

    moved = {**described(Moved), **ORDERED}

    @routes.post("/models/rollback", response_model=None, responses=moved)
    async def rollback(
        expert: ExpertName = "network", leave: Left = None, authorization: Authorization = None
    ) -> OrderAnswer:
        """Serve an expert's previous champion again; needs the operator's key. With `leave` it may be asked twice."""
        state.keys.require_operator(authorization).require_all()
        return await backend.order("rollback", expert, leave or "")

    submitted = {**described(ModelSubmitted, status=202), **ORDERED}

    @routes.post("/models/submit", status_code=202, response_model=None, responses=submitted)
    async def submit(asked: Submission, authorization: Authorization = None) -> OrderAnswer:
        """Register an artefact that was made elsewhere, for live rows to judge; needs the operator's key."""
        state.keys.require_operator(authorization).require_all()
        return await backend.order("submit", asked.folder)

    @routes.post("/models/{version}/promote", response_model=None, responses={**described(Moved), **ORDERED})
    async def promote(
        version: Version, expert: ExpertName = "network", authorization: Authorization = None
    ) -> OrderAnswer:
        """Make a registered model the champion; needs the operator's key. A version says whose it is; `online`, which
        takes an expert's model out of service, does not.
        """
        state.keys.require_operator(authorization).require_all()
        return await backend.order("promote", version, expert)

    return routes
