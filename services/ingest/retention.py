"""Step 4 of the way of a reading: old records leave the log once nothing can need them.

A record may go when it is older than ``keep_days``, by receive times of its own site and never by the wall clock, and
every snapshot that is kept stands behind it: its rows are in the history then, because they are written first. So a
site that was cut off for months, or whose gateway has a wrong clock, takes no kept day of its neighbours.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from edge.log import Log, Record
from edge.timing import Periodic
from models.durations import DAY_MS

__all__ = ["Retention"]

LOOK_EVERY_S = 3600.0
LOOK_EVERY_RECORDS = 5_000
"""Also where the newest receive time stands still; the newest of these records say what time it is."""
LOOK_RECORDS = 500
TIMES = 10
"""A site's newest receive times that say whether its clock goes: one reading that is ahead does not."""
PIECE = 5_000
"""Records that are removed at once; appends wait meanwhile."""


class _Clocks(NamedTuple):
    """The time at sites whose receive times rise (``going``), and the sites where they stay the same (``standing``):
    after a clock was ahead all records have its time, until that has come.
    """

    going: dict[str, int]
    standing: set[str]


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
            clocks = self._clocks(partition, max(begin, end - LOOK_EVERY_RECORDS))
            self._goal[partition] = self._first_kept(partition, begin, clocks) if clocks.going else begin
            self._looks[partition].restart(newest_ms / 1000)
            self._look_again[partition] = end + LOOK_EVERY_RECORDS
        if self._goal[partition] <= begin:
            return 0
        before = min(self._goal[partition], passed(), begin + PIECE)
        if before > begin:
            self._log.truncate(partition, before)
        return max(before - begin, 0)

    def _clocks(self, partition: int, offset: int) -> _Clocks:
        newest = defaultdict[str, deque[int]](lambda: deque(maxlen=TIMES))
        for record in self._records(partition, offset):
            newest[record.site].append(record.receive_ms)
        return _Clocks(
            {site: times[0] for site, times in newest.items() if times[0] < times[-1]},
            {site for site, times in newest.items() if times[0] == times[-1] and len(times) == TIMES},
        )

    def _first_kept(self, partition: int, begin: int, clocks: _Clocks) -> int:
        """The first offset that is to be kept: that behind the last old record before the first young one. Records of a
        site whose clock stands are as old as those around them. One that has not been heard of lately has left, and
        goes by its neighbours.
        """
        at, now_ms = begin, max(clocks.going.values())
        for record in self._records(partition, begin):
            if record.receive_ms < clocks.going.get(record.site, now_ms) - self._keep_ms:
                at = record.offset + 1
            elif record.site not in clocks.standing:
                break
        return at

    def _records(self, partition: int, offset: int) -> Iterator[Record]:
        while records := self._log.read(partition, offset, LOOK_RECORDS):
            yield from records
            offset = records[-1].offset + 1
