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


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        ("esphome/demo/north-1/bench/status", b"online"), ("esphome/demo/north-1/bench/debug", b"[D] x"),
        ("esphome/demo/north-1/bench/switch/fan/state", b"ON"), ("zigbee2mqtt/bridge/state", b'{"state":"online"}'),
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
        ("esphome/demo/z/bench/sensor/air_temp_c/state", b"warm", "malformed", "'warm', and not a number"),
        ("esphome/demo/z/bench/sensor/air_temp_c/state", b"71.6", "out_of_range", "is it in °F?"),
        ("zigbee2mqtt/0x00158d", b'{"temperature":20}', "malformed", "rename the device in Zigbee2MQTT"),
        ("zigbee2mqtt/demo/z/plug", b'{"state":"ON"}', "no_values", "none of temperature, humidity"),
        ("zigbee2mqtt/demo/z/leaf", b"[1]", "malformed", "Expected `object`"),
    ],
)  # fmt: skip
def test_a_mistake_says_what_to_do(topic: str, payload: bytes, reason: str, words: str) -> None:
    """Each is a dead letter with a sentence."""
    (refusal,) = take(topic, payload).refusals
    assert refusal.reason == reason
    assert words in refusal.detail
