"""How much one client may ask: requests by key or address, streams, and what is said of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from services.access_keys import AccessKeys
from services.serve.api import event_stream
from services.serve.api.app import create_app
from services.serve.api.auth import Keys
from services.serve.api.client_limits import ClientLimits, Limits, RequestRate
from services.serve.api.event_stream import EventStream
from services.serve.api.state import ApiState
from tests.services.serve.fakes import SPEC
from tests.services.serve.system import OPERATOR, System, assert_problem


class Limited(System):
    """A system with limits, whose clock stands until it is moved."""

    def __init__(self, limits: Limits, keys: Keys | None = None) -> None:
        super().__init__(keys or Keys("op-key"), published=False)
        self.now_s = 1000.0
        self.state = ApiState(self.backend, keys or Keys("op-key"), SPEC, 1800, lambda: self.now_s, limits=limits)
        self.fill()
        self.state.events = EventStream(lambda: self.now_s)
        self.state.events.longest_s = 0
        self.client = TestClient(create_app(self.state, ["https://office.example.org"]), raise_server_exceptions=False)

    def asks(self, times: int, headers: dict[str, str] | None = None, path: str = "/zones") -> list[int]:
        """What so many requests are answered."""
        return [self.client.get(path, headers=headers).status_code for _ in range(times)]


def test_a_client_may_ask_a_burst_and_then_its_rate() -> None:
    """What is too much gets 429 as a problem, with the seconds to wait; then it is taken again."""
    one = Limited(Limits(per_s=2, burst=5))
    assert one.asks(5) == [200] * 5
    answer = one.client.get("/zones")
    assert_problem(
        answer, 429, "too many requests of testclient: 2 a second are taken after 5 at once; ask again in 1 s"
    )
    assert answer.headers["Retry-After"] == "1"
    one.now_s += 1
    assert one.asks(3) == [200, 200, 429]
    one.now_s += 3600
    assert one.asks(6) == [200] * 5 + [429]


def test_what_is_refused_is_counted_and_health_is_not_limited() -> None:
    """Whoever looks after the process may always ask how it is; the refusals are on /metrics."""
    one = Limited(Limits(per_s=1, burst=2))
    assert one.asks(4) == [200, 200, 429, 429]
    assert one.asks(50, path="/health/live") == [200] * 50
    one.now_s += 1
    text = one.client.get("/metrics").text
    assert "hothouse_api_refused_total 2.0" in text
    assert "hothouse_api_streams 0.0" in text


def test_each_key_has_its_own_share_and_an_unknown_one_none(tmp_path: Path) -> None:
    """A key counts by its name wherever it is used; who guesses keys shares the share of the address."""
    keys = AccessKeys(tmp_path)
    display, office = (keys.add(name, "read", 0) for name in ("display", "office"))
    one = Limited(Limits(per_s=1, burst=3), Keys("op-key", None, keys))
    header = lambda key: {"Authorization": f"Bearer {key}"}  # noqa: E731
    assert one.asks(4, header(display)) == [200, 200, 200, 429]
    assert "the key display" in one.client.get("/zones", headers=header(display)).json()["detail"]
    assert one.asks(4, header(office)) == [200, 200, 200, 429]
    assert one.asks(4, OPERATOR) == [200, 200, 200, 429]
    assert [*one.asks(2, header("guess-1")), *one.asks(2, header("guess-2"))] == [200, 200, 200, 429]
    assert one.asks(1) == [429]


@pytest.mark.parametrize(
    ("proxies", "forwarded", "counted"),
    [
        ([], "", "10.9.9.9"),
        ([], "1.2.3.4, 10.0.0.7", "10.9.9.9"),  # anybody may say so
        (["10.9.9.9"], "1.2.3.4, 10.0.0.7", "10.0.0.7"),
        (["10.9.9.9"], "1.2.3.4, 10.0.0.7:4711", "10.0.0.7"),
        (["10.0.0.0/8"], "1.2.3.4, 5.6.7.8, 10.0.0.7", "5.6.7.8"),
        (["10.0.0.7"], "1.2.3.4, 10.0.0.7", "10.9.9.9"),  # past the proxy
        (["10.9.9.9"], "", "10.9.9.9"),
        (["10.9.9.9"], "127.0.0.1", "127.0.0.1"),  # not this machine: it came from elsewhere
        (["10.9.9.9"], "[::1]:80", "::/64"),
        (["10.9.9.9"], "unknown", "10.9.9.9"),
        (["10.9.9.9"], "[2001:db8:1:2:3::4]:443", "2001:db8:1:2::/64"),
        (["10.9.9.9"], "::ffff:1.2.3.4", "1.2.3.4"),
    ],
)
def test_the_address_is_the_one_that_the_first_trusted_proxy_saw(
    proxies: list[str], forwarded: str, counted: str
) -> None:
    """What a client itself writes into the header changes nothing."""
    limits = ClientLimits(Limits(per_s=1, proxies=tuple(proxies)), Keys("op-key"), lambda: 0.0)
    assert limits.client(request(forwarded, "10.9.9.9")) == counted


@pytest.mark.parametrize(
    ("proxies", "forwarded", "counted"),
    [
        ([], "10.0.0.7", "10.0.0.7"),
        ([], "127.0.0.1, 10.0.0.7", "10.0.0.7"),
        ([], "127.0.0.1", ""),  # our ingress saw this machine itself
        (["10.0.0.7"], "127.0.0.1, 10.0.0.7", "127.0.0.1"),
        (["10.0.0.7"], "1.2.3.4, 10.0.0.8", "10.0.0.8"),
        (["127.0.0.1"], "1.2.3.4, 127.0.0.1", "1.2.3.4"),  # a proxy on this machine
        (["127.0.0.1"], "127.0.0.1, 127.0.0.1", "127.0.0.1"),
    ],
)
def test_behind_our_ingress_the_address_is_what_it_saw(proxies: list[str], forwarded: str, counted: str) -> None:
    """Who asks past a proxy cannot say to be this machine, which has no limit."""
    limits = ClientLimits(Limits(per_s=1, ingress=True, proxies=tuple(proxies)), Keys("op-key"), lambda: 0.0)
    assert limits.client(request(forwarded, "127.0.0.1")) == counted


def test_where_addresses_say_nothing_there_is_no_limit() -> None:
    """On a cluster that is not ours, all requests have its addresses."""
    limits = ClientLimits(Limits(per_s=1, known=False), Keys("op-key"), lambda: 0.0)
    assert limits.client(request("1.2.3.4", "10.9.9.9")) == ""


def request(forwarded: str, peer: str) -> dict[str, Any]:
    """A request through proxies that say so."""
    lines = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    return {"headers": lines, "client": (peer, 5)}


@pytest.mark.thorough
def test_0_is_no_limit_and_neither_is_this_machine() -> None:
    """Who asks from this machine without a key, as tests and dashboards do, is never refused."""
    assert Limited(Limits()).asks(600) == [200] * 600
    one = Limited(Limits(per_s=1, burst=1, ingress=True))
    assert one.asks(20, {"X-Forwarded-For": "127.0.0.1"}) == [200] * 20


def test_the_number_of_remembered_clients_is_bounded() -> None:
    """A flood of addresses costs a bounded memory; who asks all the time is not forgotten for it."""
    rate = RequestRate(per_s=1, burst=2, most=100)
    assert [rate.wait_s("busy", 0.0) for _ in range(2)] == [0, 0]
    for number in range(5000):
        rate.wait_s(f"10.0.{number}", 0.0)
        if number % 50 == 0:
            assert rate.wait_s("busy", 0.0) > 0
    assert len(rate) == 100


def test_in_the_long_run_the_rate_is_kept() -> None:
    """Who always asks is given the burst and the rate, not more; who asks below the rate is never refused."""
    greedy, modest = RequestRate(per_s=20, burst=40), RequestRate(per_s=20.0, burst=1)
    taken = sum(greedy.wait_s("a", n / 1000) == 0 for n in range(60_000))
    assert abs(taken - (40 + 20 * 60)) <= 1
    assert all(modest.wait_s("a", n / 19.9) == 0 for n in range(10_000))


def test_a_client_has_a_bounded_number_of_streams() -> None:
    """One more is refused with a problem; others are not, and a stream that ended makes room."""
    one = Limited(Limits(streams=2))
    with one.state.limits.stream("testclient"):
        assert one.asks(1, path="/events") == [200]
        with one.state.limits.stream("testclient"):
            answer = one.client.get("/events")
            assert_problem(answer, 429, "testclient has 2 streams open, and no more are taken")
            assert answer.headers["Retry-After"] == "5"
            assert one.asks(1, OPERATOR, "/events") == [200]
    assert one.asks(3, path="/events") == [200] * 3
    assert one.state.limits._streams == {}


def test_open_streams_are_counted_while_they_are_open() -> None:
    """By key, from the first event to the last."""
    one = Limited(Limits(streams=1))
    one.state.events.longest_s = 60

    async def run() -> None:
        scope = {"type": "http", "method": "GET", "path": "/events", "query_string": b"",
                 "headers": [(b"authorization", b"Bearer op-key")], "client": ("10.0.0.1", 1)}  # fmt: skip
        sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await sent.put(message)

        app = create_app(one.state)
        stream = asyncio.create_task(app(scope, receive, send))
        while b"hello" not in (await sent.get()).get("body", b""):
            pass
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            assert (await client.get("/events", headers=OPERATOR)).status_code == 429
            assert "hothouse_api_streams 1.0" in (await client.get("/metrics")).text
        gone.set()
        await stream
        assert one.state.limits._streams == {}

    asyncio.run(run())


def test_streams_that_are_asked_for_at_once_are_bounded_as_well() -> None:
    """None begins unseen between the look at how many there are and its own beginning: of one client, and in all."""
    for limits, most, status in ((Limits(streams=2), event_stream.MOST, 429), (Limits(), 2, 503)):
        one = Limited(limits)
        one.state.events.longest_s = 60
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(event_stream, "MOST", most)
            answered = asyncio.run(asked_at_once(one, 5))
        assert sorted(answered) == [200] * 2 + [status] * 3
        assert (one.state.events.open, one.state.limits._streams) == (0, {})


async def asked_at_once(one: Limited, times: int) -> list[int]:
    """What so many requests for a stream are answered, of which none ends before all have been."""
    app, gone, statuses = create_app(one.state), asyncio.Event(), []
    scope = {"type": "http", "method": "GET", "path": "/events", "query_string": b"",
             "headers": [(b"authorization", b"Bearer op-key")], "client": ("10.0.0.1", 1)}  # fmt: skip

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
            if len(statuses) == times:
                gone.set()

    async with asyncio.timeout(10):
        await asyncio.gather(*(app(dict(scope), receive, send) for _ in range(times)))
    return statuses


def test_refusals_are_described_for_each_call_but_those_about_health() -> None:
    """With the header that says when to ask again."""
    for path, methods in create_app(Limited(Limits()).state).openapi()["paths"].items():
        for call in methods.values():
            said = call["responses"].get("429")
            assert (said is None) == path.startswith("/health/"), path
            if said is not None:
                assert list(said["content"]) == ["application/problem+json"]
                assert "Retry-After" in said["headers"]


def test_a_page_of_another_address_can_read_a_refusal() -> None:
    """It has the headers without which a browser would hide it."""
    one = Limited(Limits(per_s=1, burst=1))
    origin = {"Origin": "https://office.example.org"}
    assert one.asks(1, origin) == [200]
    answer = one.client.get("/zones", headers=origin)
    assert answer.status_code == 429
    assert answer.headers["access-control-allow-origin"] == origin["Origin"]
