"""One HTTP request to an address of somebody else that ends within its time."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from services.runtime.threads.in_time import in_time

if TYPE_CHECKING:
    import httpx  # `hothouse --help` must not pay for it

__all__ = ["ask_within"]

Answer = TypeVar("Answer")


def ask_within(limit_s: float, ask: Callable[[httpx.Client], Answer]) -> Answer:
    """What ``ask`` returns, or raises. Raises ``TimeoutError`` where it takes over ``limit_s`` seconds.

    A server that sends a byte now and then keeps each single read short of its time-out; so the request runs in a
    thread, which is given up. Whichever time is over first, that of a read or that of the whole, the error is the same.
    """
    import httpx

    # No redirect: the address is the one that was named. A key or a signed body would follow it.
    client = httpx.Client(timeout=limit_s, follow_redirects=False, verify=_certificates())
    try:
        return in_time(limit_s, lambda: ask(client), "http-request")
    except (httpx.TimeoutException, TimeoutError):
        raise TimeoutError(f"no answer within {limit_s:g} s") from None
    finally:
        client.close()


@cache
def _certificates() -> ssl.SSLContext:
    """The system's, where a CA of the house is installed."""
    return ssl.create_default_context()
