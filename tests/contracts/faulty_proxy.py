"""A proxy between a client and a real S3 server, where things go wrong as drawn from a seed, or as a test says."""

from __future__ import annotations

import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Self
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["PROXY_FAULTS", "FaultyProxy"]

PROXY_FAULTS = ("lost", "answer lost", "twice", "late", "busy", "held")
"""A request that never arrives; one that is done and not answered; one that is done twice, and the second answer given,
as by a proxy that asks again; a put that arrives once more, later; 503 with Retry-After; an answer that is held.
"""

SOME = 65_536
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nRetry-After: 1\r\nContent-Length: %d\r\n\r\n%b" % (
    len(_SLOW_DOWN),
    _SLOW_DOWN,
)
_LENGTH = re.compile(rb"(?im)^content-length:\s*(\d+)\s*$")
_CHUNKED = re.compile(rb"(?im)^transfer-encoding:.*chunked\s*$")


class GoneError(Exception):
    """One side closed the connection."""


@dataclass(frozen=True)
class _Message:
    """A request or an answer, as it came."""

    head: bytes
    body: bytes

    @property
    def first(self) -> list[str]:
        return self.head.partition(b"\r\n")[0].decode("latin-1").split(" ", 2)


class FaultyProxy:
    """Passes requests on to ``endpoint`` as they are, but for ``faults``, each request with that ``chance`` of one.

    The Host header is the proxy's own, which the client has signed: the server must not mind its name. A DELETE does
    not come twice: S3 has no condition that would keep it from what was written since.

    ``next`` are the faults of the next requests, ``""`` for none; ``happened`` those that were. ``requests`` counts
    what came, by method and by key (``bucket/folder/name``); a list is the method ``LIST`` with its prefix. ``held_s``
    is for how long answers are held, at least and at most; ``bytes_per_s`` the rate of the line, each way and for each
    connection, 0 for no limit. All may be set at any time.

    Draws are in the order of requests: one client thread gets the same faults from a seed each time.
    """

    def __init__(
        self, endpoint: str, seed: int = 0, chance: float = 0.3, faults: Collection[str] = PROXY_FAULTS
    ) -> None:  # fmt: skip
        parts = urlsplit(endpoint)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 80)
        self.chance, self.faults, self.held_s, self.bytes_per_s = chance, tuple(faults), (0.05, 0.5), 0.0
        self.next, self.happened = list[str](), list[str]()
        self.requests = Counter[tuple[str, str]]()
        self._rng, self._drawing, self._late = random.Random(seed), threading.Lock(), list[_Message]()
        self._hangs = self._ended = False
        # The port stays ours while nobody listens on it.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("127.0.0.1", 0))
        self.endpoint = "http://{}:{}".format(*self._port.getsockname())
        self._listener: socket.socket | None = None
        self._open = set[socket.socket]()

    def __enter__(self) -> Self:
        self.back()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self.away()
        self._port.close()

    def begin(self, seed: int = 0, chance: float = 0.3, faults: Collection[str] = PROXY_FAULTS) -> None:
        """As a new one: draws begin anew, nothing is late, nothing is counted."""
        with self._drawing:
            self._rng, self.chance, self.faults = random.Random(seed), chance, tuple(faults)
            self.next, self.happened, self._late = [], [], []
            self.requests = Counter()

    def away(self, hangs: bool = False) -> None:
        """No request comes through from now on: connections are refused; where it ``hangs``, made and not answered."""
        self._hangs = hangs
        listener, self._listener = self._listener, self._listener if hangs else None
        if listener is not None and not hangs:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            listener.close()
        for connection in tuple(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def back(self) -> None:
        """Requests come through again."""
        if self._hangs:
            self._hangs = False
            for connection in tuple(self._open):  # who hung is cut off: nobody knows what was asked
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        if self._listener is None:
            self._listener = socket.socket()
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(self._port.getsockname())
            self._listener.listen(128)
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def count(self, method: str = "", beginning: str = "") -> int:
        """How many requests came of a method, of keys that begin so."""
        return sum(
            n for (asked, key), n in self.requests.items() if asked.startswith(method) and key.startswith(beginning)
        )

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # away
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Every request of a connection, until one side ends it."""
        with suppress(OSError, GoneError), connection, connection.makefile("rb") as stream:
            try:
                while not self._ended:
                    request = _read(stream, rate=self.bytes_per_s)
                    if self._hangs:
                        stream.read(1)  # until somebody ends the connection
                        return
                    self._answer(connection, request)
            finally:
                self._open.discard(connection)

    def _answer(self, connection: socket.socket, request: _Message) -> None:
        method, target, _ = request.first
        with self._drawing:
            self.requests[_counted(method, target)] += 1
            fault, again, held_s = self._draw(method)
        if again is not None:
            with suppress(OSError, GoneError):
                self._ask(again)
        if fault == "lost":
            raise GoneError
        if fault == "busy":
            connection.sendall(_BUSY)
            return
        answer = self._ask(request)
        if fault == "answer lost":
            raise GoneError
        if fault == "twice":
            answer = self._ask(request)
        if fault == "late":
            with self._drawing:
                self._late.append(request)
        if fault == "held":
            time.sleep(held_s)
        _send(connection, answer.head + answer.body, self.bytes_per_s)

    def _draw(self, method: str) -> tuple[str, _Message | None, float]:
        """What goes wrong with a request, which earlier one arrives before it, and for how long an answer is held."""
        again = None
        if self._late and self._rng.random() < 0.5:
            again = self._late.pop(self._rng.randrange(len(self._late)))
        if self.next:
            fault = self.next.pop(0)
        else:
            fault = self._rng.choice(self.faults) if self.faults and self._rng.random() < self.chance else ""
        if (method == "DELETE" and fault == "twice") or (method != "PUT" and fault == "late"):
            fault = ""
        if fault:
            self.happened.append(fault)
        return fault, again, self._rng.uniform(*self.held_s)

    def _ask(self, request: _Message) -> _Message:
        """What the server answers, on a connection of its own."""
        with socket.create_connection(self._server, timeout=60) as server, server.makefile("rb") as stream:
            server.sendall(request.head + request.body)
            return _read(stream, head_only=request.first[0] == "HEAD")


def _read(stream: BinaryIO, head_only: bool = False, rate: float = 0.0) -> _Message:
    """The next request or answer of a connection."""
    lines = list[bytes]()
    while not lines or lines[-1] not in (b"\r\n", b""):
        lines.append(stream.readline())
    head = b"".join(lines)
    if not lines[-1]:
        raise GoneError
    status = head.split(b" ", 2)[1] if head.startswith(b"HTTP/") else b""
    if head_only or status in (b"204", b"304"):
        return _Message(head, b"")
    if _CHUNKED.search(head):
        return _Message(head, _chunks(stream))
    length = _LENGTH.search(head)
    if length is None and status:
        return _Message(head, stream.read())
    return _Message(head, _exactly(stream, int(length[1]) if length else 0, rate))


def _exactly(stream: BinaryIO, length: int, rate: float) -> bytes:
    parts, left = list[bytes](), length
    while left:
        part = stream.read(min(left, SOME))
        if not part:
            raise GoneError
        parts.append(part)
        left -= len(part)
        if rate:
            time.sleep(len(part) / rate)
    return b"".join(parts)


def _chunks(stream: BinaryIO) -> bytes:
    """A body in chunks, as it is on the line."""
    parts = list[bytes]()
    while True:
        line = stream.readline()
        if not line:
            raise GoneError
        size = int(line.split(b";")[0], 16)
        parts += [line, _exactly(stream, size, 0.0), stream.readline()]
        if not size:
            return b"".join(parts)


def _send(connection: socket.socket, content: bytes, rate: float) -> None:
    if not rate:
        connection.sendall(content)
        return
    for start in range(0, len(content), SOME):
        part = content[start : start + SOME]
        connection.sendall(part)
        time.sleep(len(part) / rate)


def _counted(method: str, target: str) -> tuple[str, str]:
    """Under which method and key a request is counted.

    >>> _counted("GET", "/bucket?list-type=2&prefix=a%2F"), _counted("PUT", "/bucket/a%3Db?partNumber=1")
    (('LIST', 'bucket/a/'), ('PUT', 'bucket/a=b'))
    """
    parts = urlsplit(target)
    key, asked = unquote(parts.path).strip("/"), parse_qs(parts.query)
    if method == "GET" and "list-type" in asked:
        return "LIST", f"{key}/{asked.get('prefix', [''])[0]}"
    return method, key
