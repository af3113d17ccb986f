"""The gateway without a broker: what is acknowledged, when, and what is not."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from edge.clock import CLOCK_TOPIC, ReceiveClock, ReplayedClock, encode_clock
from edge.config import EdgeSettings
from edge.gateway import Gateway, GatewayOptions, command, loop
from edge.log import Log, NewRecord, partition_of
from edge.log.memory import MemoryLog
from edge.log.sqlite import SqliteLog
from edge.mqtt.connection import MqttAddress
from edge.mqtt.subscriber import Published
from edge.wire.reading import Sample, encode_message
from edge.wire.samples import decode_samples
from edge.wire.topic import sample_topic
from services.cli.setup.settings_view import list_settings
from services.config import Settings
from tests.certificates import make_certificate
from tests.gateways import GATEWAY, gateway_environment
from tests.patience import patience_s, until
from tests.running import running_gateway

NOW = 1_646_092_800_000
BOOT = "9f3c62d1a07be845"
ROOT = Path(__file__).parents[3]
NOBODY = MqttAddress(port=1)
PARTITION = partition_of("demo", 4)
FOR_EVER_S = 3600.0


class Client:
    """Stands for the connection that messages came on; keeps what was acknowledged on it."""

    def __init__(self) -> None:
        self.acks: list[int] = []

    def ack_all(self, mids: Sequence[int]) -> None:
        self.acks.extend(mids)


def _deliver(
    gateway: Gateway, client: Client, topic: str, payload: bytes, mid: int, qos: int = 1, *, again: bool = False
) -> None:
    gateway._receive(client, Published(topic, payload, mid, qos, again=again))  # type: ignore[arg-type]


def _sample(seq: int, ts_ms: int = NOW) -> tuple[str, bytes]:
    sample = Sample("demo", "z1", "climate", BOOT, seq, ts_ms, {"rh_pct": 71.0})
    return sample_topic("demo", "z1", "climate"), encode_message([sample])


def _gateway(log: Log, clock: ReceiveClock | None = None, **changes: Any) -> Gateway:
    settings = GatewayOptions(**{"broker": NOBODY, "retry_s": 0.02, **changes})
    return Gateway(settings, log, clock or ReplayedClock(NOW))


def test_acknowledged_means_appended() -> None:
    """When an acknowledgement is sent, the message's record is already in the log."""
    client = Client()

    class Watched(MemoryLog):
        def append(self, records: Sequence[NewRecord]) -> list[tuple[int, int]]:
            assert client.acks == acknowledged
            places = super().append(records)
            acknowledged.extend(s.seq for r in records if r.kind == "samples" for s in decode_samples(r.payload))
            return places

    acknowledged: list[int] = []
    gateway = _gateway(Watched(), max_batch=3, linger_s=0.0)
    with running_gateway(gateway):
        for seq in range(20):
            _deliver(gateway, client, *_sample(seq), mid=seq)
        until(lambda: len(client.acks) == 20)
    assert client.acks == list(range(20))


def test_a_signal_stops_the_gateway_at_any_instant() -> None:
    """A signal handler may interrupt who holds the lock of an event; to stop takes none, so it cannot wait for ever."""
    gateway = _gateway(MemoryLog())
    with gateway._stopping._cond, gateway._inbox._full._cond:
        handler = threading.Thread(target=gateway.stop, daemon=True)
        handler.start()
        handler.join(patience_s(2))
        assert not handler.is_alive()
    gateway.run()


def test_a_full_log_stops_acknowledging_until_it_has_room() -> None:
    """While the log is full nothing is acknowledged and the status says why; afterwards nothing is missing."""
    log, client = MemoryLog(capacity=0), Client()
    gateway = _gateway(log)
    with running_gateway(gateway):
        for seq in range(5):
            _deliver(gateway, client, *_sample(seq), mid=seq)
        until(lambda: "0 of at most 0" in gateway.status()["last_error"])
        assert client.acks == []
        log.capacity = None
        until(lambda: len(client.acks) == 5)
    assert [s.seq for r in log.read(PARTITION, 0, 10) for s in decode_samples(r.payload)] == list(range(5))
    assert "0 of at most 0" not in gateway.status()["last_error"]


def test_what_the_broker_sends_again_while_the_log_refuses_waits_once() -> None:
    """However often the connection ends: each message is decoded, appended and counted once, and acknowledged on the
    last connection.
    """
    log, clients = MemoryLog(capacity=0), [Client() for _ in range(5)]
    gateway = _gateway(log, in_flight=100, max_batch=10)
    with running_gateway(gateway):
        for client in clients:
            for seq in range(100):
                _deliver(gateway, client, *_sample(seq), mid=seq + 1, again=client is not clients[0])
            until(lambda: gateway.status()["samples"] == 10 and "0 of at most 0" in gateway.status()["last_error"])
            assert gateway.status()["queued"] == 90
        log.capacity = None
        until(lambda: len(clients[-1].acks) == 100)
    assert [client.acks for client in clients[:-1]] == [[]] * 4
    assert gateway.status()["samples"] == 100
    assert [s.seq for r in log.read(PARTITION, 0, 1000) for s in decode_samples(r.payload)] == list(range(100))


def test_stopping_with_a_full_log_acknowledges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that is stopped while its log is full leaves at once, however long it would have waited before it
    tries again; the broker keeps what it had sent.
    """
    monkeypatch.setattr(loop, "_FIRST_RETRY_S", FOR_EVER_S)
    log, client = MemoryLog(capacity=0), Client()
    gateway = _gateway(log, retry_s=FOR_EVER_S)
    with running_gateway(gateway):
        _deliver(gateway, client, *_sample(1), mid=1)
        until(lambda: "0 of at most 0" in gateway.status()["last_error"])
    assert client.acks == []


def test_stopping_finishes_what_was_received() -> None:
    """Messages in the queue are appended and acknowledged; one that comes while stopping is left to the broker."""
    log, client = MemoryLog(), Client()
    gateway = _gateway(log)
    for seq in range(50):
        _deliver(gateway, client, *_sample(seq), mid=seq)
    with running_gateway(gateway):
        gateway.stop()
        _deliver(gateway, client, *_sample(99), mid=99)
    assert client.acks == list(range(50))
    assert sum(len(decode_samples(r.payload)) for r in log.read(PARTITION, 0, 10)) == 50


def test_the_newest_clock_message_waits_for_a_record_of_its_time() -> None:
    """The clock is taken from the log after a restart, so a clock message counts as durable with a record."""
    log, client = MemoryLog(), Client()
    gateway = _gateway(log)
    with running_gateway(gateway):
        _deliver(gateway, client, CLOCK_TOPIC, encode_clock(NOW + 1000), mid=1)
        _deliver(gateway, client, CLOCK_TOPIC, encode_clock(NOW + 2000), mid=2)
        until(lambda: client.acks == [1])
        _deliver(gateway, client, *_sample(1), mid=3)
        until(lambda: len(client.acks) == 3)
    assert log.last_receive_ms(PARTITION) == NOW + 2000


def test_a_replayed_clock_goes_on_where_the_log_ends() -> None:
    """A restarted gateway stamps with the log's newest receive time until a clock message comes."""
    log, client = MemoryLog(), Client()
    log.append([NewRecord("other", "tick", NOW + 5000, b"")])
    gateway = _gateway(log, ReplayedClock())
    with running_gateway(gateway):
        _deliver(gateway, client, *_sample(1), mid=1)
        until(lambda: client.acks)
    assert log.last_receive_ms(PARTITION) == NOW + 5000


def test_a_restarted_gateway_ticks_for_the_sites_of_its_log() -> None:
    """Sites known from the log get ticks without having sent anything since."""
    log = MemoryLog()
    log.append([NewRecord("demo", "samples", NOW, b"")])
    clock = ReplayedClock()
    gateway = _gateway(log, clock)
    with running_gateway(gateway):
        clock.advance(NOW + 30_000)
        until(lambda: log.end_offset(PARTITION) == 2)
    tick = log.read(PARTITION, 1, 1)[0]
    assert (tick.kind, tick.receive_ms) == ("tick", NOW + 30_000)


def test_qos_0_beyond_the_bound_is_dropped_and_counted() -> None:
    """Messages that promise nothing cannot grow the queue without bound; QoS 1 still gets in."""
    client = Client()
    gateway = _gateway(MemoryLog(), in_flight=10)
    for seq in range(15):
        _deliver(gateway, client, *_sample(seq), mid=0, qos=0)
    _deliver(gateway, client, *_sample(99), mid=99)
    with running_gateway(gateway):
        until(lambda: client.acks == [99])
    assert (gateway.status()["dropped_qos0"], gateway.status()["samples"]) == (5, 11)


def test_a_defect_ends_the_gateway_instead_of_hiding() -> None:
    """An error that is not the log's refusal ends run() with that error, and nothing is acknowledged."""

    class Broken(MemoryLog):
        def append(self, records: Sequence[NewRecord]) -> list[tuple[int, int]]:
            raise ZeroDivisionError

    client = Client()
    gateway = _gateway(Broken())
    _deliver(gateway, client, *_sample(1), mid=1)
    caught: list[BaseException] = []

    def run() -> None:
        try:
            gateway.run()
        except ZeroDivisionError as error:
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(patience_s(60))
    assert len(caught) == 1
    assert client.acks == []


def test_the_status_file_is_whole_whenever_it_is_read(tmp_path: Path) -> None:
    """The file is valid JSON at every moment and says what the gateway did; no other file is left beside it."""
    path, client = tmp_path / "status.json", Client()
    gateway = _gateway(MemoryLog(), status_file=path)
    with running_gateway(gateway):
        until(path.exists)
        assert json.loads(path.read_text())["connected"] is False
        _deliver(gateway, client, *_sample(1), mid=1)
        _deliver(gateway, client, "hothouse/v1/x", b"?", mid=2)
    status = json.loads(path.read_text())
    assert (status["messages"], status["samples"], status["refused"], status["records"]) == (2, 1, 1, 2)
    assert "127.0.0.1:1" in status["last_error"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_status_that_cannot_be_written_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A line a second would fill the disk that is full already; what fails after it worked is told again."""
    gateway = _gateway(MemoryLog(), status_file=tmp_path / "later" / "status.json")
    for _ in range(3):
        gateway._report()
    assert caplog.text.count("the status file cannot be written") == 1
    (tmp_path / "later").mkdir()
    gateway._report()
    (tmp_path / "later").rename(tmp_path / "gone")
    gateway._report()
    assert caplog.text.count("the status file cannot be written") == 2


def _command(*arguments: object, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GATEWAY, *map(str, arguments)], cwd=ROOT, env=environment or gateway_environment(),
        capture_output=True, text=True, timeout=patience_s(60),
    )  # fmt: skip


def _refusal(*arguments: object, environment: Mapping[str, str] | None = None) -> str:
    """What a gateway says that does not start: one sentence, without a traceback, with exit code 2."""
    result = _command(*arguments, environment=environment)
    assert result.returncode == 2, result
    assert "Traceback" not in result.stderr
    return result.stderr


def test_the_command_shows_an_example() -> None:
    """--help explains the options and shows how to call it."""
    result = _command("--help")
    assert result.returncode == 0
    assert "example: python -m edge.gateway --config hothouse.toml" in result.stdout


@pytest.mark.thorough
def test_a_wrong_setting_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    """A log of other partitions, a file that is not there, a decoder that nobody has: named, and the gateway ends."""
    SqliteLog(tmp_path / "log.sqlite", 2).close()
    no, text = tmp_path / "no", tmp_path / "text"
    text.write_text("no certificate")
    certificate, _ = make_certificate(tmp_path)
    tls = {"tls_ca_file": certificate, "tls_cert_file": certificate}
    for settings, said in (
        ({}, "created with 2 partitions"),
        ({"log": {"partitions": 2}, "mqtt": {"password_file": no}}, "mqtt.password_file cannot be read"),
        ({"log": {"partitions": 2}, "mqtt": {"tls_ca_file": no}}, "mqtt.tls_ca_file cannot be read"),
        ({"log": {"partitions": 2}, "mqtt": {"tls_ca_file": text}}, "mqtt.tls_ca_file cannot be read"),
        ({"log": {"partitions": 2}, "mqtt": {**tls, "tls_key_file": no}}, "mqtt.tls_cert_file cannot be read"),
        ({"log": {"partitions": 2}, "mqtt": {**tls, "tls_key_file": text}}, "with its own key, not encrypted"),
        ({"log": {"partitions": 2}, "uplink": {"to": "mqtt://a", "password_file": no}}, "uplink.password_file cannot"),
        ({"gateway": {"decoders": ["sparkplug"]}}, "'sparkplug', which no installed package offers"),
    ):
        assert said in _refusal(environment=gateway_environment(data_dir=tmp_path, **settings))
    wrong = {**gateway_environment(data_dir=tmp_path), "HOTHOUSE_MQTT__PORT": "0"}
    assert "mqtt.port is '0': must be at least 1" in _refusal(environment=wrong)
    alone = {f"HOTHOUSE_MQTT__{name.upper()}": str(path) for name, path in tls.items()}
    said = _refusal(environment={**gateway_environment(data_dir=tmp_path), **alone})
    assert "mqtt tls_cert_file and tls_key_file belong together" in said


@pytest.mark.parametrize(
    ("uplink", "said"),
    [
        ("mqtt://127.0.0.1:1883", "would come back"),
        ("mqtt://localhost", "would come back"),
        ("http://central", "neither kafka"),
        ("kafka://central:9092", "is not kafka://"),
    ],
)
def test_an_uplink_that_cannot_be_is_refused(tmp_path: Path, uplink: str, said: str) -> None:
    """Its own broker, or an address that is none, is one sentence and exit code 2."""
    assert said in _refusal(environment=gateway_environment(data_dir=tmp_path, uplink={"to": uplink}))


def test_a_former_option_names_its_setting(tmp_path: Path) -> None:
    """Each option of before is refused with the setting that took its place, which there is; any other is unknown."""
    names = {view.name for view in list_settings(Settings())}
    assert set(command.FORMER_OPTIONS.values()) <= names
    said = _refusal("--log", tmp_path / "log.sqlite", "--host", "broker")
    assert "--log is the setting data_dir now" in said
    assert "HOTHOUSE_DATA_DIR" in said
    assert "--uplink-password-file is the setting uplink.password_file now" in _refusal("--uplink-password-file=x")
    assert "unrecognized arguments: --nonsense" in _refusal("--nonsense")
    assert list(tmp_path.iterdir()) == []


def test_settings_become_what_the_gateway_works_with(tmp_path: Path) -> None:
    """Broker, login, waiting time and status file are those of the settings; a log in a file has the status beside."""
    (tmp_path / "password").write_text("geheim\n")
    settings = EdgeSettings(
        data_dir=tmp_path, stream={"step_s": 60},
        mqtt={"host": "broker", "port": 8883, "username": "u", "password_file": tmp_path / "password",
              "version": "3.1.1", "share": "house", "linger_ms": 2.5},
    )  # fmt: skip
    made = command._options(settings)
    assert made.broker == MqttAddress(
        host="broker", port=8883, username="u", password_file=tmp_path / "password", v5=False
    )
    assert made.broker.read_password() == "geheim"
    assert (made.share, made.linger_s, made.step_s) == ("house", 0.0025, 60)
    assert made.status_file == tmp_path / "gateway-status.json"
    assert command._options(EdgeSettings()).broker == MqttAddress()
    assert command._options(EdgeSettings()).linger_s == 0.02
