"""How much one client may ask: requests a second with a burst, and open streams.

A client is whose key was sent, or else an address. Each replica counts for itself, in memory, and remembers the newest
ten thousand clients: one that is forgotten begins anew.
"""

from __future__ import annotations

import ipaddress
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from services.serve.api.auth import READERS, Keys
from services.serve.api.problems import ProblemError, problem

__all__ = ["NO_LIMITS", "ClientLimits", "Limits", "RateLimited", "RequestRate"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MOST_CLIENTS = 10_000
UNLIMITED = ("/health/",)
"""What looks after this process asks these, and would end it where they fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client may do: ``per_s`` requests a second, ``burst`` at once, ``streams`` open; 0: no limit.

    ``ingress`` says whether our own ingress stands before us and appends to ``X-Forwarded-For``; ``proxies`` are others
    that do, by address or network. Where ``known`` is false addresses do not tell clients apart.
    """

    per_s: float = 0.0
    burst: int = 1
    streams: int = 0
    ingress: bool = False
    proxies: tuple[str, ...] = ()
    known: bool = True


NO_LIMITS = Limits()


class RequestRate:
    """A token bucket a client, kept as the time at which it is full again (the generic cell rate algorithm).

    >>> rate = RequestRate(per_s=2, burst=3)
    >>> [rate.wait_s("a", 0.0) for _ in range(4)], rate.wait_s("b", 0.0), rate.wait_s("a", 0.5)
    ([0.0, 0.0, 0.0, 0.5], 0.0, 0.0)
    """

    def __init__(self, per_s: float, burst: int, most: int = MOST_CLIENTS) -> None:
        self._each_s, self._most = 1 / per_s, most
        self._ahead_s = (burst - 1) / per_s
        self._full_s: OrderedDict[str, float] = OrderedDict()  # by when they last asked

    def __len__(self) -> int:
        return len(self._full_s)

    def wait_s(self, client: str, now_s: float) -> float:
        """0, and the request counts; or after how long one would be taken. ``now_s`` never goes back."""
        full_s = max(self._full_s.get(client, now_s), now_s)
        wait_s = full_s - now_s - self._ahead_s
        taken = wait_s <= 1e-9  # sums of times are not exact
        self._full_s[client] = full_s + self._each_s if taken else full_s
        self._full_s.move_to_end(client)
        if len(self._full_s) > self._most:
            self._full_s.popitem(last=False)
        return 0.0 if taken else wait_s


class ClientLimits:
    """Says who asks (:meth:`client`), and takes or refuses what they ask; ``clock_s`` is monotonic.

    Who asks from this machine itself without a key has no limit: it is the one that would suffer.
    """

    def __init__(self, limits: Limits, keys: Keys, clock_s: Callable[[], float]) -> None:
        self._limits, self._keys, self._clock_s = limits, keys, clock_s
        self._proxies = tuple(map(ipaddress.ip_network, limits.proxies))
        self._rate = RequestRate(limits.per_s, limits.burst) if limits.per_s else None
        self._streams: Counter[str] = Counter()
        self.refused = 0

    def client(self, scope: Mapping[str, Any]) -> str:
        """Whose key a request has, or from where it comes; empty for one without a limit."""
        headers = scope["headers"]
        sent = next((value for name, value in headers if name == b"authorization"), None)
        owner = None if sent is None else self._keys.owner(sent.decode("latin-1"))
        address = self._address(scope, headers)
        if owner == READERS:  # one key for all: who has it is many clients
            return f"{owner} at {address or 'this machine'}"
        return address if owner is None else owner

    def _address(self, scope: Mapping[str, Any], headers: Any) -> str:
        """The first address, from ours on, that is no proxy's: a proxy saw it, and no client can say so."""
        if not self._limits.known:
            return ""
        peer = scope.get("client")
        found = _parsed(peer[0]) if peer else None
        lines = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
        forwarded = [part.strip() for part in lines.split(",") if part.strip()] if lines else []
        if self._limits.ingress and forwarded:
            found = _parsed(forwarded.pop()) or found
        said = False
        while forwarded and found is not None and any(found in proxy for proxy in self._proxies):
            before = _parsed(forwarded.pop())
            if before is None:
                break
            found, said = before, True
        if found is None:
            return str(peer[0]) if peer else ""
        return "" if found.is_loopback and not said else _subscriber(found)

    def wait_s(self, client: str) -> float:
        """See :meth:`RequestRate.wait_s`; counts what is refused."""
        found = self._rate.wait_s(client, self._clock_s()) if self._rate is not None and client else 0.0
        self.refused += found > 0
        return found

    def refusal(self, client: str, wait_s: float) -> str:
        """Why, in a sentence."""
        most = f"{self._limits.per_s:g} a second are taken after {self._limits.burst} at once"
        return f"too many requests of {client}: {most}; ask again in {math.ceil(wait_s)} s"

    @contextmanager
    def stream(self, client: str) -> Iterator[None]:
        """While a stream is open; raises a 429 problem where the client has as many as it may have."""
        most = self._limits.streams
        if most and client and self._streams[client] >= most:
            self.refused += 1
            raise ProblemError(429, f"{client} has {most} streams open, and no more are taken", {"Retry-After": "5"})
        self._streams[client] += 1
        try:
            yield
        finally:
            self._streams[client] -= 1
            if not self._streams[client]:
                del self._streams[client]


class RateLimited:
    """Answers 429 to what is too much, before a route sees it or a body is read."""

    def __init__(self, app: ASGIApp, limits: ClientLimits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            client = "" if path.startswith(UNLIMITED) else self._limits.client(scope)
            wait_s = self._limits.wait_s(client)
            if wait_s:
                headers = {"Retry-After": str(math.ceil(wait_s)), "Connection": "close"}
                await problem(429, self._limits.refusal(client, wait_s), headers)(scope, receive, send)
                return
        await self._app(scope, receive, send)


@lru_cache(4096)
def _parsed(text: str) -> Address | None:
    """An address, also with a port behind it; ``None`` where it is none.

    >>> [str(_parsed(text)) for text in ("10.1.2.3:80", "[2001:db8::5]:80", "2001:db8::5", "::ffff:10.1.2.3", "_x")]
    ['10.1.2.3', '2001:db8::5', '2001:db8::5', '10.1.2.3', 'None']
    """
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text[:64])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


@lru_cache(4096)
def _subscriber(address: Address) -> str:
    """Whom an address belongs to: of IPv6 a network, of which each subscriber has one at least.

    >>> _subscriber(ipaddress.ip_address("10.1.2.3")), _subscriber(ipaddress.ip_address("2001:db8::5"))
    ('10.1.2.3', '2001:db8::/64')
    """
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))
