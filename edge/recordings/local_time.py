"""What a site's wall clock showed -> UTC, over the hours that it shows twice or never."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np
import numpy.typing as npt

from models.durations import HOUR_MS

__all__ = ["to_utc_ms"]

I64 = npt.NDArray[np.int64]

_QUARTER_MS = 900_000
"""Offsets of time zones change on quarters of an hour only."""

_WINTER_OF = {"Europe/Dublin": "Europe/London", "Eire": "Europe/London"}
"""As in ``models.spec``, which is not imported here: of Ireland the database of time zones takes summer time for the
standard.
"""

_REPEATED_MS = HOUR_MS
"""The clock is put back by an hour."""


def to_utc_ms(local_ms: I64, zone: zoneinfo.ZoneInfo, clock: Literal["civil", "standard"] = "civil") -> tuple[I64, I64]:
    """UTC of what a site's clock showed; returns ``(rows, utc_ms)``, rising strictly, of the rows that stay.

    In the hour that the clock shows twice in autumn a row belongs to the second pass once the clock has been seen to go
    back, or when it repeats the time before it; shown once, the hour is the first pass. A row in the hour that the
    clock skips in spring was never shown and is left out, as is a second row of the same instant. With
    ``clock='standard'`` the clock is never put forward, and each hour is there once.
    """
    if local_ms.size > 1 and np.median(np.diff(local_ms)) < 0:
        rows, utc_ms = to_utc_ms(local_ms[::-1], zone, clock)  # a file with the newest row first
        return local_ms.size - 1 - rows, utc_ms
    quarters, index = np.unique(local_ms // _QUARTER_MS, return_inverse=True)
    offsets = np.array([_offsets_ms(int(quarter), zone, clock) for quarter in quarters], dtype=np.int64).reshape(-1, 2)
    first, second = offsets[index, 0], offsets[index, 1]
    fold = np.zeros(local_ms.size, dtype=bool)
    went_back_ms, previous = None, None
    for row in np.flatnonzero(first > second):
        now = int(local_ms[row])
        if previous is not None and now < previous:
            went_back_ms = now
        in_second_pass = went_back_ms is not None and now - went_back_ms < _REPEATED_MS
        fold[row] = in_second_pass or now == previous
        previous = now
    utc_ms = local_ms - np.where(fold, second, first)
    rows = np.flatnonzero(first >= second)
    order = np.argsort(utc_ms[rows], kind="stable")
    unique, at = np.unique(utc_ms[rows][order], return_index=True)
    return rows[order][at], unique


def _offsets_ms(quarter: int, zone: zoneinfo.ZoneInfo, clock: str) -> tuple[int, int]:
    if clock == "standard" and zone.key in _WINTER_OF:
        zone = zoneinfo.ZoneInfo(_WINTER_OF[zone.key])
    local = datetime.fromtimestamp(quarter * _QUARTER_MS / 1000, UTC).replace(tzinfo=zone)
    if clock == "standard":
        at = local.replace(fold=0)
        standard = (at.utcoffset() or timedelta(0)) - (at.dst() or timedelta(0))
        return (ms := round(standard.total_seconds() * 1000)), ms
    before, after = (local.replace(fold=fold).utcoffset() or timedelta(0) for fold in (0, 1))
    return round(before.total_seconds() * 1000), round(after.total_seconds() * 1000)
