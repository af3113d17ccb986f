"""Every error of the API as problem details (RFC 9457): one clear sentence, in one shape."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from services.messages.sentences import codes_of
from services.serve.problem_error import ProblemError

__all__ = ["MEDIA_TYPE", "ProblemError", "encoded", "install", "problem"]

_log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"


class _ProblemResponse(JSONResponse):
    """Its sentences quote what a client said, which may be half of a surrogate pair: that has no bytes."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")


def problem(status: int, detail: str, headers: dict[str, str] | None = None, **more: Any) -> JSONResponse:
    """The answer; ``type`` is ``about:blank``, so ``title`` is the status's own phrase."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    if codes := codes_of((detail, *more.get("degraded", ()), *more.get("reasons", ())), with_parts=False):
        body["codes"] = codes
    return _ProblemResponse(body, status, headers, MEDIA_TYPE)


def encoded(answer: Any) -> Response:
    """A long answer: FastAPI takes ten times as long to write one, and nobody else is answered meanwhile."""
    return Response(msgspec.json.encode(answer), media_type="application/json")


def install(app: FastAPI) -> None:
    """Make ``app`` answer all errors in this shape, also an unknown path and a defect of ours."""

    @app.exception_handler(ProblemError)
    async def ours(_: Request, error: ProblemError) -> JSONResponse:
        return problem(error.status, error.detail, error.headers, **error.more)

    @app.exception_handler(HTTPException)
    async def framework(request: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 400:  # FastAPI's answer to a body that is no text
            packed = request.headers.get("content-encoding", "identity") != "identity"
            why = "it is compressed, which is not unpacked here" if packed else "it is not UTF-8"
            return problem(422, f"the body is not JSON: {why}")
        details = {
            404: f"there is nothing at {request.url.path}; /openapi.json lists what there is",
            405: f"{request.url.path} does not answer {request.method}",
        }
        headers = dict(error.headers) if error.headers else None
        if error.status_code == 405 and (methods := _methods(request)):
            headers = {"Allow": ", ".join(methods)}
        return problem(error.status_code, details.get(error.status_code, str(error.detail)), headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        found = error.errors()
        if found[0]["type"] == "json_invalid":
            why, at = found[0].get("ctx", {}).get("error", ""), found[0]["loc"][-1]
            return problem(422, f"the body is not JSON, at character {at}: {_lower(why)}")
        if found[0]["loc"] == ("body",) and isinstance(found[0].get("input"), bytes):  # curl's -d says it is a form
            return problem(422, "the body was not read as JSON; send the header 'Content-Type: application/json'")
        errors = [{"where": _where(item["loc"]), "message": item["msg"]} for item in found[:20]]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return problem(422, f"{errors[0]['where']}: {_lower(errors[0]['message'])}{more}", errors=errors)

    @app.exception_handler(Exception)
    async def defect(request: Request, error: Exception) -> JSONResponse:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem(500, "Hothouse failed to answer; the reason is in its log")


def _methods(request: Request) -> list[str]:
    """What the path answers to: all that is described, for each router knows its own routes only."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    described = request.app.openapi()["paths"].items()
    return sorted(m.upper() for at, methods in described if compile_path(at)[0].match(path) for m in methods)


def _where(location: Sequence[Any]) -> str:
    """Where in the request: ``body.rows.0.end_ms``, ``query.zone``."""
    return ".".join(str(part) for part in location) or "body"


def _lower(message: str) -> str:
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]
