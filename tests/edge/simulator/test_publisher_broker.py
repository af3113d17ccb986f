"""Publishing a source with a real broker, and as a program."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge.mqtt import broker as brokers
from edge.mqtt.broker import LocalBroker
from edge.mqtt.connection import MqttAddress, new_client, open_connection
from edge.simulator.publisher import Publisher
from edge.simulator.publisher import link as links
from edge.simulator.publisher.command import main
from edge.simulator.publisher.ledger import Ledger
from edge.simulator.publisher.pace import Pace
from edge.wire.reading import Sample, decode
from tests.conftest import require_env
from tests.edge.recordings.list_source import START_MS, ListSource
from tests.edge.simulator.little_source import EXPECTED, source
from tests.patience import patience_s
from tests.patience import until as wait_for
from tests.running import running

FOR_EVER_S = 3600.0
LETTUCE = Path(__file__).parents[2] / "data" / "lettuce_2022"


@contextmanager
def subscriber(address: MqttAddress, site: str) -> Iterator[list[tuple[str, bytes]]]:
    """What a broker hands on of a site's messages, as they come."""
    received: list[tuple[str, bytes]] = []
    subscribed = threading.Event()
    client = new_client(address, f"test-{site}")
    client.on_message = lambda _c, _u, message: received.append((message.topic, message.payload))
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_connect = lambda *_: client.subscribe([(f"hothouse/v1/{site}/#", 1)])
    open_connection(client, address)
    try:
        assert subscribed.wait(patience_s(60))
        yield received
    finally:
        client.disconnect()
        client.loop_stop()


class Proxy:
    """A TCP relay to the broker that can cut all connections."""

    def __init__(self, address: MqttAddress) -> None:
        self._target = (address.host, address.port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def cut(self) -> None:
        with self._lock:  # who connects again meanwhile is cut the next time
            cut, self._sockets = self._sockets, []
        for each in cut:
            shut(each)

    def close(self) -> None:
        shut(self._server)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            with self._lock:
                self._sockets += [near, far]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=relay, args=(a, b), name="relay", daemon=True).start()


def shut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


def relay(a: socket.socket, b: socket.socket) -> None:
    with suppress(OSError):
        while data := a.recv(65536):
            b.sendall(data)
    shut(b)


@pytest.fixture
def broker() -> MqttAddress:
    """A real broker."""
    host, port = require_env("HOTHOUSE_TEST_MQTT").rsplit(":", 1)
    return MqttAddress(host=host, port=int(port))


@pytest.fixture
def site(request: pytest.FixtureRequest) -> str:
    """A site of this test's own."""
    return f"t{os.getpid()}-{abs(hash(request.node.name)) % 10**6}"


def command(*arguments: str | int | Path) -> list[str]:
    return [sys.executable, "-m", "edge.simulator.publisher", *map(str, arguments)]


PATIENT = """
import sys
from edge.simulator.publisher import command, link, loop

loop.DRAIN_AFTER_STOP_S = link._CONNECT_TIMEOUT_S = float(sys.argv[1])
sys.exit(command.main(sys.argv[2:]))
"""
"""The same for a broker that may take so many seconds for a login and, after SIGTERM, for the last acknowledgements."""


@contextmanager
def local_broker(folder: Path, **options: Any) -> Iterator[LocalBroker]:
    """A broker of this test's own, however long it and a login take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(brokers, "_START_S", patience_s(60))
        patch.setattr(brokers, "_LOGIN_S", patience_s(10))
        patch.setattr(links, "_CONNECT_TIMEOUT_S", patience_s(4))
        with LocalBroker(folder, **options) as made:
            yield made


@pytest.mark.broker
def test_a_recording_goes_through_a_real_broker(broker: MqttAddress, site: str, tmp_path: Path) -> None:
    """The command publishes a day of a real recording at full speed; the broker hands on all of it, once, in order."""
    from edge.recordings.replay import RecordingSource

    from_ms = RecordingSource(LETTUCE).start_ms + 3_600_000 - 1
    until_ms = from_ms + 86_400_000
    status_file, ids_file = tmp_path / "status.json", tmp_path / "ids"
    with subscriber(broker, site) as received:
        subprocess.run(
            command(
                "replay", LETTUCE, "--site", site, "--host", broker.host, "--port", broker.port, "--speed", "max",
                "--from-ms", from_ms, "--until-ms", until_ms, "--status-file", status_file, "--ids-file", ids_file,
            ),
            check=True, timeout=patience_s(60),
        )  # fmt: skip
        status = json.loads(status_file.read_text())
        wait_for(lambda: len(received) >= status["published"])
    assert status["complete"]
    assert (status["instants"], status["clock_messages"], status["protocol"]) == (288, 288, "MQTT 5")
    found = []
    for topic, payload in received:
        (sample,) = decode(topic, payload, until_ms).samples
        found.append(f"{sample.zone} {sample.device} {sample.boot} {sample.seq} {sample.ts_ms}")
    assert found == ids_file.read_text().splitlines()
    assert status["published"] == status["acked"] == len(found) > 288 * 7


@pytest.mark.broker
def test_a_cut_connection_loses_nothing(broker: MqttAddress, site: str) -> None:
    """Connections cut while publishing are opened again, and every sample arrives, first copies in order."""
    boot = "0011223344556677"
    instants = [(START_MS + i, [Sample(site, "z", "d", boot, i, START_MS + i, {"rh_pct": 70.0})]) for i in range(3000)]
    cuts = {START_MS + i: threading.Event() for i in (900, 1800)}

    class Waiting(ListSource):
        def samples(self, to_ms: int) -> Iterator[tuple[int, list[Sample]]]:
            """Some only after a cut."""
            for ts_ms, samples in super().samples(to_ms):
                if ts_ms in cuts:
                    cuts[ts_ms].wait()
                yield ts_ms, samples

    ledger, waiting, proxy = Ledger(), Waiting(instants), Proxy(broker)
    waiting.site = site
    publisher = Publisher(waiting, MqttAddress(host="127.0.0.1", port=proxy.port), ledger, Pace(0))
    with closing(proxy), subscriber(broker, site) as received, running(publisher) as thread:
        try:
            for connections, (count, cut) in enumerate(zip((200, 900), cuts.values(), strict=True), 1):
                wait_for(lambda count=count: ledger.status["acked"] > count)
                proxy.cut()
                cut.set()
                wait_for(lambda connections=connections: ledger.status["connections"] > connections)
        finally:
            for cut in cuts.values():
                cut.set()
        wait_for(lambda: not thread.is_alive())
        wait_for(lambda: len({payload for _, payload in received}) == 3000)
    seqs = [decode(topic, payload, START_MS + 10**6).samples[0].seq for topic, payload in received]
    assert list(dict.fromkeys(seqs)) == list(range(3000))
    assert ledger.status["complete"]
    assert ledger.status["connections"] >= 3
    assert ledger.status["resent"] > 0


@pytest.mark.broker
def test_sigterm_ends_with_a_last_status(broker: MqttAddress, site: str, tmp_path: Path) -> None:
    """SIGTERM stops a simulation as soon as what it sent is acknowledged; its last status counts that."""
    status_file = tmp_path / "status.json"

    def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(status_file.read_text()) if status_file.exists() else {}
        return found

    arguments = (
        "simulate", "--site", site, "--host", broker.host, "--port", broker.port, "--speed", 600, "--clock",
        "--start-ms", START_MS, "--status-file", status_file,
    )  # fmt: skip
    process = subprocess.Popen([sys.executable, "-c", PATIENT, *map(str, (FOR_EVER_S, *arguments))])
    try:
        wait_for(lambda: status().get("instants", 0) > 5)
        assert not status()["done"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(patience_s(60)) == 0
    finally:
        process.kill()
        process.wait()
    last = status()
    assert last["done"]
    assert last["published"] == last["acked"] > 5 * 7
    assert last["last_error"] == ""


@pytest.mark.broker
def test_a_broker_without_mqtt_5_is_spoken_to_in_3_1_1(tmp_path: Path) -> None:
    """The embedded broker never answers MQTT 5: the link notices and all is published in 3.1.1."""
    ledger = Ledger()
    with local_broker(tmp_path, kind="amqtt") as embedded:
        Publisher(source(), replace(embedded.address, v5=True), ledger, Pace(0)).run()
    assert ledger.status["protocol"] == "MQTT 3.1.1"
    assert ledger.status["acked"] == len(EXPECTED)
    assert ledger.status["complete"]


@pytest.mark.broker
def test_a_wrong_password_is_said(tmp_path: Path) -> None:
    """A broker that refuses the login is named in the ledger, in one sentence, while publishing waits."""
    ledger = Ledger()
    with (
        local_broker(tmp_path) as local,
        running(Publisher(source(), replace(local.address, password="wrong"), ledger, Pace(0))) as thread,
    ):
        wait_for(lambda: "refused the connection" in ledger.status["last_error"])
        assert thread.is_alive()
    assert ledger.status["published"] == 0


def test_the_help_shows_examples_and_a_wrong_argument_one_sentence(tmp_path: Path) -> None:
    """``--help`` answers with examples; a folder without a recording is refused with exit code 2 and one line."""
    shown = subprocess.run(command("--help"), capture_output=True, text=True, check=True, timeout=patience_s(60))
    assert "examples:" in shown.stdout
    wrong = subprocess.run(
        command("replay", tmp_path), capture_output=True, text=True, timeout=patience_s(60), check=False
    )
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: ")
    assert wrong.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (("--port", "99999"), "--port: it takes a whole number from 1 to 65,535, not '99999'"),
        (("--speed", "fast"), "--speed: it takes a number from 0 to 1,000,000,000, not 'fast'"),
        (("--latitude", "nan"), "--latitude: it takes a number from -90 to 90, not 'nan'"),
        (("--zones", "0"), "--zones: it takes a whole number of at least 1, not '0'"),
        (("--site", "my site"), "--site: it takes letters, digits, '.', '_' and '-', up to 64, not 'my site'"),
        (("--seed", "9" * 400), "--seed: it takes a whole number of at least 0, not '999"),
        (("--start-ms", "1700000000"), "--start-ms: it takes milliseconds since 1970, from the year 2000 on"),
        (("--start-ms", "1e12"), "--start-ms: it takes a whole number, not '1e12'"),
        (("--start-ms", "99999999999999999"), "--start-ms: it takes milliseconds since 1970, from the year"),
        (("--timezone", "Mars/Olympus"), "--timezone: it takes an IANA time zone such as Europe/Amsterdam, not"),
    ],
)
def test_an_option_that_nothing_could_be_published_with_is_refused(
    wrong: tuple[str, str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No broker is asked for a port that there is not, and no site is published that every gateway refuses."""
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *wrong])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong", [("--fault", "melted:CVA:rh_pct:0:1"), ("--disturb", "gremlins=1"), ("--timezone", "Mars/Olympus")]
)
def test_a_wrong_option_is_one_sentence(wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong fault, disturbance or time zone ends the command with exit code 2 and a line that names it."""
    with pytest.raises(SystemExit) as ended:
        main(["replay", str(LETTUCE), *wrong])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
