"""The local broker: private, restartable, and gone when we are."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from edge.mqtt import broker as brokers
from edge.mqtt.broker import BrokerError, LocalBroker
from edge.mqtt.connection import MAX_PACKET_BYTES, MqttAddress, new_client, open_connection
from services.app.broker_watch import BrokerWatch
from tests.broker.conftest import ROOT, device, local_broker, login_answer, until
from tests.conftest import require_program

pytestmark = pytest.mark.broker

KINDS = ("mosquitto", "amqtt")


def _silent(port: int) -> bool:
    client = new_client(MqttAddress(port=port), "test-silent")
    try:
        open_connection(client, MqttAddress(port=port))
    except OSError:
        return True
    client.disconnect()
    client.loop_stop()
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_generated_user_may_log_in(tmp_path: Path, kind: str) -> None:
    """The generated password is accepted; another one and no login are refused."""
    with local_broker(tmp_path / "b", kind) as broker:
        assert login_answer(broker.address) == "Success"
        assert login_answer(replace(broker.address, password="wrong")) == "Not authorized"
        assert login_answer(replace(broker.address, username="", password="")) == "Not authorized"


@pytest.mark.parametrize("kind", KINDS)
def test_secrets_are_the_users_alone(tmp_path: Path, kind: str) -> None:
    """Password and user files have mode 0600, and only the password file shows the password."""
    with local_broker(tmp_path / "b", kind) as broker:
        assert broker.password_file.read_text() == broker.password
        for path in (broker.password_file, broker.folder / f"{kind}.users"):
            assert path.stat().st_mode & 0o777 == 0o600
        assert broker.password not in (broker.folder / f"{kind}.users").read_text()
        assert broker.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_keeps_its_port_and_password(tmp_path: Path, kind: str) -> None:
    """After a stop, a kill, and as a new object on the same folder it answers where it did, to the same login."""
    with local_broker(tmp_path / "b", kind) as broker:
        first = broker.address
        broker.restart()
        broker.kill()
        assert not broker.running
        assert _silent(first.port)
        broker.restart()
        assert login_answer(first) == "Success"
    assert _silent(first.port)
    with local_broker(tmp_path / "b", kind) as again:
        assert again.address == first


def test_mosquitto_keeps_what_waits_over_a_restart(tmp_path: Path) -> None:
    """Messages for a session that is away survive an orderly restart of Mosquitto."""
    received: list[bytes] = []
    with local_broker(tmp_path / "b", "mosquitto") as broker:

        def session() -> None:
            client = new_client(broker.address, "test-session", persistent=True)
            client.on_connect = lambda client, *_: client.subscribe("waits", qos=1)
            subscribed: list[object] = []
            client.on_subscribe = lambda *given: subscribed.append(given)
            client.on_message = lambda client, _, message: (
                received.append(message.payload),
                client.ack(message.mid, message.qos),
            )
            open_connection(client, broker.address, session_expiry_s=600)
            until(lambda: subscribed)
            if broker_was_restarted:
                until(lambda: len(received) == 50)
            client.disconnect()
            client.loop_stop()

        broker_was_restarted = False
        session()
        with device(broker.address) as publish:
            publish([("waits", str(n).encode()) for n in range(50)])
        broker.restart()
        broker_was_restarted = True
        session()
    assert received == [str(n).encode() for n in range(50)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_ends_with_its_parent_and_says_nothing(tmp_path: Path, kind: str) -> None:
    """When our process is killed, the broker goes too; on the terminal it never wrote a word."""
    if kind == "mosquitto":
        require_program("mosquitto")
    code = (
        "import sys, time; from edge.mqtt.broker import LocalBroker\n"
        "broker = LocalBroker(sys.argv[1], sys.argv[2]); broker.start()\n"
        "print(broker.port, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "b", kind],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    assert process.stdout.read() == b""
    process.wait()
    until(lambda: _silent(port))


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_that_died_is_started_again(tmp_path: Path, kind: str) -> None:
    """The watch finds it killed, Mosquitto alone or with our process above it; it is at the same port again."""
    with local_broker(tmp_path / "b", kind) as broker:
        watch, port = BrokerWatch(broker), broker.port
        watch.look()
        assert broker.running
        for whom in (psutil.Process.children, lambda process: [process]):
            process = _process_of(broker)
            for killed in whom(process) or [process]:  # amqtt runs in our process
                killed.kill()
            until(lambda: not broker.running)
            until(lambda: _silent(port))
            until(lambda: watch.look() or broker.running)  # type: ignore[func-returns-value]
            assert (broker.port, watch.error) == (port, "")
            assert login_answer(broker.address) == "Success"


def test_a_broker_that_cannot_start_again_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another program has its port meanwhile: that is told once, and it is tried again until the port is free."""
    with local_broker(tmp_path / "b", "amqtt") as broker:
        watch = BrokerWatch(broker)
        _process_of(broker).kill()
        until(lambda: _silent(broker.port))
        with socket.create_server(("127.0.0.1", broker.port)):
            watch.look()
            watch.look()
            assert f"port {broker.port} on 127.0.0.1 is taken" in watch.error
            assert sum("devices are not heard" in line.message for line in caplog.records) == 1
        until(lambda: watch.look() or broker.running)  # type: ignore[func-returns-value]
        assert watch.error == ""
        assert login_answer(broker.address) == "Success"


def _process_of(broker: LocalBroker) -> psutil.Process:
    """The one that :class:`LocalBroker` started; Mosquitto is its child."""
    (found,) = [
        process
        for process in psutil.Process().children()
        if str(broker.folder) in process.cmdline() and "edge.mqtt.broker" in process.cmdline()
    ]
    return found


@pytest.mark.timeout(300)
def test_a_port_whose_owner_says_nothing_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program has it, accepts connections and never answers: our broker ended, so nobody waits for it."""
    require_program("mosquitto")
    monkeypatch.setattr(brokers, "_START_S", 3600.0)
    monkeypatch.setattr(brokers, "_LOGIN_S", 3600.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BrokerError, match="did not start"):
            LocalBroker(tmp_path, "mosquitto", port=port).start()


def test_a_broker_whose_port_is_taken_leaves_the_other_alone(tmp_path: Path) -> None:
    """The error names the port, and the log is there, too."""
    with local_broker(tmp_path / "a", "amqtt") as first:
        second = LocalBroker(tmp_path / "b", "amqtt", port=first.port)
        with pytest.raises(BrokerError, match=rf"did not start: port {first.port} on 127\.0\.0\.1 is taken"):
            second.start()
        assert not second.running
        assert second.log_file.stat().st_size > 0
        assert login_answer(first.address) == "Success"


@pytest.mark.parametrize("kind", KINDS)
def test_who_sends_more_than_any_message_of_ours_is_cut_off(tmp_path: Path, kind: str) -> None:
    """Of 64 MB, which MQTT allows, the broker keeps nothing; others are served meanwhile."""
    ends: list[object] = []
    heard: list[tuple[str, int]] = []
    with local_broker(tmp_path / "b", kind) as broker, device(broker.address) as publish:
        listener = new_client(broker.address, "test-listener", v5=broker.address.v5)
        listener.on_connect = lambda client, *_: client.subscribe("#", qos=1)
        subscribed: list[object] = []
        listener.on_subscribe = lambda *given: subscribed.append(given)
        listener.on_message = lambda _client, _data, message: heard.append((message.topic, len(message.payload)))
        open_connection(listener, broker.address)
        until(lambda: subscribed)
        greedy = new_client(broker.address, "test-greedy", v5=broker.address.v5)
        greedy.on_disconnect = lambda *given: ends.append(given)
        open_connection(greedy, broker.address)
        until(greedy.is_connected)
        greedy.publish("hothouse/v1/s/z/d/sample", bytes(64_000_000), qos=0)
        until(lambda: ends, "the connection is ended")
        publish([("hothouse/v1/s/z/other/sample", bytes(100_000))])
        until(lambda: heard)
        for client in (greedy, listener):
            client.disconnect()
            client.loop_stop()
    assert heard == [("hothouse/v1/s/z/other/sample", 100_000)]


def test_the_brokers_of_compose_and_kubernetes_have_the_same_limit() -> None:
    """Their files are others, the number is ours."""
    for file in ("deploy/mosquitto/mosquitto.conf", "deploy/kubernetes/base/broker/mosquitto.conf"):
        assert f"\nmax_packet_size {MAX_PACKET_BYTES}\n" in (ROOT / file).read_text()
