"""Step 9 of the way of a reading: the HTTP application. It answers from memory and never imports torch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp

from services.observe.request_trace import RequestTrace
from services.observe.version import hothouse_version
from services.serve.api.answer_types import answer_schemas
from services.serve.api.assets import PageFiles, page_routes
from services.serve.api.client_limits import UNLIMITED, RateLimited
from services.serve.api.middleware.body_limit import BodyLimit
from services.serve.api.middleware.head_requests import HeadAsGet
from services.serve.api.middleware.relative_redirects import RelativeRedirects
from services.serve.api.problems import install
from services.serve.api.routes.alert_routes import alert_routes
from services.serve.api.routes.alert_score_routes import alert_score_routes
from services.serve.api.routes.live_routes import live_routes
from services.serve.api.routes.model_routes import model_routes
from services.serve.api.routes.operate_routes import operate_routes
from services.serve.api.routes.plan_routes import plan_routes
from services.serve.api.routes.predict_routes import predict_routes
from services.serve.api.routes.rule_routes import rule_routes
from services.serve.api.routes.series_routes import series_routes
from services.serve.api.routes.zone_routes import zone_routes
from services.serve.api.schemas import TOO_LARGE, TOO_MANY, TOO_SLOW
from services.serve.api.state import ApiState

__all__ = ["create_app"]


def create_app(state: ApiState, cors_origins: Sequence[str] = ()) -> FastAPI:
    """All routes over ``state``, which follows the live state while the application runs. Pages of ``cors_origins`` may
    ask it, too; a key that they send is theirs to keep: no cookie is ever looked at.
    """

    @asynccontextmanager
    async def follow_the_live_state(_: FastAPI) -> AsyncIterator[None]:
        await state.start()
        try:
            yield
        finally:
            await state.stop()

    app = _Described(
        title="Hothouse",
        version=hothouse_version(),
        summary="Probabilistic climate forecasts for greenhouses, from models that keep learning.",
        description="Errors are problem details (RFC 9457, application/problem+json). A key goes in the header "
        "`Authorization: Bearer KEY`: orders need one, reading only where the settings say so.",
        generate_unique_id_function=lambda route: route.name,
        lifespan=follow_the_live_state,
        docs_url=None,  # FastAPI's pages load scripts from elsewhere; assets.py has one of our own
        redoc_url=None,
    )
    app.state.spans = state.spans
    install(app)
    app.include_router(predict_routes(state))
    app.include_router(zone_routes(state))
    app.include_router(plan_routes(state))
    app.include_router(series_routes(state))
    app.include_router(alert_score_routes(state))  # before /alerts/{id}
    app.include_router(alert_routes(state))
    app.include_router(rule_routes(state))
    app.include_router(live_routes(state))
    app.include_router(model_routes(state))
    app.include_router(operate_routes(state))
    app.include_router(page_routes())
    app.mount("/page", GZipMiddleware(PageFiles(), compresslevel=6), name="page")
    app.add_middleware(RelativeRedirects)
    app.add_middleware(BodyLimit)
    app.add_middleware(RateLimited, limits=state.limits)
    if cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(cors_origins), allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH"],
            allow_headers=[
                "Authorization", "Content-Type", "If-Match", "If-None-Match", "Last-Event-ID", "traceparent",
            ],
            expose_headers=["ETag", "Retry-After", "traceresponse"],
        )  # fmt: skip
    return app


class _Described(FastAPI):
    """FastAPI knows no ``TypedDict`` of Python 3.11's own: what routes answer is described by msgspec."""

    def build_middleware_stack(self) -> ASGIApp:
        """Around all of it, also what answers a defect of ours, is the id of the request."""
        return HeadAsGet(RequestTrace(super().build_middleware_stack(), self.state.spans))

    def openapi(self) -> dict[str, Any]:
        """The description of all calls; each answer's schema stands under its name."""
        if self.openapi_schema is None:
            described = super().openapi()
            described.setdefault("components", {}).setdefault("schemas", {}).update(answer_schemas())
            described["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            for path, methods in described["paths"].items():
                for method, call in methods.items():
                    _complete(path, method, call)
        return super().openapi()


def _complete(path: str, method: str, call: dict[str, Any]) -> None:
    """Say of a call what is the same for all: how often it may be asked, how long its body may be, and its key.

    OpenAPI has another place for keys than the header in which they come, and has clients ignore that.
    """
    if not path.startswith(UNLIMITED):
        call["responses"] |= TOO_MANY
    if "requestBody" in call:
        call["responses"] |= TOO_LARGE | TOO_SLOW
    if "401" in call["responses"]:
        is_order = method != "get" and path != "/predict"
        call["security"] = [{"key": []}] if is_order else [{}, {"key": []}]
    if "parameters" in call:
        call["parameters"] = [one for one in call["parameters"] if one["name"] != "authorization"]
