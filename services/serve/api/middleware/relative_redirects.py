"""``/zones/`` leads to ``/zones``, and the API's route without a slash to the page: by path alone.

A replica sees HTTP, also where HAProxy or a proxy before it speaks HTTPS. Whoever followed a whole address would leave
HTTPS, and get no answer.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["RelativeRedirects"]

REDIRECT = 307
"""What the router answers to a path that has a slash too many or too few at its end."""


class RelativeRedirects:
    """Takes scheme and host out of where an answer leads to."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI says."""

        async def relative(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == REDIRECT:
                headers = MutableHeaders(scope=message)
                headers["location"] = urlsplit(headers["location"])._replace(scheme="", netloc="").geturl()
            await send(message)

        await self._app(scope, receive, relative)
