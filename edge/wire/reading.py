"""Step 1-2 of the way of a reading: the wire contract between a device and Hothouse.

A device publishes *samples*: any metrics at one instant. This module holds the metric vocabulary with its units and
plausible ranges, the topic grammar, and the one function that turns untrusted bytes into checked samples. Every message
of the gateway (MQTT) or of a site's own Kafka producer goes through :func:`decode`, once.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from edge.wire import hints

__all__ = [
    "FAHRENHEIT_ABOVE",
    "FUTURE_TOLERANCE_MS",
    "MAX_AGE_MS",
    "MAX_PAYLOAD_BYTES",
    "SHARES",
    "SHARE_LEAST",
    "SHARE_MOST",
    "SITE_ZONE",
    "TEMPERATURES",
    "VOCABULARY",
    "Decoded",
    "Metric",
    "Refusal",
    "Sample",
    "Topic",
    "base_metric",
    "check_values",
    "decode",
    "encode_message",
    "is_name",
    "parse_topic",
    "sample_topic",
]

SITE_ZONE = "_site"
"""The zone of site-wide devices (the weather station)."""

FUTURE_TOLERANCE_MS = 60_000
"""A device clock may run this far ahead of the receive time; beyond it a sample is refused."""

MAX_AGE_MS = 400 * 86_400_000
"""A sample older than this at its receive time is refused as ancient."""

MAX_PAYLOAD_BYTES = 256 * 1024

Kind = Literal["gauge", "angle", "state", "counter"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One entry of the vocabulary; ``label`` is what people call it.

    ``low`` and ``high`` bound what is plausible, in ``unit``; a value above ``high`` but at most ``clip_from`` is
    clipped to ``high`` (a humidity sensor that reads 101 %). ``hold_s`` says how long a value that is sent on
    change stays valid; ``None`` means that it is only valid in its own step.
    """

    name: str
    label: str
    unit: str
    low: float
    high: float
    kind: Kind = "gauge"
    hold_s: int | None = None
    clip_from: float | None = None


def _vocabulary() -> dict[str, Metric]:
    hour = 3600
    rows = [
        # inside climate
        Metric("air_temp_c", "air temperature", "°C", -20, 60),
        Metric("rh_pct", "relative humidity", "%", 0, 100, clip_from=102),
        Metric("hd_g_m3", "humidity deficit", "g/m³", 0, 100),
        Metric("co2_ppm", "CO₂", "ppm", 150, 5000),
        Metric("par_umol_m2_s", "PAR light", "µmol/m²/s", 0, 3000),
        Metric("leaf_temp_c", "leaf temperature", "°C", -20, 60),
        Metric("soil_vwc_pct", "soil water", "%", 0, 100),
        Metric("soil_temp_c", "soil temperature", "°C", -20, 60),
        Metric("soil_ec_us_cm", "soil EC", "µS/cm", 0, 20000),
        # actuators
        *(
            Metric(name, label, "%", 0, 100, hold_s=hour, clip_from=102)
            for name, label in (
                ("vent_lee_pct", "leeward vents"), ("vent_wind_pct", "windward vents"), ("lamp_pct", "lamps"),
                ("screen_energy_pct", "energy screen"), ("screen_black_pct", "blackout screen"),
                ("co2_dosing_pct", "CO₂ dosing"), ("fog_pct", "fogging"), ("fan_pct", "fans"),
            )
        ),
        Metric("heat_pipe_low_c", "lower heating pipe", "°C", -5, 110, hold_s=hour),
        Metric("heat_pipe_grow_c", "grow pipe", "°C", -5, 110, hold_s=hour),
        # setpoints
        Metric("sp_heat_c", "heating setpoint", "°C", -20, 60, hold_s=24 * hour),
        Metric("sp_vent_c", "venting setpoint", "°C", -20, 60, hold_s=24 * hour),
        Metric("sp_rh_pct", "humidity setpoint", "%", 0, 100, hold_s=24 * hour, clip_from=102),
        Metric("sp_hd_g_m3", "humidity deficit setpoint", "g/m³", 0, 100, hold_s=24 * hour),
        Metric("sp_co2_ppm", "CO₂ setpoint", "ppm", 0, 5000, hold_s=24 * hour),
        Metric("sp_pipe_min_c", "minimum pipe setpoint", "°C", -5, 110, hold_s=24 * hour),
        Metric("sp_screen_energy_pct", "energy screen setpoint", "%", 0, 100, hold_s=24 * hour, clip_from=102),
        Metric("sp_screen_black_pct", "blackout screen setpoint", "%", 0, 100, hold_s=24 * hour, clip_from=102),
        Metric("sp_lamp_pct", "lamp setpoint", "%", 0, 100, hold_s=24 * hour, clip_from=102),
        # outside
        Metric("out_temp_c", "outside temperature", "°C", -50, 60),
        Metric("out_rh_pct", "outside humidity", "%", 0, 100, clip_from=102),
        Metric("out_radiation_w_m2", "solar radiation", "W/m²", -10, 1500),
        Metric("out_longwave_net_w_m2", "net longwave radiation", "W/m²", -300, 200),
        Metric("wind_m_s", "wind speed", "m/s", 0, 60),
        Metric("wind_dir_deg", "wind direction", "°", 0, 360, kind="angle"),
        Metric("rain", "rain", "0/1", 0, 1, kind="state", hold_s=hour),
        Metric("out_rad_sum_j_cm2", "radiation sum today", "J/cm²", 0, 5000),
        Metric("irrigation_l_m2", "irrigation", "l/m²", 0, 1e6, kind="counter"),
    ]  # fmt: skip
    return {metric.name: metric for metric in rows}


VOCABULARY: Mapping[str, Metric] = _vocabulary()
"""The one table of metrics; a site's configuration adds to it."""


SHARES = ("rh_pct", "out_rh_pct", "sp_rh_pct", "soil_vwc_pct")
"""Percentages that never stay at 1.5 or below for long. Vents, lamps and screens do."""

SHARE_MOST, SHARE_LEAST = 1.5, 0.05
"""A share is never more; what is never more than 5 % of 1 is a broken sensor or one that hangs in the air."""

TEMPERATURES = ("air_temp_c", "leaf_temp_c", "soil_temp_c", "out_temp_c")
"""Temperatures that never stay above 45 °C for long. Heating pipes do."""

FAHRENHEIT_ABOVE = 45.0


class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One device, one instant, any metrics.

    ``(site, zone, device, boot, seq)`` is a sample's permanent name; de-duplication uses it. ``ts_ms`` is Unix time in
    milliseconds, UTC. ``values`` holds finite numbers only, each within its metric's range.
    """

    site: str
    zone: str
    device: str
    boot: str
    seq: int
    ts_ms: int
    values: dict[str, float]


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """A message, a sample or a value that was kept out, and why.

    ``whole`` says whether whole samples were refused (``samples`` of them) or only one value of a sample that was
    otherwise accepted. ``payload`` holds at most the first kibibyte of what was sent, in a message's first refusal.
    """

    reason: str
    topic: str
    detail: str
    payload: bytes = b""
    whole: bool = True
    samples: int = 1


@dataclass(frozen=True, slots=True)
class Topic:
    """A parsed topic; ``kind`` is ``sample``, ``plan`` or ``event``."""

    site: str
    zone: str
    device: str
    kind: str


class Decoded(msgspec.Struct, frozen=True):
    """What one message held: samples that may pass, and what was refused."""

    samples: list[Sample]
    refusals: list[Refusal]


class _Point(msgspec.Struct):
    ts: int
    seq: int
    values: dict[str, float | None]


class _Message(msgspec.Struct):
    boot: str
    ts: int | None = None
    seq: int | None = None
    values: dict[str, float | None] | None = None
    samples: list[_Point] | None = None


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_SECOND = re.compile(r"\.[0-9]{1,2}\Z")
_KINDS = ("sample", "plan", "event")
_LONGEST_TOPIC = 256  # three names and what is around them are shorter
_TOPICS_KEPT = 16_384
_LONGEST_METRIC = 64  # longer names, which a message may hold, are not kept
_BOUNDS = {metric.name: (metric.low, metric.high) for metric in VOCABULARY.values()}
_DECODER = msgspec.json.Decoder(_Message)
_MAX_INT = 2**53
_EPOCH_2000_MS = 946_684_800_000
_SUGGESTIONS = 3
"""Suggestions for one message, which may hold thousands of unknown metrics."""


def is_name(text: str) -> bool:
    """Whether ``text`` may name a site, a zone or a device.

    >>> is_name("north-1"), is_name("../etc"), is_name("a/b"), is_name("_site")
    (True, False, False, False)
    """
    return _NAME.match(text) is not None


def base_metric(name: str) -> str:
    """The vocabulary's name of a metric that may carry a second sensor's suffix.

    >>> base_metric("air_temp_c.2"), base_metric("rh_pct")
    ('air_temp_c', 'rh_pct')
    """
    return _base_metric(name) if len(name) <= _LONGEST_METRIC else _SECOND.sub("", name)


@functools.lru_cache(4096)
def _base_metric(name: str) -> str:
    return _SECOND.sub("", name)


def parse_topic(topic: str) -> Topic | None:
    """Parse ``hothouse/v1/{site}/{zone}/{device}/{kind}``; ``None`` if the topic is not ours.

    >>> parse_topic("hothouse/v1/demo/z1/climate/sample")
    Topic(site='demo', zone='z1', device='climate', kind='sample')
    >>> parse_topic("hothouse/v1/demo/z1/sample") is None
    True
    """
    return _parse_topic(topic) if len(topic) <= _LONGEST_TOPIC else None


@functools.lru_cache(_TOPICS_KEPT)  # devices send on the same topics again and again
def _parse_topic(topic: str) -> Topic | None:
    parts = topic.split("/")
    if len(parts) != 6 or parts[0] != "hothouse" or parts[1] != "v1" or parts[5] not in _KINDS:
        return None
    site, zone, device = parts[2:5]
    if not (is_name(site) and (zone == SITE_ZONE or is_name(zone)) and is_name(device)):
        return None
    return Topic(site, zone, device, parts[5])


def sample_topic(site: str, zone: str, device: str) -> str:
    """The topic a device publishes its samples on.

    >>> sample_topic("demo", "z1", "climate")
    'hothouse/v1/demo/z1/climate/sample'
    """
    return f"hothouse/v1/{site}/{zone}/{device}/sample"


def encode_message(samples: Sequence[Sample]) -> bytes:
    """The JSON payload of one device's samples of one boot, as devices publish it.

    >>> encode_message([Sample("s", "z", "d", "9f3c62d1a07be845", 7, 1646092800000, {"rh_pct": 71.0})])
    b'{"boot":"9f3c62d1a07be845","ts":1646092800000,"seq":7,"values":{"rh_pct":71.0}}'
    """
    first = samples[0]
    body: dict[str, Any]
    if len(samples) == 1:
        body = {"boot": first.boot, "ts": first.ts_ms, "seq": first.seq, "values": first.values}
    else:
        points = [{"ts": s.ts_ms, "seq": s.seq, "values": s.values} for s in samples]
        body = {"boot": first.boot, "samples": points}
    return msgspec.json.encode(body)


def decode(
    topic: str,
    payload: bytes,
    receive_ms: int,
    vocabulary: Mapping[str, Metric] = VOCABULARY,
) -> Decoded:
    """Check one message from outside and split it into samples and refusals; never raises.

    Reasons: ``unknown_topic, oversized, malformed, future_ts, ancient_ts, no_values`` refuse whole samples;
    ``out_of_range, unknown_metric`` refuse one value, and the sample too when nothing of it is left.

    >>> d = decode("hothouse/v1/s/z/d/sample", b'{"boot":"9f3c62d1a07be845","ts":1646092800000,"seq":1,'
    ...            b'"values":{"air_temp_c":21.4,"co2_ppm":-4}}', 1646092800500)
    >>> d.samples[0].values, [(r.reason, r.whole) for r in d.refusals]
    ({'air_temp_c': 21.4}, [('out_of_range', False)])
    """
    where = parse_topic(topic)
    if where is None or where.kind != "sample":
        return _refused("unknown_topic", topic, "expected hothouse/v1/{site}/{zone}/{device}/sample", payload)
    if len(payload) > MAX_PAYLOAD_BYTES:
        return _refused("oversized", topic, f"{len(payload)} bytes, at most {MAX_PAYLOAD_BYTES}", payload)
    try:
        message = _DECODER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _refused("malformed", topic, str(error), payload)
    points = message.samples
    if points is None:
        if message.ts is None or message.seq is None or message.values is None:
            return _refused("malformed", topic, "needs boot, ts, seq and values, or boot and samples", payload)
        points = [_Point(message.ts, message.seq, message.values)]
    if not points:
        return _refused("no_values", topic, "the message carries no sample", payload)
    if not (8 <= len(message.boot) <= 64) or not message.boot.isascii():
        return _refused("malformed", topic, "boot must be 8 to 64 ASCII characters", payload, len(points))
    decoded = Decoded([], [])
    site, zone, device, boot, ours = where.site, where.zone, where.device, message.boot, vocabulary is VOCABULARY
    oldest_ms, newest_ms = max(receive_ms - MAX_AGE_MS, _EPOCH_2000_MS), receive_ms + FUTURE_TOLERANCE_MS
    for point in points:
        if ours and 0 <= point.seq < _MAX_INT and oldest_ms <= point.ts <= newest_ms and _all_pass(point.values):
            decoded.samples.append(Sample(site, zone, device, boot, point.seq, point.ts, point.values))  # type: ignore[arg-type]
        else:
            _check(point, where, boot, receive_ms, vocabulary, topic, payload, decoded)
    return decoded


def _all_pass(values: Mapping[str, float | None]) -> bool:
    """Whether :func:`check_values` has nothing to say, as of nearly every sample."""
    try:
        for name, value in values.items():
            low, high = _BOUNDS[name]
            if not low <= value <= high:  # type: ignore[operator]
                return False
    except (KeyError, TypeError):  # a second sensor's metric, an unknown one, or no value
        return False
    return bool(values)


def check_values(
    values: Mapping[str, float | None], vocabulary: Mapping[str, Metric] = VOCABULARY, suggestions: int = 3
) -> tuple[dict[str, float], list[tuple[str, str]]]:
    """Split a sample's values into those that may pass and ``(reason, detail)`` of each that may not.

    The gateway and the import both use this function. A ``None`` says "no value", as an absent key does. For the first
    few unknown metrics (``suggestions``) the nearest known one is named; only for a few, because the search takes
    longer than the refusal.

    >>> check_values({"rh_pct": 101, "co2_ppm": -4, "air_temp_c": None})
    ({'rh_pct': 100}, [('out_of_range', 'co2_ppm -4 ppm, allowed 150 to 5000')])
    """
    passed: dict[str, float] = {}
    wrong: list[tuple[str, str]] = []
    for name, value in values.items():
        if value is None:
            continue
        metric = vocabulary.get(name) or vocabulary.get(base_metric(name))
        if metric is None:
            meant = hints.nearest(name[:64], tuple(vocabulary)) if len(wrong) < suggestions else ""
            wrong.append(("unknown_metric", f"{name[:64]} is not in the vocabulary{meant}"))
        elif metric.low <= value <= metric.high:
            passed[name] = value
        elif metric.clip_from is not None and metric.high < value <= metric.clip_from:
            passed[name] = metric.high
        else:
            shown = value if math.isfinite(value) else str(value)
            allowed = (
                f"allowed {metric.low:g} to {metric.high:g}{hints.of_temperature(value, metric.unit, metric.high)}"
            )
            wrong.append(("out_of_range", f"{name} {shown} {metric.unit}, {allowed}"))
    return passed, wrong


def _check(
    point: _Point, where: Topic, boot: str, receive_ms: int, vocabulary: Mapping[str, Metric],
    topic: str, payload: bytes, into: Decoded,
) -> None:  # fmt: skip
    def refuse(reason: str, detail: str, whole: bool = True) -> None:
        # Once a message is enough: thousands of bad samples must not make thousands of copies of it.
        shown = b"" if into.refusals else payload[:1024]
        into.refusals.append(Refusal(reason, topic, detail, shown, whole))

    if not 0 <= point.seq < _MAX_INT:
        return refuse("malformed", "seq is not in 0 ... 2^53")
    if point.ts > receive_ms + FUTURE_TOLERANCE_MS:
        meant = hints.of_time(point.ts, receive_ms, FUTURE_TOLERANCE_MS)
        return refuse("future_ts", f"ts {point.ts} is {point.ts - receive_ms} ms after its receive time{meant}")
    if point.ts < max(receive_ms - MAX_AGE_MS, _EPOCH_2000_MS):
        meant = hints.of_time(point.ts, receive_ms, FUTURE_TOLERANCE_MS)
        return refuse("ancient_ts", f"ts {point.ts} is {receive_ms - point.ts} ms before its receive time{meant}")
    values, wrong = check_values(point.values, vocabulary, max(0, _SUGGESTIONS - len(into.refusals)))
    if values:
        into.samples.append(Sample(where.site, where.zone, where.device, boot, point.seq, point.ts, values))
        for reason, detail in wrong:
            refuse(reason, detail, whole=False)
    elif wrong:
        refuse(wrong[0][0], "; ".join(detail for _, detail in wrong))
    else:
        refuse("no_values", "the sample carries no value")


def _refused(reason: str, topic: str, detail: str, payload: bytes, samples: int = 1) -> Decoded:
    return Decoded([], [Refusal(reason, topic[:256], detail, payload[:1024], True, samples)])
