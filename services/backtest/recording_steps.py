"""A recording as the rows that the live system would have made of it, for the history."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from edge.recordings.recording import Recording
from edge.wire.vocabulary import VOCABULARY
from services.backtest.recording_rows import closed_rows
from services.store.history import zone_table
from services.store.rows import SiteStep

__all__ = ["history_rows"]

STEPS_A_TABLE = 5_000
"""So many steps are held as rows before they become columns."""


def history_rows(
    recording: Recording, step_ms: int, progress: Callable[[int, int], None] = lambda done, total: None
) -> pa.Table:
    """Zone rows on the stream's grid, with the history's columns; times are UTC.

    ``progress(done, total)`` is told in steps. A recording without a row gives none.
    """
    times_ms = [table.times_ms for table in recording.tables if len(table.times_ms)]
    if not times_ms:
        return zone_table(tuple(VOCABULARY), [])
    start_ms, end_ms = (-(-int(of(map(of, times_ms))) // step_ms) * step_ms for of in (min, max))
    length = (end_ms - start_ms) // step_ms + 1
    channels, tables, steps = tuple(VOCABULARY), [], list[SiteStep]()
    for t, zones, values, ages_s in closed_rows(recording, start_ms, step_ms, length):
        steps.append(SiteStep(0, recording.site, start_ms + t * step_ms, zones, values, ages_s))
        if len(steps) == STEPS_A_TABLE:
            tables.append(zone_table(channels, steps))
            steps = []
            progress(t, length)
    tables.append(zone_table(channels, steps))
    progress(length, length)
    return pa.concat_tables(tables).combine_chunks()
