"""The times of a recording's file, as they are written there -> milliseconds, UTC or of a clock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from edge.recordings.columns import RecordingError

__all__ = ["MIXED_TIMES", "UNIX_MS", "moment", "unix_times", "utc_or_clock"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

UNIX_MS = {"unix_s": 1000, "unix_ms": 1}
"""``time_format`` of Unix time -> how many milliseconds its unit has."""
MIXED_TIMES = "some times carry a UTC offset and some do not"
_HOUR_ALONE = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?( ?[AaPp][Mm])?\Z")
_MIDNIGHT = re.compile(r"(?<=[ T])24(?=[:.]?00)")
"""The end of a day, which ISO 8601 knows; Python does from 3.14 on."""
_DAY_NUMBER = re.compile(r"[2-5]\d{4}([.,]\d+)?\Z")
"""A spreadsheet's days since 1900, of 1954 to 2064."""
_DAYS = ("%d-%m-%Y", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y-%m-%d")
_HOURS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p", "%H.%M")
_USUAL = tuple(f"{day} {hour}" for day in (*_DAYS, *(day.replace("%Y", "%y") for day in _DAYS)) for hour in _HOURS)
"""Ways in which programs write times, beside ISO 8601; of two that fit, the day before the month."""
_SECONDS_MOST = 1e11
"""Unix time in seconds is below this until the year 5138; in milliseconds it was above it in 1973."""


def moment(text: str, where: str, written: str) -> datetime:
    """The time in a cell; ``written`` is how, as ``time_format`` says it.

    Raises :class:`RecordingError` that says what to do about a text that is none.

    >>> moment("2022-02-01 00:05", "a.csv", "").isoformat(), moment("1643673900", "a.csv", "unix_s").isoformat()
    ('2022-02-01T00:05:00', '2022-02-01T00:05:00+00:00')
    >>> moment("28-02-2022 24:00", "a.csv", "%d-%m-%Y %H:%M").isoformat()
    '2022-03-01T00:00:00'
    """
    text = text.strip()
    try:
        return _read(text, written)
    except (ValueError, OverflowError, OSError) as error:
        raise RecordingError(f"{where}: {_words(text, written)}") from error


def _read(text: str, written: str) -> datetime:
    at_zero, is_end = _MIDNIGHT.subn("00", text, count=1)
    if is_end:
        return _read(at_zero, written) + timedelta(days=1)
    if scale := UNIX_MS.get(written):
        return datetime.fromtimestamp(float(text) * scale / 1000, UTC)
    # A clock's time has no zone; whether it carries an offset is seen later.
    return datetime.strptime(text, written) if written else datetime.fromisoformat(text)  # noqa: DTZ007


def _words(text: str, written: str) -> str:
    if not text:
        return "there is no time; remove that line"
    if written:
        return f"{text[:40]!r} is no time as {written!r} (time_format)"
    if not re.search(r"\d", text):
        return f"{text[:40]!r} is no time; remove that line"
    if _HOUR_ALONE.match(text):
        return f"{text!r} is a time without a day; put both into one column, as in 2022-02-01 00:05"
    if unit := _unix_unit(text):
        return f'{text!r} is Unix time; say time_format = "{unit}" in recording.toml'
    if _DAY_NUMBER.match(text):
        return f"{text!r} is a spreadsheet's number of a day; give that column a date's format there, and save it again"
    said = f"{text[:40]!r} is no time such as 2022-02-01 00:05; say how it is written"
    fits = [written for written in _USUAL if _is_written(text, written)]
    if not fits:
        return f'{said}, as time_format = "%d-%m-%Y %H:%M", in recording.toml'
    also = f', or "{fits[1]}" if the month comes first' if len(fits) > 1 and fits[1].startswith("%m") else ""
    return f'{said}: time_format = "{fits[0]}"{also}, in recording.toml'


def _is_written(text: str, written: str) -> bool:
    try:
        _read(text, written)
    except (ValueError, OverflowError):
        return False
    return True


def _unix_unit(text: str) -> str:
    """In which unit a number of a time in 2001 to 2286 counts from 1970; empty where it is no such number."""
    if not re.fullmatch(r"\d{10}(\d{3})?(\.\d+)?", text):
        return ""
    return "unix_s" if float(text) < _SECONDS_MOST else "unix_ms"


def utc_or_clock(moments: Sequence[datetime], label: str) -> tuple[I64, bool]:
    """Milliseconds since 1970, and whether they are UTC; else they are a clock's, read as if it showed UTC."""
    aware = {one.tzinfo is not None for one in moments}
    if len(aware) > 1:
        raise RecordingError(f"{label}: {MIXED_TIMES}")
    seconds = [(one if one.tzinfo else one.replace(tzinfo=UTC)).timestamp() for one in moments]
    return np.round(np.array(seconds, dtype=np.float64) * 1000).astype(np.int64), aware == {True}


def unix_times(numbers: F64, label: str, column: str, written: str) -> I64:
    """A column of numbers as milliseconds, UTC; raises :class:`RecordingError` where nobody said what they count."""
    first = f"{numbers[0]:.0f}" if numbers.size else ""
    if written not in UNIX_MS:
        unit = _unix_unit(first)
        fix = f'it looks like Unix time: say time_format = "{unit}" in recording.toml' if unit else f"such as {first}"
        raise RecordingError(f"{label}: its {column} column holds numbers, not times; {fix}")
    return np.round(numbers * UNIX_MS[written]).astype(np.int64)
