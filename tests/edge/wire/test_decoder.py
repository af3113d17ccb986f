"""What a message says is its decoder's matter; records of other gateways are appended as they are."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.clock import ReplayedClock
from edge.gateway import Gateway, GatewayOptions
from edge.gateway.record_builder import Message, RecordBuilder
from edge.log import NewRecord, Origin
from edge.log.memory import MemoryLog
from edge.mqtt.connection import MqttAddress
from edge.wire.decoder import DecodedMessage, HothouseDecoder
from edge.wire.envelope import UNKNOWN_SITE, decode_envelope, encode_envelope
from edge.wire.reading import Refusal, Sample, encode_message
from edge.wire.samples import decode_samples, encode_samples
from edge.wire.topic import sample_topic

NOW = 1_646_092_800_000
STEP_MS = 300_000
BOOT = "9f3c62d1a07be845"
ORIGIN = Origin("0123456789abcdef", 41)


def sample(
    site: str = "demo", zone: str = "z1", device: str = "climate", value: float = 71.0, ts_ms: int = NOW
) -> Sample:  # fmt: skip
    """One sample."""
    return Sample(site, zone, device, BOOT, 1, ts_ms, {"rh_pct": value})


class Celsius:
    """Another wire format: a site's temperature as plain text, as Sparkplug B might be one."""

    prefix = "plant/"

    def take(self, topic: str, payload: bytes, receive_ms: int) -> DecodedMessage:
        """The number, or a refusal."""
        site = topic.split("/")[1]
        try:
            values = {"air_temp_c": float(payload)}
        except ValueError as error:
            return DecodedMessage(site, refusals=[Refusal("malformed", topic, str(error), payload)])
        return DecodedMessage(site, [Sample(site, "z1", "plain", BOOT, receive_ms, receive_ms, values)])


def test_another_wire_format_is_one_more_decoder() -> None:
    """The gateway subscribes to its topics, the record builder asks it by prefix; our own topics stay ours."""
    decoders = (HothouseDecoder(), Celsius())
    gateway = Gateway(GatewayOptions(broker=MqttAddress(port=1)), MemoryLog(), ReplayedClock(NOW), decoders=decoders)
    assert gateway._link._choice._lists[1] == ["hothouse/#", "plant/#"]
    builder = RecordBuilder(ReplayedClock(NOW), STEP_MS, decoders=decoders)
    records = builder.take([
        Message("plant/demo/t", b"21.5"), Message("plant/demo/t", b"warm"),
        Message(sample_topic("demo", "z1", "climate"), encode_message([sample()])), Message("other/demo", b"1"),
    ])  # fmt: skip
    assert [(r.site, r.kind) for r in records] == [
        ("demo", "samples"), ("demo", "refused"), (UNKNOWN_SITE, "refused")
    ]  # fmt: skip
    assert [s.device for s in decode_samples(records[0].payload)] == ["plain", "climate"]


records = st.builds(
    NewRecord,
    st.sampled_from(["demo", "north-1", UNKNOWN_SITE]), st.just("refused"), st.integers(0, 2**45),
    st.just(msgspec.msgpack.encode([Refusal("malformed", "t", "d")])), st.text(max_size=20),
    st.builds(Origin, st.just("0123456789abcdef"), st.integers(0, 2**53 - 1)),
)  # fmt: skip


@given(records)
def test_an_envelope_gives_the_record_back(record: NewRecord) -> None:
    """Site, kind, receive time, topic, payload and origin all survive the way through a broker."""
    assert decode_envelope(*encode_envelope(record)) == record


@pytest.mark.parametrize(
    "record",
    [
        NewRecord("demo", "samples", NOW, encode_samples([sample()]), "", ORIGIN),
        NewRecord("demo", "samples", NOW, encode_samples([sample(zone="_site")]), "", ORIGIN),
        NewRecord("demo", "tick", NOW, b"", "", ORIGIN),
        NewRecord("demo", "event", NOW, b'{"crop":"lettuce"}', "hothouse/v1/demo/z1/grower/event", ORIGIN),
    ],
)
def test_a_record_of_another_gateway_is_appended_as_it_is(record: NewRecord) -> None:
    """With its own receive time, not ours; it makes no site known, so that we never tick for it."""
    clock = ReplayedClock(NOW + 50_000_000)
    builder = RecordBuilder(clock, STEP_MS)
    assert builder.take([Message(*encode_envelope(record))]) == [record]
    assert builder.relayed == 1
    clock.advance(NOW + 60_000_000)
    assert builder.take() == []


def test_a_site_that_gets_a_gateway_of_its_own_is_ticked_for_there() -> None:
    """As soon as its samples come through an uplink our ticks end: they would close its rows while it is cut off."""
    clock = ReplayedClock(NOW)
    builder = RecordBuilder(clock, STEP_MS, ["demo", "other"])
    relayed = NewRecord("demo", "samples", NOW, encode_samples([sample()]), "", ORIGIN)
    builder.take([Message(*encode_envelope(relayed))])
    clock.advance(NOW + STEP_MS)
    assert [(r.site, r.kind) for r in builder.take()] == [("other", "tick")]


@pytest.mark.parametrize(
    "record",
    [
        NewRecord("demo", "samples", NOW, encode_samples([sample("other")]), "", ORIGIN),
        NewRecord("demo", "samples", NOW, encode_samples([sample(zone="z1/#")]), "", ORIGIN),
        NewRecord("demo", "samples", NOW, encode_samples([sample(), sample(device="")]), "", ORIGIN),
        NewRecord("demo", "samples", NOW, encode_samples([sample(value=float("inf"))]), "", ORIGIN),
        NewRecord("demo", "samples", NOW, encode_samples([sample(value=1e300)]), "", ORIGIN),
        NewRecord("demo", "samples", NOW, encode_samples([sample(), sample(ts_ms=-6 * 10**16)]), "", ORIGIN),
        NewRecord("demo", "samples", NOW, encode_samples([sample(ts_ms=NOW + 60_001)]), "", ORIGIN),
        NewRecord("demo", "samples", NOW, b"\x93", "", ORIGIN),
        NewRecord("demo", "refused", NOW, b"?", "", ORIGIN),
        NewRecord("demo", "tick", NOW, b"x", "", ORIGIN),
        NewRecord("demo", "plan", NOW, b"[]", "hothouse/v1/demo/z1/grower/plan", ORIGIN),
        NewRecord("demo", "plan", NOW, b"{}", "hothouse/v1/other/z1/grower/plan", ORIGIN),
        NewRecord("demo", "tick", -1, b"", "", ORIGIN),
        NewRecord("demo", "tick", NOW, b"", "", Origin("log", -1)),
        NewRecord("_site", "tick", NOW, b"", "", ORIGIN),
        NewRecord("demo", "tick", NOW, b"", "", Origin("_log", 1)),
        NewRecord("demo", "shutdown", NOW, b"", "", ORIGIN),  # type: ignore[arg-type]
    ],
)
def test_what_no_gateway_of_ours_sent_is_refused(record: NewRecord) -> None:
    """Torn, of another site than its topic says, of no known kind, of a zone that no topic can name, of a time that
    no calendar has: a dead letter, never a record.
    """
    (refused,) = RecordBuilder(ReplayedClock(NOW), STEP_MS).take([Message(*encode_envelope(record))])
    assert refused.kind == "refused"
    (refusal,) = msgspec.msgpack.decode(refused.payload, type=list[Refusal])
    assert refusal.reason == "malformed"


@given(st.binary(max_size=60))
def test_no_bytes_stop_the_decoder(payload: bytes) -> None:
    """Whatever is published on an uplink's topic ends as a record or a refusal."""
    taken = HothouseDecoder().take("hothouse/v1/demo/_uplink/0123456789abcdef/record", payload, NOW)
    assert (taken.record is None) == (len(taken.refusals) == 1)


def test_ticks_begin_now_when_a_record_of_another_gateway_is_ahead() -> None:
    """A site's gateway whose clock is days ahead does not silence the ticks for our own sites after a restart."""
    clock = ReplayedClock(NOW)
    builder = RecordBuilder(clock, STEP_MS, ["demo"], newest_ms=NOW + 86_400_000)
    clock.advance(NOW + STEP_MS)
    assert [r.kind for r in builder.take()] == ["tick"]
