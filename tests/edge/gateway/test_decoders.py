"""Decoders of installed packages: found by name, checked, and never able to stop the gateway."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.clock import ReplayedClock
from edge.gateway import Gateway, GatewayOptions
from edge.gateway.answers import EVERY_S, MOST, AnswerLimit
from edge.gateway.decoders import CheckedDecoder, DecoderError, load_decoders
from edge.gateway.record_builder import Message, RecordBuilder
from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.mqtt.connection import MqttAddress
from edge.wire.decoder import Answer, DecodedMessage, HothouseDecoder
from edge.wire.envelope import UNKNOWN_SITE
from edge.wire.reading import Refusal, Sample
from tests.patience import until
from tests.running import running_gateway

NOW = 1_646_092_800_000
BOOT = "9f3c62d1a07be845"
NOTHING = "def take(self, topic, payload, receive_ms): pass"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a package on the path that offers decoders, as an installer leaves it."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(package: str, source: str, **decoders: str) -> None:
        module = package.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        lines = [f"{name} = {module}:{value}" for name, value in decoders.items()]
        (info / "entry_points.txt").write_text("\n".join(["[hothouse.decoders]", *lines, ""]))
        monkeypatch.delitem(sys.modules, module, raising=False)  # of the test before
        importlib.invalidate_caches()

    return install


def test_a_decoder_is_found_by_its_name(install: Callable[..., None]) -> None:
    """Only those that are named are loaded, each once, beside our own; what else is offered is not even imported."""
    install("one-house", f"class One:\n    prefix = 'one/'\n    {NOTHING}\n", one="One")
    install("broken", "raise SystemExit('imported')", broken="Nothing")
    decoders = load_decoders(["one", "one"])
    assert [decoder.prefix for decoder in decoders] == ["hothouse/v1/", "one/"]
    assert isinstance(decoders[0], HothouseDecoder)


def test_an_unknown_name_lists_what_there_is(install: Callable[..., None]) -> None:
    """The sentence names the setting, the name, and the decoders of installed packages; also where there are none."""
    with pytest.raises(
        DecoderError,
        match=r"gateway\.decoders names 'sparkplug'.*there is: esphome \(hothouse\), zigbee2mqtt \(hothouse\)\.",
    ):
        load_decoders(["sparkplug"])
    install("b-house", "", two="Two", one="One")
    own = [r"esphome \(hothouse\)", r"zigbee2mqtt \(hothouse\)"]
    there = rf"there is: {own[0]}, one \(b-house 1\.2\), two \(b-house 1\.2\), {own[1]}\. Install"
    with pytest.raises(DecoderError, match=there):
        load_decoders(["sparkplug"])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nowhere_to_be_found", "cannot be loaded: ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("class Other: pass", "cannot be loaded: AttributeError"),
        (
            "class One:\n    def __init__(self):\n        raise OSError('no table')",
            "cannot be loaded: OSError: no table",
        ),
        ("class One:\n    prefix = 'one/'", "is no decoder: it needs a prefix and take"),
        (f"class One:\n    prefix = 3\n    {NOTHING}", "is no decoder"),
        (f"class One:\n    prefix = 'one'\n    {NOTHING}", "must end with /"),
        (f"class One:\n    prefix = 'one/+/'\n    {NOTHING}", "hold neither"),
        (f"class One:\n    prefix = 'hothouse/'\n    {NOTHING}", "of which another decoder reads hothouse/v1/#"),
        (f"class One:\n    prefix = 'hothouse/v1/mine/'\n    {NOTHING}", "topics have one decoder each"),
    ],
)
def test_a_decoder_that_cannot_be_used_is_one_sentence(install: Callable[..., None], source: str, said: str) -> None:
    """It names the decoder and says what is wrong; where a package is at fault it names that."""
    install("one-house", source, one="One")
    with pytest.raises(DecoderError) as caught:
        load_decoders(["one"])
    assert str(caught.value).startswith("the decoder one ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_packages_with_the_same_name_are_refused(install: Callable[..., None]) -> None:
    """Nobody could tell which of them is meant."""
    install("a-house", "", one="One")
    install("b-house", "", one="One")
    with pytest.raises(DecoderError, match=r"offered by a-house 1\.2 and b-house 1\.2: uninstall one"):
        load_decoders(["one"])


class Scripted:
    """Answers what a test says."""

    prefix = "plant/"

    def __init__(self, say: Callable[[], DecodedMessage]) -> None:
        self.say = say

    def take(self, topic: str, payload: bytes, receive_ms: int) -> DecodedMessage:
        """What the test says."""
        return self.say()


def sample(**changes: object) -> Sample:
    """A good sample, but for ``changes``."""
    given: dict[str, object] = {
        "site": "demo", "zone": "z1", "device": "d", "boot": BOOT, "seq": 1, "ts_ms": NOW, "values": {"rh_pct": 71.0},
    }  # fmt: skip
    return Sample(**{**given, **changes})  # type: ignore[arg-type]


def checked(say: Callable[[], DecodedMessage]) -> DecodedMessage:
    """What a gateway takes from a decoder's word."""
    return CheckedDecoder("scripted", Scripted(say)).take("plant/x", b"?" * 2000, NOW)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (sample(zone="../z"), "unknown_topic"),
        (sample(boot="short"), "malformed"),
        (sample(seq=-1), "malformed"),
        (sample(seq="1"), "malformed"),
        (sample(ts_ms=NOW + 3_600_000), "future_ts"),
        (sample(values={"rh_pct": 4000.0}), "out_of_range"),
        (sample(values={"warmth": 1.0}), "unknown_metric"),
        (sample(values={"rh_pct": float("nan")}), "malformed"),
        (sample(values={}), "no_values"),
    ],
)
def test_what_a_decoder_says_is_checked_as_what_a_device_says(wrong: Sample, reason: str) -> None:
    """A sample that would be refused in our own format is refused, under its own topic; good ones beside it pass."""
    taken = checked(lambda: DecodedMessage("demo", [sample(device="good"), wrong]))
    assert [each.device for each in taken.samples] == ["good"]
    (refusal,) = taken.refusals
    assert (refusal.reason, refusal.topic, refusal.payload) == (reason, "plant/x", b"?" * 1024)


def test_samples_of_a_decoder_stay_as_they_are() -> None:
    """Devices, boots, numbers, times and values come through the check unchanged, in their order."""
    given = [sample(seq=n, device=device, values={"rh_pct": 0.1 + n}) for n in range(3) for device in ("a", "b")]
    assert checked(lambda: DecodedMessage("demo", given)) == DecodedMessage("demo", given)


def test_a_message_may_hold_more_samples_than_one_of_ours() -> None:
    """As the queue of a device that packs its numbers tightly: 4000 samples are 300 KB in our own format."""
    given = [sample(seq=n, ts_ms=NOW - n * 60_000, values={"air_temp_c": 21.25, "rh_pct": 70.5}) for n in range(4000)]
    assert checked(lambda: DecodedMessage("demo", given)) == DecodedMessage("demo", given)


def raising(error: BaseException) -> Callable[[], DecodedMessage]:
    """A decoder that fails."""

    def fail() -> DecodedMessage:
        raise error

    return fail


@pytest.mark.parametrize(
    ("say", "reason", "said"),
    [
        (raising(ValueError("no number")), "malformed", "no number"),
        (raising(KeyError("birth")), "decoder_failed", "the decoder scripted failed: KeyError: 'birth'"),
        (lambda: None, "decoder_failed", "AttributeError"),
        (lambda: DecodedMessage("demo", refusals=[Refusal(5, "t", "d")]), "malformed", "Expected `str`"),
        (lambda: DecodedMessage("demo", answers=[Answer("plant/+")]), "decoder_failed", "'plant/+', where nothing can"),
        (lambda: DecodedMessage("demo", answers=[Answer("")]), "decoder_failed", "where nothing can be published"),
        (
            lambda: DecodedMessage("demo", answers=[Answer("t", b"x" * 65_537)]),
            "decoder_failed",
            "65537 bytes, at most 65536",
        ),
        (lambda: DecodedMessage("demo", answers=[Answer("t", b"", 2)]), "malformed", "enum"),
        (lambda: DecodedMessage("demo", record=NewRecord("demo", "tick", NOW, b"")), "decoder_failed", "no records"),
    ],
)
def test_a_decoder_that_fails_costs_one_message(
    say: Callable[[], DecodedMessage], reason: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The message is refused with the reason and its payload, nothing is raised; a defect is logged once."""
    decoder = CheckedDecoder("scripted", Scripted(say))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            taken = decoder.take("plant/x", b"?", NOW)
    (refusal,) = taken.refusals
    assert (taken.site, taken.samples, taken.answers) == (UNKNOWN_SITE, [], [])
    assert (refusal.reason, refusal.topic, refusal.payload) == (reason, "plant/x", b"?")
    assert said in refusal.detail
    assert len(caplog.messages) == (reason == "decoder_failed")


def test_a_site_that_is_no_name_becomes_no_site_of_the_log() -> None:
    """Its samples and refusals are those of nobody."""
    taken = checked(lambda: DecodedMessage("a/b", [sample()], [Refusal("malformed", "t", "d")]))
    assert (taken.site, taken.samples) == (UNKNOWN_SITE, [])
    assert [refusal.reason for refusal in taken.refusals] == ["malformed", "unknown_topic"]


def asking(topic: str = "plant/ask") -> CheckedDecoder:
    """A decoder that has a question at each message."""
    return CheckedDecoder("asking", Scripted(lambda: DecodedMessage("demo", answers=[Answer(topic, b"who?", 1)])))


def test_the_builder_hands_answers_over_once() -> None:
    """In the order of the messages, and no more with the next batch."""
    builder = RecordBuilder(ReplayedClock(NOW), 300_000, decoders=[HothouseDecoder(), asking()])
    assert builder.take([Message("plant/a", b""), Message("plant/b", b"")]) == []
    assert builder.answers() == [Answer("plant/ask", b"who?", 1)] * 2
    assert builder.answers() == []


def test_of_one_topic_and_of_all_only_so_many_answers_go_out() -> None:
    """One a topic in a while, and no more than a bound of all; both are forgotten when the time is over."""
    limit = AnswerLimit()
    passed = [limit.passes(Answer(f"t{n % (MOST + 50)}"), n / 1e6) for n in range(3 * (MOST + 50))]
    assert sum(passed) == MOST
    assert passed[:MOST] == [True] * MOST
    assert not limit.passes(Answer("t0"), EVERY_S - 1e-6)
    assert limit.passes(Answer("t0"), EVERY_S)
    assert len(limit._sent_s) <= MOST


class Line:
    """Stands for the connection to the broker."""

    def __init__(self) -> None:
        self.connected = True
        self.connects, self.last_error = 1, ""
        self.certificate_ends_ms: dict[str, int] = {}
        self.sent: list[tuple[str, bytes, int]] = []

    def publish(self, topic: str, payload: bytes, qos: int) -> bool:
        """Keep it."""
        self.sent.append((topic, payload, qos))
        return True

    def tend(self, now_s: float) -> None:
        """Nothing is to be done."""

    def close(self) -> None:
        """Nothing is open."""


def test_an_answer_does_not_wait_for_the_log() -> None:
    """It goes out while the log refuses every append; what is held back, or finds no broker, is counted."""
    log, line = MemoryLog(capacity=0), Line()
    options = GatewayOptions(broker=MqttAddress(port=1), retry_s=0.02)
    gateway = Gateway(options, log, ReplayedClock(NOW), decoders=[asking()])
    gateway._link = line  # type: ignore[assignment]
    with running_gateway(gateway):
        for _ in range(3):
            gateway._inbox.put(Message("plant/x", b""), None)
        gateway._inbox.put(Message("other/x", b""), None)  # a refusal, which the log does not take
        until(lambda: "0 of at most 0" in gateway.status()["last_error"])
        until(lambda: gateway.status()["answered"] + gateway.status()["unanswered"] == 3)
        assert line.sent == [("plant/ask", b"who?", 1)]
        line.connected = False
        log.capacity = None
        gateway._inbox.put(Message("plant/x", b""), None)
        until(lambda: gateway.status()["unanswered"] == 3)
    assert (gateway.status()["answered"], len(line.sent)) == (1, 1)
