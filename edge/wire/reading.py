"""Steps 1 and 2 of the way of a reading: the wire contract between a device and Hothouse.

A device publishes *samples*: any metrics (``edge.wire.vocabulary``) at one instant, on its topic (``edge.wire.topic``).
This module holds the one function that turns untrusted bytes into checked samples: whatever the gateway (MQTT) or a
site's own Kafka producer hands over goes through :func:`decode`, once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from edge.wire import hints
from edge.wire.topic import NAME_RULE, Topic, parse_topic
from edge.wire.vocabulary import VOCABULARY, Metric, base_metric
from models.durations import DAY_MS, MINUTE_MS

__all__ = [
    "EPOCH_2000_MS",
    "FUTURE_TOLERANCE_MS",
    "MAX_AGE_MS",
    "MAX_PAYLOAD_BYTES",
    "Decoded",
    "Refusal",
    "Sample",
    "Time",
    "check_values",
    "decode",
    "decode_refusals",
    "encode_message",
    "encode_refusals",
    "read_json",
    "together",
]

FUTURE_TOLERANCE_MS = MINUTE_MS
"""A device clock may run this far ahead of the receive time; beyond it a sample is refused."""

MAX_AGE_MS = 400 * DAY_MS
"""A sample older than this at its receive time is refused as ancient."""

MAX_PAYLOAD_BYTES = 256 * 1024


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


class Decoded(msgspec.Struct, frozen=True):
    """What one message held: samples that may pass, and what was refused."""

    samples: list[Sample]
    refusals: list[Refusal]


Time = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
"""A time as a device sends it: Unix time in ms, by mistake perhaps in ns. Longer numbers are malformed."""


class _Point(msgspec.Struct):
    ts: Time
    seq: int
    values: dict[str, float | None]


class _Message(msgspec.Struct):
    boot: str
    ts: Time | None = None
    seq: int | None = None
    values: dict[str, float | None] | None = None
    samples: list[_Point] | None = None


class _Unread(NamedTuple):
    """What cannot be read of a message, beside what can."""

    values: list[tuple[_Point, list[tuple[str, str]]]]  # what is left of a sample, and reason and detail of the others
    samples: list[str]  # what is wrong with each sample of which nothing is left

    def __len__(self) -> int:
        return len(self.values) + len(self.samples)


_BOUNDS = {metric.name: (metric.low, metric.high) for metric in VOCABULARY.values()}
_DECODER = msgspec.json.Decoder(_Message)
_REFUSALS = msgspec.msgpack.Decoder(list[Refusal])
_MAX_INT = 2**53
_ALL_READ = _Unread([], [])
_NEEDED = {"ts", "seq", "values"}
_LONGEST_WHOLE = 32
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
"""Beyond JSON's own rules Python reads half of a surrogate pair, which no log takes as text."""
EPOCH_2000_MS = 946_684_800_000
"""No sample is older than this."""

_SUGGESTIONS = 3
"""The nearest known metric is named for this many unknown ones of a message; it may hold thousands."""

_SHOWN = 3
"""Mistakes in one message that a sentence names."""


def encode_refusals(refusals: Sequence[Refusal]) -> bytes:
    """The payload of a record of kind ``refused``."""
    return msgspec.msgpack.encode(refusals)


def decode_refusals(payload: bytes) -> list[Refusal]:
    """Inverse of :func:`encode_refusals`; raises ``msgspec.DecodeError``."""
    return _REFUSALS.decode(payload)


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
    ``out_of_range, unknown_metric``, and ``malformed`` of a value that is no number, refuse one value, and the sample
    too when nothing of it is left. Whatever else the message holds may pass.

    >>> d = decode("hothouse/v1/s/z/d/sample", b'{"boot":"9f3c62d1a07be845","ts":1646092800000,"seq":1,'
    ...            b'"values":{"air_temp_c":21.4,"co2_ppm":-4}}', 1646092800500)
    >>> d.samples[0].values, [(r.reason, r.whole) for r in d.refusals]
    ({'air_temp_c': 21.4}, [('out_of_range', False)])
    """
    where = parse_topic(topic)
    if where is None or where.kind != "sample":
        expected = f"expected hothouse/v1/{{site}}/{{zone}}/{{device}}/sample; {NAME_RULE}{hints.of_topic(topic)}"
        return _refused("unknown_topic", topic, expected, payload)
    if len(payload) > MAX_PAYLOAD_BYTES:
        return _refused("oversized", topic, f"{len(payload)} bytes, at most {MAX_PAYLOAD_BYTES}", payload)
    try:
        message, unread = _DECODER.decode(payload), _ALL_READ
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        apart = _taken_apart(payload)
        if apart is None:
            return _refused("malformed", topic, f"{error}{hints.of_json(payload)}", payload)
        message, unread = apart
    points = message.samples
    if points is None:
        if message.ts is None or message.seq is None or message.values is None:
            return _refused("malformed", topic, "needs boot, ts, seq and values, or boot and samples", payload)
        points = [_Point(message.ts, message.seq, message.values)]
    if not points and not len(unread):
        return _refused("no_values", topic, "the message carries no sample", payload)
    if not (8 <= len(message.boot) <= 64) or not message.boot.isascii():
        samples = len(points) + len(unread)
        return _refused("malformed", topic, "boot must be 8 to 64 ASCII characters", payload, samples)
    decoded = Decoded([], [])
    site, zone, device, boot, ours = where.site, where.zone, where.device, message.boot, vocabulary is VOCABULARY
    oldest_ms, newest_ms = max(receive_ms - MAX_AGE_MS, EPOCH_2000_MS), receive_ms + FUTURE_TOLERANCE_MS
    for point in points:
        if ours and 0 <= point.seq < _MAX_INT and oldest_ms <= point.ts <= newest_ms and _all_pass(point.values):
            decoded.samples.append(Sample(site, zone, device, boot, point.seq, point.ts, point.values))  # type: ignore[arg-type]
        else:
            _check(point, [], where, boot, receive_ms, vocabulary, topic, payload, decoded)
    for point, wrong in unread.values:
        _check(point, wrong, where, boot, receive_ms, vocabulary, topic, payload, decoded)
    if unread.samples:  # one refusal for all: a message may hold a hundred thousand of them
        shown, details = b"" if decoded.refusals else payload[:1024], together([*dict.fromkeys(unread.samples)])
        decoded.refusals.append(Refusal("malformed", topic, details, shown, True, len(unread.samples)))
    return decoded


def read_json(payload: bytes) -> Any:
    """JSON in which a number may also be NaN or Infinity, which many programs write, or larger than a double, which is
    read as infinity: it ends no value that stands beside it. Raises ``ValueError`` for anything else.

    >>> read_json(b'{"temperature": NaN, "humidity": 71, "co2": 1e400}')
    {'temperature': nan, 'humidity': 71, 'co2': inf}
    """
    if _HALF_CHARACTER.search(payload):
        raise ValueError("the text holds half a character")
    try:
        return json.loads(payload.decode(), parse_int=_whole)
    except RecursionError as error:
        raise ValueError("there are too many brackets in brackets") from error


def _taken_apart(payload: bytes) -> tuple[_Message, _Unread] | None:
    """The samples and values that can be read of a message in which something is no number; ``None`` if it is no
    message.
    """
    try:
        said = read_json(payload)
    except ValueError:
        return None
    boot = said.get("boot") if isinstance(said, dict) else None
    if not isinstance(boot, str):
        return None
    listed = said.get("samples")
    if listed is not None and not isinstance(listed, list):
        return None
    passed, unread = list[_Point](), _Unread([], [])
    for part in [said] if listed is None else listed:
        if not isinstance(part, dict) or not part.keys() >= _NEEDED:
            unread.samples.append("a sample needs ts, seq and values")
            continue
        named = part["values"] if isinstance(part["values"], dict) else {}
        wrong = {name: what for name, value in named.items() if (what := hints.of_value(name, value))}
        left = {**part, "values": {name: named[name] for name in named if name not in wrong}} if wrong else part
        try:
            point = msgspec.convert(left, _Point)
        except msgspec.ValidationError as error:
            unread.samples.append(f"{error}{hints.of_point(part)}")
            continue
        if wrong:
            unread.values.append((point, [("malformed", what) for what in wrong.values()]))
        else:
            passed.append(point)
    return _Message(boot, samples=passed), unread


def _whole(digits: str) -> int | float:
    """A whole number of JSON; one that is longer than any time is read as a double, which takes no time."""
    return int(digits) if len(digits) < _LONGEST_WHOLE else float(digits)


def _all_pass(values: Mapping[str, float | None]) -> bool:
    """Whether all values are in range, as in nearly every sample: then :func:`check_values` need not be asked."""
    try:
        for name, value in values.items():
            low, high = _BOUNDS[name]
            if not low <= value <= high:  # type: ignore[operator]
                return False
    except (KeyError, TypeError):  # a second sensor's metric, an unknown one, or no value
        return False
    return bool(values)


def together(details: Sequence[str]) -> str:
    """One sentence of several, of which the first few are shown.

    >>> together(["a", "b"]), together(["a", "b", "c", "d", "e"])
    ('a; b', 'a; b; c (and 2 more)')
    """
    more = f" (and {len(details) - _SHOWN} more)" if len(details) > _SHOWN else ""
    return "; ".join(details[:_SHOWN]) + more


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
    point: _Point, unread: list[tuple[str, str]], where: Topic, boot: str, receive_ms: int,
    vocabulary: Mapping[str, Metric], topic: str, payload: bytes, into: Decoded,
) -> None:  # fmt: skip
    def refuse(reason: str, detail: str, whole: bool = True) -> None:
        # Only a message's first refusal has its payload: thousands of bad samples must not make thousands of copies.
        shown = b"" if into.refusals else payload[:1024]
        into.refusals.append(Refusal(reason, topic, detail, shown, whole))

    if not 0 <= point.seq < _MAX_INT:
        return refuse("malformed", "seq is not in 0 ... 2^53")
    if not max(receive_ms - MAX_AGE_MS, EPOCH_2000_MS) <= point.ts <= receive_ms + FUTURE_TOLERANCE_MS:
        meant = hints.of_time(point.ts, receive_ms, FUTURE_TOLERANCE_MS) or hints.of_clock(point.ts, receive_ms)
        if point.ts > receive_ms:
            return refuse("future_ts", f"ts {point.ts} is {point.ts - receive_ms} ms after its receive time{meant}")
        return refuse("ancient_ts", f"ts {point.ts} is {receive_ms - point.ts} ms before its receive time{meant}")
    values, unfit = check_values(point.values, vocabulary, max(0, _SUGGESTIONS - len(into.refusals)))
    wrong = [*unread, *unfit]
    if values:
        into.samples.append(Sample(where.site, where.zone, where.device, boot, point.seq, point.ts, values))
        for reason, detail in wrong:
            refuse(reason, detail, whole=False)
    elif wrong:
        refuse(wrong[0][0], together([detail for _, detail in wrong]))
    else:
        refuse("no_values", "the sample carries no value")


def _refused(reason: str, topic: str, detail: str, payload: bytes, samples: int = 1) -> Decoded:
    return Decoded([], [Refusal(reason, topic[:256], detail, payload[:1024], True, samples)])
