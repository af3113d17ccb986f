"""Brokers to test with, a gateway process, and a device that publishes."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from edge.log import partition_of
from edge.log.sqlite import SqliteLog
from edge.mqtt import broker as brokers
from edge.mqtt.broker import LocalBroker
from edge.mqtt.connection import MqttAddress, new_client, open_connection
from edge.wire.reading import Sample, encode_message
from edge.wire.samples import decode_samples
from edge.wire.topic import sample_topic
from tests.conftest import require_env, require_program
from tests.gateways import GATEWAY, broker_settings, gateway_environment
from tests.patience import patience_s, until

ROOT = Path(__file__).parents[2]
BOOT = "9f3c62d1a07be845"


@contextmanager
def local_broker(folder: Path, kind: str) -> Iterator[LocalBroker]:
    """A LocalBroker of one kind, however long its start and a login take."""
    if kind == "mosquitto":
        require_program("mosquitto")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(brokers, "_START_S", patience_s(60))
        patch.setattr(brokers, "_LOGIN_S", patience_s(10))
        with LocalBroker(folder, "mosquitto" if kind == "mosquitto" else "amqtt") as broker:
            yield broker


@pytest.fixture(params=["server", "mosquitto", "amqtt"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MqttAddress]:
    """A broker of each kind: the real server, our own Mosquitto, our embedded one."""
    if request.param == "server":
        host, port = require_env("HOTHOUSE_TEST_MQTT").rsplit(":", 1)
        yield MqttAddress(host=host, port=int(port))
        return
    with local_broker(tmp_path / "broker", request.param) as broker:
        yield broker.address


@contextmanager
def device(address: MqttAddress, qos: int = 1) -> Iterator[Callable[[Iterable[tuple[str, bytes]]], None]]:
    """A connected device: a function that publishes, and returns when the broker has acknowledged all, with QoS 0 when
    it is sent.
    """
    client = new_client(address, f"test-device-{secrets.token_hex(4)}", v5=address.v5)
    client.max_queued_messages_set(0)
    open_connection(client, address)

    def publish(messages: Iterable[tuple[str, bytes]]) -> None:
        for info in [client.publish(topic, payload, qos=qos) for topic, payload in messages]:
            info.wait_for_publish(patience_s(60))
            assert info.is_published()

    try:
        until(client.is_connected)
        yield publish
    finally:
        client.disconnect()
        client.loop_stop()


def login_answer(address: MqttAddress, *, persistent: bool = False) -> str:
    """What the broker answers to a login."""
    answers: list[str] = []
    client = new_client(address, "test-login", v5=address.v5, persistent=persistent)
    client.on_connect = lambda *given: answers.append(str(given[3]))
    open_connection(client, address)
    until(lambda: answers)
    client.disconnect()
    client.loop_stop()
    return answers[0]


class GatewayProcess:
    """``python -m edge.gateway`` on a log of its own. As a context manager it leaves no process behind.

    ``mqtt`` and ``gateway`` are settings that it has besides the broker's.
    """

    def __init__(self, address: MqttAddress, folder: Path) -> None:
        self.address = address
        self.folder = folder
        self.site = f"test-{secrets.token_hex(4)}"
        self.client_id = f"test-gateway-{secrets.token_hex(4)}"
        self.process: subprocess.Popen[bytes] | None = None
        self.mqtt: dict[str, Any] = {}
        self.gateway: dict[str, Any] = {}
        self.environment: dict[str, str] = {}
        self.log_path = folder / "log.sqlite"
        self.status_path = folder / "status.json"
        (folder / "password").write_text(address.password)
        (folder / "session-secret").write_text(address.session_secret)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.stop(signal.SIGKILL)

    def start(self) -> None:
        """Start, and wait until it is subscribed."""
        self.launch(GATEWAY)
        until(lambda: self.status().get("connected"))

    def launch(self, program: Sequence[str]) -> None:
        """Start a program with the gateway's settings, and ``environment`` besides."""
        self.status_path.unlink(missing_ok=True)
        password_file = self.folder / "password"
        own = broker_settings(self.address, password_file=password_file, client_id=self.client_id)
        if self.address.session_secret:
            own["session_secret_file"] = self.folder / "session-secret"
        settings = gateway_environment(
            data_dir=self.folder, mqtt={**own, **self.mqtt}, gateway={"status_file": self.status_path, **self.gateway}
        )
        self.process = subprocess.Popen(program, cwd=ROOT, env={**settings, **self.environment})

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(patience_s(60))
        self.process = None
        return code

    def status(self) -> dict[str, Any]:
        """The status file's content, empty before there is one."""
        return json.loads(self.status_path.read_text()) if self.status_path.exists() else {}

    def messages(self, seqs: Iterable[int]) -> list[tuple[str, bytes]]:
        """One good message a sequence number, from this test's own site."""
        now_ms = time.time_ns() // 1_000_000
        samples = [Sample(self.site, "z1", "climate", BOOT, seq, now_ms, {"rh_pct": 71.0}) for seq in seqs]
        return [(sample_topic(self.site, "z1", "climate"), encode_message([sample])) for sample in samples]

    def seqs(self) -> list[int]:
        """The sequence numbers of this site's samples in the log, in the log's order, copies included."""
        log = SqliteLog(self.log_path)
        records = log.read(partition_of(self.site, 4), 0, 100_000)
        log.close()
        mine = [r for r in records if r.kind == "samples" and r.site == self.site]
        return [sample.seq for r in mine for sample in decode_samples(r.payload)]


@pytest.fixture
def gateway(address: MqttAddress, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway that is not started yet; its session is removed from the broker at the end."""
    folder = tmp_path / "gateway"
    folder.mkdir()
    with GatewayProcess(address, folder) as made:
        yield made
    client = new_client(made.address, made.client_id, v5=address.v5)
    open_connection(client, address)  # a clean start without expiry ends the session
    until(client.is_connected)
    client.disconnect()
    client.loop_stop()
