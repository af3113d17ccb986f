"""Step 2 of the way of a reading: what is wrong with a refused message, metric, time or temperature, for people."""

from __future__ import annotations

import math
import re
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import msgspec

from edge.wire.topic import SITE_ZONE, is_name
from models.durations import HOUR_MS, MINUTE_MS

__all__ = ["nearest", "of_clock", "of_json", "of_point", "of_temperature", "of_time", "of_topic", "of_value", "of_zone"]

_PAST_YEAR_2000_MS = 946_684_800_000
_COMMA = re.compile(rb":\s*-?[0-9]+,[0-9]+\s*[,}]")
_NO_NUMBER = re.compile(rb":\s*-?(nan|inf|infinity)\b", re.IGNORECASE)
_NO_NAN = "JSON has no NaN: send null, or leave the value out"
_LEVELS = 6
_SHOWN = 3
_HALF_HOUR_MS = HOUR_MS // 2
_FIRST_HALF_ZONE_H, _FURTHEST_ZONE_H = 3, 14
_ZONE_TOLERANCE_MS = 90_000  # what lies beside whole hours is a clock of no zone
_YEAR_MS = 31_557_600_000
_SPANS = (("years", _YEAR_MS), ("days", 24 * HOUR_MS), ("h", HOUR_MS), ("min", MINUTE_MS), ("s", 1000))
_LONGEST_OFF_MS = 200 * _YEAR_MS
_SMALLER_UNITS = (("microseconds", 1000), ("nanoseconds", 1_000_000))


@lru_cache(maxsize=1024)
def nearest(name: str, names: tuple[str, ...]) -> str:
    """A question that names the nearest of ``names``; empty if none is near.

    >>> nearest("air_temp", ("air_temp_c", "rh_pct")), nearest("joy", ("air_temp_c", "rh_pct"))
    ('; did you mean air_temp_c?', '')
    """
    found = get_close_matches(name.lower(), names, n=1)
    return f"; did you mean {found[0]}?" if found else ""


def of_time(ts: int, receive_ms: int, tolerance_ms: int) -> str:
    """A question that names another unit, if a refused time would be about now, or before, in that unit.

    >>> of_time(1_646_092_800, 1_646_092_800_500, 60_000), of_time(1_646_092_800_000_000, 1_646_092_800_500, 60_000)
    ('; is it in seconds?', '; is it in microseconds?')
    >>> of_time(1_000_000_000_000, 1_646_092_800_500, 60_000)
    ''
    """
    latest_ms = receive_ms + tolerance_ms
    if _PAST_YEAR_2000_MS <= ts * 1000 <= latest_ms:
        return "; is it in seconds?"
    for unit, parts in _SMALLER_UNITS:
        if _PAST_YEAR_2000_MS * parts <= ts <= latest_ms * parts:
            return f"; is it in {unit}?"
    return ""


def of_zone(ts: int, receive_ms: int, tolerance_ms: int = _ZONE_TOLERANCE_MS) -> str:
    """A question whether a time is that of another time zone: whole hours off, or half ones from 3 h on; empty if not.

    >>> of_zone(1_646_100_001_000, 1_646_092_800_500), of_zone(1_646_096_280_500, 1_646_092_800_500)
    ('; does the device send local time (UTC+2)?', '')
    >>> of_zone(1_646_112_600_000, 1_646_092_800_500)
    '; does the device send local time (UTC+5:30)?'
    """
    halves = round((ts - receive_ms) / _HALF_HOUR_MS)
    hours, half = divmod(abs(halves), 2)
    is_zone = 1 <= hours <= _FURTHEST_ZONE_H and (not half or hours >= _FIRST_HALF_ZONE_H)
    if not is_zone or abs(ts - receive_ms - halves * _HALF_HOUR_MS) > tolerance_ms:
        return ""
    return f"; does the device send local time (UTC{'+' if halves > 0 else '-'}{hours}{':30' if half else ''})?"


def of_clock(ts: int, receive_ms: int) -> str:
    """What a refused time says of the device's clock, or of the gateway's; empty if no clock shows such a time.

    >>> of_clock(1_646_096_280_500, 1_646_092_800_500), of_clock(1_046_092_800_000, 1_646_092_800_500)
    ("; is its clock 58 min ahead, or the gateway's behind?", "; is its clock 19 years behind, or the gateway's ahead?")
    >>> of_clock(3_000, 1_646_092_800_500), of_clock(1_646_092_800_500, 3_000), of_clock(10**17, 1_646_092_800_500)
    ('; was its clock never set?', "; the gateway's clock is not set", '')
    """
    if receive_ms < _PAST_YEAR_2000_MS:
        return "; the gateway's clock is not set"
    if ts < _PAST_YEAR_2000_MS:
        return "; was its clock never set?"
    if zone := of_zone(ts, receive_ms):
        return zone
    off_ms = abs(ts - receive_ms)
    if off_ms >= _LONGEST_OFF_MS:
        return ""
    way, other = ("ahead", "behind") if ts > receive_ms else ("behind", "ahead")
    unit, unit_ms = next(span for span in _SPANS if off_ms >= 2 * span[1] or span is _SPANS[-1])
    return f"; is its clock {off_ms // unit_ms} {unit} {way}, or the gateway's {other}?"


def of_temperature(value: float, unit: str, high: float) -> str:
    """A question whether a value that is too high in °C is in °F, if it would not be too high in that.

    >>> of_temperature(71.6, "°C", 60), of_temperature(150, "°C", 60), of_temperature(140, "%", 100)
    ('; is it in °F?', '', '')
    """
    return "; is it in °F?" if unit == "°C" and high < value <= high * 1.8 + 32 else ""


def of_topic(topic: str) -> str:
    """What is wrong with a topic that is not ``hothouse/v1/SITE/ZONE/DEVICE/sample``; empty if it is another one.

    >>> of_topic("/hothouse/v1/demo/z1/d/sample"), of_topic("hothouse/v1/demo/z1/sample")
    ('; it begins with a slash: leave that out', '; it has 5 levels, and not 6')
    >>> of_topic("hothouse/v1/demo/bay 1/d/sample"), of_topic("Hothouse/v1/demo/z1/d/sample"), of_topic("plant/z1")
    ("; 'bay 1' is no name", "; 'Hothouse' must be 'hothouse'", '')
    """
    if topic.startswith("/"):
        return "; it begins with a slash: leave that out"
    parts = topic.split("/")
    if parts[0].lower() != "hothouse":
        return ""
    if topic.endswith("/"):
        return "; it ends with a slash: leave that out"
    for at, wanted in ((0, "hothouse"), (1, "v1")):
        if parts[at : at + 1] != [wanted]:
            return f"; {parts[at][:64]!r} must be {wanted!r}" if len(parts) > at else ""
    if len(parts) != _LEVELS:
        return f"; it has {len(parts)} levels, and not {_LEVELS}"
    zone_at = 3
    wrong = [each for at, each in enumerate(parts[:5]) if not (is_name(each) or (at, each) == (zone_at, SITE_ZONE))]
    if wrong:
        return f"; {wrong[0][:80]!r} is no name"
    return f"; {parts[5][:64]!r} must be 'sample'"


def of_json(payload: bytes) -> str:
    """What is probably wrong with a message of samples that cannot be read; empty if nothing of that is.

    >>> of_json(b""), of_json(b'{"values": {"rh_pct": NaN}}')
    ('; the message is empty', '; JSON has no NaN: send null, or leave the value out')
    >>> of_json(b'{"ts": 1646092800000.5, "values": {"rh_pct": "71", "co2_ppm": 500}}')
    "; ts must be whole milliseconds; rh_pct must be a number, and is '71'"
    """
    if not payload.strip(b"\0 \r\n\t"):
        return "; the message is empty"
    try:
        said: Any = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _of_text(payload)
    return of_point(said) if isinstance(said, dict) else ""


def of_point(point: object) -> str:
    """What is wrong with a sample that cannot be read; empty if none of what devices do by mistake.

    >>> of_point({"ts": 1646092800000.5, "values": {"rh_pct": "71"}}), of_point([])
    ("; ts must be whole milliseconds; rh_pct must be a number, and is '71'", '')
    """
    if not isinstance(point, dict):
        return ""
    wrong = [] if _is_number(point.get("ts"), int) else ["ts must be whole milliseconds"]
    values = point.get("values")
    named = values if isinstance(values, dict) else {}
    wrong += filter(None, (of_value(name, value) for name, value in named.items()))
    return "".join(f"; {what}" for what in wrong[:_SHOWN])


def of_value(name: str, value: object) -> str:
    """What is wrong with a value that is no number; empty if it is one, or ``None``.

    >>> of_value("rh_pct", "71"), of_value("rh_pct", float("nan")), of_value("rh_pct", 71)
    ("rh_pct must be a number, and is '71'", 'rh_pct is NaN; JSON has no NaN: send null, or leave the value out', '')
    """
    if isinstance(value, float) and math.isnan(value):
        return f"{name[:64]} is NaN; {_NO_NAN}"
    if _is_number(value, int, float):
        return ""
    if isinstance(value, list | dict):  # it may hold brackets in brackets, too deep to be written
        return f"{name[:64]} must be a number, and is {'an object' if isinstance(value, dict) else 'an array'}"
    return f"{name[:64]} must be a number, and is {str(value)[:40]!r}"


def _of_text(payload: bytes) -> str:
    if payload.startswith(b"\xef\xbb\xbf"):
        return "; it begins with a byte order mark"
    if payload.endswith(b"\0"):
        return "; it ends with a zero byte, which is no part of the text"
    if re.match(rb"\s*\{\s*'", payload):
        return "; JSON has double quotes"
    if _NO_NUMBER.search(payload):
        return f"; {_NO_NAN}"
    return "; a number has a decimal point, and no comma" if _COMMA.search(payload) else ""


def _is_number(value: object, *kinds: type) -> bool:
    return value is None or (isinstance(value, kinds) and not isinstance(value, bool))
