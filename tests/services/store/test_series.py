"""Series go to InfluxDB in the background; whatever it does, nobody waits for it."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from influxdb_client import InfluxDBClient, WritePrecision
from influxdb_client.client.write_api import SYNCHRONOUS

from services.messages import ZoneForecast
from services.store.influx.gaps import Stream
from services.store.influx.influx_answers import refused_lines, said_words
from services.store.influx.lines import forecast_lines
from services.store.rows import SiteStep
from services.store.series import InfluxWriter, NullSeries, SeriesWriter
from tests.conftest import require_env
from tests.patience import patience_s, until

CHANNELS = ("air_temp_c", "rh_pct")
T0 = 1_646_092_800_000


def site_step(end_ms: int, site: str = "demo") -> SiteStep:
    values = np.array([[21.5, np.nan], [np.nan, np.nan]], np.float32)
    return SiteStep(0, site, end_ms, ("z1", "z2"), values, values)


def zone_forecast(site: str = "demo") -> ZoneForecast:
    point = {"horizon_min": 5, "time_ms": T0 + 300_000, "time": "", "p10": 20.0, "p50": 21.0, "p90": None}
    return ZoneForecast(
        site=site, zone="z 1", origin_ms=T0, origin="", step_s=300, model_version="v1", degraded=[], now={},
        now_age_s={}, reports_every_s=0, freshness_s={}, forecasts={"air_temp_c": [point]},
    )  # fmt: skip


def writer(send: Callable[[list[str]], None], queue_points: int = 200_000) -> InfluxWriter:
    return InfluxWriter("", "", "", str, CHANNELS, queue_points, send, first_backoff_s=0.01)


def test_lines_carry_tags_fields_and_time() -> None:
    """One point a zone and step without its missing values, one a target and horizon, names escaped."""
    lines: list[str] = []
    series = writer(lines.extend)
    series.rows([site_step(T0)])
    series.forecasts([zone_forecast()])
    series.close(patience_s(30))
    assert lines == [
        f"zone_climate,site=demo,zone=z1 air_temp_c=21.5 {T0}",
        f"forecast,site=demo,zone=z\\ 1,target=air_temp_c,horizon_min=5"
        f' p10=20.0,p50=21.0,origin_ms={T0}i,version="v1" {T0 + 300_000}',
    ]
    assert series.stats()["sent"] == 2


def test_a_swap_begins_no_series() -> None:
    """The version is a field: a tag would be a series more a zone, target and horizon with each swap, for ever. What is
    computed again by a newer version takes the place of what was said before.
    """
    before = zone_forecast()
    after: ZoneForecast = {**before, "model_version": 'v"2\\'}
    tags, fields, time = zip(*(line.rsplit(" ", 2) for line in forecast_lines([before, after])), strict=True)
    assert len(set(tags)) == len(set(time)) == 1
    assert [one.partition(",version=")[2] for one in fields] == ['"v1"', '"v\\"2\\\\"']


def test_away_means_tried_again_and_nothing_lost_within_the_bound() -> None:
    """Points wait while the server is away and arrive in order when it is back."""
    away, lines = threading.Event(), []
    away.set()

    def send(batch: list[str]) -> None:
        if away.is_set():
            raise ConnectionRefusedError("away")
        lines.extend(batch)

    series = writer(send)
    series.rows([site_step(T0 + n) for n in range(10)])
    until(lambda: series.stats()["retries"] >= 3)
    assert series.stats()["queued"] == 10
    assert "away" in series.stats()["last_error"]
    away.clear()
    until(lambda: series.stats()["sent"] == 10)
    series.close(patience_s(30))
    assert [int(line.split()[-1]) for line in lines] == [T0 + n for n in range(10)]


def test_beyond_the_bound_the_oldest_are_dropped_and_counted() -> None:
    """The queue is bounded; a caller is never held up. Without a history what leaves memory is lost, and counted."""
    entered, leave, lines = threading.Event(), threading.Event(), []

    def send(batch: list[str]) -> None:
        entered.set()
        leave.wait(20)
        lines.extend(batch)

    series = writer(send, queue_points=5)
    series.rows([site_step(T0)])
    entered.wait(20)
    for n in range(1, 11):
        series.rows([site_step(T0 + n)])
    assert series.stats()["dropped"] == 5
    leave.set()
    series.close(patience_s(30))
    assert [int(line.split()[-1]) for line in lines] == [T0, *(T0 + n for n in range(6, 11))]


def test_a_refused_batch_does_not_hold_up_the_next() -> None:
    """What the server calls malformed is counted and left, not sent for ever."""

    class RefusedError(Exception):
        status = 400

    batches: list[int] = []

    def send(batch: list[str]) -> None:
        batches.append(len(batch))
        if len(batches) == 1:
            raise RefusedError("field type conflict")

    series = writer(send)
    series.rows([site_step(T0)])
    until(lambda: series.stats()["refused"] == 1)
    series.rows([site_step(T0 + 1)])
    series.close(patience_s(30))
    assert (series.stats()["refused"], series.stats()["sent"]) == (1, 1)


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ('{"error":"partial write: field type conflict: input field \\"rh_pct\\" is type float dropped=2"}', 2),
        ('{"code":"unprocessable entity","message":"failure writing points to database: partial write: points beyond '
         'retention policy dropped=3"}', 3),
        ('{"error":"partial write: unable to parse \'a= v=1\': missing tag value\\nunable to parse \'b\': missing '
         'fields dropped=1"}', 3),
        ('{"error":"partial write of line protocol occurred","data":[{"original_line":"a","line_number":1,'
         '"error_message":"no"},{"original_line":"b","line_number":7,"error_message":"no"}]}', 2),
        ('{"code":"invalid","message":"unable to parse \'a\': missing fields"}', 10),
        ("<html>no</html>", 10),
    ],
    ids=["1.8 type", "2.x retention", "1.8 lines", "3", "2.x lines", "a proxy"],
)  # fmt: skip
def test_only_points_that_were_refused_are_counted_as_that(body: str, refused: int) -> None:
    """InfluxDB keeps the other points of a batch; its answer says how many it left out."""

    class RefusedError(Exception):
        status, reason = 400, "Bad Request"

    error = RefusedError("all headers, and then the body")
    error.body = body  # type: ignore[attr-defined]
    assert refused_lines(error, 10) == refused
    assert said_words(error).startswith("400 Bad Request: ")
    assert "headers" not in said_words(error)


@pytest.mark.influx
def test_a_point_of_another_type_costs_no_other_and_is_told_as_that() -> None:
    """On a real InfluxDB that had humidity as a whole number: it keeps the other points, and says what is wrong."""
    url, token = require_env("HOTHOUSE_TEST_INFLUXDB_URL"), require_env("HOTHOUSE_TEST_INFLUXDB_TOKEN")
    org = os.environ.get("HOTHOUSE_TEST_INFLUXDB_ORG", "-")
    bucket = os.environ.get("HOTHOUSE_TEST_INFLUXDB_BUCKET", "hothouse/autogen")
    # The type of a field is that of all series of a measurement within a week of the server's time: an own channel.
    site, channel = f"test-{uuid.uuid4().hex[:12]}", f"own_{uuid.uuid4().hex[:12]}"
    with InfluxDBClient(url, token, org=org) as client:
        api = client.write_api(write_options=SYNCHRONOUS)
        api.write(bucket, org, f"zone_climate,site={site},zone=z1 {channel}=1i {T0}", write_precision=WritePrecision.MS)
        series = InfluxWriter(url, org, bucket, lambda: token, ("air_temp_c", channel))
        values = np.array([[20.0, np.nan], [20.0, 1.5], [20.0, np.nan]], np.float32)
        series.rows([SiteStep(0, site, T0 + 1000, ("z1", "z2", "z3"), values, values)])
        until(lambda: not series.stats()["queued"])
        stats = series.stats()
        series.close(patience_s(30))
        assert (stats["sent"], stats["refused"]) == (2, 1)
        assert stats["last_error"].startswith("4")
        assert "type" in stats["last_error"]
        said = client.query_api().query(
            f'from(bucket: "{bucket}") |> range(start: 2022-02-28T00:00:00Z, stop: 2022-03-02T00:00:00Z)'
            f' |> filter(fn: (r) => r.site == "{site}" and r._field == "air_temp_c")'
        )
    assert sorted(record["zone"] for table in said for record in table.records) == ["z1", "z3"]


def test_what_is_too_long_at_once_is_sent_in_parts() -> None:
    """A proxy before InfluxDB that takes three lines at a time costs no point; one line that is too long is left."""

    class TooLongError(Exception):
        status = 413

    batches: list[list[str]] = []

    def send(batch: list[str]) -> None:
        if len(batch) > 3 or str(T0 + 4) in batch[0]:
            raise TooLongError("Request Entity Too Large")
        batches.append(batch)

    series = writer(send)
    series.rows([site_step(T0 + n) for n in range(10)])
    until(lambda: series.stats()["queued"] == 0)
    stats = series.stats()
    series.close(patience_s(30))
    assert (stats["sent"], stats["refused"], stats["dropped"]) == (9, 1, 0)
    assert max(map(len, batches)) <= 3
    sent = [int(line.split()[-1]) for batch in batches for line in batch]
    assert sent == [T0 + n for n in range(10) if n != 4]


def test_an_error_is_shown_until_points_are_taken_again() -> None:
    """The server was away: ``last_error`` says so, and is empty after the next success."""
    away = threading.Event()
    away.set()

    def send(batch: list[str]) -> None:
        if away.is_set():
            raise ConnectionError("nobody listens")

    series = writer(send)
    series.rows([site_step(T0)])
    until(lambda: series.stats()["last_error"] == "ConnectionError: nobody listens")
    away.clear()
    until(lambda: series.stats()["sent"] == 1)
    assert series.stats()["last_error"] == ""
    series.close(patience_s(30))


READ = "influx.token_file is read at each try, HOTHOUSE_INFLUX__TOKEN at the start"


class TokenServer(BaseHTTPRequestHandler):
    """Takes points with the token `right`; keeps each token that it was sent."""

    seen: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        """Answer as InfluxDB does."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append(self.headers["Authorization"])
        self.send_response(204 if self.seen[-1] == "Token right" else 401)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("wrong", "401 Unauthorized: "),
        ("\ufeffright", "ConfigError: the token has a line break or a character that is not of ASCII"),
        ("ri\nght", "ConfigError: the token has a line break or a character that is not of ASCII"),
    ],
)
def test_a_refused_token_is_read_again(tmp_path: Path, wrong: str, why: str) -> None:
    """Whoever corrects its file need not restart: not one that works is read again, nor is a missing file the end.
    What no request can carry is refused, too, and not shown.
    """
    (file := tmp_path / "token").write_text(wrong)
    TokenServer.seen.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), TokenServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        series = InfluxWriter(url, "-", "hothouse/autogen", file.read_text, CHANNELS, first_backoff_s=0.01)
        series.rows([site_step(T0)])
        until(lambda: series.stats()["last_error"] == f"{why}. {READ}")
        file.unlink()
        until(lambda: "No such file" in series.stats()["last_error"])
        file.write_text("right")
        until(lambda: series.stats()["sent"] == 1)
        assert series.stats()["last_error"] == ""
        file.write_text("another")
        series.rows([site_step(T0 + 300_000)])
        until(lambda: series.stats()["sent"] == 2)
        series.close(patience_s(30))
        server.shutdown()
    assert set(TokenServer.seen) == {"Token right"} | ({"Token wrong"} if wrong == "wrong" else set())


@pytest.mark.influx
def test_a_real_influxdb_takes_points_once_the_token_is_right(tmp_path: Path) -> None:
    """The same with the server itself, which says what is wrong meanwhile."""
    url, token = require_env("HOTHOUSE_TEST_INFLUXDB_URL"), require_env("HOTHOUSE_TEST_INFLUXDB_TOKEN")
    org = os.environ.get("HOTHOUSE_TEST_INFLUXDB_ORG", "-")
    bucket = os.environ.get("HOTHOUSE_TEST_INFLUXDB_BUCKET", "hothouse/autogen")
    (file := tmp_path / "token").write_text(f"{token}-of-before")
    series = InfluxWriter(url, org, bucket, file.read_text, CHANNELS, first_backoff_s=0.01)
    series.rows([site_step(T0, f"test-{uuid.uuid4().hex[:12]}")])
    until(lambda: series.stats()["last_error"].startswith("401 "))
    file.write_text(token)
    until(lambda: series.stats()["sent"] == 1)
    series.close(patience_s(30))


def test_the_real_client_survives_a_port_that_refuses() -> None:
    """With nobody listening, calls return at once, attempts are counted, and closing keeps to its time."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        series = InfluxWriter(url, "-", "hothouse/autogen", lambda: "a:b", CHANNELS, first_backoff_s=0.01)
        series.rows([site_step(T0)])
        until(lambda: series.stats()["retries"] >= 2)
        series.close(timeout_s=0.2)
    assert series.stats()["sent"] == 0


def test_without_a_series_store_nothing_happens() -> None:
    """``NullSeries`` keeps the same contract."""
    series: SeriesWriter = NullSeries()
    series.rows([site_step(T0)])
    series.forecasts([zone_forecast()])
    series.close(patience_s(30))
    assert series.stats()["sent"] == 0


@pytest.mark.influx
def test_rows_and_forecasts_are_found_by_flux() -> None:
    """A real InfluxDB answers a Flux query with exactly what was written, also when it was written twice."""
    from influxdb_client import InfluxDBClient

    url, token = require_env("HOTHOUSE_TEST_INFLUXDB_URL"), require_env("HOTHOUSE_TEST_INFLUXDB_TOKEN")
    org = os.environ.get("HOTHOUSE_TEST_INFLUXDB_ORG", "-")
    bucket = os.environ.get("HOTHOUSE_TEST_INFLUXDB_BUCKET", "hothouse/autogen")
    site = f"test-{uuid.uuid4().hex[:12]}"
    series = InfluxWriter(url, org, bucket, lambda: token, CHANNELS)
    for _ in range(2):
        series.rows([site_step(T0, site), site_step(T0 + 300_000, site)])
        series.forecasts([zone_forecast(site)])
    series.close(20)
    assert series.stats()["sent"] == 6, series.stats()
    query = (
        f'from(bucket: "{bucket}") |> range(start: 2022-02-28T00:00:00Z, stop: 2022-03-02T00:00:00Z)'
        f' |> filter(fn: (r) => r.site == "{site}")'
    )
    with InfluxDBClient(url=url, token=token, org=org) as client:
        records = [record for table in client.query_api().query(query, org=org) for record in table.records]
    rows = sorted((r.get_measurement(), r.get_field(), r.get_time().timestamp() * 1000, r.get_value()) for r in records)
    assert rows == [
        ("forecast", "origin_ms", T0 + 300_000, T0),
        ("forecast", "p10", T0 + 300_000, 20.0), ("forecast", "p50", T0 + 300_000, 21.0),
        ("forecast", "version", T0 + 300_000, "v1"),
        ("zone_climate", "air_temp_c", T0, 21.5), ("zone_climate", "air_temp_c", T0 + 300_000, 21.5),
    ]  # fmt: skip
    tags = next(r.values for r in records if r.get_measurement() == "forecast")
    named = [tags[name] for name in ("zone", "target", "horizon_min")]
    assert named == ["z 1", "air_temp_c", "5"]
    assert not {"version", "model_version"} & set(tags)


def test_a_row_is_told_as_delivered_only_when_nothing_before_it_waits() -> None:
    """While the server is away nothing is told; then each site's newest row, once all was taken."""
    away, told = threading.Event(), []
    away.set()

    def send(batch: list[str]) -> None:
        if away.is_set():
            raise ConnectionRefusedError("away")

    series = InfluxWriter("", "", "", str, CHANNELS, 1000, send, 0.01, told.append)
    series.rows([site_step(T0), site_step(T0, "north")])
    series.rows([site_step(T0 + 300_000)])
    until(lambda: series.stats()["retries"] > 2)
    assert not told
    away.clear()
    until(lambda: series.stats()["sent"] == 3)
    series.close(patience_s(30))
    newest: dict[str, int] = {}
    for some in told:
        newest |= some
    assert newest == {Stream("rows", "demo"): T0 + 300_000, Stream("rows", "north"): T0}
