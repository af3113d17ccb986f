"""Messages on topics that nothing reads are counted, and the letters about them are few."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.clock import ReplayedClock
from edge.gateway import Gateway, GatewayOptions
from edge.gateway.other_topics import MAX_TOPICS
from edge.gateway.record_builder import Message, RecordBuilder
from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.mqtt.connection import MqttAddress
from edge.wire.envelope import UNKNOWN_SITE
from edge.wire.reading import Refusal

NOW = 1_646_092_800_000
HOUR_MS = 3_600_000
STEP_MS = 300_000
SLASHED = ("/hothouse/#", "Hothouse/#", "HOTHOUSE/#")


def refusals(records: list[NewRecord]) -> list[Refusal]:
    """What the records refuse; each is one of the site that is unknown."""
    assert {record.site for record in records} <= {UNKNOWN_SITE}
    return [r for record in records for r in msgspec.msgpack.decode(record.payload, type=list[Refusal])]


def gateway(topics: str | None = None, share: str = "") -> Gateway:
    """A gateway that is not connected."""
    said = {} if topics is None else {"topics": topics}
    settings = GatewayOptions(broker=MqttAddress(port=1), share=share, **said)
    return Gateway(settings, MemoryLog(), ReplayedClock(NOW))


@pytest.mark.parametrize(
    ("topics", "share", "asked"),
    [
        (None, "", [["hothouse/#", *SLASHED], ["hothouse/#"], ["hothouse/v1/#"]]),
        (None, "house", [[f"$share/house/{each}" for each in topics] for topics in (
            ["hothouse/#", *SLASHED], ["hothouse/#"], ["hothouse/v1/#"])]),
        ("", "", [["hothouse/v1/#"]]),
        ("#", "", [["#"], ["hothouse/v1/#"]]),
        ("+/#", "", [["+/#", "hothouse/v1/#"], ["hothouse/v1/#"]]),
        ("plant/#", "", [
            ["plant/#", "hothouse/v1/#", "/plant/#", "/hothouse/v1/#"], ["plant/#", "hothouse/v1/#"], ["hothouse/v1/#"]
        ]),
        ("hothouse/v1/#", "", [["hothouse/v1/#", "/hothouse/v1/#"], ["hothouse/v1/#"]]),
    ],
)  # fmt: skip
def test_the_gateway_asks_for_all_topics_of_ours(topics: str | None, share: str, asked: list[list[str]]) -> None:
    """What no decoder reads comes too; where the broker refuses that, what the decoders read is asked for alone."""
    assert gateway(topics, share)._link._choice._lists == asked


@pytest.mark.parametrize("begins", ["/hothouse", "Hothouse", "HOTHOUSE"])
def test_a_topic_that_begins_wrongly_is_told(begins: str) -> None:
    """It comes, because it is subscribed to, and its letter says what is wrong with it."""
    wrong = Message(f"{begins}/v1/demo/z1/climate/sample", b"{}")
    (found,) = refusals(RecordBuilder(ReplayedClock(NOW), STEP_MS).take([wrong]))
    assert (found.reason, found.topic) == ("unknown_topic", wrong.topic)
    said = "it begins with a slash" if begins == "/hothouse" else f"{begins!r} must be 'hothouse'"
    assert said in found.detail


def test_a_topic_that_nothing_reads_is_counted_with_one_letter_an_hour() -> None:
    """The first message of an hour is shown; how many more came is said when the hour is over."""
    clock = ReplayedClock(NOW)
    builder = RecordBuilder(clock, STEP_MS)
    wrong = Message("hothouse/demo/z1/climate/sample", b"{}")
    (first,) = refusals(builder.take([wrong, wrong, wrong]))
    assert (first.reason, first.topic, first.payload, first.samples) == ("unknown_topic", wrong.topic, b"{}", 1)
    assert "hothouse/v1/{site}/{zone}/{device}/sample" in first.detail
    assert builder.take([wrong]) == []
    assert (builder.messages, builder.refused, builder.other_topics) == (4, 4, 4)
    clock.advance(NOW + HOUR_MS)
    (rest,) = refusals(builder.take())
    assert (rest.topic, rest.samples) == (wrong.topic, 3)
    assert [r.samples for r in refusals(builder.take([wrong]))] == [1]


def test_what_gateways_say_of_themselves_is_no_message() -> None:
    """Presence stands under hothouse/ too, and is neither counted nor refused."""
    builder = RecordBuilder(ReplayedClock(NOW), STEP_MS)
    assert builder.take([Message("hothouse/presence/hothouse-gateway", b'{"online":true}')]) == []
    assert (builder.messages, builder.refused, builder.other_topics) == (0, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 3 * MAX_TOPICS), st.integers(0, HOUR_MS)), max_size=600))
def test_a_flood_of_topics_is_counted_and_its_letters_are_few(messages: list[tuple[int, int]]) -> None:
    """However many topics and messages come, an hour brings a bounded number of letters, and none is uncounted."""
    clock = ReplayedClock(NOW)
    builder = RecordBuilder(clock, STEP_MS)
    found = []
    for number, later_ms in messages:
        clock.advance(clock.now_ms() + later_ms // 50)
        found += refusals(builder.take([Message(f"hothouse/zigbee/{number}", b"1")]))
    hours = (clock.now_ms() - NOW) // HOUR_MS + 1
    clock.advance(clock.now_ms() + HOUR_MS)
    found += refusals(builder.take())
    assert sum(refusal.samples for refusal in found) == len(messages) == builder.refused
    assert len(found) <= hours * (2 * MAX_TOPICS + 1)


def test_what_is_published_for_home_assistant_is_nobodys_mistake() -> None:
    """The subscription brings our own states back: no record, no count."""
    builder = RecordBuilder(ReplayedClock(NOW), STEP_MS)
    assert builder.take([Message("hothouse/state/demo/z1/alerts", b"{}")]) == []
    assert (builder.refused, builder.other_topics) == (0, 0)
