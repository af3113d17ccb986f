"""MQTT messages of every kind, bent and torn, the same for the same seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from edge.gateway.record_builder import Message

T0 = 1_646_092_800_000


STEP_MS, LATER = 300_000, T0 + 3_600_000


BOOT = "9f3c62d1a07be845"
SEEDS: list[tuple[str, Any]] = [
    (
        "hothouse/v1/demo/z1/climate/sample",
        {"boot": BOOT, "ts": T0, "seq": 1, "values": {"rh_pct": 71.0, "air_temp_c": 20.5}},
    ),
    (
        "hothouse/v1/demo/_site/ws/sample",
        {"boot": BOOT, "samples": [{"ts": T0, "seq": n, "values": {"out_temp_c": 4.0}} for n in range(3)]},
    ),
    (
        "hothouse/v1/demo/z1/grower/plan",
        {"source": "grower", "issued": T0, "kind": "setpoint", "values": {"sp_heat_c": [[T0, 18.0], [LATER, 20.0]]}},
    ),
    (
        "hothouse/v1/demo/z1/operator/event",
        {"type": "calibration", "version": 1_646_092_800, "metric": "rh_pct", "offset": 1.5},
    ),
    ("hothouse/v1/demo/z1/operator/event", {"type": "retire", "version": 1_646_092_801}),
    (f"hothouse/v1/demo/_uplink/{BOOT}/record", [1, "samples", T0, 5, "", "x"]),
]


ODD: list[Any] = [
    None, True, -1, 0, 2**63, 2**64, -(2**63), 1e308, 1e-308, "", "\x00", "é" * 300, [], {}, [[]], {"": ""}, "NaN",
    "1e5", "../../etc/passwd", "$SYS/x", "a" * 5000, [0] * 2000,
]  # fmt: skip


TOKENS = [b"NaN", b"Infinity", b"1e999", b"\xff\xfe", b"\x00", b"{", b"]", b'"', b"\\u0000", b"99999999999999999999999"]


def messages(count: int, seed: int) -> Iterator[Message]:
    """Messages that devices send, more or less bent."""
    rng = random.Random(seed)
    for _ in range(count):
        topic, value = rng.choice(SEEDS)
        for _ in range(rng.randrange(3)):
            value = bent(value, rng)
        payload = json.dumps(value).encode("utf-8", "surrogatepass")
        for _ in range(rng.choice([0, 0, 0, 1, 3])):
            payload = torn(payload, rng)
        if rng.random() < 0.1:
            parts = topic.split("/")
            parts[rng.randrange(len(parts))] = rng.choice(["", "..", "_site", "x" * 300, "+", "é", "plan", "v2", "a/b"])
            topic = "/".join(parts)
        yield Message(topic, payload)


def bent(value: Any, rng: random.Random) -> Any:
    """The value with something in it put aside, doubled or replaced."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        match rng.randrange(4):
            case 0:
                return {name: held for name, held in value.items() if name != key}
            case 1:
                return {**value, str(rng.choice(ODD))[:40]: value[key]}
            case _:
                return {**value, key: bent(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], bent(value[at], rng), *value[at:]]
    if isinstance(value, int | float) and rng.random() < 0.5:
        return value + rng.choice([1, -1, 60_000, -86_400_000, 0.5, 10**12])
    return rng.choice(ODD)


def torn(payload: bytes, rng: random.Random) -> bytes:
    """The bytes cut, or with others in them."""
    at = rng.randrange(len(payload) + 1)
    match rng.randrange(3):
        case 0:
            return payload[:at]
        case 1:
            return payload[:at] + rng.choice(TOKENS) + payload[at:]
        case _:
            return payload[:at] + bytes([rng.randrange(256)]) + payload[at + 1 :]
