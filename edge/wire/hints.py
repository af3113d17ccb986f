"""Step 2 of the way of a reading: what a refused metric, time or temperature probably was meant to be, for people."""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache

__all__ = ["nearest", "of_temperature", "of_time"]

_PAST_YEAR_2000_MS = 946_684_800_000
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


def of_temperature(value: float, unit: str, high: float) -> str:
    """A question whether a value that is too high in °C is in °F, if it would not be too high in that.

    >>> of_temperature(71.6, "°C", 60), of_temperature(150, "°C", 60), of_temperature(140, "%", 100)
    ('; is it in °F?', '', '')
    """
    return "; is it in °F?" if unit == "°C" and high < value <= high * 1.8 + 32 else ""
