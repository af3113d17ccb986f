"""An answer that goes on: it has begun before the client is told so."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

__all__ = ["BegunStream"]


class BegunStream(StreamingResponse):
    """Draws its first part before the status goes out: what counts streams has counted this one by then, and where it
    refuses one the client gets the problem. ``content`` is closed in any case.
    """

    def __init__(self, content: AsyncGenerator[bytes, None], *, media_type: str, headers: dict[str, str]) -> None:
        super().__init__(content, media_type=media_type, headers=headers)
        self._content = content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI says; raises what the first part raises."""
        async with aclosing(self._content):
            first = await anext(self._content, b"")
            self.body_iterator = _with(first, self._content)
            await super().__call__(scope, receive, send)


async def _with(first: bytes, others: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes]:
    if first:
        yield first
    async for part in others:
        yield part
