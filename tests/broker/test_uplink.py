"""From a site's buffer to a central broker: killed at the worst moment, on a full disk, and where nobody listens."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge.clock import WallClock
from edge.gateway import Gateway, GatewayOptions, GatewayStatus
from edge.gateway.uplink.forward import LogTarget, Uplink
from edge.gateway.uplink.mqtt_target import MqttTarget
from edge.log import LogError, NewRecord, Origin, Record, partition_of
from edge.log.memory import MemoryLog
from edge.log.sqlite import SqliteLog
from edge.mqtt.broker import LocalBroker
from edge.mqtt.connection import MAX_PACKET_BYTES, MqttAddress, new_client, open_connection
from edge.mqtt.device_logins import DeviceLogins
from edge.wire.samples import decode_samples
from services.ingest.windows.seen_origins import SeenOrigins
from tests.broker.conftest import ROOT, GatewayProcess, device, local_broker, until
from tests.broker.uplinks import CRASHING, NOW, RECORDS, filled, status
from tests.ci.record import balance
from tests.gateways import GATEWAY, broker_settings, gateway_environment
from tests.patience import patience_s
from tests.running import running_gateway

pytestmark = pytest.mark.broker

PLANS = RECORDS // 10


def environment(folder: Path, broker: LocalBroker, **more: Any) -> dict[str, str]:
    """The settings of a gateway at a broker, its log and its status file in ``folder``."""
    own = broker_settings(broker.address, password_file=broker.password_file)
    return gateway_environment(data_dir=folder, mqtt=own, **more)


def arrived(path: Path) -> list[Record]:
    """What came into a central log from the site."""
    with closing(SqliteLog(path)) as log:
        return log.read(partition_of("demo", 4), 0, 10_000)


def without_ticks(records: Sequence[Record]) -> list[Record]:
    """What devices and people said."""
    return [record for record in records if record.kind != "tick"]


def test_a_kill_between_answer_and_truncation_counts_nothing_twice(tmp_path: Path) -> None:
    """SIGKILL after the central broker has acknowledged a batch: it comes twice, and each record is new once."""
    site, core = tmp_path / "site", tmp_path / "core"
    filled(site / "log.sqlite")
    with (
        local_broker(tmp_path / "own", "mosquitto") as own,
        local_broker(tmp_path / "central", "mosquitto") as broker,
        ExitStack() as stack,
    ):

        def run(program: Sequence[str], settings: dict[str, str]) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(program, cwd=ROOT, env=settings)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        receiving = run(GATEWAY, environment(core, broker))
        until(lambda: status(core).get("connected"))
        login = {"username": broker.username, "password_file": broker.password_file}
        settings = environment(site, own, uplink={"to": f"mqtt://127.0.0.1:{broker.port}", **login})
        killed = run([sys.executable, "-c", CRASHING], settings)
        assert killed.wait(patience_s(30)) == -signal.SIGKILL
        going = run(GATEWAY, settings)
        until(lambda: status(site).get("uplinked", 0) >= RECORDS * 6 // 5)
        until(lambda: len(without_ticks(arrived(core / "log.sqlite"))) >= 2 * (RECORDS + PLANS))
        shown = status(site)
        for process in (going, receiving):
            process.terminate()
            assert process.wait(patience_s(60)) == 0
    assert shown["uplink_errors"] == 0
    log, buffer = SqliteLog(core / "log.sqlite"), SqliteLog(site / "log.sqlite")
    records = arrived(core / "log.sqlite")
    origins = SeenOrigins()
    once = [r for r in records if r.origin is not None and origins.is_new(r.origin)]
    with balance():
        # The site's gateway adds ticks of its own, of which the batch that comes twice may hold some.
        assert len(without_ticks(records)) - len(without_ticks(once)) == RECORDS + PLANS
        assert [r.origin for r in once] == [Origin(buffer.id, n) for n in range(len(once))]
        assert [s.seq for r in once if r.kind == "samples" for s in decode_samples(r.payload)] == list(range(RECORDS))
    assert [r.receive_ms for r in once if r.kind == "samples"] == [NOW + n for n in range(RECORDS)]
    assert {r.topic for r in once if r.kind == "plan"} == {"hothouse/v1/demo/z1/grower/plan"}
    assert log.sites() == []  # so that the central gateway does not tick for it
    log.close()
    buffer.close()


def test_a_broker_without_a_central_gateway_takes_nothing(tmp_path: Path) -> None:
    """A broker acknowledges what it then drops where nobody subscribed; the uplink finds that out and keeps all."""
    filled(tmp_path / "buffer.sqlite")
    buffer = SqliteLog(tmp_path / "buffer.sqlite")
    with local_broker(tmp_path / "broker", "mosquitto") as broker:
        target = MqttTarget(broker.address, "test-uplink", patience_s(60))
        with pytest.raises(LogError, match="no subscriber"):
            Uplink(buffer, target).step()
        target.close()
    assert buffer.usage().records == RECORDS * 6 // 5
    buffer.close()


def test_records_that_come_back_are_not_sent_for_ever(tmp_path: Path) -> None:
    """As where uplink.to is the gateway's own broker by another name: the uplink says so and keeps all."""
    filled(tmp_path / "buffer.sqlite")
    buffer = SqliteLog(tmp_path / "buffer.sqlite")
    with local_broker(tmp_path / "broker", "mosquitto") as broker:
        uplink = Uplink(buffer, MqttTarget(broker.address, "test-uplink", patience_s(60)))
        gateway = Gateway(GatewayOptions(broker=broker.address), buffer, WallClock(), uplink)
        with running_gateway(gateway):
            until(lambda: failing(gateway, "records come back from where uplink.to leads"))
            assert gateway.status()["relayed"] == 0
    kept = [record for p in range(buffer.partitions) for record in buffer.read(p, 0, 10_000)]
    assert len(without_ticks(kept)) == RECORDS + PLANS
    buffer.close()


@contextmanager
def central_reader(address: MqttAddress) -> Iterator[list[str]]:
    """Somebody who is subscribed as the central gateway is: the topics that came."""
    came: list[str] = []
    reading = threading.Event()
    client = new_client(address, "test-central", v5=True)
    client.on_connect = lambda *_: client.subscribe("hothouse/#", 1)
    client.on_subscribe = lambda *_: reading.set()
    client.on_message = lambda _client, _data, message: came.append(message.topic)
    open_connection(client, address)
    assert reading.wait(patience_s(60))
    yield came
    client.disconnect()
    client.loop_stop()


def test_a_record_that_is_too_large_for_the_central_broker_is_told_with_its_limit(tmp_path: Path) -> None:
    """Nothing of its batch is sent, so that nothing is sent again at each try."""
    small, large = (
        NewRecord("demo", "event", NOW, b"x" * size, "hothouse/v1/demo/_site/grower/event", Origin("a1", number))
        for number, size in enumerate((100, MAX_PACKET_BYTES))
    )
    said = r"takes packets of 10,000,000 bytes at most, and a record of demo \(event\) needs 10,000,1"
    with local_broker(tmp_path / "broker", "mosquitto") as broker, central_reader(broker.address) as came:
        target = MqttTarget(broker.address, "test-uplink", patience_s(60))
        for _ in range(2):
            with pytest.raises(LogError, match=said):
                target.send([small, large])
        target.send([small])
        until(lambda: came)
        assert came == ["hothouse/v1/demo/_uplink/a1/record"]
        target.close()


def test_a_record_that_the_central_broker_refuses_is_named_by_its_site(tmp_path: Path) -> None:
    """As where a site got another name, and the uplink's login is still that of the one before."""
    password = DeviceLogins(tmp_path / "broker").add("before", 0, ["hothouse/v1/before/_uplink/+/record"])
    records = [NewRecord(site, "tick", NOW, b"", "", Origin("a1", 0)) for site in ("before", "after")]
    with local_broker(tmp_path / "broker", "mosquitto") as broker, central_reader(broker.address):
        login = replace(broker.address, username="before", password=password)
        target = MqttTarget(login, "test-uplink", patience_s(60))
        with pytest.raises(LogError, match="refuses a record of after: Not authorized"):
            target.send(records)
        target.close()


def step_for_ever(uplink: Uplink) -> None:
    """Carry, and look whether the target is there."""
    while True:
        uplink.step()


def test_what_a_killed_broker_lost_is_sent_again(tmp_path: Path) -> None:
    """The central broker acknowledges everything, with the central gateway away, and is killed before it has written
    anything down: the uplink, with nothing more to send, notices and sends it again; every sample arrives.
    """
    filled(tmp_path / "buffer.sqlite")
    buffer = SqliteLog(tmp_path / "buffer.sqlite")
    (tmp_path / "gateway").mkdir()
    with (
        local_broker(tmp_path / "broker", "mosquitto") as broker,
        GatewayProcess(broker.address, tmp_path / "gateway") as central,
    ):
        central.site = "demo"
        central.start()
        central.stop()  # its session begins; the broker keeps what is published from now on
        target, now_s = MqttTarget(broker.address, "test-uplink", patience_s(60)), [0.0]
        uplink = Uplink(buffer, target, clock_s=lambda: now_s[0])
        while uplink.step():
            pass
        broker.kill()
        broker.restart()
        now_s[0] = 59.0
        uplink.trim()
        with pytest.raises(LogError, match="was lost"):
            step_for_ever(uplink)
        central.start()
        while uplink.step():
            pass
        with balance():
            until(lambda: set(central.seqs()) == set(range(RECORDS)))
        assert uplink.sent == 2 * RECORDS * 6 // 5
        target.close()
        assert central.stop() == 0
    buffer.close()


@pytest.mark.parametrize("kind", ["amqtt", "nobody"])
def test_what_no_uplink_can_use_is_said(tmp_path: Path, kind: str) -> None:
    """A broker without MQTT 5, or none at all, is a LogError with one sentence, each time again."""
    filled(tmp_path / "buffer.sqlite")
    buffer = SqliteLog(tmp_path / "buffer.sqlite")
    with LocalBroker(tmp_path / "broker", "amqtt") as broker:
        address = broker.address
        if kind == "nobody":
            broker.stop()
        target = MqttTarget(address, "test-uplink", timeout_s=2.0)
        for _ in range(2):
            with pytest.raises(LogError, match=r"was lost|MQTT 5|cannot be reached"):
                Uplink(buffer, target).step()
        target.close()
    buffer.close()


class Central(MemoryLog):
    """A central log that can be away."""

    away = True

    def append(self, records: Sequence[NewRecord]) -> list[tuple[int, int]]:
        """Append, or be away."""
        if self.away:
            raise LogError("the central log is away")
        return super().append(records)

    def close(self) -> None:
        """Stay open: the test reads it afterwards."""

    def seqs(self, site: str) -> list[int]:
        """The sequence numbers of a site's samples, in the log's order, without the copies of records."""
        records, origins = self.read(partition_of(site, 4), 0, 100_000), SeenOrigins()
        once = [r for r in records if r.kind == "samples" and r.origin and origins.is_new(r.origin)]
        return [sample.seq for r in once for sample in decode_samples(r.payload)]


def failing(gateway: Gateway, *words: str) -> GatewayStatus | None:
    """How the gateway is, once its errors hold all these words."""
    status = gateway.status()
    return status if all(word in status["last_error"] for word in words) else None


@pytest.mark.thorough
def test_a_full_buffer_stops_acknowledging_and_recovers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Full, a real one behind a real broker: nothing more is acknowledged, status and one log line say so, the broker
    queues; when the uplink has made room it goes on by itself, and every sample is there once.
    """
    with local_broker(tmp_path / "broker", "mosquitto") as broker:
        buffer, central = SqliteLog(tmp_path / "buffer.sqlite", max_bytes=256 * 1024), Central()
        settings = GatewayOptions(broker=broker.address, retry_s=0.1, in_flight=500, max_batch=100)
        gateway = Gateway(settings, buffer, WallClock(), Uplink(buffer, LogTarget(lambda: central)))
        thread = threading.Thread(target=gateway.run, daemon=True)
        thread.start()
        try:
            until(lambda: gateway.status()["connected"])
            publisher = GatewayProcess(broker.address, tmp_path)  # for its messages
            with device(broker.address) as publish:
                publish(publisher.messages(range(12_000)))
                until(lambda: failing(gateway, "no room", "central log is away"))
                full = gateway.status()  # nothing is appended any more
                assert full["bytes_free"] < 16_384
                assert full["buffered_bytes"] <= 256 * 1024
                assert full["queued"] + full["records"] > 0
                assert full["samples"] < 12_000, "the buffer was too large for this test"
                assert full["buffered_records"] == full["records"] > 0
                assert full["oldest_unsent_s"] > 0
                # Its back-off may have grown to 22 s by now.
                until(lambda: gateway.status()["uplink_errors"] > full["uplink_errors"] + 1, timeout_s=120)
                assert len([line for line in caplog.messages if "no room" in line]) == 1
                central.away = False
                with balance():
                    until(lambda: len(central.seqs(publisher.site)) >= 12_000, timeout_s=120)
                until(lambda: gateway.status()["buffered_records"] == 0)
            until(lambda: gateway.status()["last_error"] == "")
            assert gateway.status()["samples"] == 12_000
        finally:
            gateway.stop()
            thread.join(patience_s(60))
        buffer.close()
    with balance():
        assert central.seqs(publisher.site) == list(range(12_000))
