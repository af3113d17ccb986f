"""No point is lost while InfluxDB is away: what leaves memory, or was in one that died, comes from the history."""

from __future__ import annotations

import os
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.spec import ForecastSpec
from services.ingest.forecasting import zone_forecasts
from services.messages import ZoneForecast
from services.store.delivered import Delivered
from services.store.forecasts import IssuedForecast, IssuedForecasts
from services.store.history import History
from services.store.influx.history_points import HistoryPoints
from services.store.influx.lines import forecast_lines, row_lines
from services.store.rows import SiteStep
from services.store.series import InfluxWriter
from tests.chaos.servers import Servers
from tests.patience import patience_s, until

SPEC = ForecastSpec(("air_temp_c", "rh_pct"), ("air_temp_c",), (30, 60))
T0, STEP = 1_646_092_800_000, 300_000


class Server:
    """An InfluxDB that remembers lines, and is away at times."""

    def __init__(self) -> None:
        self.lines: set[str] = set()
        self.away = threading.Event()

    def take(self, lines: list[str]) -> None:
        if self.away.is_set():
            raise ConnectionRefusedError("away")
        self.lines |= set(lines)


class Shard:
    """What a shard does with a step: memory, then the history, then a forecast that is kept before it is published."""

    def __init__(self, root: Path, server: Server, queue_points: int, site: str = "demo") -> None:
        self.history, self.issued = History(root, SPEC.channels), IssuedForecasts(root, 0)
        self.site, self.wanted = site, set[str]()
        self._root, self._server, self._bound = root, server, queue_points
        self.series = self.begin()

    def begin(self) -> InfluxWriter:
        """As a process that has just started."""
        notes = Delivered(self._root, [0], 1)
        self.series = InfluxWriter(
            "", "", "", str, SPEC.channels, self._bound, self._server.take, 0.01, notes.note,
            HistoryPoints(History(self._root, SPEC.channels).zones, self.issued, SPEC), notes.gaps(self.history.zones),
        )  # fmt: skip
        return self.series

    def step(self, number: int, flush: bool = True) -> None:
        step, forecasts, issued = made(self.site, number)
        self.series.rows([step])
        self.history.add([step])
        if flush:
            self.history.flush()
        self.issued.put([issued], SPEC.horizons_min, SPEC.targets)
        self.series.forecasts(forecasts)
        self.wanted |= {*row_lines(SPEC.channels, [step]), *forecast_lines(forecasts)}

    def die(self) -> None:
        """Without a word."""
        self.series.close(0)
        self.begin()


def made(site: str, number: int) -> tuple[SiteStep, list[ZoneForecast], IssuedForecast]:
    """A step of two zones, and its forecasts as published and as kept; one of them has none."""
    values = np.array([[20.123456 + number, np.nan], [19.0, 50.0]], np.float32)
    step = SiteStep(0, site, T0 + number * STEP, ("z1", "z 2"), values, np.zeros_like(values))
    quantiles = np.array([[[[19.0, 20.55555, 22.0]], [[18.0, 20.0, 23.3]]], np.full((2, 1, 3), np.nan)], np.float32)
    quantiles = quantiles + np.float32(number)
    none = np.full((2, 2, 1), np.nan, np.float32)
    issued = IssuedForecast(site, step.end_ms, "v1", step.zones, quantiles, none, none, 0)
    return step, zone_forecasts(SPEC, step, "v1", quantiles), issued


@pytest.mark.thorough
def test_what_leaves_memory_comes_from_the_history(tmp_path: Path) -> None:
    """Away for longer than memory lasts: all rows and forecasts arrive, none is counted as lost."""
    server = Server()
    shard = Shard(tmp_path, server, queue_points=10)
    server.away.set()
    for number in range(200):
        shard.step(number)
    stats = shard.series.stats()
    assert stats["in_history"] > 700
    assert stats["queued"] + stats["in_history"] == len(shard.wanted)
    server.away.clear()
    until(lambda: server.lines == shard.wanted)
    until(lambda: shard.series.stats()["in_history"] == 0)
    shard.series.close(patience_s(30))
    assert shard.series.stats()["dropped"] == 0


@pytest.mark.thorough
def test_what_the_history_lacks_is_counted_as_lost(tmp_path: Path) -> None:
    """Loss is never silent."""
    server = Server()
    shard = Shard(tmp_path, server, queue_points=10)
    server.away.set()
    until(lambda: not server.lines)
    for number in range(50):
        shard.step(number)
    for path in (tmp_path / "history" / "forecasts").rglob("*.parquet"):
        path.unlink()
    server.away.clear()
    until(lambda: shard.series.stats()["in_history"] == 0)
    shard.series.close(patience_s(30))
    lost = len(shard.wanted - server.lines)
    assert lost > 0
    assert shard.series.stats()["dropped"] == lost


@pytest.mark.parametrize("dies", [False, True])
def test_rows_of_a_step_that_the_settings_do_not_follow_yet_arrive(dies: bool, tmp_path: Path) -> None:
    """An event has made a site's rows ten minutes long. They leave memory, or the process dies with them."""
    server = Server()
    shard = Shard(tmp_path, server, queue_points=4)
    server.away.set()
    for number in range(0, 40, 2):
        step = replace(made("demo", number)[0], step_ms=2 * STEP)
        shard.series.rows([step])
        shard.history.add([step])
        shard.wanted |= set(row_lines(SPEC.channels, [step]))
    shard.history.flush()
    if dies:
        shard.die()
    server.away.clear()
    until(lambda: server.lines == shard.wanted)
    until(lambda: shard.series.stats()["in_history"] == 0)
    shard.series.close(patience_s(30))


def test_a_gap_waits_for_the_history(tmp_path: Path) -> None:
    """Rows leave memory before they are flushed: nothing is given up, and nothing noted as taken."""
    server = Server()
    shard = Shard(tmp_path, server, queue_points=4)
    server.away.set()
    for number in range(20):
        shard.step(number, flush=False)
    server.away.clear()
    until(lambda: any(line.startswith("forecast") for line in server.lines))
    assert shard.series.stats()["in_history"] > 0
    shard.history.flush()
    until(lambda: server.lines == shard.wanted)
    shard.series.close(patience_s(30))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=st.lists(st.sampled_from(["step", "step", "step", "away", "back", "die"]), max_size=40))
@pytest.mark.thorough
def test_whatever_happens_all_points_arrive_in_the_end(
    story: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The server comes and goes, the process dies without a word: in the end every point is there, and no other."""
    server = Server()
    shard = Shard(tmp_path_factory.mktemp("story"), server, queue_points=6)
    for number, what in enumerate(story):
        match what:
            case "away":
                server.away.set()
            case "back":
                server.away.clear()
            case "die":
                shard.die()
            case _:
                shard.step(number)
    server.away.clear()
    until(lambda: server.lines == shard.wanted)
    shard.series.close(patience_s(30))
    assert shard.series.stats()["dropped"] == 0


@pytest.mark.influx
@pytest.mark.slow
def test_a_real_influxdb_is_killed_and_stays_away(tmp_path: Path) -> None:
    """Killed under load, and away (for ``HOTHOUSE_TEST_AWAY_S``, else 5 s): all points are found afterwards."""
    away_s = float(os.environ.get("HOTHOUSE_TEST_AWAY_S", "5"))
    servers = Servers(tmp_path / "servers", "influxdb")
    try:
        named = {n: servers.environment[f"HOTHOUSE_TEST_INFLUXDB_{n}"] for n in ("URL", "ORG", "BUCKET", "TOKEN")}
        client = InfluxWriter(named["URL"], named["ORG"], named["BUCKET"], lambda: named["TOKEN"], SPEC.channels)
        server = Server()
        server.take = client._send  # type: ignore[method-assign]
        shard = Shard(tmp_path / "storage", server, queue_points=1000, site=f"test-{uuid.uuid4().hex[:12]}")
        stop, numbers = threading.Event(), iter(range(1_000_000))
        load = threading.Thread(target=lambda: [shard.step(next(numbers)) for _ in iter(stop.is_set, True)])
        load.start()
        try:
            until(lambda: shard.series.stats()["sent"] > 500)
            servers.kill("influxdb")
            until(lambda: shard.series.stats()["in_history"] > 100, "memory is full", max(away_s, 60))
            stop.wait(away_s)
            servers.start("influxdb")
        finally:
            stop.set()
            load.join()
        until(lambda: sum(shard.series.stats()[n] for n in ("queued", "in_history")) == 0, "all is sent", 300)
        shard.series.close(patience_s(30))
        client.close(1)
        assert found(named, shard.site) == len(shard.wanted)
        assert shard.series.stats()["dropped"] == shard.series.stats()["refused"] == 0
    finally:
        servers.clean()


def found(named: dict[str, str], site: str) -> int:
    """How many points InfluxDB has of a site: each has one of these fields."""
    from influxdb_client import InfluxDBClient

    query = (
        f'from(bucket: "{named["BUCKET"]}") |> range(start: 2022-02-28T00:00:00Z, stop: 2032-03-02T00:00:00Z)'
        f' |> filter(fn: (r) => r.site == "{site}" and (r._field == "air_temp_c" or r._field == "p50"))'
        ' |> group() |> count(column: "_field")'
    )
    with InfluxDBClient(url=named["URL"], token=named["TOKEN"], org=named["ORG"], timeout=120_000) as client:
        return sum(int(r["_field"]) for table in client.query_api().query(query) for r in table.records)


@pytest.mark.thorough
def test_a_gap_that_cannot_be_read_holds_up_no_other(tmp_path: Path) -> None:
    """A damaged day of one site: the other site's points arrive; after some tries what is damaged counts as lost."""
    server = Server()
    north, south = (Shard(tmp_path / name, server, queue_points=4, site=name) for name in ("north", "south"))
    server.away.set()
    for number in range(20):
        north.step(number)
    for day in (tmp_path / "north" / "history" / "zone_rows").rglob("*.parquet"):
        day.write_bytes(b"PAR1 damaged PAR1")
    server.away.clear()
    for number in range(20):
        south.step(number)
    until(lambda: south.wanted <= server.lines)
    until(lambda: {line for line in north.wanted if line.startswith("forecast")} <= server.lines)
    until(lambda: north.series.stats()["in_history"] == 0)
    assert north.series.stats()["dropped"] == len(north.wanted - server.lines) > 0
    for shard in (north, south):
        shard.series.close(patience_s(30))
