"""``/`` and ``/page/``: the page, its modules, words and chart library; and ``/docs``, which reads /openapi.json."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

__all__ = ["PAGE", "PageFiles", "page_routes", "page_version"]

PAGE = Path(__file__).parents[1] / "page"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@cache
def page_version() -> str:
    """A word for the page's files as they are: another one after an upgrade that changed any of them."""
    digest = hashlib.sha256()
    for file in sorted(file for file in PAGE.rglob("*") if file.is_file()):
        digest.update(f"{file.relative_to(PAGE)} {file.stat().st_size}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def page_routes() -> APIRouter:
    """The documents; what they name is answered by :class:`PageFiles`."""
    routes, files = APIRouter(include_in_schema=False), PageFiles()

    def add(path: str, file: Path) -> None:
        async def answer(request: Request) -> Response:
            return files.file_response(file, file.stat(), request.scope)

        routes.add_api_route(path, answer, methods=["GET", "HEAD"])

    add("/", PAGE / "index.html")
    add("/docs", PAGE / "docs.html")
    return routes


class PageFiles(StaticFiles):
    """Every file of the page's folder, revalidated by ETag; nothing is asked of another address."""

    def __init__(self) -> None:
        super().__init__(directory=PAGE)

    def is_not_modified(self, response_headers: Headers, request_headers: Headers) -> bool:
        """Whether it need not be sent again; ``*`` is any file that there is (RFC 9110, 13.1.2)."""
        held = request_headers.get("if-none-match", "").strip() == "*"
        return held or super().is_not_modified(response_headers, request_headers)

    def file_response(self, *arguments: Any, **more: Any) -> Response:
        """A file, with the headers of the page."""
        answer = super().file_response(*arguments, **more)
        answer.headers.update(HEADERS)
        return answer
