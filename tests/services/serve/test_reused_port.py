"""A replica's port while the kernel remembers connections of the replica before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from ray.serve._private import replica
from ray.serve.config import HTTPOptions

from services.runtime.ports import free_port
from services.serve.reused_port import reuse_port


async def nothing(scope: Any, receive: Any, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """Answer 204."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def serve_once(port: int) -> bytes:
    """The first line of an answer, after which the server ends the connection, and itself."""
    options = HTTPOptions(host="127.0.0.1", port=port)
    loop = asyncio.get_running_loop()
    task, server = await replica.start_asgi_http_server(nothing, options, event_loop=loop, enable_so_reuseport=False)
    while not server.started:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
    answer = await reader.read()  # to its end, which is the server's
    writer.close()
    server.should_exit = True
    await task
    return answer.splitlines()[0]


def test_a_replica_takes_the_port_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray alone takes it for one of another program; the day that it does not, ``reuse_port`` can go."""
    port = free_port()
    assert b"204" in asyncio.run(serve_once(port))
    with pytest.raises(RuntimeError, match="Failed to bind"):
        asyncio.run(serve_once(port))
    monkeypatch.setattr(replica, "start_asgi_http_server", replica.start_asgi_http_server)
    reuse_port()
    port = free_port()
    for _ in range(2):
        assert b"204" in asyncio.run(serve_once(port))
