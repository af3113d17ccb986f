"""Alerts on the system are caused: a whole Hothouse is harmed, part by part, and a real Prometheus watches.

Rules are those of ``deploy/prometheus`` but quicker (see ``rule_file.quickened``): limits are as they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

from services.runtime.ports import free_port
from tests.patience import until
from tests.prometheus.whole_system import Whole, whole

pytestmark = [
    pytest.mark.e2e, pytest.mark.broker, pytest.mark.influx, pytest.mark.long, pytest.mark.timeout(900),
]  # fmt: skip

SHARD, LIVE_STATE, FORECASTER = "ray::ShardActor", "ray::LiveStateActor", "ray::ServeReplica:hothouse:Forecaster"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    """It cannot reach its InfluxDB, and who is told of alerts by webhook answers 500."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        nobody = f"http://127.0.0.1:{free_port()}"
        folder = tmp_path_factory.mktemp("alerts")
        with whole(folder, monkeypatch, nobody, webhook_answers=500) as found:
            until(lambda: found.prometheus.query("hothouse_api_ready == 1"), "it is ready", 180)
            yield found


def processes(sign: str) -> list[psutil.Process]:
    """Those below this one whose command line has ``sign`` in it."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if sign in " ".join(process.cmdline()):
                found.append(process)
    return found


def fires(system: Whole, *names: str) -> None:
    """Wait until each has fired."""
    waited = set(names)

    def all_have() -> bool:
        waited.difference_update(system.prometheus.firing())
        return not waited

    until(all_have, f"{' and '.join(names)} fire", 120)


def ends(system: Whole, *names: str) -> None:
    """Wait until none fires any more."""
    until(lambda: not set(names) & system.prometheus.firing(), f"{' and '.join(names)} end", 180)


@contextmanager
def stopped(sign: str) -> Iterator[None]:
    """These processes hang."""
    found = processes(sign)
    assert found, f"nothing is called {sign}"
    for process in found:
        process.suspend()
    try:
        yield
    finally:
        for process in found:
            process.resume()


def test_what_cannot_be_reached_is_told(system: Whole) -> None:
    """InfluxDB that nobody answers for, and a receiver of alerts that fails."""
    fires(system, "HothouseInfluxAway", "HothouseAlertsNotDelivered")


def test_what_devices_do_wrong_is_told(system: Whole) -> None:
    """Messages that cannot be read, and samples of rows that were closed long ago, again and again; it ends when they
    do not come any more.
    """
    for do_wrong, name in ((system.rubbish, "HothouseDeadLetters"), (system.late, "HothouseLateSamples")):

        def told(do_wrong: Callable[[], None] = do_wrong, name: str = name) -> bool:
            do_wrong()
            return name in system.prometheus.firing()

        until(told, f"{name} fires", 60)
    ends(system, "HothouseDeadLetters", "HothouseLateSamples")


def test_a_gateway_that_is_killed_again_and_again_is_told(system: Whole) -> None:
    """It is started again each time; three times in a short while are too often."""

    def killed() -> bool:
        for process in processes("edge.gateway"):
            with suppress(psutil.Error):
                process.kill()
        return "HothouseGatewayRestarts" in system.prometheus.firing()

    until(killed, "HothouseGatewayRestarts fires", 120)
    ends(system, "HothouseGatewayRestarts")


def test_a_full_disk_of_a_shard_is_told(system: Whole) -> None:
    """HothouseStorageFailing fires while nothing can be written, and ends when there is room again."""
    found = processes(SHARD)
    limits = [process.rlimit(psutil.RLIMIT_FSIZE) for process in found]
    try:
        for process, (_, hard) in zip(found, limits, strict=True):
            process.rlimit(psutil.RLIMIT_FSIZE, (1024, hard))
        fires(system, "HothouseStorageFailing")
    finally:
        for process, limit in zip(found, limits, strict=True):
            process.rlimit(psutil.RLIMIT_FSIZE, limit)
    ends(system, "HothouseStorageFailing")


def test_a_shard_that_hangs_is_told(system: Whole) -> None:
    """It is silent, and nothing is counted; both end when it goes on."""
    with stopped(SHARD):
        fires(system, "HothouseComponentSilent", "HothouseSamplesStopped")
    ends(system, "HothouseComponentSilent", "HothouseSamplesStopped")


def test_a_live_state_that_hangs_is_told(system: Whole) -> None:
    """The API answers with what it has, and says how old that is."""
    with stopped(LIVE_STATE):
        fires(system, "HothouseLiveStateAway")
    ends(system, "HothouseLiveStateAway")


def test_a_forecaster_that_hangs_is_told(system: Whole) -> None:
    """Shards get no answer of the network."""
    with stopped(FORECASTER):
        fires(system, "HothouseForecasterFailing")
    ends(system, "HothouseForecasterFailing")


def test_an_api_that_does_not_answer_is_told(system: Whole) -> None:
    """Prometheus gets no figures."""
    with stopped("haproxy"):
        fires(system, "HothouseDown")
    ends(system, "HothouseDown")
