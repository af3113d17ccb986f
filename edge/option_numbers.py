"""Numbers that options take: what is none of them gets the same plain words in every program of ours."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

__all__ = ["number", "read_number", "whole_number"]


def read_number(text: str, low: float | None = None, high: float | None = None, *, is_whole: bool = False) -> float:
    """A number from ``low`` to ``high``; raises ``ValueError`` that says which numbers an option takes.

    >>> read_number("51.98", -90, 90), read_number("1883", 1, 65_535, is_whole=True)
    (51.98, 1883)
    >>> read_number("x", 0.1)
    Traceback (most recent call last):
        ...
    ValueError: it takes a number of at least 0.1, not 'x'
    """
    try:
        found = int(text) if is_whole else float(text)
        is_finite = math.isfinite(found)
    except (ValueError, OverflowError):  # more digits than a float has room for
        is_finite = False
    if is_finite and (low is None or found >= low) and (high is None or found <= high):
        return found
    bounds = "" if low is None else f" of at least {low:,.12g}"
    if high is not None:
        bounds = f" of at most {high:,.12g}" if low is None else f" from {low:,.12g} to {high:,.12g}"
    raise ValueError(f"it takes a {'whole ' * is_whole}number{bounds}, not {text[:40]!r}")


def number(low: float | None = None, high: float | None = None, *, is_whole: bool = False) -> Callable[[str], float]:
    """:func:`read_number` as a type for ``argparse``, whose errors it raises."""

    def read(text: str) -> float:
        try:
            return read_number(text, low, high, is_whole=is_whole)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def whole_number(low: int | None = None, high: int | None = None) -> Callable[[str], float]:
    """As :func:`number`, of whole numbers."""
    return number(low, high, is_whole=True)
