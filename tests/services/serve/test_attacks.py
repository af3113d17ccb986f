"""What is sent to the API to harm it, over real sockets: it is refused in words, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import time
from collections.abc import Iterator

import httpx
import psutil
import pytest
from starlette.types import Message, Receive, Scope, Send

from services.serve.api.middleware import body_limit
from services.serve.api.middleware.body_limit import MAX_BODY_BYTES, BodyLimit
from tests.browser.serving import House, opened
from tests.patience import patience_s

ALL_BYTES = 1_000_000_000
MOST_GROWN_MB = 100
SLOW_S = 1.0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A greenhouse's API, which waits for a body for a second only."""
    house = House(tmp_path_factory.mktemp("house"))
    house.fill()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_limit, "MAX_BODY_S", SLOW_S)
        with opened(house) as found:
            yield found


def connected(address: str) -> socket.socket:
    """A connection of our own."""
    url = httpx.URL(address)
    return socket.create_connection((url.host, url.port or 80), timeout=patience_s(30))


def answer_of(connection: socket.socket) -> tuple[int, str]:
    """Its status, and all that came until the connection was closed."""
    came = b""
    while piece := connection.recv(65_536):
        came += piece
    return int(came.split()[1]), came.decode()


def usual(address: str) -> None:
    """Others are answered."""
    assert httpx.get(f"{address}/predict?zone=north-1", timeout=patience_s(5)).status_code == 200


def grown_mb(before: int) -> float:
    """By how much this process, which serves, has grown."""
    return (psutil.Process().memory_info().rss - before) / 1e6


def test_a_gigabyte_that_is_announced_is_refused_at_once(address: str) -> None:
    """Nothing of it is waited for."""
    with connected(address) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % ALL_BYTES)
        status, said = answer_of(connection)
    assert status == 413
    assert f"the body is larger than {MAX_BODY_BYTES} bytes" in said
    usual(address)


@pytest.mark.parametrize("header", ["Content-Length: %d", "Transfer-Encoding: chunked"])
def test_a_body_that_is_a_little_too_large_is_told_so(address: str, header: str) -> None:
    """Who sends first and reads then is not cut off before the answer is there: a plan of five megabytes is a mistake,
    and no attack.
    """
    content = bytes(5_000_000)
    is_chunked = "chunked" in header
    head = f"PUT /rules HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer op-key\r\n{header}\r\n\r\n"
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content) if is_chunked else content
    for _ in range(5):
        with connected(address) as connection:
            connection.sendall((head if is_chunked else head % len(content)).encode())
            for begin in range(0, len(body), 100_000):
                connection.sendall(body[begin : begin + 100_000])
            status, said = answer_of(connection)
        assert status == 413
        assert f"the body is larger than {MAX_BODY_BYTES} bytes" in said


def test_a_body_that_has_come_is_not_waited_for() -> None:
    """Where its last piece is what makes it too large."""
    sent: list[Message] = []

    async def receive() -> Message:
        assert not sent
        return {"type": "http.request", "body": bytes(MAX_BODY_BYTES + 1), "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    async def reads(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.disconnect"

    scope = {"type": "http", "method": "PUT", "path": "/rules", "headers": []}
    asyncio.run(asyncio.wait_for(BodyLimit(reads)(scope, once(receive), send), patience_s(5)))
    assert sent[0]["status"] == 413


def once(receive: Receive) -> Receive:
    """As a server's: what comes after the whole body is awaited for ever."""
    left = [receive]

    async def received() -> Message:
        if not left:
            await asyncio.Event().wait()
        return await left.pop()()

    return received


def test_a_gigabyte_in_chunks_is_cut_off(address: str) -> None:
    """What was not announced is counted as it comes."""
    before, sent, chunk = psutil.Process().memory_info().rss, 0, bytes(1_000_000)
    with connected(address) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while sent < ALL_BYTES:
                connection.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                sent += len(chunk)
        except OSError:
            pass  # the API has hung up
    assert sent < ALL_BYTES / 10
    assert grown_mb(before) < MOST_GROWN_MB
    usual(address)


def test_what_says_that_it_is_compressed_is_not_unpacked(address: str) -> None:
    """Much of nothing is little on the way."""
    bomb = gzip.compress(bytes(4 * MOST_GROWN_MB * 1_000_000), 1)
    assert len(bomb) < MAX_BODY_BYTES
    before = psutil.Process().memory_info().rss
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    answer = httpx.post(f"{address}/predict", content=bomb, headers=headers, timeout=patience_s(30))
    assert answer.status_code == 422
    assert "compressed, which is not unpacked" in answer.json()["detail"]
    assert grown_mb(before) < MOST_GROWN_MB
    usual(address)


def test_who_sends_a_byte_now_and_then_holds_nothing_for_long(address: str) -> None:
    """Fifty of them: each is told, and others are answered."""
    connections = [connected(address) for _ in range(50)]
    began_s = time.monotonic()
    try:
        for connection in connections:
            connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        usual(address)
        for connection in connections:
            status, said = answer_of(connection)
            assert status == 408
            assert f"the body did not come within {SLOW_S:g} s" in said
    finally:
        for connection in connections:
            connection.close()
    assert time.monotonic() - began_s >= SLOW_S


@pytest.mark.parametrize("content", ["[" * 1_000_000, '{"a":' * 500_000], ids=["lists", "objects"])
def test_what_is_nested_deeply_is_refused(address: str, content: str) -> None:
    """With a sentence, not with the end of the stack."""
    answer = httpx.post(
        f"{address}/predict", content=content, headers={"Content-Type": "application/json"}, timeout=patience_s(30)
    )
    assert answer.status_code == 422
    usual(address)


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/rules"), ("PUT", "/zones/north-1/plan"), ("POST", "/models/submit")]
)
def test_who_may_not_order_is_refused_before_the_body_comes(address: str, method: str, path: str) -> None:
    """Four megabytes of a wrong plan held all other requests up for seconds, whoever had sent them."""
    with connected(address) as connection:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {MAX_BODY_BYTES}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode())
        status, said = answer_of(connection)
    assert status == 401
    assert "this order needs a key" in said
    usual(address)


MISTAKES = {
    "members": '{"zone":"x",' + ",".join(f'"a{n}":0' for n in range(100_000)) + "}",
    "changes": '{"zone":"x","changes":{' + ",".join(f'"a{n}":0' for n in range(100_000)) + "}}",
    "rows": '{"zone":"x","rows":[' + ",".join(["[]"] * 4000) + "]}",
    "values": '{"zone":"x","rows":[{"end_ms":1,"values":{' + ",".join(f'"a{n}":""' for n in range(100_000)) + "}}]}",
    "row": '{"zone":"x","rows":[{"end_ms":1,' + ",".join(f'"a{n}":0' for n in range(100_000)) + "}]}",
}


@pytest.mark.parametrize("content", MISTAKES.values(), ids=MISTAKES)
def test_of_a_body_that_is_full_of_mistakes_the_first_are_enough(address: str, content: str) -> None:
    """Each one that is found costs ten microseconds, in which nobody else is answered."""
    answer = httpx.post(
        f"{address}/predict", content=content, headers={"Content-Type": "application/json"}, timeout=patience_s(30)
    )
    assert answer.status_code == 422
    more = re.search(r"\(and (\d+) more\)$", answer.json()["detail"])
    assert more is None or int(more[1]) < 10, answer.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/page/../../../../etc/passwd", "/page/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/page/..%2f..%2f..%2fetc%2fpasswd",
        "/page//etc/passwd", "/page/%00", "/alerts/..%2f..%2foperator.key", "/predict?zone=../../etc/passwd",
        "/forecasts?zone=..%2f..%2f..%2fetc", "/history?zone=demo%2f..%2fnorth-1",
        "/series?zone=%00&metrics=air_temp_c", "/plan?zone=../north-1", "/zones/..%2f..%2fx/series?metrics=air_temp_c",
    ],
)  # fmt: skip
def test_a_name_leads_out_of_nothing(address: str, path: str) -> None:
    """It is nobody's, whatever it looks like."""
    with connected(address) as connection:  # an HTTP client would tidy the path up
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        status, said = answer_of(connection)
    assert status in (400, 404, 422)
    assert "root:" not in said
    usual(address)


def test_a_body_that_comes_slowly_but_in_time_is_taken(address: str) -> None:
    """The limit is for the body, not for the answer or what follows it."""
    content = json.dumps({"zone": "north-1", "rows": []}).encode()
    with connected(address) as connection:
        head = f"POST /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(content)}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + content[:5])
        time.sleep(SLOW_S / 4)
        connection.sendall(content[5:])
        status, said = answer_of(connection)
    assert status != 408, said
