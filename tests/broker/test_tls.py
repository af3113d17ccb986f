"""MQTT over TLS under a CA of the house's own: who is believed, and what happens when certificates are renewed."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edge.clock import WallClock
from edge.mqtt.connection import MqttAddress
from tests.broker.conftest import GatewayProcess, device
from tests.broker.tls_brokers import shown, tls_broker
from tests.certificates import make_certificate
from tests.gateways import GATEWAY
from tests.patience import patience_s, until

pytestmark = pytest.mark.broker


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[[MqttAddress], GatewayProcess]]:
    """Makes a gateway that is not started yet."""
    gateways = []

    def make(address: MqttAddress) -> GatewayProcess:
        (tmp_path / "gateway").mkdir()
        gateway = GatewayProcess(address, tmp_path / "gateway")
        assert address.tls is not None
        named = {"tls_ca_file": address.tls.ca, "tls_cert_file": address.tls.cert, "tls_key_file": address.tls.key}
        gateway.mqtt = {name: path for name, path in named.items() if path is not None}
        gateways.append(gateway)
        return gateway

    yield make
    for gateway in gateways:
        gateway.__exit__()


def launched(gateway: GatewayProcess) -> GatewayProcess:
    """Started, connected or not."""
    gateway.launch(GATEWAY)
    return gateway


Make = Callable[[MqttAddress], GatewayProcess]


def test_samples_come_over_tls(tmp_path: Path, made: Make) -> None:
    """Device and gateway check the broker by the house's CA, and what is published is in the log."""
    with tls_broker(tmp_path) as (address, _):
        gateway = made(address)
        gateway.start()
        with device(address) as publish:
            publish(gateway.messages(range(5)))
        until(lambda: gateway.status().get("samples") == 5)
        assert gateway.seqs() == [0, 1, 2, 3, 4]


def test_a_gateway_tells_until_when_the_brokers_certificate_is_good(tmp_path: Path, made: Make) -> None:
    """As it was shown at the newest connection."""

    def days_left() -> float:
        ends_ms = gateway.status().get("certificate_ends_ms", {}).get("broker", 0)
        return (ends_ms - WallClock().now_ms()) / 86_400_000

    with tls_broker(tmp_path, days=2) as (address, broker):
        gateway = made(address)
        gateway.start()
        until(lambda: 1.9 < days_left() < 2, "its end is told")
        make_certificate(tmp_path, 60)
        shutil.copy(tmp_path / "cert.pem", tmp_path / "ca.pem")
        broker.kill()
        broker.wait(patience_s(10))
        again = subprocess.Popen(broker.args, stderr=subprocess.DEVNULL)
        try:
            until(lambda: 59.9 < days_left() < 60, "the end of the renewed one is told")
        finally:
            again.kill()
            again.wait(patience_s(10))


def test_a_broker_of_another_ca_is_not_talked_to(tmp_path: Path, made: Make) -> None:
    """The gateway says why in a sentence and goes on trying; once the file has the broker's CA it connects, without a
    restart: so a CA is renewed.
    """
    with tls_broker(tmp_path) as (address, _):
        (tmp_path / "other").mkdir()
        right = (tmp_path / "ca.pem").read_bytes()
        other, _key = make_certificate(tmp_path / "other")
        (tmp_path / "ca.pem").write_bytes(other.read_bytes())
        gateway = launched(made(address))
        until(lambda: "certificate verify failed" in gateway.status().get("last_error", ""))
        assert not gateway.status()["connected"]
        (tmp_path / "ca.pem").write_bytes(right)
        until(lambda: gateway.status()["connected"], "the renewed CA is used")
        assert gateway.status()["last_error"] == ""


def test_a_broker_that_asks_who_we_are_is_shown_our_certificate(tmp_path: Path, made: Make) -> None:
    """With the certificate that it believes messages come. Without one, or with another, the gateway asks in words for
    what is missing, and connects once the right one is in its file.
    """
    (tmp_path / "client").mkdir()
    (tmp_path / "other").mkdir()
    cert, key = make_certificate(tmp_path / "client")
    believed = f"cafile {shutil.copy(cert, tmp_path / 'clients.pem')}"
    with tls_broker(tmp_path, "127.0.0.1", believed, "require_certificate true") as (address, _):
        assert address.tls is not None
        known = replace(address, tls=replace(address.tls, cert=cert, key=key))
        gateway = made(known)
        gateway.start()
        with device(known) as publish:
            publish(gateway.messages(range(5)))
        until(lambda: gateway.status().get("samples") == 5)
        gateway.stop()
        for file, right in zip(make_certificate(tmp_path / "other"), (cert, key), strict=True):
            shutil.copy(right, tmp_path / f"right-{right.name}")
            shutil.copy(file, right)
        launched(gateway)
        until(lambda: "another client certificate (mqtt.tls_cert_file)" in gateway.status().get("last_error", ""))
        for right in (cert, key):
            shutil.copy(tmp_path / f"right-{right.name}", right)
        until(lambda: gateway.status()["connected"], "the right certificate is shown")
        gateway.stop()
        gateway.mqtt = {"tls_ca_file": address.tls.ca}
        launched(gateway)
        until(lambda: "does it want a client certificate" in gateway.status().get("last_error", ""))


def test_a_broker_of_another_name_is_not_talked_to(tmp_path: Path, made: Make) -> None:
    """A certificate of our CA for another address is no proof: who has stolen one cannot stand in for the broker."""
    with tls_broker(tmp_path, "127.0.0.2") as (address, _):
        gateway = launched(made(address))
        until(lambda: "certificate is not valid for '127.0.0.2'" in gateway.status().get("last_error", ""))
        assert not gateway.status()["connected"]


def test_a_certificate_is_renewed_while_the_broker_runs(tmp_path: Path, made: Make) -> None:
    """Mosquitto shows the new one after SIGHUP. The connection that is open stays; the next one needs the new CA, and
    the gateway finds that in its file.
    """
    with tls_broker(tmp_path) as (address, broker):
        gateway = made(address)
        gateway.start()
        before = shown(address.host, address.port)
        make_certificate(tmp_path)
        broker.send_signal(signal.SIGHUP)
        until(lambda: shown(address.host, address.port) not in ("", before), "the renewed certificate is shown")
        shutil.copy(tmp_path / "cert.pem", tmp_path / "ca.pem")
        with device(address) as publish:
            publish(gateway.messages([1]))
        until(lambda: gateway.status().get("samples") == 1)
        assert gateway.status()["connects"] == 1
        broker.kill()
        broker.wait(patience_s(10))
        until(lambda: not gateway.status()["connected"])
        again = subprocess.Popen(broker.args, stderr=subprocess.DEVNULL)
        try:
            until(lambda: gateway.status()["connects"] == 2, "it connects by the renewed CA")
        finally:
            again.kill()
            again.wait(patience_s(10))
