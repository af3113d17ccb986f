"""``HEAD``: monitors and ``curl -I`` ask so. It is answered as ``GET``; the server leaves the body out."""

from __future__ import annotations

from collections.abc import Awaitable

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["HeadAsGet", "is_head"]

_IS_HEAD = "hothouse.is_head"


class HeadAsGet:
    """Around the whole application, which sees a ``GET``. Of any other request it does nothing, and awaits nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """As ASGI says."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            # A copy: by its own the server knows that no body is to be sent.
            scope = {**scope, "method": "GET", _IS_HEAD: True}
        return self._app(scope, receive, send)


def is_head(scope: Scope) -> bool:
    """Whether a request that looks like a ``GET`` was a ``HEAD``, which an endless answer would hold up."""
    return _IS_HEAD in scope
