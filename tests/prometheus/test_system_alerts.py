"""Alerts on the whole system are caused, one after the other; the real Prometheus watches.

Rules are those of ``deploy/prometheus`` but quicker (see ``rule_file.quickened``): limits are as they stand.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.conftest import require_env
from tests.contracts.faulty_proxy import FaultyProxy
from tests.patience import until
from tests.prometheus.server import Prometheus
from tests.prometheus.whole_system import Whole, whole

pytestmark = [
    pytest.mark.e2e, pytest.mark.broker, pytest.mark.influx, pytest.mark.chaos, pytest.mark.slow, pytest.mark.long,
    pytest.mark.timeout(1200),
]  # fmt: skip


def fires(prometheus: Prometheus, *names: str, timeout_s: float = 90) -> None:
    """Wait until they have fired."""
    for name in names:
        asked = f'count_over_time(ALERTS{{alertstate="firing",alertname="{name}"}}[10m])'
        until(lambda asked=asked: prometheus.query(asked), f"{name} fires", timeout_s)  # type: ignore[misc]


def ends(prometheus: Prometheus, name: str) -> None:
    """Wait until it does not fire any more."""
    until(lambda: name not in prometheus.firing(), f"{name} ends", 90)


def processes(sign: str) -> list[psutil.Process]:
    """The processes below this one whose command line has the sign."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if sign in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_each_cause_fires_its_alert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start, rubbish, a training that may take no time, InfluxDB away, a full disk, a Forecaster that hangs, a gateway
    that is killed, silence, a shard that hangs, and the end.
    """
    with FaultyProxy(require_env("HOTHOUSE_TEST_INFLUXDB_URL"), chance=0) as influx:
        with whole(tmp_path, monkeypatch, influx.endpoint, timeout_s=0.1) as found:
            prometheus = found.prometheus
            fires(prometheus, "HothouseNotReady")
            until(lambda: prometheus.query("hothouse_api_ready == 1"), "it is ready", 120)
            ends(prometheus, "HothouseNotReady")
            found.rubbish()
            fires(prometheus, "HothouseDeadLetters")
            found.order("/models/retrain")
            fires(prometheus, "HothouseTrainingFailed")
            influx.away()
            fires(prometheus, "HothouseInfluxAway")
            influx.back()
            ends(prometheus, "HothouseInfluxAway")
            full_disk(prometheus)
            forecaster_hangs(prometheus)
            gateway_ends(prometheus)
            found.publisher.stop()
            fires(prometheus, "HothouseSamplesStopped")
            shard_hangs(prometheus)
        assert_down(tmp_path, found)


def full_disk(prometheus: Prometheus) -> None:
    """No file of the shard grows beyond a page: HothouseStorageFailing."""
    [shard] = processes("ray::ShardActor")
    _, hard = shard.rlimit(psutil.RLIMIT_FSIZE)
    shard.rlimit(psutil.RLIMIT_FSIZE, (4096, hard))
    fires(prometheus, "HothouseStorageFailing")
    shard.rlimit(psutil.RLIMIT_FSIZE, (hard, hard))
    ends(prometheus, "HothouseStorageFailing")


def forecaster_hangs(prometheus: Prometheus) -> None:
    """All replicas are stopped: HothouseForecasterFailing, and as the stream goes on HothouseForecastsOld."""
    replicas = processes("ray::ServeReplica:hothouse:Forecaster")
    assert replicas
    for replica in replicas:
        replica.suspend()
    fires(prometheus, "HothouseForecasterFailing", "HothouseForecastsOld")
    for replica in replicas:
        if replica.is_running():
            replica.resume()
    ends(prometheus, "HothouseForecasterFailing")


def gateway_ends(prometheus: Prometheus) -> None:
    """Killed again and again: HothouseGatewayRestarts."""

    def again() -> bool:
        for process in processes("-m edge.gateway"):
            os.kill(process.pid, signal.SIGKILL)
        return "HothouseGatewayRestarts" in prometheus.firing()

    until(again, "HothouseGatewayRestarts fires", 120)


def shard_hangs(prometheus: Prometheus) -> None:
    """It is stopped for half a minute: HothouseComponentSilent."""
    [shard] = processes("ray::ShardActor")
    shard.suspend()
    fires(prometheus, "HothouseComponentSilent", timeout_s=120)
    shard.resume()
    ends(prometheus, "HothouseComponentSilent")


def assert_down(folder: Path, found: Whole) -> None:
    """The system has been stopped: HothouseDown."""
    with Prometheus(folder / "after", {"hothouse": found.system.url}) as prometheus:
        fires(prometheus, "HothouseDown")
