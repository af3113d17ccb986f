"""The wire contract: what untrusted bytes become."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.wire.reading import FUTURE_TOLERANCE_MS, MAX_AGE_MS, MAX_PAYLOAD_BYTES, Sample, decode, encode_message
from edge.wire.samples import decode_samples, encode_samples
from edge.wire.topic import Topic, parse_topic, sample_topic
from edge.wire.vocabulary import VOCABULARY

NOW = 1_646_092_800_000
TOPIC = "hothouse/v1/s/z/d/sample"
BOOT = "9f3c62d1a07be845"


def _body(**changes: Any) -> bytes:
    return json.dumps({"boot": BOOT, "ts": NOW, "seq": 1, "values": {"rh_pct": 71.0}} | changes).encode()


def _reasons(payload: bytes, topic: str = TOPIC) -> list[str]:
    return [refusal.reason for refusal in decode(topic, payload, NOW).refusals]


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,10}", fullmatch=True)
values = st.sampled_from(sorted(VOCABULARY)).flatmap(
    lambda name: st.tuples(st.just(name), st.floats(VOCABULARY[name].low, VOCABULARY[name].high))
)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """A sample that may pass at NOW."""
    ts_ms = draw(st.integers(NOW - MAX_AGE_MS, NOW + FUTURE_TOLERANCE_MS))
    measured = dict(draw(st.lists(values, min_size=1, max_size=4)))
    return Sample("s", "z", "d", BOOT, draw(st.integers(0, 2**53 - 1)), ts_ms, measured)


@given(st.lists(samples(), min_size=1, max_size=5))
def test_what_a_device_encodes_is_what_the_log_gives(sent: list[Sample]) -> None:
    """Samples pass from the device's message through the check and the log's payload unchanged."""
    decoded = decode(TOPIC, encode_message(sent), NOW)
    assert decoded.refusals == []
    assert decode_samples(encode_samples(decoded.samples)) == sent


@given(names, names, names)
def test_topics_are_parsed_as_they_are_made(site: str, zone: str, device: str) -> None:
    """A topic names its site, zone and device back."""
    topic = parse_topic(sample_topic(site, zone, device))
    assert topic is not None
    assert (topic.site, topic.zone, topic.device, topic.kind) == (site, zone, device, "sample")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "malformed"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "malformed"),
        (b'{"x":' + b"[" * 100_000, "malformed"),
        (_body(boot="short"), "malformed"),
        (_body(boot="é" * 16), "malformed"),
        (_body(seq=-1), "malformed"),
        (_body(seq=2**53), "malformed"),
        (_body(seq=None), "malformed"),
        (_body(ts="yesterday"), "malformed"),
        (_body(ts=NOW + FUTURE_TOLERANCE_MS + 1), "future_ts"),
        (_body(ts=NOW - MAX_AGE_MS - 1), "ancient_ts"),
        (_body(ts=-5), "ancient_ts"),
        (_body(ts=10**18), "future_ts"),
        (_body(ts=10**400), "malformed"),  # no double is as large
        (_body(ts=-(10**400)), "malformed"),
        (_body(values={}), "no_values"),
        (_body(values={"rh_pct": None}), "no_values"),
        (b'{"boot":"9f3c62d1a07be845","samples":[]}', "no_values"),
        (_body(values={"co2_ppm": -4}), "out_of_range"),
        (_body(values={"air_temp_c": 1e300}), "out_of_range"),
        (_body(values={"moon_phase": 1}), "unknown_metric"),
        (b" " * (MAX_PAYLOAD_BYTES + 1), "oversized"),
    ],
)
def test_bad_messages_are_refused_with_their_reason(payload: bytes, reason: str) -> None:
    """Each kind of bad input has one reason and yields no sample."""
    assert decode(TOPIC, payload, NOW).samples == []
    assert _reasons(payload) == [reason]


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (_body(ts=NOW // 1000), "before its receive time; is it in seconds?"),
        (_body(ts=NOW * 1000), "after its receive time; is it in microseconds?"),
        (_body(ts=NOW * 1_000_000), "after its receive time; is it in nanoseconds?"),
        (_body(ts=NOW + 3_600_000), "after its receive time; does the device send local time (UTC+1)?"),
        (_body(ts=NOW + 58 * 60_000), "after its receive time; is its clock 58 min ahead, or the gateway's behind?"),
        (_body(ts=NOW + 61_000), "after its receive time; is its clock 61 s ahead, or the gateway's behind?"),
        (_body(ts=2**32 * 1000), "after its receive time; is its clock 83 years ahead, or the gateway's behind?"),
        (
            _body(ts=NOW - 500 * 86_400_000),
            "before its receive time; is its clock 500 days behind, or the gateway's ahead?",
        ),
        (_body(ts=2**61), f"ts {2**61} is {2**61 - NOW} ms after its receive time"),
        (_body(ts=1), "before its receive time; was its clock never set?"),
        (_body(values={"air_temp": 21.4}), "air_temp is not in the vocabulary; did you mean air_temp_c?"),
        (_body(values={"RH_pct": 71.0}), "RH_pct is not in the vocabulary; did you mean rh_pct?"),
        (_body(values={"moon_phase": 1}), "moon_phase is not in the vocabulary"),
        (_body(values={"air_temp_c": 71.6}), "air_temp_c 71.6 °C, allowed -20 to 60; is it in °F?"),
        (_body(values={"air_temp_c": 999}), "air_temp_c 999.0 °C, allowed -20 to 60"),
        (b"", "; the message is empty"),
        (_body(values={"air_temp_c": 20, "rh_pct": "71 %"}), "rh_pct must be a number, and is '71 %'"),
        (_body(values={"air_temp_c": 20, "rain": True}), "rain must be a number, and is 'True'"),
        (_body().replace(b"71.0", b"71,0"), "; a number has a decimal point, and no comma"),
        (
            _body(values={"rh_pct": 71.5, "rain": 0}).replace(b"71.5", b"71,5"),
            "; a number has a decimal point, and no comma",
        ),
        (_body(values={"air_temp_c": float("nan")}), "; JSON has no NaN: send null, or leave the value out"),
        (_body(values={"air_temp_c": float("-inf")}), "air_temp_c -inf °C, allowed -20 to 60"),
        (_body(values={"air_temp_c": float("nan")})[:-1], "; JSON has no NaN: send null, or leave the value out"),
        (_body(ts=NOW + 0.5), "; ts must be whole milliseconds"),
        (_body(ts="2022-03-01T00:00:00Z"), "; ts must be whole milliseconds"),
        (b"\xef\xbb\xbf" + _body(), "; it begins with a byte order mark"),
        (_body() + b"\0", "; it ends with a zero byte, which is no part of the text"),
        (_body().replace(b'"', b"'"), "; JSON has double quotes"),
        (
            json.dumps({"boot": BOOT, "samples": [{"ts": NOW, "seq": 1, "values": {"rh_pct": "71"}}]}).encode(),
            "rh_pct must be a number, and is '71'",
        ),
    ],
)
def test_a_refusal_asks_for_the_likely_mistake(payload: bytes, words: str) -> None:
    """Seconds, micro- and nanoseconds, a misspelt metric and °F are asked for; what is none of these is not. Of what is
    no JSON of ours the likely reason is told.
    """
    (refusal,) = decode(TOPIC, payload, NOW).refusals
    assert refusal.detail.endswith(words)


def test_a_message_of_unknown_metrics_gets_a_few_suggestions() -> None:
    """To look for the nearest name takes longer than to refuse: a message cannot ask for thousands."""
    points = [{"ts": NOW, "seq": n, "values": {f"air_temp_c{n}x": 20.0}} for n in range(200)]
    refusals = decode(TOPIC, json.dumps({"boot": BOOT, "samples": points}).encode(), NOW).refusals
    assert len(refusals) == 200
    assert 1 <= sum("did you mean" in refusal.detail for refusal in refusals) <= 3
    many = decode(TOPIC, _body(values={f"air_temp_c{n}x": 20.0 for n in range(200)}), NOW).refusals[0].detail
    assert many.count("did you mean") <= 3


@pytest.mark.parametrize(
    "topic",
    ["", "hothouse/v1/s/z/sample", "hothouse/v2/s/z/d/sample", "hothouse/v1/_s/z/d/sample", "hothouse/v1/s/z/d/other"],
)
def test_other_topics_are_unknown(topic: str) -> None:
    """A topic outside the grammar is refused as such, whatever the payload."""
    assert _reasons(_body(), topic) == ["unknown_topic"]


def test_a_topic_with_a_space_is_told_what_names_have() -> None:
    """It looks like the topic that is expected."""
    (refusal,) = decode("hothouse/v1/demo/north 1/bench/sample", _body(), NOW).refusals
    assert "a name has only letters a to z, digits and . _ -" in refusal.detail


def test_the_edges_of_time_pass() -> None:
    """The newest and the oldest time that are allowed are allowed."""
    for ts in (NOW + FUTURE_TOLERANCE_MS, NOW - MAX_AGE_MS):
        assert len(decode(TOPIC, _body(ts=ts), NOW).samples) == 1


def test_one_bad_value_spares_the_others() -> None:
    """A value out of range is refused alone and says so; humidity just above 100 % is clipped."""
    decoded = decode(TOPIC, _body(values={"rh_pct": 101.5, "co2_ppm": 9000, "air_temp_c.2": 20}), NOW)
    assert decoded.samples[0].values == {"rh_pct": 100, "air_temp_c.2": 20}
    assert [(r.reason, r.whole) for r in decoded.refusals] == [("out_of_range", False)]


def test_a_message_is_kept_once_however_much_of_it_is_refused() -> None:
    """Thousands of bad samples of one message do not multiply its bytes."""
    points = [{"ts": 1, "seq": n, "values": {}} for n in range(5000)]
    refusals = decode(TOPIC, json.dumps({"boot": BOOT, "samples": points}).encode(), NOW).refusals
    assert len(refusals) == 5000
    assert sum(len(refusal.payload) for refusal in refusals) == 1024


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
near_messages = st.fixed_dictionaries(
    {"boot": st.just(BOOT) | json_values},
    optional=dict.fromkeys(("ts", "seq", "values", "samples"), json_values),
).map(lambda body: json.dumps(body).encode())


@given(st.text(max_size=40) | st.just(TOPIC), st.binary(max_size=60) | near_messages)
@example(TOPIC, b'{"boot":"9f3c62d1a07be845","ts":' + b"9" * 5000 + b',"seq":1,"values":{}}')
def test_no_bytes_raise(topic: str, payload: bytes) -> None:
    """Whatever arrives is answered with samples or refusals, never nothing and never an exception."""
    decoded = decode(topic, payload, NOW)
    assert decoded.samples or decoded.refusals


@pytest.mark.parametrize("wrong", [b'"err"', b"true", b"NaN", b"-Infinity", b"1e400", b"1" * 500, b"[3]", b"{}"])
def test_a_value_that_is_no_number_leaves_the_others_of_its_sample(wrong: bytes) -> None:
    """Eleven metrics of a message count where the twelfth says "err"; that one is refused, and told."""
    payload = _body(values={"air_temp_c": 21.4, "co2_ppm": "?", "rh_pct": 71}).replace(b'"?"', wrong)
    decoded = decode(TOPIC, payload, NOW)
    assert decoded.samples == [Sample("s", "z", "d", BOOT, 1, NOW, {"air_temp_c": 21.4, "rh_pct": 71})]
    (refusal,) = decoded.refusals
    assert (refusal.whole, refusal.payload) == (False, payload)
    assert refusal.detail.startswith("co2_ppm ")


@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_value_of_brackets_in_brackets_never_raises(brackets: tuple[bytes, bytes]) -> None:
    """However many there are: also so many as can just be read, and not written."""
    limit = sys.getrecursionlimit()
    for depth in range(limit - 150, limit + 50):
        deep = brackets[0] * depth + b"1" + brackets[1] * depth
        assert decode(TOPIC, _body(values={"air_temp_c": 21, "rh_pct": "?"}).replace(b'"?"', deep), NOW).refusals


unreadable = st.sampled_from(
    [None, 5, [], {}, {"ts": NOW, "seq": "1", "values": {}}, {"ts": "x", "values": {"a": "?"}}]
)
points = st.fixed_dictionaries({
    "ts": st.just(NOW), "seq": st.integers(0, 3),
    "values": st.dictionaries(
        st.sampled_from(["air_temp_c", "rh_pct", "co2_ppm", "nonsense"]),
        st.sampled_from([20, 400, None, "21", True, float("nan"), float("inf"), []]),
    ),
})  # fmt: skip


@given(st.lists(points | unreadable, min_size=1, max_size=6))
def test_each_sample_of_a_message_is_taken_or_refused_by_itself(sent: list[Any]) -> None:
    """However many samples a message holds, and whatever is wrong with some, each comes out as if it were alone."""
    together = decode(TOPIC, json.dumps({"boot": BOOT, "samples": sent}).encode(), NOW)
    alone = [decode(TOPIC, json.dumps({"boot": BOOT, "samples": [one]}).encode(), NOW) for one in sent]
    assert sorted(together.samples, key=repr) == sorted((s for one in alone for s in one.samples), key=repr)
    refused = [sum(r.samples for r in one.refusals if r.whole) for one in (together, *alone)]
    assert refused[0] == sum(refused[1:])
    assert len(together.samples) + refused[0] == len(sent)
    assert decode_samples(encode_samples(together.samples)) == together.samples


def test_a_message_of_nothing_that_can_be_read_makes_one_refusal() -> None:
    """A hundred thousand numbers in place of samples do not become a hundred thousand dead letters."""
    payload = json.dumps({"boot": BOOT, "samples": [0] * 80_000}).encode()
    (refusal,) = decode(TOPIC, payload, NOW).refusals
    assert (refusal.reason, refusal.samples, len(refusal.payload)) == ("malformed", 80_000, 1024)


metrics = st.sampled_from([*VOCABULARY, "air_temp_c.2", "nonsense"])
samples = st.fixed_dictionaries({
    "ts": st.integers(NOW - MAX_AGE_MS - 2, NOW - MAX_AGE_MS + 2) | st.integers(NOW - 1, NOW + FUTURE_TOLERANCE_MS + 2),
    "seq": st.integers(-1, 3) | st.integers(2**53 - 2, 2**53 + 2),
    "values": st.dictionaries(metrics, st.none() | st.integers(-300, 6000) | st.floats(-25, 110), max_size=4),
})  # fmt: skip


@given(st.lists(samples, max_size=6))
def test_samples_are_checked_alike_whole_or_value_by_value(points: list[dict[str, Any]]) -> None:
    """A sample of which all passes is taken as a whole; it comes out as if each value had been looked at."""
    payload = json.dumps({"boot": BOOT, "samples": points}).encode()
    value_by_value = dict(VOCABULARY)  # the same table, but not the one that samples are taken as a whole by
    assert decode(TOPIC, payload, NOW) == decode(TOPIC, payload, NOW, value_by_value)


def test_a_topic_longer_than_names_allow_is_not_ours() -> None:
    """The longest names are; what is longer is refused, however often it comes."""
    longest = f"hothouse/v1/{'s' * 64}/{'z' * 64}/{'d' * 64}/sample"
    assert parse_topic(longest) == Topic("s" * 64, "z" * 64, "d" * 64, "sample")
    for topic in (longest.replace("/sample", "d/sample"), "hothouse/v1/" + "s" * 65_000):
        assert parse_topic(topic) is None
        assert [r.reason for r in decode(topic, b"{}", NOW).refusals] == ["unknown_topic"]


def test_long_names_of_metrics_are_not_kept() -> None:
    """Ever-new names of 200,000 characters are refused and take no memory of the gateway."""
    tracemalloc.start()
    try:
        for n in range(30):
            payload = json.dumps({"boot": BOOT, "ts": NOW, "seq": n, "values": {f"{n:08d}" + "x" * 200_000: 1.0}})
            assert [r.reason for r in decode(TOPIC, payload.encode(), NOW).refusals] == ["unknown_metric"]
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
