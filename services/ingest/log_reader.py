"""Step 4 of the way of a reading: a shard reads its partitions of the log, a little of each a round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from edge.log import Log, LogError, LogReplacedError, LogTruncatedError, Record
from edge.timing import Periodic

__all__ = ["READ_BYTES", "READ_RECORDS", "LogReader"]

READ_RECORDS = 500
READ_BYTES = 64 * 1024
"""About how much one round reads of a partition: little enough for other threads to get their turn."""
LOOK_S = 10.0
"""How often a partition that gives nothing is asked where it ends: that is a request to a server."""


class LogReader:
    """Reads as many records at a time as make about ``READ_BYTES``, by the size of the last ones. ``clock_s`` is
    monotonic.
    """

    def __init__(self, log: Log, clock_s: Callable[[], float]) -> None:
        self._log, self._clock_s = log, clock_s
        self._looks = defaultdict[int, Periodic](lambda: Periodic(LOOK_S))
        self._limits: dict[int, int] = {}  # records of a partition to read next
        self._ends: dict[int, int] = {}  # of partitions, as they were last known
        self._begun_ends: dict[int, int] = {}  # the same when they were first known; empty: not yet

    def read(self, partition: int, offset: int) -> tuple[Sequence[Record], bool]:
        """The next records, and whether there are probably more. Raises the log's errors, ``LogReplacedError`` too
        where the log ends before ``offset``: whatever came to it would never be read.
        """
        limit = self._limits.get(partition, 1)
        try:
            records = self._log.read(partition, offset, limit)
        except LogTruncatedError as error:
            words = f"{error}, and what lies between was not read. The next start says how to go on"
            raise LogError(words) from error
        if records:
            size = sum(len(record.payload) for record in records) // len(records)
            self._limits[partition] = max(1, min(READ_RECORDS, READ_BYTES // max(size, 1)))
        else:
            self._look(partition, offset)
        return records, len(records) == limit

    def backlog(self, offsets: Mapping[int, int], *, is_away: bool) -> int:
        """How many records lie after these offsets of partitions; of a log that ``is_away`` or does not answer, by what
        was known last: nobody waits for it.
        """
        with suppress(LogError):
            if not is_away:
                self._ends = {partition: self._log.end_offset(partition) for partition in offsets}
                self._begun_ends = self._begun_ends or self._ends
        return sum(max(self._ends.get(partition, 0) - offset, 0) for partition, offset in offsets.items())

    def replays(self, offsets: Mapping[int, int]) -> bool:
        """Whether records after these offsets were there when :meth:`backlog` was first answered, or may have been, as
        it never was: another shard of these partitions may have counted them before.
        """
        return any(offset < self._begun_ends.get(partition, offset + 1) for partition, offset in offsets.items())

    def _look(self, partition: int, offset: int) -> None:
        look, now_s = self._looks[partition], self._clock_s()
        if not look.is_due(now_s):
            return
        end = self._log.end_offset(partition)
        if end < offset:
            raise LogReplacedError(
                f"partition {partition} of the log ends at {end} and was read up to {offset}: it is another log. Bring "
                "the earlier log back"
            )
        look.restart(now_s)
