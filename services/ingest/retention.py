"""Step 4 of the way of a reading: old records leave the log once nothing can need them.

A record may go when it is older than ``keep_days``, by receive times of its partition and never by the wall clock, and
every snapshot that is kept stands behind it: its rows are in the history then, because they are written first. What
time it is in a partition says the site of its newest records that is furthest behind: a gateway whose clock is ahead
neither lets its neighbours' records go too soon nor keeps all for good. Less goes while a site is read that was cut
off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from edge.log import Log
from edge.timing import Periodic

__all__ = ["Retention"]

DAY_MS = 86_400_000
AHEAD_MS = 30 * DAY_MS
"""No site is cut off for as long: what is further ahead of the site that is furthest behind has a wrong clock."""
LOOK_EVERY_S = 3600.0
LOOK_EVERY_RECORDS = 5_000
"""Also where the newest receive time stands still."""
LOOK_RECORDS = 500
PIECE = 5_000
"""Records that are removed at once; appends wait meanwhile."""


class Retention:
    """``keep_days`` 0 keeps everything."""

    def __init__(self, log: Log, keep_days: int) -> None:
        self._log, self._keep_ms = log, keep_days * DAY_MS
        self._looks = defaultdict[int, Periodic](lambda: Periodic(LOOK_EVERY_S))
        self._look_again: dict[int, int] = {}
        self._goal: dict[int, int] = {}

    def apply(self, partition: int, passed: Callable[[], int]) -> int:
        """Remove old records before the offset that ``passed`` says, at most ``PIECE``; returns how many.

        ``passed`` may list a folder of a bucket: it is asked only where there is something to remove. Raises the log's
        errors, and what ``passed`` raises.
        """
        newest_ms = self._log.last_receive_ms(partition) if self._keep_ms else None
        if newest_ms is None:
            return 0
        begin, end = self._log.begin_offset(partition), self._log.end_offset(partition)
        if self._looks[partition].is_due(newest_ms / 1000) or end >= self._look_again.get(partition, end + 1):
            now_ms = self._now_ms(partition, begin, end)
            self._goal[partition] = begin if now_ms is None else self._first_kept(partition, begin, now_ms)
            self._looks[partition].restart(newest_ms / 1000)
            self._look_again[partition] = end + LOOK_EVERY_RECORDS
        if self._goal[partition] <= begin:
            return 0
        before = min(self._goal[partition], passed(), begin + PIECE)
        if before > begin:
            self._log.truncate(partition, before)
        return max(before - begin, 0)

    def _now_ms(self, partition: int, begin: int, end: int) -> int | None:
        newest = dict[str, int]()
        for record in self._log.read(partition, max(begin, end - LOOK_RECORDS), LOOK_RECORDS):
            newest[record.site] = max(record.receive_ms, newest.get(record.site, 0))
        return min(newest.values(), default=None)

    def _first_kept(self, partition: int, begin: int, now_ms: int) -> int:
        """The first offset that is to be kept. Receive times only rise within a site, and a site's that was cut off
        stand behind its neighbours' newer ones: so one after another, not by halves. What seems to come from the future
        is as old as the records around it.
        """
        at = begin
        while records := self._log.read(partition, at, LOOK_RECORDS):
            for record in records:
                if now_ms - self._keep_ms <= record.receive_ms <= now_ms + AHEAD_MS:
                    return record.offset
            at = records[-1].offset + 1
        return at
