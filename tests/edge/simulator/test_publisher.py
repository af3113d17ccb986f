"""Publishing a source: order, loss, back-pressure, pace, against a broker in memory."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.clock import CLOCK_TOPIC, decode_clock, encode_clock
from edge.mqtt.connection import MqttAddress
from edge.simulator.publisher import Publisher, command
from edge.simulator.publisher import loop as publishing
from edge.simulator.publisher.disturb import Disturbance
from edge.simulator.publisher.ledger import Ledger
from edge.simulator.publisher.link import LinkError
from edge.simulator.publisher.pace import Pace
from edge.wire.plan import PlanMessage, encode_plan
from edge.wire.reading import Sample, decode
from tests.edge.recordings.list_source import START_MS, ListSource
from tests.edge.simulator.little_source import EXPECTED, source
from tests.patience import patience_s
from tests.patience import until as wait_for
from tests.running import running

NOWHERE = MqttAddress(host="127.0.0.1", port=1)
FOR_EVER_S = 3600.0


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


def samples_of(messages: list[tuple[str, bytes]]) -> list[tuple[str, int, int]]:
    """(device, seq, ts) of the samples in messages."""
    found = []
    for topic, payload in messages:
        found += [(s.device, s.seq, s.ts_ms) for s in decode(topic, payload, START_MS + 10**9).samples]
    return found


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


def test_a_plan_is_published_before_the_samples_of_its_instant() -> None:
    """Behind its clock message; again on the next connection as samples are, and not counted as one."""
    at_ms = START_MS + 5 * 60_000
    plan = PlanMessage("s", "_site", "knmi", "weather", at_ms, {"out_temp_c": [(at_ms + 3_600_000, 4.0)]})
    planned, ledger, broker = source(), Ledger(), FakeBroker(breaks=(30,))
    planned._plans = {at_ms: [plan]}
    Publisher(planned, NOWHERE, ledger, Pace(0), with_clock=True, open_link=broker.open).run()
    topic, payload = "hothouse/v1/s/_site/knmi/plan", encode_plan(plan)
    sent = [at for at, message in enumerate(broker.received) if message == (topic, payload)]
    assert len(sent) == 2
    assert broker.received[sent[0] - 1] == (CLOCK_TOPIC, encode_clock(at_ms))
    assert samples_of(broker.received[sent[0] + 1 : sent[0] + 2]) == [("d0", 5, at_ms)]
    assert (ledger.status["plans"], ledger.status["acked"] >= 60) == (2, True)
    assert ledger.status["complete"]


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


def test_a_signal_stops_the_publisher_at_any_instant() -> None:
    """A signal handler may interrupt who holds the lock of an event; to stop takes none, so it cannot wait for ever."""
    publisher = Publisher(source(), NOWHERE, Ledger(), Pace(0), open_link=FakeBroker().open)
    with ExitStack() as held:
        for part in vars(publisher).values():
            if isinstance(part, threading.Event):
                held.enter_context(part._cond)  # type: ignore[attr-defined]
            elif isinstance(part, threading.Condition):
                held.enter_context(part)
        handler = threading.Thread(target=publisher.stop, daemon=True)
        handler.start()
        handler.join(patience_s(2))
        assert not handler.is_alive()
    publisher.run()


def test_an_absent_broker_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing begins when the broker comes; until then the ledger says why it does not."""
    monkeypatch.setattr(publishing, "FIRST_RETRY_S", 0.001)
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


@pytest.mark.parametrize("stopped_after", range(7))
def test_what_stop_leaves_unsent_is_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_after: int
) -> None:
    """Wherever within an instant it is stopped: the files have a line for each message that was sent, and no other."""
    ledger = Ledger(ids_file=tmp_path / "ids", messages_file=tmp_path / "messages")
    broker = FakeBroker()
    publisher = Publisher(source(devices=3), NOWHERE, ledger, Pace(0), open_link=broker.open)
    told = itertools.chain([False] * (2 + stopped_after), itertools.repeat(True))
    asked = property(lambda self: next(told), lambda self, value: None)
    monkeypatch.setattr(Publisher, "_stop_asked", asked, raising=False)
    publisher.run()
    lines = (tmp_path / "messages").read_bytes().splitlines()
    assert [tuple(line.split(b"\t", 2)[1:]) for line in lines] == [(t.encode(), p) for t, p in broker.received]
    assert len((tmp_path / "ids").read_text().splitlines()) == len(broker.received)
    assert not ledger.status["complete"]


def test_disturbances_are_in_the_ledger() -> None:
    """The ledger counts every message that carries a sample, true or not, and each disturbance by its kind."""
    broker = FakeBroker()
    status = publish(broker, disturbance=Disturbance({"duplicates": 1.0, "malformed": 1.0}))
    assert status["disturbances"] == {"duplicates": 60, "malformed": 60}
    assert status["published"] == 180 == len(broker.received) - status["clock_messages"]


def test_a_pace_is_kept() -> None:
    """At 600 times real time, a minute takes a tenth of a second, and no less."""
    begin_s = time.monotonic()
    Publisher(source(4), NOWHERE, Ledger(), Pace(600), open_link=FakeBroker().open).run()
    assert time.monotonic() - begin_s >= 0.3


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


def test_pace_follows_the_wall_clock_where_it_is_anchored() -> None:
    """A live device's instant is due when the wall clock shows its event time, and overdue ones at once."""
    pace = Pace(1, anchor=(1_000_000, 50.0))
    assert [pace.due_s(ts, 60.0) for ts in (1_000_000, 1_010_000, 1_060_000)] == [50.0, 60.0, 110.0]
    assert list(itertools.islice((Pace(0).due_s(ts, 3.0) for ts in (0, 10**12)), 2)) == [3.0, 3.0]


@pytest.mark.parametrize("speed", ["0", "max"])
def test_a_replay_says_what_it_published(
    speed: str, recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As fast as it goes there is nothing to watch, so in the end a line says how much of which time is out."""
    broker = FakeBroker()
    monkeypatch.setattr(command, "Publisher", partial(Publisher, open_link=broker.open))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    until_ms = "1643760000000"  # 2022-02-02 00:00 UTC
    assert command.main(["replay", str(recording), "--speed", speed, "--until-ms", until_ms]) == 0
    samples = sum(topic != CLOCK_TOPIC for topic, _ in broker.received)
    printed = capsys.readouterr().out
    assert printed.startswith(f"published {samples:,} samples of ")
    assert printed.endswith("2022-02-02 00:00 UTC; the broker acknowledged all\n")
