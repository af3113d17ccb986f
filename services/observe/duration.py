"""Lengths of time as people say them."""

from __future__ import annotations

__all__ = ["in_words"]


def in_words(seconds: float) -> str:
    """Seconds below a minute, minutes below an hour, else hours; below ten of them with a tenth, where it is not 0.

    >>> [in_words(seconds) for seconds in (45, 90, 2700, 3600, 5400, 86_400)]
    ['45 s', '1.5 min', '45 min', '1 h', '1.5 h', '24 h']
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    number, unit = (seconds / 60, "min") if seconds < 3600 else (seconds / 3600, "h")
    return f"{number:.{1 if number < 10 else 0}f}".removesuffix(".0") + f" {unit}"
