"""Publishing a source: order, loss, back-pressure, pace; first against a broker in memory, then a real one."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import broker as brokers
from edge.broker import LocalBroker
from edge.clock import CLOCK_TOPIC, decode_clock
from edge.mqtt import MqttAddress, new_client, open_connection
from edge.reading import Sample, decode
from edge.simulator import link as links
from edge.simulator import publisher as publishing
from edge.simulator.command import main
from edge.simulator.disturb import Disturbance
from edge.simulator.ledger import Ledger
from edge.simulator.link import LinkError
from edge.simulator.pace import Pace
from edge.simulator.publisher import Publisher
from tests.conftest import require_env
from tests.edge.simulator.test_warm import START_MS, ListSource
from tests.patience import patience_s
from tests.patience import until as wait_for

NOWHERE = MqttAddress(host="127.0.0.1", port=1)
FOR_EVER_S = 3600.0
LETTUCE = Path(__file__).parents[2] / "data" / "lettuce_2022"


def source(instants: int = 20, devices: int = 3) -> ListSource:
    boot = "0011223344556677"
    return ListSource(
        [
            (ts, [Sample("s", "z", f"d{d}", boot, i, ts, {"rh_pct": 70.0}) for d in range(devices)])
            for i, ts in enumerate(range(START_MS, START_MS + instants * 60_000, 60_000))
        ]
    )


class FakeBroker:
    """Takes and acknowledges messages; connection ``i`` breaks after ``breaks[i]`` messages, of which it loses the
    last ``lost``, acknowledged or not. Refuses as many connections as ``refusals`` first.
    """

    def __init__(self, breaks: tuple[int, ...] = (), lost: int = 0, refusals: int = 0, acks: bool = True) -> None:
        self.received: list[tuple[str, bytes]] = []
        self.most_unacked = 0
        self._breaks, self._lost, self._refusals, self._acks = list(breaks), lost, refusals, acks

    def open(self, address: MqttAddress, client_id: str, on_ack: Callable[[Any, str], None]) -> Any:
        if self._refusals:
            self._refusals -= 1
            raise LinkError("the broker is away")
        return FakeLink(self, on_ack, self._breaks.pop(0) if self._breaks else None, self._lost, self._acks)


class FakeLink:
    """One connection to the fake broker; acknowledges from its own thread."""

    protocol, window = "MQTT 5", 7

    def __init__(
        self, broker: FakeBroker, on_ack: Callable[[Any, str], None], breaks: int | None, lost: int, acks: bool
    ) -> None:
        self._broker, self._on_ack, self._breaks, self._lost, self._acks = broker, on_ack, breaks, lost, acks
        self._sent = self._acked = 0
        self.is_alive, self.reason = True, ""
        self._more = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._acknowledge, name="fake-broker", daemon=True)
        self._thread.start()

    def send(self, topic: str, payload: bytes) -> None:
        if not self.is_alive:
            return
        self._sent += 1
        self._broker.received.append((topic, payload))
        self._broker.most_unacked = max(self._broker.most_unacked, self._sent - self._acked)
        if self._sent == self._breaks:
            self.is_alive, self.reason = False, "connection lost"
            del self._broker.received[len(self._broker.received) - min(self._lost, self._sent) :]
        self._more.set()

    def close(self) -> None:
        self._closed = True
        self._more.set()
        self._thread.join()

    def _acknowledge(self) -> None:
        while not self._closed:
            self._more.wait(0.05)
            self._more.clear()
            while self._acks and self.is_alive and self._acked < self._sent:
                self._acked += 1
                self._on_ack(self, "")


def publish(
    broker: FakeBroker, with_clock: bool = True, disturbance: Disturbance | None = None, instants: int = 20
) -> dict[str, Any]:
    ledger = Ledger()
    Publisher(
        source(instants),
        NOWHERE,
        ledger,
        Pace(0),
        with_clock=with_clock,
        disturbance=disturbance,
        open_link=broker.open,
    ).run()
    return ledger.status


@contextmanager
def running(publisher: Publisher) -> Iterator[threading.Thread]:
    """In a thread; stopped in the end, if it has not ended by then."""
    thread = threading.Thread(target=publisher.run, name="publisher", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        publisher.stop()
        thread.join(patience_s(60))
        assert not thread.is_alive()


def samples_of(messages: list[tuple[str, bytes]]) -> list[tuple[str, int, int]]:
    """(device, seq, ts) of the samples in messages."""
    found = []
    for topic, payload in messages:
        found += [(s.device, s.seq, s.ts_ms) for s in decode(topic, payload, START_MS + 10**9).samples]
    return found


EXPECTED = [(s.device, s.seq, s.ts_ms) for _, instant in source().samples(2**53) for s in instant]


def test_all_is_published_in_order_behind_its_clock() -> None:
    """Each instant's clock message comes before its samples, and event time never goes back."""
    broker = FakeBroker()
    status = publish(broker)
    now_ms = 0
    for topic, payload in broker.received:
        if topic == CLOCK_TOPIC:
            assert decode_clock(payload) > now_ms
            now_ms = decode_clock(payload)
        else:
            assert [ts for _, _, ts in samples_of([(topic, payload)])] == [now_ms]
    assert samples_of(broker.received) == EXPECTED
    assert (status["published"], status["acked"], status["resent"], status["instants"]) == (60, 60, 0, 20)
    assert status["complete"]


def test_without_a_clock_there_are_samples_only() -> None:
    """A live device does not tell the gateway the time."""
    broker = FakeBroker()
    publish(broker, with_clock=False)
    assert {topic.rsplit("/", 1)[1] for topic, _ in broker.received} == {"sample"}


def test_no_more_than_a_window_waits() -> None:
    """At most a window of messages is unacknowledged at any time."""
    broker = FakeBroker()
    publish(broker)
    assert 1 <= broker.most_unacked <= FakeLink.window


@given(breaks=st.lists(st.integers(1, 90), max_size=4), lost=st.integers(0, 90))
def test_nothing_is_lost_when_a_broker_dies(breaks: list[int], lost: int) -> None:
    """Whatever a dying broker forgot of what it had acknowledged, every sample arrives, and first arrivals in order."""
    broker = FakeBroker(tuple(breaks), lost)
    status = publish(broker)
    firsts = list(dict.fromkeys(samples_of(broker.received)))
    assert firsts == EXPECTED
    assert status["published"] - status["resent"] == len(EXPECTED)
    assert status["complete"]


def test_an_absent_broker_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing begins when the broker comes; until then the ledger says why it does not."""
    monkeypatch.setattr(publishing, "BACK_OFF_S", (0.001,))
    broker = FakeBroker(refusals=3)
    status = publish(broker)
    assert samples_of(broker.received) == EXPECTED
    assert status["connections"] == 1
    assert status["last_error"] == "the broker is away"


def test_old_messages_are_forgotten_once_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept for a new connection is bounded in number; what was not acknowledged stays all the same."""
    monkeypatch.setattr(publishing, "KEPT_MESSAGES", 10)
    broker = FakeBroker(breaks=(70,))
    status = publish(broker)
    assert list(dict.fromkeys(samples_of(broker.received))) == EXPECTED
    assert status["resent"] <= 10 + FakeLink.window + 4


def test_stop_ends_it_though_the_broker_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that acknowledges nothing holds nobody up: publishing stops at the window, and ends when told to."""
    monkeypatch.setattr(publishing, "DRAIN_AFTER_STOP_S", 0.05)
    broker, ledger = FakeBroker(acks=False), Ledger()
    publisher = Publisher(source(), NOWHERE, ledger, Pace(0), open_link=broker.open)
    with running(publisher):
        wait_for(lambda: ledger.status["published"] == FakeLink.window)
    status = ledger.status
    assert (status["published"], status["acked"], status["done"], status["complete"]) == (7, 0, True, False)


def test_disturbances_are_in_the_ledger() -> None:
    """The ledger counts every message that carries a sample, true or not, and each disturbance by its kind."""
    broker = FakeBroker()
    status = publish(broker, disturbance=Disturbance({"duplicates": 1.0, "malformed": 1.0}))
    assert status["disturbances"] == {"duplicates": 60, "malformed": 60}
    assert status["published"] == 180 == len(broker.received) - status["clock_messages"]


def test_a_pace_is_kept() -> None:
    """At 600 times real time, a minute takes a tenth of a second: so long it waits, and no longer."""

    class Waits(threading.Event):
        asked_s = 0.0

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            self.asked_s += timeout
            return super().wait(timeout)

    begin_s = time.monotonic()
    publisher = Publisher(source(4), NOWHERE, Ledger(), Pace(600), open_link=FakeBroker().open)
    publisher._stopped = waits = Waits()
    publisher.run()
    assert time.monotonic() - begin_s >= 0.3
    assert waits.asked_s < 0.31


def test_a_failing_source_is_written_down(tmp_path: Path) -> None:
    """An error of the source ends publishing, and the status file says which it was."""

    class Failing(ListSource):
        def samples(self, to_ms: int) -> Iterator[tuple[int, list[Sample]]]:
            yield START_MS, []
            raise OverflowError("the sun exploded")

    ledger = Ledger(tmp_path / "status.json")
    failing = Failing([(START_MS, [])])
    with pytest.raises(OverflowError):
        Publisher(failing, NOWHERE, ledger, Pace(0), open_link=FakeBroker().open).run()
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["last_error"] == "OverflowError: the sun exploded"
    assert status["done"]
    assert not status["complete"]


# With a real broker.


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
from edge.simulator import command, link, publisher

publisher.DRAIN_AFTER_STOP_S = link._CONNECT_TIMEOUT_S = float(sys.argv[1])
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
    from edge.simulator.replay import RecordingSource

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


def test_pace_follows_the_wall_clock_where_it_is_anchored() -> None:
    """A live device's instant is due when the wall clock shows its event time, and overdue ones at once."""
    pace = Pace(1, anchor=(1_000_000, 50.0))
    assert [pace.due_s(ts, 60.0) for ts in (1_000_000, 1_010_000, 1_060_000)] == [50.0, 60.0, 110.0]
    assert list(itertools.islice((Pace(0).due_s(ts, 3.0) for ts in (0, 10**12)), 2)) == [3.0, 3.0]
