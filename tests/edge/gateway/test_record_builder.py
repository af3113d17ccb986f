"""Messages become log records: every one once, in order, stamped and ticked."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.clock import CLOCK_TOPIC, ReplayedClock, decode_clock, encode_clock
from edge.decoders.esphome import EsphomeDecoder
from edge.gateway.decoders import load_decoders
from edge.gateway.record_builder import MAX_SAMPLES, Message, RecordBuilder
from edge.log import NewRecord
from edge.wire.alert_orders import MAX_RULES_BYTES, ChangeRules, encode_order, order_topic
from edge.wire.decoder import MAX_DOCUMENT_BYTES, DecodedMessage, HothouseDecoder
from edge.wire.envelope import UNKNOWN_SITE
from edge.wire.plan import MAX_PLAN_BYTES
from edge.wire.reading import MAX_PAYLOAD_BYTES, Refusal, Sample, encode_message
from edge.wire.samples import decode_samples
from edge.wire.topic import sample_topic

NOW = 1_646_092_800_000
STEP_MS = 300_000
TICK_MS = STEP_MS // 10
BOOT = "9f3c62d1a07be845"


def _sample(site: str = "demo", seq: int = 1, ts_ms: int = NOW) -> Sample:
    return Sample(site, "z1", "climate", BOOT, seq, ts_ms, {"rh_pct": 71.0})


def _message(*samples: Sample) -> Message:
    return Message(sample_topic(samples[0].site, "z1", "climate"), encode_message(samples))


def _clock(now_ms: int) -> Message:
    return Message(CLOCK_TOPIC, encode_clock(now_ms))


def _builder(start_ms: int = NOW) -> RecordBuilder:
    return RecordBuilder(ReplayedClock(start_ms), STEP_MS)


def _refusals(record: NewRecord) -> list[Refusal]:
    return msgspec.msgpack.decode(record.payload, type=list[Refusal])


def test_samples_of_a_site_share_a_record() -> None:
    """Samples of several messages of one site make one record; another site has its own."""
    records = _builder().take([_message(_sample(seq=1)), _message(_sample("other")), _message(_sample(seq=2))])
    assert [(r.site, r.kind, r.receive_ms) for r in records] == [("demo", "samples", NOW), ("other", "samples", NOW)]
    assert [s.seq for s in decode_samples(records[0].payload)] == [1, 2]


def test_a_device_that_names_each_reading_alike_is_told_once_an_hour() -> None:
    """Its readings stay in the log, where step 5 takes them for copies. What a broker sends again is told of nobody."""
    clock = ReplayedClock(NOW)
    builder = RecordBuilder(clock, STEP_MS)
    again = _message(_sample())
    assert [r.kind for r in builder.take([again, again, _message(_sample(seq=2)), again])] == ["samples"]
    assert [r.kind for r in builder.take([_message(_sample(ts_ms=NOW)), _message(_sample(seq=3))])] == ["samples"]
    samples, told = builder.take([_message(_sample(seq=3, ts_ms=NOW + ms)) for ms in range(1, 5)])
    assert len(decode_samples(samples.payload)) == 4
    (refusal,) = _refusals(told)
    assert (refusal.reason, refusal.whole, refusal.topic) == ("malformed", False, sample_topic("demo", "z1", "climate"))
    assert "seq 3 was sent before, with another ts" in refusal.detail
    assert builder.refused == 0
    clock.advance(NOW + 3_600_000)
    assert [r.kind for r in builder.take([_message(_sample(seq=3, ts_ms=NOW + ms)) for ms in range(9, 12)])] == [
        "samples",
        "refused",
        "tick",
    ]


def test_a_device_that_begins_again_under_its_old_boot_is_told() -> None:
    """Later readings with a smaller seq have the names of older ones. An older reading that comes late is in order, and
    so is a single one from before the device's clock was set back.
    """
    builder = _builder()
    in_order = [(8, 8), (9, 9), (7, 7), (10, 10), (11, 2), (9, 9), (12, 12)]
    assert [r.kind for r in builder.take([_message(_sample(seq=s, ts_ms=NOW + ms)) for s, ms in in_order])] == [
        "samples"
    ]
    (_, told) = builder.take([_message(_sample(seq=seq, ts_ms=NOW + 20 + seq)) for seq in (1, 2, 3)])
    assert "seq 3 comes after seq 12, with a later ts" in _refusals(told)[0].detail


@pytest.mark.parametrize("numbers", [range(4), [7] * 4], ids=["from 0 in each message", "one for all"])
def test_a_device_that_numbers_the_readings_of_each_message_anew_is_told(numbers: Sequence[int]) -> None:
    """Of all that it sends only the first message would count in a row, or one reading of it."""
    batches = [
        _message(*(_sample(seq=seq, ts_ms=NOW + 100 * batch + at) for at, seq in enumerate(numbers)))
        for batch in range(3)
    ]
    samples, told = _builder().take(batches)
    assert len(decode_samples(samples.payload)) == 12
    assert "a reading with the name of another is taken for its copy" in _refusals(told)[0].detail
    assert len(_refusals(told)) == 1


def test_a_device_that_sends_readings_again_beside_new_ones_is_not_told() -> None:
    """As after a lost connection, in whatever order a message has them."""
    spans = [range(5), range(2, 9), range(12, 3, -1), range(13), range(13, 15)]
    messages = [_message(*(_sample(seq=n, ts_ms=NOW + n) for n in numbers)) for numbers in spans]
    assert [r.kind for r in _builder().take(messages)] == ["samples"]


def test_a_decoder_names_readings_as_it_likes() -> None:
    """Zigbee2MQTT's are named by what they say: no number of theirs counts up."""
    builder = RecordBuilder(ReplayedClock(NOW), STEP_MS, decoders=load_decoders(["zigbee2mqtt"]))
    said = [b'{"temperature":%d,"last_seen":%d}' % (n, NOW - 1000 + n) for n in range(20)]
    assert [r.kind for r in builder.take([Message("zigbee2mqtt/demo/z1/leaf", each) for each in said])] == ["samples"]


def test_a_record_holds_at_most_a_thousand_samples() -> None:
    """More samples than that are cut into several records, in order."""
    records = _builder().take([_message(*(_sample(seq=n) for n in range(MAX_SAMPLES + 1)))])
    assert [len(decode_samples(r.payload)) for r in records] == [MAX_SAMPLES, 1]


def test_an_event_is_kept_as_it_came() -> None:
    """A JSON object is a record of its own with its topic, after the samples that came before it."""
    topic, body = "hothouse/v1/demo/z1/grower/event", b'{"issued": 1, "note": "\xc3\xa9"}'
    records = _builder().take([_message(_sample(seq=1)), Message(topic, body), _message(_sample(seq=2))])
    assert [r.kind for r in records] == ["samples", "event", "samples"]
    assert (records[1].payload, records[1].topic) == (body, topic)


def test_of_a_plan_what_passed_is_kept_and_what_did_not_is_refused() -> None:
    """A record of its own, between the samples around it; the letter about its unknown metric is another."""
    topic = "hothouse/v1/demo/z1/grower/plan"
    path = f'"sp_heat_c":[[{NOW + 60_000},18.5]]'
    body = f'{{"issued":{NOW},"source":"me","kind":"setpoint","note":"","values":{{{path},"sp_heat":[]}}}}'.encode()
    records = _builder().take([_message(_sample(seq=1)), Message(topic, body), _message(_sample(seq=2))])
    assert [r.kind for r in records] == ["samples", "refused", "plan", "samples"]
    passed = f'{{"issued":{NOW},"source":"me","kind":"setpoint","values":{{{path}}}}}'.encode()
    assert (records[2].payload, records[2].topic) == (passed, topic)
    assert [(r.reason, r.whole) for r in _refusals(records[1])] == [("unknown_metric", False)]


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [("event", b"[1]", "malformed"), ("event", b"{", "malformed"), ("plan", b"[1]", "malformed"),
     ("event", b'{"a":"' + b"x" * MAX_DOCUMENT_BYTES + b'"}', "oversized"),
     ("plan", b'{"a":"' + b"x" * MAX_PLAN_BYTES + b'"}', "oversized")],
)  # fmt: skip
def test_bad_plans_and_events_are_refused(kind: str, body: bytes, reason: str) -> None:
    """What is no JSON object, or too long, is refused under its site."""
    (record,) = _builder().take([Message(f"hothouse/v1/demo/z1/grower/{kind}", body)])
    assert (record.site, record.kind) == ("demo", "refused")
    assert [r.reason for r in _refusals(record)] == [reason]


def test_rules_may_be_longer_than_other_events() -> None:
    """A thousand zones with ten rules of their own go through; what is longer than a log takes is refused."""
    options = {"limit": 12.5, "chance": 0.2, "severity": "critical", "hours": ["18:00", "07:00"]}
    zones = {f"zone-{n:04d}": {"changes": {f"rule-{m}": options for m in range(10)}} for n in range(1000)}
    body = encode_order(ChangeRules({"crop": "tomato", "zones": zones}))
    where = order_topic("demo", "_site")
    assert 10 * MAX_DOCUMENT_BYTES < len(body) <= MAX_RULES_BYTES
    (record,) = _builder().take([Message(where, body)])
    assert (record.kind, record.payload, record.topic) == ("event", body, where)
    (record,) = _builder().take([Message(where, body + b" " * MAX_RULES_BYTES)])
    assert [r.reason for r in _refusals(record)] == ["oversized"]


def test_a_clock_message_holds_for_what_comes_after_it() -> None:
    """Samples before it keep the earlier receive time, samples after it get the new one."""
    later = NOW + 3_600_000
    records = _builder().take([_message(_sample(seq=1)), _clock(later), _message(_sample(seq=2, ts_ms=later))])
    assert [(r.kind, r.receive_ms) for r in records] == [("samples", NOW), ("tick", later), ("samples", later)]


def test_the_replayed_clock_never_goes_back() -> None:
    """An older clock message changes nothing."""
    records = _builder().take([_clock(NOW - 5000), _message(_sample())])
    assert [(r.kind, r.receive_ms) for r in records] == [("samples", NOW)]


@pytest.mark.parametrize("payload", [b"", b"{}", b'{"now_ms": "x"}', b'{"now_ms": -1}', b'{"now_ms": 1e30}', b"\xff"])
def test_a_bad_clock_message_is_refused(payload: bytes) -> None:
    """It is a record like other bad input, and the clock stays."""
    with pytest.raises(ValueError, match=r"."):
        decode_clock(payload)
    (record,) = _builder().take([Message(CLOCK_TOPIC, payload)])
    assert (record.site, record.kind, record.receive_ms) == (UNKNOWN_SITE, "refused", NOW)


def test_without_a_replay_a_clock_message_is_an_unknown_topic() -> None:
    """A live gateway takes its time from nobody."""

    class Standing:
        def now_ms(self) -> int:
            return NOW

    (record,) = RecordBuilder(Standing(), STEP_MS).take([_clock(NOW + 1)])
    assert [r.reason for r in _refusals(record)] == ["unknown_topic"]


def test_known_sites_tick_every_tenth_of_a_step() -> None:
    """Each new tenth of a step gives one tick a site, none in between, one after a long jump."""
    clock = ReplayedClock(NOW)
    builder = RecordBuilder(clock, STEP_MS, sites=["a"], newest_ms=NOW)
    builder.take([_message(_sample("b"))])
    ticks = {}
    for advance in (TICK_MS - 1, TICK_MS, TICK_MS + 1, 50 * TICK_MS):
        clock.advance(NOW + advance)
        ticks[advance] = [(r.site, r.kind, r.receive_ms) for r in builder.take()]
    assert ticks[TICK_MS - 1] == ticks[TICK_MS + 1] == []
    for advance in (TICK_MS, 50 * TICK_MS):
        assert ticks[advance] == [("a", "tick", NOW + advance), ("b", "tick", NOW + advance)]


def test_a_clock_that_is_set_back_goes_on_ticking() -> None:
    """It was ahead by years: rows of silent sites and looks for alerts must not wait until that time has come."""
    now_ms = [NOW + 80 * 365 * 86_400_000]

    class Clock:
        def now_ms(self) -> int:
            return now_ms[0]

    builder = RecordBuilder(Clock(), STEP_MS, sites=["a"])
    now_ms[0] = NOW
    ticks = []
    for _ in range(20):
        ticks += builder.take()
        now_ms[0] += TICK_MS // 2
    assert [(one.kind, one.receive_ms) for one in ticks] == [("tick", NOW + n * TICK_MS) for n in range(10)]


def test_a_restart_ticks_what_fell_due_meanwhile() -> None:
    """An intake that knows the log's newest time ticks at once when a tenth of a step has passed since."""
    builder = RecordBuilder(ReplayedClock(NOW), STEP_MS, sites=["a"], newest_ms=NOW - TICK_MS)
    assert [r.kind for r in builder.take()] == ["tick"]
    assert builder.take() == []


def test_a_site_that_was_retired_ticks_from_its_next_sample_on() -> None:
    """Its event ends its ticks, a newer sample makes an event of before mean nothing."""
    clock = ReplayedClock(NOW)
    builder = RecordBuilder(clock, STEP_MS, sites=["a", "demo"], newest_ms=NOW)

    def event(until_ms: int) -> Message:
        payload = b'{"type":"retire","until_ms":%d}' % until_ms
        return Message("hothouse/v1/demo/_site/hothouse/event", payload)

    def ticked(*messages: Message) -> list[str]:
        records = builder.take(messages)
        assert "refused" not in {record.kind for record in records}
        clock.advance(clock.now_ms() + TICK_MS)
        return [record.site for record in builder.take() if record.kind == "tick"]

    assert ticked() == ["a", "demo"]
    assert ticked(event(NOW - 1)) == ["a"]
    assert ticked() == ["a"]
    assert ticked(_message(_sample(ts_ms=NOW))) == ["a", "demo"]
    assert ticked(event(NOW - 1)) == ["a", "demo"]
    assert ticked(_message(_sample(ts_ms=NOW - 5000, seq=2)), event(NOW - 1)) == ["a", "demo"]
    assert ticked(_message(_sample(ts_ms=NOW, seq=3)), event(NOW)) == ["a"]


@pytest.mark.parametrize(
    ("zone", "payload", "says"),
    [
        ("_site", b'{"type":"retire","version":7}', "_site cannot be retired alone"),
        ("z1", b'{"type":"retire"}', "either version or until_ms"),
        ("z1", b'{"type":"retire","version":7,"until_ms":8}', "either version or until_ms"),
    ],
)
def test_a_retirement_that_means_nothing_is_refused(zone: str, payload: bytes, says: str) -> None:
    """Whoever sends it finds the reason among the dead letters."""
    (record,) = _builder().take([Message(f"hothouse/v1/demo/{zone}/operator/event", payload)])
    (refusal,) = _refusals(record)
    assert refusal.reason == "malformed"
    assert says in refusal.detail


def test_only_sites_with_samples_tick() -> None:
    """Refused messages make no site known, so nobody can grow the ticks with nonsense."""
    clock = ReplayedClock(NOW)
    builder = RecordBuilder(clock, STEP_MS)
    builder.take([Message("hothouse/v1/nobody/z/d/sample", b"?")])
    clock.advance(NOW + STEP_MS)
    assert builder.take() == []


good = st.builds(
    lambda site, n: (_message(*(_sample(site, seq=i) for i in range(n))), n, 0, 0),
    st.sampled_from(["demo", "north"]),
    st.integers(1, 3),
)
bad = st.sampled_from(
    [
        (Message("hothouse/v1/demo/z1/climate/sample", b"{"), 0, 1, 0),
        (Message("hothouse/v1/demo/z1/climate/sample", b" " * (MAX_PAYLOAD_BYTES + 1)), 0, 1, 0),
        (Message("hothouse/v1/demo", b"{}"), 0, 1, 0),
        (Message("elsewhere", encode_message([_sample()])), 0, 1, 0),
        (_message(_sample(ts_ms=5)), 0, 1, 0),
        (Message(CLOCK_TOPIC, b"noon"), 0, 1, 0),
        (Message("hothouse/v1/demo/z1/grower/plan", b"[]"), 0, 1, 0),
        (Message("hothouse/v1/demo/z1/grower/event", b'{"crop": "lettuce"}'), 0, 0, 1),
    ]
)
binary = st.binary(max_size=20).map(lambda b: (Message("hothouse/v1/demo/z1/climate/sample", b"\x00" + b), 0, 1, 0))
clocks = st.integers(0, 10 * TICK_MS).map(lambda ms: (_clock(NOW + ms), 0, 0, 0))


@given(st.lists(st.lists(good | bad | binary | clocks, max_size=8), max_size=4))
@example([[(Message("elsewhere", b"{}"), 0, 1, 0)] * 2])
def test_every_message_ends_in_exactly_one_place(batches: list[list[tuple[Message, int, int, int]]]) -> None:
    """Valid, malformed, oversized, in whatever order and batches: all of it is in the records, once the hour is over
    in which messages on topics that nothing reads are counted.
    """
    builder = _builder()
    records = [r for batch in batches for r in builder.take(message for message, *_ in batch)]
    records += builder.take([_clock(NOW + 2 * 3_600_000)])
    wanted = [sum(entry[i] for batch in batches for entry in batch) for i in (1, 2, 3)]
    samples = [s for r in records if r.kind == "samples" for s in decode_samples(r.payload)]
    refusals = [f for r in records if r.kind == "refused" for f in _refusals(r)]
    documents = [json.loads(r.payload) for r in records if r.kind == "event"]
    assert [len(samples), sum(f.samples for f in refusals if f.whole), len(documents)] == wanted
    assert (builder.samples, builder.refused) == (len(samples), wanted[1])
    assert [r.receive_ms for r in records] == sorted(r.receive_ms for r in records)


def test_no_record_is_longer_than_a_log_takes() -> None:
    """Devices that send thousands of values a sample make more records, not one that no log takes."""
    values = {f"air_temp_c.{n}": 20.0 for n in range(100)} | {f"rh_pct.{n}": 50.0 for n in range(100)}
    samples = [Sample("demo", "z1", "climate", "9f3c62d1a07be845", n, NOW, values) for n in range(1000)]
    topic = sample_topic("demo", "z1", "climate")
    messages = [Message(topic, encode_message(samples[n : n + 10])) for n in range(0, 1000, 10)]
    records = RecordBuilder(ReplayedClock(NOW), 300_000).take(messages)
    assert max(len(record.payload) for record in records) <= 1024 * 1024
    assert [s.seq for record in records for s in decode_samples(record.payload)] == list(range(1000))


def test_no_record_of_refusals_is_longer_either() -> None:
    """However much is wrong with a message, what is said of it is short; of many messages there are more records."""
    topic = sample_topic("demo", "z1", "climate")
    wrong = {f"unheard_of_{n}": 1 for n in range(5000)}
    body = json.dumps({"boot": BOOT, "ts": NOW, "seq": 1, "values": wrong}).encode()
    few = _builder().take([Message(topic, body)] * 10)
    assert sum(len(record.payload) for record in few) < 20 * 1024
    assert _refusals(few[0])[0].detail.endswith("(and 4997 more)")
    many = _builder().take([Message(topic, b"?" * 1024 + str(n).encode()) for n in range(1000)])
    assert max(len(record.payload) for record in many) <= 1024 * 1024
    assert [r.payload[:1] for record in many for r in _refusals(record)] == [b"?"] * 1000


def test_a_decoder_that_fails_does_not_end_the_gateway() -> None:
    """The message is refused: it would come again at each start."""

    class Failing(HothouseDecoder):
        def take(self, topic: str, payload: bytes, receive_ms: int) -> DecodedMessage:
            raise OverflowError("too large")

    builder = RecordBuilder(ReplayedClock(NOW), STEP_MS, decoders=(Failing(),))
    [record] = builder.take([_message(_sample())])
    [refusal] = _refusals(record)
    assert (record.site, refusal.reason) == (UNKNOWN_SITE, "decoder_failed")
    assert refusal.topic == "hothouse/v1/demo/z1/climate/sample"
    assert refusal.detail == "its decoder failed: OverflowError: too large"
    assert builder.refused == 1


def test_a_retained_value_without_a_time_is_no_reading() -> None:
    """Its decoder gives it the time at which it came: a sensor that is dead would be fresh at each connection."""
    builder = RecordBuilder(ReplayedClock(NOW), STEP_MS, decoders=(HothouseDecoder(), EsphomeDecoder()))
    state = "esphome/demo/north-1/bench/sensor/air_temp_c/state"
    assert builder.take([Message(state, b"21.4", retained=True)]) == []
    assert (builder.messages, builder.samples, builder.retained) == (1, 0, 1)
    (record,) = builder.take([Message(state, b"21.5")])
    assert record.kind == "samples"
    own = b'{"boot":"9f3c62d1a07be845","ts":%d,"seq":1,"values":{"rh_pct":71.0}}' % (NOW - 1000)
    (record,) = builder.take([Message("hothouse/v1/s/z/d/sample", own, retained=True)])
    assert (record.kind, builder.retained) == ("samples", 1)
