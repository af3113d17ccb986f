"""ESPHome's and Zigbee2MQTT's messages become samples, through the gateway's own checks."""

from __future__ import annotations

import json

import pytest

from edge.gateway.decoders import load_decoders
from edge.wire.decoder import DecodedMessage

NOW_MS = 1_646_092_800_000


def take(topic: str, payload: bytes) -> DecodedMessage:
    """As a gateway that names both decoders."""
    decoders = load_decoders(["esphome", "zigbee2mqtt"])
    (decoder,) = [one for one in decoders if topic.startswith(one.prefix)]
    return decoder.take(topic, payload, NOW_MS)


@pytest.mark.parametrize(
    ("topic", "payload", "values"),
    [
        ("esphome/demo/north-1/bench/sensor/air_temp_c/state", b"21.4", {"air_temp_c": 21.4}),
        ("esphome/demo/_site/mast/sensor/wind_m_s/state", b" 3\n", {"wind_m_s": 3.0}),
        (
            "zigbee2mqtt/demo/north-1/leaf",
            b'{"temperature":20.5,"humidity":64,"battery":9}',
            {"air_temp_c": 20.5, "rh_pct": 64},
        ),
        ("esphome/demo/z/bench/sensor/air_temp_c_2/state", b"21.4", {"air_temp_c.2": 21.4}),
        ("esphome/demo/z/bench/sensor/air_temp_c/state", b"-1.5e+1", {"air_temp_c": -15.0}),
        ("esphome/demo/z/bench/sensor/air_temp_c/state", b"-.5", {"air_temp_c": -0.5}),
        ("esphome/demo/z/bench/number/sp_heat_c/state", b"19.500000", {"sp_heat_c": 19.5}),
        (
            "zigbee2mqtt/demo/z/probe",
            b'{"battery":100,"soil_moisture":42,"temperature":14.5,"temperature_unit":"celsius"}',
            {"soil_vwc_pct": 42, "soil_temp_c": 14.5},
        ),
        (
            "zigbee2mqtt/demo/z/probe",
            b'{"humidity":67,"humidity_calibration":0,"soil_moisture":42,"soil_warning":null,"temperature":23.2}',
            {"air_temp_c": 23.2, "rh_pct": 67, "soil_vwc_pct": 42},
        ),
        ("zigbee2mqtt/demo/_site/mast", b'{"temperature":8.5,"humidity":80}', {"out_temp_c": 8.5, "out_rh_pct": 80}),
    ],
)
def test_a_reading_is_a_sample(topic: str, payload: bytes, values: dict[str, float]) -> None:
    """Site, zone, device and metric are in the topic or the document; the time is when it came."""
    taken = take(topic, payload)
    assert [(one.values, one.ts_ms) for one in taken.samples] == [(values, NOW_MS)]
    assert taken.refusals == []


def test_the_time_is_when_it_was_seen() -> None:
    """Zigbee2MQTT's `last_seen` counts; one in the future is refused as any other."""
    seen = {"temperature": 20.5, "last_seen": "2022-02-28T23:59:00+00:00"}
    assert take("zigbee2mqtt/demo/z/leaf", json.dumps(seen).encode()).samples[0].ts_ms == NOW_MS - 60_000
    ahead = {"temperature": 20.5, "last_seen": NOW_MS + 3_600_000}
    assert [one.reason for one in take("zigbee2mqtt/demo/z/leaf", json.dumps(ahead).encode()).refusals] == ["future_ts"]


def test_a_reading_with_a_time_of_its_own_is_the_same_whenever_it_comes() -> None:
    """Zigbee2MQTT sends what it knows again when it starts, and a broker what a killed gateway did not acknowledge."""
    seen = {"temperature": 20.5, "humidity": 64, "battery": 9, "last_seen": "2022-02-28T23:59:00+00:00"}
    documents = [seen, seen | {"battery": 8}, seen | {"humidity": 65}, seen | {"last_seen": NOW_MS}]
    (first,), (again,), (other,), (later,) = (
        take("zigbee2mqtt/demo/z/leaf", json.dumps(document).encode()).samples for document in documents
    )
    assert again == first
    assert len({(one.boot, one.seq) for one in (first, other, later)}) == 3
    assert 0 <= first.seq < 2**32, "a longer one would count as a device of its own"


def test_a_value_that_is_no_number_is_told_beside_those_that_are() -> None:
    """What can be read counts."""
    taken = take("zigbee2mqtt/demo/z/leaf", b'{"temperature":"21.4","humidity":55}')
    assert [one.values for one in taken.samples] == [{"rh_pct": 55}]
    assert [(one.reason, one.detail, one.whole) for one in taken.refusals] == [
        ("malformed", "temperature is '21.4', and not a number", False)
    ]


@pytest.mark.parametrize(
    ("wrong", "reason"), [(b"NaN", "malformed"), (b"-Infinity", "out_of_range"), (b"1e400", "out_of_range")]
)
def test_a_value_that_json_does_not_have_spoils_no_other_one(wrong: bytes, reason: str) -> None:
    """A converter of a device's own may divide by zero."""
    taken = take("zigbee2mqtt/demo/z/leaf", b'{"temperature":' + wrong + b',"humidity":55,"battery":NaN}')
    assert [one.values for one in taken.samples] == [{"rh_pct": 55}]
    (refusal,) = taken.refusals
    assert (refusal.reason, refusal.whole) == (reason, False)
    assert refusal.detail.startswith("air_temp_c ")


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        ("esphome/demo/north-1/bench/status", b"online"), ("esphome/demo/north-1/bench/debug", b"[D] x"),
        ("esphome/demo/north-1/bench/switch/fan/state", b"ON"),
        ("esphome/demo/north-1/bench/number/brightness/state", b"3"),
        ("zigbee2mqtt/bridge/state", b'{"state":"online"}'),
        ("zigbee2mqtt/kitchen lamp", b'{"state":"ON","brightness":200}'),
        ("zigbee2mqtt/demo/z/leaf/availability", b'{"state":"online"}'), ("zigbee2mqtt/demo/z/leaf", b""),
    ],
)  # fmt: skip
def test_what_holds_no_reading_is_nothing(topic: str, payload: bytes) -> None:
    """No sample and no dead letter: such messages come every minute."""
    taken = take(topic, payload)
    assert (taken.samples, taken.refusals) == ([], [])


@pytest.mark.parametrize(
    ("topic", "payload", "reason", "words"),
    [
        ("esphome/bench/sensor/air_temp_c/state", b"21.4", "malformed", "topic_prefix: esphome/SITE/ZONE/DEVICE"),
        ("esphome/demo/z/bench/sensor/temperature/state", b"21.4", "unknown_metric", "temperature is not in the"),
        ("esphome/demo/z/bench/sensor/air_temp_c/state", b"nan", "no_values", "it has no reading"),
        ("esphome/demo/z/bench/sensor/air_temp_c/state", b"None", "no_values", "it has no reading"),
        ("esphome/demo/z/bench/sensor/air_temp_c/state", b"null", "no_values", "it has no reading"),
        ("esphome/demo/z/bench/binary_sensor/rain/state", b"ON", "no_values", "send rain as a template sensor"),
        ("esphome/My House/z/bench/sensor/rh_pct/state", b"71", "malformed", "a name has only letters"),
        ("esphome/demo/z/bench/sensor/air_temp_c/state", b"warm", "malformed", "'warm', and not a number"),
        ("esphome/demo/z/bench/sensor/air_temp_c/state", b"21,4", "malformed", "'21,4', and not a number; a number"),
        ("esphome/demo/z/bench/sensor/air_temp_c/state", "21 °C".encode(), "malformed", "decimal point, and no unit"),
        ("esphome/demo/z/bench/sensor/air_temp_c/state", b"2_1", "malformed", "'2_1', and not a number"),
        ("esphome/demo/z/bench/sensor/air_temp_c/state", b"inf", "malformed", "'inf', and not a number"),
        ("esphome/demo/z/bench/sensor/air_temp_c/state", b"71.6", "out_of_range", "is it in °F?"),
        ("zigbee2mqtt/0x00158d", b'{"temperature":20}', "malformed", "rename the device in Zigbee2MQTT"),
        ("zigbee2mqtt/demo/North 1/leaf", b'{"temperature":20}', "malformed", "a name has only letters"),
        ("zigbee2mqtt/demo/z/leaf/temperature", b"20.5", "malformed", "set advanced: output: json"),
        ("zigbee2mqtt/demo/z/leaf", b'{"temperature":"20.5"}', "no_values", "temperature is '20.5', and not a number"),
        ("zigbee2mqtt/demo/z/leaf", b'{"temperature":null}', "no_values", "has a number in the message"),
        ("zigbee2mqtt/demo/z/plug", b'{"state":"ON"}', "no_values", "none of temperature, humidity"),
        ("zigbee2mqtt/demo/z/leaf", b"[1]", "malformed", "Expected `object`"),
    ],
)  # fmt: skip
def test_a_mistake_says_what_to_do(topic: str, payload: bytes, reason: str, words: str) -> None:
    """Each is a dead letter with a sentence."""
    (refusal,) = take(topic, payload).refusals
    assert refusal.reason == reason
    assert words in refusal.detail
