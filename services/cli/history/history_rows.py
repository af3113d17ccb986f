"""A recording as the rows that the live system would have made of it, for the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.recordings.importing import import_samples
from edge.recordings.sample_source import SampleSource
from edge.wire.vocabulary import VOCABULARY
from services.ingest.windows.partition_windows import LONG_SILENCE_MS, PartitionWindows
from services.store.history import zone_table

__all__ = ["history_rows"]

RECORDS = 512
"""Records of a thousand samples that become rows at a time."""


def history_rows(
    source: SampleSource, step_ms: int, lateness_ms: int, idle_ms: int, primary: Mapping[str, str],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> pa.Table:  # fmt: skip
    """Zone rows of all of a source's samples, with the history's columns; times are UTC.

    Settings are those of the live site. ``progress(done, total)`` is told in milliseconds of the source's time. Samples
    that a gateway would refuse are left out.
    """
    start_ms, end_ms = source.start_ms, source.end_ms
    assert end_ms is not None
    log, channels = MemoryLog(1), tuple(VOCABULARY)
    # Without any lateness the first device of an instant on the grid would make the others of that instant late.
    windows = PartitionWindows(step_ms, max(lateness_ms, 1), idle_ms, VOCABULARY, {source.site: dict(primary)})
    tables = [zone_table(channels, [])]

    def close_rows(at_ms: int, _: int = 0) -> None:
        """Rows of what has been appended so far, which is then forgotten: years of samples need not fit in memory."""
        while records := log.read(0, log.begin_offset(0), RECORDS):
            steps = [step for step in windows.feed(records).steps if step.end_ms < end_ms + step_ms]
            tables.append(zone_table(channels, steps, step_ms // 1000))
            log.truncate(0, records[-1].offset + 1)
        progress(at_ms - start_ms, end_ms - start_ms)

    import_samples(source, log, end_ms, close_rows)
    # Silence lets the last rows close, and silence is what ticks saw; a source may end long after its newest sample.
    silent_ms = lateness_ms + 2 * idle_ms + 4 * step_ms + LONG_SILENCE_MS
    silent = range(end_ms, end_ms + silent_ms, max(step_ms // 10, 1))
    log.append([NewRecord(source.site, "tick", at_ms, b"") for at_ms in silent])
    close_rows(end_ms)
    return pa.concat_tables(tables)  # in pieces: a copy of years of rows would need as much memory again
