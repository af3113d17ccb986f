"""Lengths of time as people say them, and times as programs do."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["in_words", "utc_text"]


def in_words(seconds: float) -> str:
    """Seconds below a minute, minutes below an hour, else hours; below ten of them with a tenth, where it is not 0.

    >>> [in_words(seconds) for seconds in (45, 90, 2700, 3600, 5400, 86_400)]
    ['45 s', '1.5 min', '45 min', '1 h', '1.5 h', '24 h']
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    number, unit = (seconds / 60, "min") if seconds < 3600 else (seconds / 3600, "h")
    return f"{number:.{1 if number < 10 else 0}f}".removesuffix(".0") + f" {unit}"


def utc_text(ms: int) -> str:
    """A time in ISO 8601, UTC, to the second.

    >>> utc_text(1_646_092_800_000)
    '2022-03-01T00:00:00Z'
    """
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
