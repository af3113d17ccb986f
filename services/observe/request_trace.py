"""The id of a request to the API: that of W3C Trace Context where the client sends one, in logs, answer and trace.

A leaf: it knows no part, and any ASGI application may be in it.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from services.observe.logs import request_fields

if TYPE_CHECKING:
    from services.observe.spans import Spans

__all__ = ["RequestTrace"]

_log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")
"""Of a later version than 00 what is known is read, as the standard says."""


class _Parent(NamedTuple):
    trace_id: str
    span_id: str = ""
    sampled: bool | None = None


class RequestTrace:
    """Around the whole application: each HTTP request has a trace id, which its log lines carry and its answer names.

    The answer says it as ``traceresponse: 00-{trace id}-{span id}-{flags}``. A span is made where there are ``spans``:
    route and status, and how many zones were named. Never the path, the query or a header: these may hold a key.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], spans: Spans | None = None) -> None:
        self._app, self._spans = app, spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI says."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        parent, span_id = _parent(scope), secrets.token_hex(8)
        # Each request is a task of its own, so nothing has to be put back.
        request_fields.set({"trace_id": parent.trace_id})
        is_sampled = self._spans is not None and self._is_sampled(self._spans, parent)
        told = f"00-{parent.trace_id}-{span_id}-0{is_sampled:d}".encode()
        status, start_ns = 500, time.time_ns()

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"traceresponse", told)]
            await send(message)

        try:
            await self._app(scope, receive, named)
        finally:
            end_ns = time.time_ns()
            _tell(scope, status, end_ns - start_ns)
            if self._spans is not None and is_sampled:
                name, known = f"{scope['method']} {_route(scope)}", _attributes(scope, status)
                self._spans.add(
                    name, parent.trace_id, (start_ns, end_ns), known, span_id=span_id, parent_id=parent.span_id,
                    sampled=True, is_request=True, error="" if status < 500 else str(status),
                )  # fmt: skip

    @staticmethod
    def _is_sampled(spans: Spans, parent: _Parent) -> bool:
        return spans.is_sampled(parent.trace_id) if parent.sampled is None else parent.sampled


def _parent(scope: Scope) -> _Parent:
    """What the client says of its trace; a trace of its own where it says nothing, or nothing that can be read."""
    sent = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
    found = _TRACEPARENT.match(sent)
    if found is None:
        return _Parent(secrets.token_hex(16))
    trace_id, span_id, flags, _ = found.groups()
    return _Parent(trace_id.decode(), span_id.decode(), bool(int(flags, 16) & 1))


def _route(scope: Scope) -> str:
    """The route's template, without what a client has written; empty where there is none."""
    return str(getattr(scope.get("route"), "path", ""))


def _attributes(scope: Scope, status: int) -> dict[str, str | int]:
    asked = parse_qs(scope["query_string"].decode("latin-1"))
    zones = len(asked.get("zone", ())) + sum(len(named.split(",")) for named in asked.get("zones", ()))
    return {
        "http.request.method": scope["method"], "http.route": _route(scope), "http.response.status_code": status,
        "hothouse.zones": zones,
    }  # fmt: skip


def _tell(scope: Scope, status: int, took_ns: int) -> None:
    level = logging.WARNING if status >= 500 else logging.DEBUG
    if _log.isEnabledFor(level):
        _log.log(level, "%s %s: %d in %.1f ms", scope["method"], _route(scope), status, took_ns / 1e6)
