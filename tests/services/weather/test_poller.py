"""The poller against a service on this machine: what it answers is published, what it does wrong stops nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from edge.wire.plan import PlanMessage, decode_plan
from services.config import WeatherSettings
from services.errors import HothouseError
from services.weather.fetch import MAX_BYTES, fetch
from services.weather.open_meteo import WeatherError
from services.weather.poller import LONGEST_RETRY_S, PolledSite, Poller, Service
from tests.patience import patience_s
from tests.services.weather.answers import HTML, REFUSED, answer

NOW_MS = 1_646_136_000_000
HOUR_MS = 3_600_000
PLACE = PolledSite("demo", 51.98, 4.53)


class FakeService:
    """Answers with what it is given; keeps the questions."""

    def __init__(self) -> None:
        self.content, self.status, self.headers = answer(NOW_MS), 200, {"Content-Type": "application/json"}
        self.asked: list[dict[str, list[str]]] = []
        self.hold: Callable[[BaseHTTPRequestHandler], None] | None = None
        self.url = ""


@pytest.fixture
def service() -> Iterator[FakeService]:
    """A service that answers on loopback."""
    fake = FakeService()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.asked.append(parse_qs(urlsplit(self.path).query))
            if fake.hold is not None:
                fake.hold(self)
                return
            self.send_response(fake.status)
            for name, value in fake.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(fake.content)))
            self.end_headers()
            self.wfile.write(fake.content)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    fake.url = f"http://127.0.0.1:{server.server_port}/v1/forecast"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield fake
    server.shutdown()
    server.server_close()


class Rig:
    """A poller with a clock that is set, and a broker that may be away."""

    def __init__(
        self, service: FakeService, folder: Path, places: Sequence[PolledSite] = (PLACE,), limit_s: float = 5
    ) -> None:
        self.now_ms, self.published = NOW_MS, list[PlanMessage]()
        self.away, self._places, self.limit_s = False, places, limit_s
        self._service, self._folder = service, folder
        self.poller = self.start()

    def start(self) -> Poller:
        given = WeatherSettings()
        what = Service(self._service.url, "open-meteo", given.variables, 3, 3600.0)
        now = (lambda: self.now_ms, lambda: 1.0)
        self.poller = Poller(what, self._places, self._folder, self.fetch, self.publish, *now)
        return self.poller

    def fetch(self, url: str, parameters: Mapping[str, str]) -> bytes:
        return fetch(url, parameters, limit_s=self.limit_s)

    def publish(self, topic: str, payload: bytes) -> None:
        if self.away:
            raise HothouseError("the broker is away")
        plan = decode_plan(topic, payload, self.now_ms).plan
        assert plan is not None
        self.published.append(plan)

    def later(self, seconds: float) -> float:
        self.now_ms += round(1000 * seconds)
        return self.poller.look()


def test_a_forecast_is_published_and_asked_for_again_an_hour_later(service: FakeService, tmp_path: Path) -> None:
    """What is new is issued when it came; the same again is not, so that it gets old."""
    rig = Rig(service, tmp_path)
    assert rig.poller.look() == 3600
    assert service.asked[0]["hourly"] == [",".join(WeatherSettings().variables)]
    assert rig.later(3599) == 1
    assert rig.later(1) == 3600
    assert (len(service.asked), [plan.issued_ms for plan in rig.published]) == (2, [NOW_MS])
    service.content = answer(NOW_MS, temperature_2m=[3.0] * 72)
    rig.later(3600)
    assert [plan.issued_ms for plan in rig.published] == [NOW_MS, NOW_MS + 2 * HOUR_MS]
    assert rig.published[-1].values["out_temp_c"][0][1] == 3.0


def test_a_start_goes_on_from_the_answer_that_was_kept(service: FakeService, tmp_path: Path) -> None:
    """It publishes it again, which counts once, and asks when the hour is over; a damaged file is asked for anew."""
    rig = Rig(service, tmp_path)
    rig.poller.look()
    rig.start()
    rig.later(1800)
    assert len(service.asked) == 1
    assert [plan.issued_ms for plan in rig.published] == [NOW_MS, NOW_MS]
    rig.later(1800)
    assert len(service.asked) == 2
    (tmp_path / "demo.json").write_bytes(b"{")
    rig.start()
    rig.later(1)
    assert len(service.asked) == 3


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_was_ahead_is_not_waited_for(service: FakeService, tmp_path: Path, restarted: bool) -> None:
    """As of a machine whose clock is set by the network some seconds after it has started."""
    rig = Rig(service, tmp_path)
    rig.now_ms += 10 * HOUR_MS
    rig.poller.look()
    rig.now_ms -= 10 * HOUR_MS
    if restarted:
        rig.start()
    assert rig.later(1) == 3600
    assert [plan.issued_ms for plan in rig.published] == [NOW_MS + 10 * HOUR_MS, NOW_MS + 1000]


def test_a_broker_that_was_away_gets_the_forecast_when_it_is_back(service: FakeService, tmp_path: Path) -> None:
    """The service is not asked again for it."""
    rig = Rig(service, tmp_path)
    rig.away = True
    pause_s = rig.poller.look()
    assert rig.poller.errors == {"demo": "the broker is away"}
    rig.away = False
    rig.later(pause_s)
    assert (len(service.asked), len(rig.published), rig.poller.errors) == (1, 1, {})


@pytest.mark.parametrize(
    ("status", "content", "said"),
    [
        (200, HTML, "HTML"), (503, HTML, "answered 503"), (429, b"{}", "answered 429"), (400, REFUSED, "refuses"),
        (302, b"", "answered 302"), (200, b"", "no JSON"), (200, answer(NOW_MS - 365 * 24 * HOUR_MS), "2021-03-03"),
        (200, b" " * (MAX_BYTES + 1), "larger than"),
    ],
)  # fmt: skip
def test_what_a_service_does_wrong_is_said_and_tried_again(
    service: FakeService, tmp_path: Path, status: int, content: bytes, said: str
) -> None:
    """Later and later, up to half an hour; the next good answer is published."""
    rig = Rig(service, tmp_path)
    good, service.content, service.status = service.content, content, status
    pauses = [rig.poller.look()]
    while len(pauses) < 9:
        pauses.append(rig.later(pauses[-1]))
    assert said in rig.poller.errors["demo"]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (30, LONGEST_RETRY_S)
    service.content, service.status = good, 200
    rig.later(pauses[-1])
    assert len(rig.published) == 1
    assert rig.poller.errors == {}


@pytest.mark.parametrize(("asked_s", "waited_s"), [("120", 120), ("999999", 3600), ("5", 30), ("tomorrow", 30)])
def test_a_service_that_asks_to_be_left_alone_is(
    service: FakeService, tmp_path: Path, asked_s: str, waited_s: float
) -> None:
    """For as long as it asks, up to the hour between two forecasts, and no shorter than after any failure."""
    reason = "Minutely API request limit exceeded. Please try again in one minute."
    service.status, service.content = 429, json.dumps({"error": True, "reason": reason}).encode()
    service.headers["Retry-After"] = asked_s
    rig = Rig(service, tmp_path)
    assert rig.poller.look() == waited_s
    assert rig.poller.errors == {"demo": f"the service answered 429 Too Many Requests: {reason}"}


def test_a_service_that_moved_is_named_without_the_key(service: FakeService, tmp_path: Path) -> None:
    """Nobody follows: a key would go along. The address is one for the settings."""
    service.status, service.content = 301, b""
    service.headers["Location"] = "https://new.example/v1/forecast?latitude=51.98&apikey=secret"
    rig = Rig(service, tmp_path)
    rig.poller.look()
    assert rig.poller.errors["demo"].endswith(": set weather.url to https://new.example/v1/forecast if that is meant")


@contextmanager
def dripping(service: FakeService, first: bytes) -> Iterator[None]:
    """The service sends a byte now and then, and never ends."""
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        try:
            handler.wfile.write(first)
            while not over.wait(0.05):
                handler.wfile.write(b" " if first else b"")
                handler.wfile.flush()
        except OSError:  # the poller has hung up
            return

    service.hold = drip
    try:
        yield
    finally:
        over.set()


@pytest.mark.parametrize(
    "first", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n{"]
)
def test_a_service_that_hangs_is_given_up(service: FakeService, first: bytes) -> None:
    """Before its answer, in its headers or in its body: what it sends now and then does not keep the poller."""
    with dripping(service, first), pytest.raises(WeatherError, match=r"did not answer within 0\.5 s"):
        fetch(service.url, {}, limit_s=0.5)


def test_a_service_that_hung_is_asked_again(service: FakeService, tmp_path: Path) -> None:
    """What hangs is said, and keeps no other site waiting longer than its time; the next answer is published."""
    rig = Rig(service, tmp_path, places=[PLACE, PolledSite("south", 36.8, -2.6)], limit_s=0.5)
    with dripping(service, b"HTTP/1.1 200 OK\r\nX-Slow: "):
        pause_s = rig.poller.look()
    said = "the service did not answer within 0.5 s"
    assert (pause_s, rig.poller.errors) == (30, {"demo": said, "south": said})
    service.hold, rig.limit_s = None, patience_s(5)
    rig.later(pause_s)
    assert ([plan.site for plan in rig.published], rig.poller.errors) == (["demo", "south"], {})


def test_a_service_that_is_not_there_is_one_sentence() -> None:
    """Refused connections and addresses that are none."""
    for url in ("http://127.0.0.1:9/forecast", "http://[::1"):
        with pytest.raises(WeatherError, match="cannot be asked"):
            fetch(url, {}, limit_s=5)


def test_a_key_is_sent_and_not_kept(service: FakeService, tmp_path: Path) -> None:
    """The file with the answer does not hold it."""
    rig = Rig(service, tmp_path)
    what = Service(service.url, "open-meteo", WeatherSettings().variables, 3, 3600.0, key="secret-key")
    Poller(what, [PLACE], tmp_path, rig.fetch, rig.publish, lambda: NOW_MS, lambda: 1.0).look()
    assert service.asked[-1]["apikey"] == ["secret-key"]
    assert "secret-key" not in json.dumps([path.read_text() for path in tmp_path.glob("*.json")])
