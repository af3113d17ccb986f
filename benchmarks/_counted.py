"""A proxy in front of an object store that counts what passes: requests by kind and key, and bytes both ways."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from contextlib import suppress
from typing import BinaryIO, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["Asked", "CountingProxy", "asked"]

_LENGTH = re.compile(rb"(?im)^content-length:\s*(\d+)\s*$")
_CHUNKED = re.compile(rb"(?im)^transfer-encoding:.*chunked\s*$")


class Asked(NamedTuple):
    """What kind of request it was, and of which object or folder (``bucket/folder/name``)."""

    kind: str  # PUT, GET, HEAD, DELETE, POST or LIST
    key: str


class CountingProxy:
    """Passes plain HTTP on to ``endpoint`` as it is. The server must not mind the Host header, which is the proxy's.

    ``requests``, ``sent`` and ``received`` are counts, and bytes of bodies to the server and from it.
    """

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._counting = threading.Lock()
        self.forget()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.endpoint = "http://{}:{}".format(*self._listener.getsockname())

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="counting proxy", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()

    def forget(self) -> None:
        """Count anew."""
        with self._counting:
            self.requests, self.sent, self.received = Counter[Asked](), Counter[Asked](), Counter[Asked]()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Every request of a connection, on one to the server, until either side ends it."""
        with suppress(OSError, EOFError), client, socket.create_connection(self._server, timeout=60) as server:
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with client.makefile("rb") as requests, server.makefile("rb") as answers:
                while True:
                    head, body = _message(requests)
                    server.sendall(head + body)
                    method, target, _ = head.partition(b"\r\n")[0].decode("latin-1").split(" ", 2)
                    said, came = _message(answers, bodiless=method == "HEAD")
                    what = asked(method, target)
                    with self._counting:
                        self.requests[what] += 1
                        self.sent[what] += len(body)
                        self.received[what] += len(came)
                    client.sendall(said + came)


def asked(method: str, target: str) -> Asked:
    """What a request asks for.

    >>> asked("GET", "/bucket?list-type=2&prefix=a%2F"), asked("PUT", "/bucket/a%3Db")
    (Asked(kind='LIST', key='bucket/a/'), Asked(kind='PUT', key='bucket/a=b'))
    """
    parts = urlsplit(target)
    key, query = unquote(parts.path).strip("/"), parse_qs(parts.query)
    if method == "GET" and "list-type" in query:
        return Asked("LIST", f"{key}/{query.get('prefix', [''])[0]}")
    return Asked(method, key)


def _message(stream: BinaryIO, bodiless: bool = False) -> tuple[bytes, bytes]:
    """The head and the body of the next request or answer, as they are on the line; raises ``EOFError`` at the end."""
    lines = [stream.readline()]
    while lines[-1] not in (b"\r\n", b""):
        lines.append(stream.readline())
    head = b"".join(lines)
    if not lines[-1]:
        raise EOFError
    status = head.split(b" ", 2)[1] if head.startswith(b"HTTP/") else b""
    if bodiless or status in (b"204", b"304"):
        return head, b""
    if status == b"100":  # the answer proper follows
        more, body = _message(stream)
        return head + more, body
    if _CHUNKED.search(head):
        return head, _chunks(stream)
    length = _LENGTH.search(head)
    if length is None:
        return head, stream.read() if status else b""
    body = stream.read(int(length[1]))
    if len(body) < int(length[1]):
        raise EOFError
    return head, body


def _chunks(stream: BinaryIO) -> bytes:
    parts = list[bytes]()
    while True:
        line = stream.readline()
        if not line:
            raise EOFError
        size = int(line.split(b";")[0], 16)
        parts += [line, stream.read(size), stream.readline()]
        if not size:
            return b"".join(parts)
