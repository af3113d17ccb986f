"""Step 9 of the way of a reading: how long a request's body may be, and how long it may take to come."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.serve.api.problems import problem

__all__ = ["MAX_BODY_BYTES", "MAX_BODY_S", "BodyLimit"]

MAX_BODY_BYTES = 4 * 1024 * 1024
DRAINED_BYTES = 4 * MAX_BODY_BYTES
"""Of a longer body so much is read and thrown away before it is refused: where a connection is closed while a client
still sends, that loses the answer.
"""
MAX_BODY_S = 30.0
"""A client that sends a byte now and then would hold a request for ever."""


class BodyLimit:
    """Refuses a request body of more than :data:`MAX_BODY_BYTES` with a 413 problem, before it is read whole, and one
    that is not there after :data:`MAX_BODY_S` with a 408 problem.

    A body is taken as it is sent: what says that it is compressed is not unpacked, so a few bytes stay a few.
    """

    def __init__(self, app: ASGIApp, longest_s: float | None = None) -> None:
        self._app, self._longest_s = app, MAX_BODY_S if longest_s is None else longest_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI says."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        received, whole = 0, False
        refused: tuple[int, str] | None = None
        until_s = asyncio.get_running_loop().time() + self._longest_s

        async def counted() -> Message:
            nonlocal received, refused, whole
            try:
                async with asyncio.timeout_at(None if whole else until_s):
                    message = await receive()
            except TimeoutError:
                refused = 408, f"the body did not come within {self._longest_s:g} s"
                return {"type": "http.disconnect"}
            received += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if received > MAX_BODY_BYTES:
                refused = _TOO_LARGE
                return {"type": "http.disconnect"}
            return message

        async def guarded(message: Message) -> None:
            if refused is None:
                await send(message)

        length = dict(scope["headers"]).get(b"content-length", b"0")
        announced = int(length) if length.isdigit() else 0
        if announced > MAX_BODY_BYTES:
            refused = _TOO_LARGE
        else:
            try:
                await self._app(scope, counted, guarded)
            except Exception:
                if refused is None:
                    raise
        if refused is not None:
            if refused is _TOO_LARGE and not whole and announced <= DRAINED_BYTES:
                await _drain(receive, until_s)
            await problem(*refused, {"Connection": "close"})(scope, receive, send)


async def _drain(receive: Receive, until_s: float) -> None:
    """Read a body to its end, or until :data:`DRAINED_BYTES` of it have come, or the time is over."""
    left = DRAINED_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until_s):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


_TOO_LARGE = 413, f"the body is larger than {MAX_BODY_BYTES} bytes"
