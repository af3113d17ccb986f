"""Step 6 of the way of a reading: what rows that came from outside add to those that are there, as pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from edge.wire.vocabulary import VOCABULARY

__all__ = ["COUNTERS", "PASSED_OVER_S", "age_column", "differing", "filled", "of_pauses", "without_pauses"]

BRIDGED_S = 3600
"""So long may a metric be unread before an import fills it in beside others that were read. Learners and rules bridge a
shorter time, and a device that sends every ten minutes keeps a series of its own.
"""
COUNTERS = frozenset(name for name, metric in VOCABULARY.items() if metric.kind == "counter")
COUNTED_S = 86_400
"""A meter that was not read for so long may have stopped: what another import says from then on is no double."""
ROUNDING = 1e-4
"""Values that differ by less than this share, or than this where they are small, are the same: files are rounded."""
PASSED_OVER_S = 3 * 86_400
"""A silent site has rows for this long; then its rows are passed over, up to the next sample."""
_ZONE_MS = 2**43
"""More than the end of any row."""

Bools = npt.NDArray[np.bool_]


def age_column(channel: str) -> str:
    """The column with the age in seconds of a channel's newest reading.

    >>> age_column("rh_pct")
    'rh_pct_age_s'
    """
    return f"{channel}_age_s"


def differing(new: pa.Table, old: pa.Table, channels: Sequence[str], step_s: int) -> int:
    """How many rows say something else than was read in the old row beside them, of a channel that both know. A value
    that holds from a reading before was not read there. Rows of an import that an earlier release has begun may lack a
    channel.
    """
    differs = np.zeros(len(new), bool)
    for name in channels:
        if name in old.column_names and name in new.column_names:
            said, there = new[name].to_numpy(), old[name].to_numpy()
            is_other = np.abs(said - there) > ROUNDING * np.maximum(np.abs(there), 1)  # not so of NaN
            differs |= is_other & _is_read(old, name, step_s)
    return int(differs.sum())


def filled(there: pa.Table, rows: pa.Table, channels: Sequence[str], step_s: int) -> tuple[pa.Table, Bools, Bools]:
    """The rows that are ``there``, with values of the ``rows`` beside them as ``History.add_missing`` says; which of
    them got any, and which changed.
    """
    rows = _without_counted(rows, there)
    same_step = _numbers(there, "step_s") == step_s
    unread = same_step & ~_were_read(there, channels, step_s) & _were_read(rows, channels, step_s)
    fills, changes = unread.copy(), unread.copy()
    for name in channels:
        value, age_s = _numbers(there, name), _numbers(there, age_column(name))
        new, new_age_s = _numbers(rows, name), _numbers(rows, age_column(name))
        missing = same_step & np.isnan(value) & ~(age_s < BRIDGED_S) & ~np.isnan(new)
        takes = missing | (unread & ~(np.isnan(new) & np.isnan(new_age_s)))
        if name in COUNTERS:  # its rows between two readings are counted, too: the next import must see that
            takes |= same_step & np.isnan(age_s) & (new_age_s < COUNTED_S)
        fills |= missing
        changes |= takes
        for column, old, other in ((name, value, new), (age_column(name), age_s, new_age_s)):
            there = _with(there, column, np.where(takes, other, old))
    return there, fills, changes


def of_pauses(rows: pa.Table, before: pa.Table, step_s: int) -> Bools:
    """Which rows may lie in a pause that a running system has passed over: in the zone's row before, a counter was
    unread for so long. So do rows that say nothing of it: the rows behind them are judged by them. ``before`` has rows
    of these zones, also of earlier times.
    """
    found = np.zeros(len(rows), bool)
    for name in COUNTERS & set(rows.column_names):
        found |= _beside(rows, before, name, -1)[0] >= PASSED_OVER_S - step_s
    return found


def without_pauses(rows: pa.Table, around: pa.Table, step_s: int) -> pa.Table:
    """The rows without what counters gained in pauses that a running system has passed over: the row of their first
    reading after it has that. There a counter is as old as it was before the pause, and older. ``around`` has the rows
    of these zones before and after. A counter that began anew after the pause gained nothing there, and keeps what
    ``rows`` say.
    """
    for name in COUNTERS & set(rows.column_names):
        age_s, end_ms, _ = _beside(rows, around, name, -1)
        next_age_s, _, next_gained = _beside(rows, around, name, 1)
        counts_on = ~np.isnan(next_age_s) & ((next_age_s >= step_s) | (next_gained > 0))
        counted = (age_s >= PASSED_OVER_S - step_s) & counts_on
        passed_s = (rows["end_ms"].to_numpy() - end_ms) / 1000
        rows = _with(rows, name, np.where(counted, np.nan, _numbers(rows, name)))
        rows = _with(rows, age_column(name), np.where(counted, age_s + passed_s, _numbers(rows, age_column(name))))
    return rows


def _beside(
    rows: pa.Table, others: pa.Table, name: str, way: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Of the zone's row before (``way`` -1) or after (1) each row: a channel's age, the row's end, the channel's value,
    each [n]; NaN where there is none.
    """
    zones = pc.unique(rows["zone"])
    places = _places(others, zones)
    order = np.argsort(places)
    known, mine = places[order], _places(rows, zones)
    at = np.searchsorted(known, mine, "left" if way < 0 else "right") - (way < 0)
    is_there = (at >= 0) & (at < len(known))
    is_there[is_there] = known[at[is_there]] // _ZONE_MS == mine[is_there] // _ZONE_MS
    found = np.full((3, len(rows)), np.nan)
    columns = (_numbers(others, age_column(name)), others["end_ms"].to_numpy(), _numbers(others, name))
    for number, column in enumerate(columns):
        found[number, is_there] = column[order[at[is_there]]]
    age_s, end_ms, value = found
    return age_s, end_ms, value


def _places(rows: pa.Table, zones: pa.Array) -> npt.NDArray[np.int64]:
    """A number for each row: by zone, then by end; negative where it is of none of the zones."""
    number = pc.fill_null(pc.index_in(rows["zone"], value_set=zones), -1).to_numpy().astype(np.int64)
    return np.asarray(number * _ZONE_MS + rows["end_ms"].to_numpy(), np.int64)


def _is_read(rows: pa.Table, name: str, step_s: int) -> Bools:
    """In which rows of this length a metric was read."""
    age_s, value = _numbers(rows, age_column(name)), _numbers(rows, name)
    read: Bools = (age_s < step_s) | (np.isnan(age_s) & ~np.isnan(value))
    return read


def _were_read(rows: pa.Table, channels: Sequence[str], step_s: int) -> Bools:
    """In which rows of this length anything was read, also of a metric that is none of the ``channels`` any more: a
    value may also be one that holds from a reading before.
    """
    read = np.zeros(len(rows), bool)
    for name in {*channels, *(name for name in rows.column_names if age_column(name) in rows.column_names)}:
        read |= _is_read(rows, name, step_s)
    return read


def _without_counted(rows: pa.Table, there: pa.Table) -> pa.Table:
    """The rows without what counters gained that were read before the row ``there``: the row of their next reading has
    it.
    """
    for name in COUNTERS:
        counts_on = ~np.isnan(_numbers(there, age_column(name)))
        for column in (name, age_column(name)):
            if column in rows.column_names:
                rows = _with(rows, column, np.where(counts_on, np.float32(np.nan), _numbers(rows, column)))
    return rows


def _with(rows: pa.Table, column: str, values: npt.NDArray[np.floating]) -> pa.Table:
    kept = rows.drop_columns(column) if column in rows.column_names else rows
    return kept.append_column(column, pa.array(np.asarray(values, np.float32)))


def _numbers(rows: pa.Table, column: str) -> npt.NDArray[np.float32]:
    """A column's values [n]; NaN where older rows do not have it."""
    if column not in rows.column_names:
        return np.full(len(rows), np.nan, np.float32)
    return np.asarray(rows[column].to_numpy(), np.float32)
