"""Each alert on the gateway is caused: a real gateway and a real broker are harmed, a real Prometheus watches.

Rules are those of ``deploy/prometheus`` but quicker (see ``rule_file.quickened``): limits are as they stand.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from edge.clock import WallClock
from edge.log import NewRecord
from edge.log.sqlite import SqliteLog
from edge.mqtt.broker import LocalBroker
from edge.wire.reading import Sample, encode_message
from edge.wire.samples import encode_samples
from edge.wire.topic import sample_topic
from services.runtime.ports import free_port
from tests.broker.conftest import BOOT, device, local_broker
from tests.broker.tls_brokers import tls_broker
from tests.gateways import GATEWAY, broker_settings, gateway_environment
from tests.patience import patience_s, until
from tests.prometheus.server import Prometheus

pytestmark = [pytest.mark.broker, pytest.mark.chaos, pytest.mark.slow]

HOUR_MS = 3_600_000


@contextmanager
def watched(folder: Path, broker: LocalBroker, **more: Any) -> Iterator[tuple[subprocess.Popen[bytes], Prometheus]]:
    """A gateway that answers for itself, and Prometheus, which has scraped it."""
    with watched_at(folder, broker_settings(broker.address, password_file=broker.password_file), **more) as both:
        yield both


@contextmanager
def watched_at(folder: Path, mqtt: dict[str, Any], **more: Any) -> Iterator[tuple[subprocess.Popen[bytes], Prometheus]]:
    """The same at any broker, by the gateway's section for it."""
    port = free_port()
    environment = gateway_environment(
        data_dir=folder, mqtt=mqtt,
        gateway={"metrics_port": port, "status_file": folder / "status.json"}, **more,
    )  # fmt: skip
    gateway = subprocess.Popen(GATEWAY, env={**os.environ, **environment})
    try:
        with Prometheus(folder / "prometheus", {"gateway": f"127.0.0.1:{port}"}) as prometheus:
            until(lambda: prometheus.query("hothouse_gateway_connected == 1"), "the gateway is connected and scraped")
            yield gateway, prometheus
    finally:
        gateway.kill()
        gateway.wait(patience_s(30))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    """A Mosquitto that may be killed."""
    with local_broker(tmp_path / "broker", "mosquitto") as broker:
        yield broker


def fires(prometheus: Prometheus, name: str) -> None:
    """Wait until it does."""
    until(lambda: name in prometheus.firing(), f"{name} fires", 60)


def ends(prometheus: Prometheus, name: str) -> None:
    """Wait until it does not fire any more."""
    until(lambda: name not in prometheus.firing(), f"{name} ends", 60)


def test_a_gateway_that_is_well_fires_nothing(tmp_path: Path, broker: LocalBroker) -> None:
    """With the broker killed HothouseBrokerAway fires until it is back; with the gateway killed HothouseGatewayDown."""
    with watched(tmp_path, broker) as (gateway, prometheus):
        until(lambda: len(prometheus.query("hothouse_gateway_connected[1m]")[0]["values"]) >= 5, "five scrapes")
        assert prometheus.firing() == set()
        broker.kill()
        fires(prometheus, "HothouseBrokerAway")
        broker.start()
        ends(prometheus, "HothouseBrokerAway")
        gateway.send_signal(signal.SIGKILL)
        fires(prometheus, "HothouseGatewayDown")


def test_a_full_disk_is_told(tmp_path: Path, broker: LocalBroker) -> None:
    """HothouseGatewayFailing fires while no append works, and HothouseMessagesDropped once more of quality 0 came than
    may wait; both end when there is room again.
    """
    with watched(tmp_path, broker) as (gateway, prometheus):
        process = psutil.Process(gateway.pid)
        _, hard = process.rlimit(psutil.RLIMIT_FSIZE)
        process.rlimit(psutil.RLIMIT_FSIZE, (4096, hard))
        now_ms = WallClock().now_ms()
        samples = [Sample("demo", "z1", "climate", BOOT, n, now_ms + n, {"rh_pct": 71.0}) for n in range(2000)]
        with device(broker.address) as publish:
            publish((sample_topic("demo", "z1", "climate"), encode_message([one])) for one in samples)
            fires(prometheus, "HothouseGatewayFailing")
        with device(broker.address, qos=0) as publish:

            def dropped() -> bool:
                publish((sample_topic("demo", "z1", "climate"), encode_message([one])) for one in samples)
                return "HothouseMessagesDropped" in prometheus.firing()

            until(dropped, "HothouseMessagesDropped fires", 60)
        process.rlimit(psutil.RLIMIT_FSIZE, (hard, hard))
        ends(prometheus, "HothouseGatewayFailing")
        ends(prometheus, "HothouseMessagesDropped")


def test_a_log_that_may_not_grow_is_told(tmp_path: Path, broker: LocalBroker) -> None:
    """HothouseGatewayDiskLow fires where the log may hold 200 MiB."""
    with watched(tmp_path, broker, log={"max_mib": 200}) as (_, prometheus):
        fires(prometheus, "HothouseGatewayDiskLow")


def test_an_uplink_that_is_away_is_told(tmp_path: Path, broker: LocalBroker) -> None:
    """HothouseUplinkBehind fires where records of an hour ago wait and nobody takes them, and nothing else: the gateway
    goes on acknowledging.
    """
    hour_ago_ms = WallClock().now_ms() - HOUR_MS
    payload = encode_samples([Sample("demo", "z1", "climate", BOOT, 1, hour_ago_ms, {"rh_pct": 71.0})])
    log = SqliteLog(tmp_path / "log.sqlite")
    log.append([NewRecord("demo", "samples", hour_ago_ms, payload)])
    log.close()
    with watched(tmp_path, broker, uplink={"to": f"mqtt://127.0.0.1:{free_port()}"}) as (_, prometheus):
        fires(prometheus, "HothouseUplinkBehind")
        until(lambda: prometheus.query("hothouse_gateway_uplink_errors_total > 2"), "the uplink has tried again", 60)
        assert prometheus.firing() == {"HothouseUplinkBehind"}


@pytest.mark.parametrize(("days", "firing"), [(20, {"HothouseCertificateEndsSoon"}), (22, set[str]())])
def test_a_brokers_certificate_that_ends_is_told(tmp_path: Path, days: int, firing: set[str]) -> None:
    """HothouseCertificateEndsSoon fires in its last three weeks, and nothing else: samples come until then."""
    with tls_broker(tmp_path, days=days) as (address, _):
        assert address.tls is not None
        with watched_at(tmp_path, broker_settings(address, tls_ca_file=address.tls.ca)) as (_, prometheus):
            ends = "hothouse_certificate_end_timestamp_seconds"
            until(lambda: len(prometheus.query(f"{ends}[1m]")[0]["values"]) >= 5, "five scrapes")
            if firing:
                fires(prometheus, "HothouseCertificateEndsSoon")
            assert prometheus.firing() == firing
