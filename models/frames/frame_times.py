"""The index of a frame becomes times in UTC; an error about one that holds no times says how to give it some."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["utc_index"]

I64 = npt.NDArray[np.int64]


def utc_index(index: pd.Index, timezone: str, after_ms: int | None, whose: str) -> I64:
    """Times in UTC, ms. Naive ones are what the clock of ``timezone`` showed.

    The hour that the clock shows twice in autumn is told apart by the order of rows: each is the first time of its name
    that is later than the row before, and than ``after_ms``. Raises ``ValueError`` for a time that never was.
    """
    if not isinstance(index, pd.DatetimeIndex):
        raise ValueError(f"the index of {whose} {_no_times(index)}")
    if index.hasnans:
        raise ValueError(f"the index of {whose} holds NaT: drop those rows with frame[frame.index.notna()]")
    if index.tz is not None:
        return _ms(index)
    first, second = (
        index.tz_localize(timezone, ambiguous=np.full(len(index), summer), nonexistent="NaT")
        for summer in (True, False)
    )
    if first.hasnans:
        never = index[first.isna()][0]
        raise ValueError(
            f"{whose} has a row at {never}, which no clock in {timezone} showed: give times with their UTC offset"
        )
    utc_ms, later_ms = _ms(first).copy(), _ms(second)
    for row in np.flatnonzero(utc_ms != later_ms).tolist():
        before = utc_ms[row - 1] if row else after_ms
        if before is not None and utc_ms[row] <= before:
            utc_ms[row] = later_ms[row]
    return utc_ms


def _no_times(index: pd.Index) -> str:
    """What an index is instead of times, and the line that mends it."""
    if isinstance(index, pd.MultiIndex):
        others = [n for n, level in enumerate(index.levels) if not isinstance(level, pd.DatetimeIndex)]
        if len(others) != 1 or index.nlevels != 2:
            return "has several levels: leave the times alone in it"
        names = "['zone', 'time']" if others == [0] else "['time', 'zone']"
        return f"has several levels: make the zone a column (frame.rename_axis({names}).reset_index('zone'))"
    if isinstance(index, pd.PeriodIndex):
        return "holds periods: make them times with frame.to_timestamp()"
    if pd.api.types.is_numeric_dtype(index):
        return (
            "holds numbers, not times: set a DatetimeIndex (frame.set_index('time') of a column of times; "
            "of Unix seconds frame.index = pd.to_datetime(frame.index, unit='s', utc=True))"
        )
    hint = f"frame.index = pd.to_datetime(frame.index) makes one of {index.dtype}"
    return f"holds no times: set a DatetimeIndex ({hint}, set_index of a column)"


def _ms(index: pd.DatetimeIndex) -> I64:
    return np.asarray(index.as_unit("ms").asi8, dtype=np.int64)
