"""Step 4 of the way of a reading: a shard reads its partitions of the log, a little of each a round."""

from __future__ import annotations

from collections.abc import Sequence

from edge.log import Log, Record

__all__ = ["READ_BYTES", "READ_RECORDS", "LogReader"]

READ_RECORDS = 500
READ_BYTES = 64 * 1024
"""About how much one round reads of a partition: little enough for other threads to get their turn."""


class LogReader:
    """Reads as many records at a time as make about ``READ_BYTES``, by the size of the last ones."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._limits: dict[int, int] = {}  # records of a partition to read next

    def read(self, partition: int, offset: int) -> tuple[Sequence[Record], bool]:
        """The next records, and whether there are probably more. Raises the log's errors."""
        limit = self._limits.get(partition, 1)
        records = self._log.read(partition, offset, limit)
        if records:
            size = sum(len(record.payload) for record in records) // len(records)
            self._limits[partition] = max(1, min(READ_RECORDS, READ_BYTES // max(size, 1)))
        return records, len(records) == limit
