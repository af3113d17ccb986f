"""Lets a replica take the HTTP port of one before it at once, where replicas take HTTP themselves.

The kernel remembers a connection for a minute after the server closed it. Meanwhile it lets nobody bind that port
without ``SO_REUSEADDR``. Ray Serve 2.60 sets that for a proxy, and not for a replica (``start_asgi_http_server``): it
takes the port for one of another program, and gives it to no replica while there is one on the node.
"""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["reuse_port"]


def reuse_port() -> None:
    """From now on, in this process: call it before Serve starts the replica's HTTP, so in its constructor."""
    from ray.serve._private import replica

    start = replica.start_asgi_http_server

    async def start_again(
        app: Any, http_options: Any, *, event_loop: asyncio.AbstractEventLoop, enable_so_reuseport: bool = False
    ) -> Any:
        return await start(app, http_options, event_loop=event_loop, enable_so_reuseport=True)

    replica.start_asgi_http_server = start_again
