"""The gateway against real brokers: nothing acknowledged is lost, whatever dies."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from edge.clock import WallClock
from edge.config import EdgeSettings
from edge.gateway import Gateway, GatewayOptions
from edge.log import partition_of
from edge.log.memory import MemoryLog
from edge.log.sqlite import SqliteLog
from edge.mqtt.connection import MqttAddress, new_client, open_connection
from edge.mqtt.device_logins import DeviceLogins, sample_filter
from edge.wire.samples import decode_samples
from services.cli import app
from tests.broker.conftest import ROOT, GatewayProcess, device, local_broker, until
from tests.ci.record import balance
from tests.gateways import GATEWAY, gateway_environment
from tests.patience import patience_s

pytestmark = pytest.mark.broker

CRASHING = """
import os, signal, sys
from edge.gateway import Gateway, command

class Crashing(Gateway):
    def __init__(self, *given):
        def crash():
            if self.status()["samples"]:
                os.kill(os.getpid(), signal.SIGKILL)
        super().__init__(*given, after_append=crash)

command.Gateway = Crashing
sys.exit(command.main())
"""


def test_what_is_published_is_in_the_log(gateway: GatewayProcess) -> None:
    """Every message arrives once and in the order of the device; the status file counts it."""
    gateway.start()
    with device(gateway.address) as publish:
        publish(gateway.messages(range(500)))
    with balance():
        until(lambda: set(gateway.seqs()) >= set(range(500)))
    assert gateway.seqs() == list(range(500))
    assert gateway.stop() == 0
    assert gateway.status()["samples"] >= 500


@pytest.mark.thorough
def test_a_zone_is_retired_from_the_command_line(
    gateway: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`hothouse zones retire` finds the broker of the system that runs on the data folder; the log has its event."""
    gateway.start()
    address, password = gateway.address, tmp_path / "password"
    password.write_text(address.password)
    mqtt = {"host": address.host, "port": address.port, "username": address.username, "password_file": str(password)}
    (tmp_path / "run.json").write_text(json.dumps({"mqtt": mqtt}))
    monkeypatch.setenv("HOTHOUSE_DATA_DIR", str(tmp_path))
    result = CliRunner().invoke(app, ["zones", "retire", f"{gateway.site}/typo", "--change-version", "7"])
    assert result.exit_code == 0, result.output
    log = SqliteLog(gateway.log_path)

    def events() -> list[tuple[str, bytes]]:
        records = log.read(partition_of(gateway.site, 4), 0, 1000)
        return [(r.topic, r.payload) for r in records if (r.site, r.kind) == (gateway.site, "event")]

    topic = f"hothouse/v1/{gateway.site}/typo/operator/event"
    assert until(events) == [(topic, b'{"type":"retire","version":7}')]
    log.close()
    assert gateway.stop() == 0


def test_bad_messages_are_in_the_log_and_the_stream_goes_on(gateway: GatewayProcess) -> None:
    """Malformed, oversized and misdirected messages become refused records; good ones between them arrive."""
    gateway.start()
    topic = f"hothouse/v1/{gateway.site}/z1/climate/sample"
    good = gateway.messages(range(3))
    with device(gateway.address) as publish:
        publish([good[0], (topic, b"{"), good[1], (topic, b" " * 300_000), (f"{topic}/x", b"{}"), good[2]])
    until(lambda: len(gateway.seqs()) == 3)
    log = SqliteLog(gateway.log_path)
    until(lambda: any(r.kind == "refused" for r in log.read(partition_of("_unknown", 4), 0, 1000)))
    mine = [r for r in log.read(partition_of(gateway.site, 4), 0, 1000) if r.site == gateway.site]
    log.close()
    assert [r.kind for r in mine].count("refused") >= 1
    assert gateway.stop() == 0


@pytest.mark.thorough
def test_a_topic_that_nothing_reads_is_counted(gateway: GatewayProcess) -> None:
    """Outside of hothouse/v1/ too, with one letter; also where the session is from a gateway that asked for less."""
    wrong = f"hothouse/{gateway.site}/z1/climate/sample"
    gateway.mqtt = {"topics": ""}
    gateway.start()
    assert gateway.stop() == 0
    gateway.mqtt = {}
    gateway.start()
    with device(gateway.address) as publish:
        publish([(wrong, b"{}"), *gateway.messages(range(3)), (wrong, b"{}")])
    until(lambda: gateway.status().get("other_topics", 0) >= 2 and len(gateway.seqs()) >= 3)
    assert gateway.seqs() == list(range(3))
    log = SqliteLog(gateway.log_path)
    refused = [r for r in log.read(partition_of("_unknown", 4), 0, 1000) if wrong.encode() in r.payload]
    log.close()
    assert len(refused) == 1
    assert gateway.stop() == 0


def test_a_device_that_takes_the_gateways_name_gets_and_destroys_nothing(tmp_path: Path) -> None:
    """A broker hands a session to whoever has its client id, and Mosquitto then drops what the login may not read.
    The gateway's id is another than its name, which others read in its presence.
    """
    with local_broker(tmp_path / "broker", "mosquitto") as broker, _gateway(broker.address, tmp_path) as gateway:
        gateway.client_id = EdgeSettings().mqtt.client_id
        gateway.start()
        assert gateway.stop() == 0
        with device(broker.address) as publish:
            publish(gateway.messages(range(5)))
        password = DeviceLogins(broker.folder).add("thief", 0, [sample_filter("thief")])
        stranger = replace(broker.address, username="thief", password=password, session_secret="")
        given = until(lambda: (found := _session_of(stranger, gateway.client_id)) != "none" and found, "he may log in")
        assert given == "a new one"
        gateway.start()
        until(lambda: len(gateway.seqs()) == 5)
        assert gateway.seqs() == list(range(5))
        assert gateway.stop() == 0


def _gateway(address: MqttAddress, folder: Path) -> GatewayProcess:
    (folder / "gateway").mkdir()
    return GatewayProcess(address, folder / "gateway")


def _session_of(address: MqttAddress, client_id: str) -> str:
    """Which session the broker gives somebody with that client id."""
    answers: list[str] = []

    def connected(_client: object, _data: object, flags: Any, reason: Any, _properties: object) -> None:
        given = "the one that was there" if flags.session_present else "a new one"
        answers.append("none" if reason.is_failure else given)

    client = new_client(address, client_id, persistent=True)
    client.on_connect = connected
    open_connection(client, address, session_expiry_s=1)
    until(lambda: answers)
    client.disconnect()
    client.loop_stop()
    return answers[0]


def test_messages_wait_while_the_gateway_is_away(gateway: GatewayProcess) -> None:
    """What is published after SIGTERM arrives with the next start, in its order: the session outlives the connection.

    SIGTERM ends it soon. What it had appended and not acknowledged by then may come again.
    """
    gateway.start()
    with device(gateway.address) as publish:
        publish(gateway.messages(range(10)))
        until(lambda: len(gateway.seqs()) == 10)
        started = time.monotonic()
        assert gateway.stop() == 0
        assert time.monotonic() - started < patience_s(30)
        publish(gateway.messages(range(10, 200)))
    gateway.start()
    with balance():
        until(lambda: set(gateway.seqs()) == set(range(200)))
    assert list(dict.fromkeys(gateway.seqs())) == list(range(200))


def test_a_kill_between_append_and_acknowledgement_loses_nothing(gateway: GatewayProcess) -> None:
    """The batch that was appended but not acknowledged comes again; everything else comes once."""
    gateway.start()
    gateway.stop()  # the session exists now, so the broker keeps what is published
    with device(gateway.address) as publish:
        publish(gateway.messages(range(100)))
        gateway.launch([sys.executable, "-c", CRASHING])
        assert gateway.process is not None
        assert gateway.process.wait(patience_s(20)) == -signal.SIGKILL
        before = gateway.seqs()
        assert before
        gateway.start()
        publish(gateway.messages(range(100, 150)))
    with balance():
        until(lambda: set(gateway.seqs()) == set(range(150)))
        assert gateway.seqs()[: len(before)] == before


def test_a_kill_in_the_stream_loses_nothing(gateway: GatewayProcess) -> None:
    """SIGKILL at any moment while devices publish: after a restart every sample is in the log."""
    gateway.start()
    with device(gateway.address) as publish:
        for round_number in range(3):
            publish(gateway.messages(range(round_number * 100, round_number * 100 + 100)))
            gateway.stop(signal.SIGKILL)
            gateway.start()
    with balance():
        until(lambda: set(gateway.seqs()) == set(range(300)))


@pytest.mark.slow
def test_a_gateway_that_is_killed_in_a_burst_comes_back(gateway: GatewayProcess) -> None:
    """Thousands wait for it when it comes, and more come meanwhile: its subscription is answered all the same, and it
    gets all of them.
    """
    seqs = range(1, 10_001)
    gateway.start()
    with device(gateway.address) as publish:
        burst = threading.Thread(target=publish, args=(gateway.messages(seqs),))
        burst.start()
        until(lambda: len(gateway.seqs()) > 2000)
        gateway.stop(signal.SIGKILL)
        gateway.start()
        until(lambda: set(gateway.seqs()) == set(seqs), "all are in the log", 120)
        burst.join()


@pytest.mark.parametrize("address", ["server", "mosquitto"], indirect=True)
def test_what_waits_for_a_full_log_waits_once(gateway: GatewayProcess) -> None:
    """However often the connection ends: what the broker sends again takes the place of what waits, and all of it is
    acknowledged in the end.
    """
    log = MemoryLog(capacity=0)
    options = GatewayOptions(broker=gateway.address, client_id=gateway.client_id, topics="", retry_s=0.1)
    made = Gateway(options, log, WallClock())
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()

    def waiting() -> int:
        return made.status()["queued"] + made.status()["samples"]

    try:
        until(lambda: made.status()["connected"])
        with device(gateway.address) as publish:
            for number in range(4):
                publish(gateway.messages(range(10 * number, 10 * number + 10)))
                until(lambda count=10 * number + 10: waiting() >= count)
                assert waiting() == 10 * number + 10
                client, connects = made._link._client, made.status()["connects"]
                assert client is not None
                client.socket().shutdown(socket.SHUT_RDWR)
                until(lambda connects=connects: made.status()["connects"] > connects)
            publish(gateway.messages([40]))
        until(lambda: waiting() >= 41)  # the broker has sent all that came before once more
        log.capacity = None
        until(lambda: log.end_offset(partition_of(gateway.site, 4)) and not made.status()["queued"])
        until(lambda: made.status()["samples"] >= 41)
    finally:
        made.stop()
        thread.join(patience_s(60))
    records = [r for r in log.read(partition_of(gateway.site, 4), 0, 1000) if r.kind == "samples"]
    assert [sample.seq for r in records for sample in decode_samples(r.payload)] == list(range(41))
    with device(gateway.address) as publish:
        publish(gateway.messages([41]))
    gateway.mqtt = {"topics": ""}
    gateway.start()
    until(gateway.seqs)
    assert gateway.seqs() == [41]  # nothing else was left to be sent
    assert gateway.stop() == 0


def test_a_gateway_ends_with_its_parent(gateway: GatewayProcess) -> None:
    """With --stop-with-stdin a gateway whose parent was killed stops by itself, in good order."""
    gateway.start()
    gateway.stop()
    assert gateway.process is None
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE).wait()"
    gateway.launch([sys.executable, "-c", code, *GATEWAY, "--stop-with-stdin"])
    until(lambda: gateway.status().get("connected"))
    gateway.stop(signal.SIGKILL)
    until(lambda: gateway.status()["connected"] is False)


@pytest.mark.parametrize("address", ["mosquitto"], indirect=True)
def test_a_wrong_password_is_said_and_may_be_corrected(gateway: GatewayProcess) -> None:
    """The status names the broker and its refusal; the gateway goes on trying, with what the file holds by then."""
    (gateway.folder / "password").write_text("wrong")
    gateway.launch(GATEWAY)
    until(lambda: "Not authorized" in gateway.status().get("last_error", ""))
    (gateway.folder / "password").unlink()
    until(lambda: "cannot be asked: " in gateway.status().get("last_error", ""))
    (gateway.folder / "password").write_text(gateway.address.password)
    until(lambda: gateway.status()["connected"])
    assert gateway.stop() == 0


@pytest.mark.parametrize("kind", ["mosquitto", "amqtt"])
def test_the_gateway_comes_back_after_the_broker(tmp_path: Path, kind: str) -> None:
    """A broker that is killed and started again on its port is found again, without restarting the gateway."""
    with local_broker(tmp_path / "broker", kind) as broker:
        (tmp_path / "gateway").mkdir()
        with GatewayProcess(broker.address, tmp_path / "gateway") as gateway:
            gateway.start()
            broker.kill()
            until(lambda: not gateway.status()["connected"])
            broker.restart()
            until(lambda: gateway.status()["connected"])
            with device(broker.address) as publish:
                publish(gateway.messages(range(20)))
            until(lambda: gateway.seqs() == list(range(20)))
            assert gateway.stop() == 0


@pytest.mark.thorough
def test_a_broker_without_mqtt_5_is_found_out(tmp_path: Path) -> None:
    """Asked to try MQTT 5, the gateway falls back to 3.1.1 by itself when the broker does not answer that."""
    with local_broker(tmp_path / "broker", "amqtt") as broker:
        given = {"port": broker.port, "username": broker.username, "password_file": broker.password_file}
        status = tmp_path / "gateway-status.json"
        with subprocess.Popen(GATEWAY, cwd=ROOT, env=gateway_environment(data_dir=tmp_path, mqtt=given)) as process:
            try:
                until(lambda: status.exists() and '"connected":true' in status.read_text())
                process.terminate()
                assert process.wait(patience_s(60)) == 0
            finally:
                process.kill()
