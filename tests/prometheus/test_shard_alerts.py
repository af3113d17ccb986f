"""Each alert on what a shard sees is caused: a house is harmed, the real shard tells, a real Prometheus watches.

Rules are those of ``deploy/prometheus`` but quicker (see ``rule_file.quickened``): limits are as they stand.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edge.log import NewRecord
from edge.wire.samples import encode_samples
from tests.prometheus.one_shard import OneShard, one_shard
from tests.services.ingest.samples import sample

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneShard]:
    """A house that is known for eleven days, and goes on."""
    with one_shard(tmp_path_factory.mktemp("shard")) as watched:
        watched.known(days=11)
        watched.plan()
        yield watched


def test_a_shard_that_reads_too_slowly_is_told(watched: OneShard) -> None:
    """HothouseBacklog: records come faster than it reads, and then it catches up."""
    with watched.causes("HothouseBacklog", meanwhile=watched.round_each_second):
        at_ms = watched.house.now_ms
        payload = encode_samples([sample(at_ms, watched.house.steps, "z1", air_temp_c=20.0)])
        watched.log.append([NewRecord("demo", "samples", at_ms, payload)] * 120_000)
    watched.ends("HothouseBacklog")


def test_a_forecaster_that_is_away_is_told(watched: OneShard) -> None:
    """The stream goes on: forecasts grow old, no zone has one that is fresh enough, and none can be served."""
    names = "HothouseForecastsOld", "HothouseZonesUnusable", "HothouseNotReady"
    with watched.causes(*names, meanwhile=watched.slow_step):
        watched.network.away = True
    watched.network.away = False
    watched.ends(*names, meanwhile=watched.slow_step)


def test_a_zone_that_is_silent_is_told(watched: OneShard) -> None:
    """HothouseZonesUnusable: one of two has no fresh forecast; the other is served all the time."""
    with watched.causes("HothouseZonesUnusable"):
        watched.house.silent = True
    assert "HothouseNotReady" not in watched.prometheus.firing()
    watched.house.silent = False
    watched.ends("HothouseZonesUnusable")


def test_clocks_that_are_late_are_told(watched: OneShard) -> None:
    """HothouseWatermarkDelay: devices say that it is an hour ago, so their rows close an hour late."""
    with watched.causes("HothouseWatermarkDelay"):
        watched.house.late_ms = 3_600_000
    watched.house.late_ms = 0
    watched.ends("HothouseWatermarkDelay")


def test_a_weather_service_that_stops_is_told(watched: OneShard) -> None:
    """HothousePlanOld: no weather forecast was issued for twelve hours; the next one ends it."""
    watched.plan()
    with watched.causes("HothousePlanOld"):
        pass  # nothing is issued any more
    watched.plan()
    watched.ends("HothousePlanOld")


def test_a_sensor_that_sticks_is_told(watched: OneShard) -> None:
    """HothouseSensorFaults: it says the same for hours, until it is replaced."""
    with watched.causes("HothouseSensorFaults"):
        watched.house.stuck = True
    watched.house.stuck = False
    watched.ends("HothouseSensorFaults")


def test_a_house_that_is_run_otherwise_is_told(watched: OneShard) -> None:
    """HothouseDrift: the pipe is thirty degrees hotter for good; that becomes the usual thing."""
    with watched.causes("HothouseDrift"):
        watched.house.pipe_c = 30.0
    watched.ends("HothouseDrift")


def test_a_network_that_breaks_is_told(watched: OneShard) -> None:
    """It was the best of all that forecasts are mixed from, and is far off: forecasts are worse than the climatology,
    and their bands do not hold the truth. The mixture leaves it, and both end.
    """
    with watched.causes("HothouseForecastsWorse", "HothouseCoverageOff"):
        watched.network.broken = True
    watched.network.broken = False
    watched.ends("HothouseCoverageOff")
    watched.ends("HothouseForecastsWorse")
