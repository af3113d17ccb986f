"""The proxy before a real S3 server: what goes wrong there goes wrong as it says, and nothing else."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from services.errors import ChangedError, StorageAwayError
from services.store.storage import ObjectStorage, Pauses
from services.store.storage.cloud_server import CloudServer
from tests.contracts.faulty_proxy import PROXY_FAULTS, FaultyProxy
from tests.patience import patience_s, until
from tests.s3 import s3_address


@contextmanager
def server(came: list[str], chunked: bool = False) -> Iterator[str]:
    """A server that says which requests came, and answers with how many."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            came.append(f"{self.command} {self.path}")
            body = str(len(came)).encode()
            self.send_response(200)
            self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(body)))))
            self.send_header("X-Host", self.headers["Host"])
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body)

        do_PUT = do_HEAD = do_DELETE = do_GET  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as inner:
        thread = threading.Thread(target=inner.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{inner.server_port}"
        finally:
            inner.shutdown()
            thread.join()


def ask(proxy: FaultyProxy, method: str, path: str, body: bytes = b"", timeout_s: float = 30) -> tuple[int, bytes]:
    """What a client is answered; an OSError or HTTPException where it is not."""
    with closing(http.client.HTTPConnection(proxy.endpoint.removeprefix("http://"), timeout=timeout_s)) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_each_fault_is_what_it_says() -> None:
    """What the server saw of it, and what the client."""
    came = list[str]()
    with server(came) as endpoint, FaultyProxy(endpoint, chance=0) as proxy:
        proxy.next = ["", "lost", "answer lost", "twice", "busy", "held", "late"]
        assert ask(proxy, "PUT", "/b/a", b"x" * 100_000) == (200, b"1")
        for count in (1, 2):
            with pytest.raises((OSError, http.client.HTTPException)):
                ask(proxy, "PUT", "/b/lost", b"x")
            assert len(came) == count
        assert ask(proxy, "PUT", "/b/twice", b"x") == (200, b"4")
        assert ask(proxy, "PUT", "/b/busy", b"x")[0] == 503
        assert len(came) == 4
        proxy.held_s = (0.3, 0.3)
        began_s = time.monotonic()
        assert ask(proxy, "PUT", "/b/held", b"x") == (200, b"5")
        assert time.monotonic() - began_s >= 0.3
        assert ask(proxy, "PUT", "/b/late", b"x") == (200, b"6")
        until(lambda: ask(proxy, "GET", "/b/a") and came.count("PUT /b/late") == 2, "the late one comes again")
        assert proxy.happened == ["lost", "answer lost", "twice", "busy", "held", "late"]
        assert proxy.requests["PUT", "b/twice"] == 1
        assert proxy.requests["PUT", "b/lost"] == 2


@pytest.mark.parametrize("chunked", [False, True])
def test_requests_and_answers_pass_as_they_are(chunked: bool) -> None:
    """With the Host that the client named, which it may have signed; counted by method and key, lists by prefix."""
    came = list[str]()
    with server(came, chunked) as endpoint, FaultyProxy(endpoint, chance=0) as proxy:
        name = proxy.endpoint.removeprefix("http://")
        with closing(http.client.HTTPConnection(name, timeout=30)) as connection:
            for number in range(3):  # on one connection
                connection.request("GET", "/b?list-type=2&prefix=f%2Fg")
                answer = connection.getresponse()
                assert (answer.status, answer.read()) == (200, str(number + 1).encode())
                assert answer.headers["X-Host"] == name
        assert ask(proxy, "HEAD", "/b/a") == (200, b"")
        assert ask(proxy, "DELETE", "/b/a%20b")[0] == 200
        assert dict(proxy.requests) == {("LIST", "b/f/g"): 3, ("HEAD", "b/a"): 1, ("DELETE", "b/a b"): 1}
        assert (proxy.count(), proxy.count("LIST"), proxy.count(beginning="b/a")) == (5, 3, 2)


def test_the_same_seed_draws_the_same() -> None:
    """And every fault comes up; what cannot come to a request twice does not."""
    drawn = []
    for seed in (1, 1, 2):
        came = list[str]()
        with server(came) as endpoint, FaultyProxy(endpoint, seed, 0.5) as proxy:
            proxy.held_s = (0, 0)
            for number in range(60):
                try:
                    ask(proxy, "PUT" if number % 2 else "DELETE", f"/b/{number}", b"x")
                except (OSError, http.client.HTTPException):
                    continue
        drawn.append((proxy.happened, came))
    assert drawn[0] == drawn[1] != drawn[2]
    assert set(drawn[0][0]) == set(PROXY_FAULTS)
    deleted = [one for one in drawn[0][1] if one.startswith("DELETE")]
    assert len(deleted) == len(set(deleted))


def test_away_is_refused_or_hangs_until_it_is_back() -> None:
    """Also for connections that were open; back on the same port."""
    came = list[str]()
    with server(came) as endpoint, FaultyProxy(endpoint, chance=0) as proxy:
        for _ in range(2):
            proxy.away()
            with pytest.raises(ConnectionRefusedError):
                ask(proxy, "GET", "/b/a")
            proxy.back()
            assert ask(proxy, "GET", "/b/a")[0] == 200
            proxy.away(hangs=True)
            with pytest.raises(TimeoutError):
                ask(proxy, "GET", "/b/a", timeout_s=0.3)
            proxy.back()
            assert ask(proxy, "GET", "/b/a")[0] == 200
        assert len(came) == 4


def test_a_slow_line_is_as_slow_as_it_says() -> None:
    """Each way."""
    with server([]) as endpoint, FaultyProxy(endpoint, chance=0) as proxy:
        proxy.bytes_per_s = 1_000_000
        began_s = time.monotonic()
        ask(proxy, "PUT", "/b/a", b"x" * 400_000)
        assert 0.4 <= time.monotonic() - began_s < patience_s(4)


@pytest.mark.s3
def test_a_storage_behind_it_meets_what_it_does(tmp_path: Path) -> None:
    """The real client against the real server: a signature that still fits, a lost answer that was a success all the
    same, a late put that changes nothing, and a server that is away for longer than anybody waits.
    """
    where = s3_address(tmp_path)
    with FaultyProxy(where.endpoint, chance=0) as proxy:
        client = CloudServer(replace(where, endpoint=proxy.endpoint))
        storage = ObjectStorage(client, Pauses(total_s=30, sleep=lambda _: time.sleep(0.001)))
        proxy.next = ["answer lost", "", ""]
        first = storage.put_new("a", b"1")
        proxy.next = ["late"]
        second = storage.swap("a", b"2", first)
        third = storage.swap("a", b"3", second)
        proxy.next = ["twice"]
        assert storage.swap("a", b"4", third)
        for _ in range(10):
            assert storage.read("a").content == b"4"
        with pytest.raises(ChangedError):
            storage.swap("a", b"5", third)
        proxy.away()
        with pytest.raises(StorageAwayError):
            ObjectStorage(client, Pauses(total_s=0)).read("a")
        proxy.back()
        assert storage.read("a").content == b"4"
        assert proxy.happened == ["answer lost", "late", "twice"]
        assert proxy.count("PUT", where.url.removeprefix("s3://")) >= 4
