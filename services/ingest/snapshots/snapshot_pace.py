"""Step 4 of the way of a reading: how often a shard saves.

A shard saves every ``stream.snapshot_s`` seconds; less often while there is a backlog, and if snapshots are large. It
saves sooner after very many records, because a restart reads them again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from services.ingest.snapshots.snapshot import Saved

__all__ = ["MAX_UNFLUSHED_ROWS", "Progress", "SnapshotPace"]

SNAPSHOT_RECORDS = 20_000
PAUSES_BEHIND = 4
"""While it is behind a shard saves this many times less often: what a crash costs then is little beside what waits."""
FORECASTS_FIRST_S = 5.0
"""How long a snapshot waits for forecasts of rows that have just closed: they are what people wait for."""
SNAPSHOT_BYTES_PER_S = 10_000_000
"""On average a shard writes no more than this into snapshots: a large one saves less often, not all the time."""
LOOKED_AT_BYTES_PER_S = 100_000_000
"""Nor does it look for what has changed in more than this."""
MAX_UNFLUSHED_ROWS = 2_000_000
"""Rows, of zones and devices, kept in memory while the history cannot be written; then the shard stops reading. They
take some 300 MB, however large the sites are."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a shard is beyond its snapshots."""

    unsaved_records: int  # of the partition with the most
    unflushed_rows: int
    is_behind: bool  # there is a backlog
    awaits_forecasts: bool


class SnapshotPace:
    """Says when it is time to save; seconds are of one monotonic clock.

    >>> pace = SnapshotPace(every_s=30, now_s=0)
    >>> waits, behind = Progress(10, 5, False, False), Progress(10, 5, True, True)
    >>> [pace.is_due(now_s, waits) for now_s in (29, 30)], [pace.is_due(now_s, behind) for now_s in (119, 120)]
    ([False, True], [False, True])
    """

    def __init__(self, every_s: float, now_s: float) -> None:
        self._every_s = self._pause_s = every_s
        self._began_s = now_s
        self._fails = False

    def is_due(self, now_s: float, progress: Progress) -> bool:
        """Whether to save now."""
        pause_s = self._pause_s * (PAUSES_BEHIND if progress.is_behind else 1)
        if progress.awaits_forecasts and not progress.is_behind:
            pause_s += FORECASTS_FIRST_S
        passed_s = now_s - self._began_s
        if self._fails:  # else a shard that has read on for long would try all the time
            return passed_s >= self._pause_s
        is_full = progress.unflushed_rows >= MAX_UNFLUSHED_ROWS and passed_s >= self._pause_s
        return passed_s >= pause_s or is_full or progress.unsaved_records >= SNAPSHOT_RECORDS

    def began(self, now_s: float) -> None:
        """One begins, or is tried, now; it counts as failed until :meth:`works`."""
        self._began_s, self._fails = now_s, True

    def works(self) -> None:
        """What was begun is durable, or on its way."""
        self._fails = False

    def failed(self) -> None:
        """What was on its way did not become durable."""
        self._fails = True

    def cost(self, sizes: Collection[Saved]) -> None:
        """What the newest snapshot of each partition cost, from which the next pause follows."""
        written = sum(size.written_bytes for size in sizes)
        looked_at = sum(size.looked_at_bytes for size in sizes)
        self._pause_s = max(self._every_s, written / SNAPSHOT_BYTES_PER_S, looked_at / LOOKED_AT_BYTES_PER_S)
