"""A whole Hothouse on a simulated greenhouse, between a real InfluxDB and a real Prometheus, that learns."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from edge.log import Log
from edge.mqtt.connection import MqttAddress
from edge.recordings.importing import import_samples
from edge.simulator.publisher import Publisher
from edge.simulator.publisher.ledger import Ledger
from edge.simulator.publisher.pace import Pace
from edge.simulator.simulated_site import SimulatedSite
from edge.simulator.simulator_source import SimulatorSource
from services.app import System
from services.config import load_settings
from tests.conftest import require_env
from tests.patience import patience_s, until
from tests.prometheus.server import Prometheus

__all__ = ["Influx", "Whole", "whole"]

START_MS = 1_646_092_800_000  # 2022-03-01
DAY_MS = 86_400_000
WARM_DAYS = 3
SPEED = 300.0


@dataclass(frozen=True)
class Influx:
    """Where the real one is."""

    url: str
    token: str
    org: str
    bucket: str


@dataclass(frozen=True)
class Whole:
    """What runs."""

    system: System
    prometheus: Prometheus
    influx: Influx
    site: str
    zone: str
    publisher: Publisher

    def rubbish(self) -> None:
        """Publish what becomes dead letters: samples that no decoder can read."""
        self.publish([b"{"] * 100)

    def late(self) -> None:
        """Publish samples of rows that closed days ago."""
        boot, sample = uuid.uuid4().hex[:16], '{"boot":"%s","seq":%d,"ts":%d,"values":{"air_temp_c":20.0}}'
        self.publish([(sample % (boot, number, START_MS + DAY_MS + number)).encode() for number in range(100)])

    def publish(self, payloads: Sequence[bytes]) -> None:
        """Publish as a device of the first zone."""
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"rubbish-{uuid.uuid4().hex[:8]}")
        client.username_pw_set(self.broker.username, self.broker.password)
        client.connect(self.broker.host, self.broker.port)
        client.loop_start()
        for payload in payloads:
            topic = f"hothouse/v1/{self.site}/{self.zone}/device/sample"
            client.publish(topic, payload, qos=1).wait_for_publish(patience_s(30))
        client.disconnect()
        client.loop_stop()

    def order(self, path: str) -> None:
        """An operator's order; a training that has just begun by itself is waited for."""
        key = (self.system.settings.data_dir / "operator.key").read_text().strip()
        headers = {"Authorization": f"Bearer {key}"}

        def ordered() -> bool:
            answer = httpx.post(f"{self.system.url}{path}", headers=headers, timeout=patience_s(30))
            assert answer.status_code < 300 or "already running" in answer.text, answer.text
            return answer.status_code < 300

        until(ordered, f"{path} is taken", 120.0)

    @property
    def broker(self) -> MqttAddress:
        """The system's own broker."""
        return self.system.broker.address()


@contextmanager
def whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, influx_url: str = "", *, webhook_answers: int = 204, **learn: Any
) -> Iterator[Whole]:  # fmt: skip
    """Two zones, of which three days are known and the rest comes 300 times as fast as the wall clock.

    ``influx_url`` is the way to InfluxDB where it is not the straight one; who is told of alerts answers
    ``webhook_answers``; ``learn`` are settings of that section.
    """
    influx = Influx(
        require_env("HOTHOUSE_TEST_INFLUXDB_URL"), require_env("HOTHOUSE_TEST_INFLUXDB_TOKEN"),
        require_env("HOTHOUSE_TEST_INFLUXDB_ORG"), require_env("HOTHOUSE_TEST_INFLUXDB_BUCKET"),
    )  # fmt: skip
    monkeypatch.setenv("HOTHOUSE_INFLUX__TOKEN", influx.token)
    site = f"watched-{uuid.uuid4().hex[:8]}"
    source = SimulatorSource(SimulatedSite(site, 7, START_MS, zones=2))
    warm_ms = source.start_ms + WARM_DAYS * DAY_MS

    def warm_up(log: Log) -> None:
        source.report_every(300_000)
        import_samples(source, log, warm_ms)
        source.report_every(60_000)

    with _receiver(webhook_answers) as webhook_url:
        settings = load_settings(
            data_dir=folder / "data",
            influx={"url": influx_url or influx.url, "org": influx.org, "bucket": influx.bucket},
            api={"port": 0},
            forecast={"stale_after_s": 100_000},
            learn={
                "retrain_every_s": 86_400, "min_days": 2, "epochs": 1, "max_windows": 200, "shadow_hours": 0,
                "force_promote": True, **learn,
            },
            alerts={"webhook_url": webhook_url},
            sites=[{"name": site, "timezone": source.timezone, "latitude": 51.98, "longitude": 4.53}],
        )  # fmt: skip
        with (
            System(settings, receive_clock="replayed", warm_up=warm_up) as system,
            Prometheus(folder / "prometheus", {"hothouse": system.url}) as prometheus,
        ):
            until(lambda: (status := system.gateway_status) and status["connected"], "the gateway is connected")
            publisher = Publisher(source, system.broker.address(), Ledger(), Pace(SPEED), with_clock=True)
            found = Whole(system, prometheus, influx, site, source.zones[0], publisher)
            feeding = threading.Thread(target=publisher.run, name="publisher", daemon=True)
            feeding.start()
            try:
                yield found
            finally:
                publisher.stop()
                feeding.join(patience_s(30))


@contextmanager
def _receiver(status: int) -> Iterator[str]:
    """Whoever is told of alerts by webhook, and what he answers."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, name="webhook", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
