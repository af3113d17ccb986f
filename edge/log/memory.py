"""Step 3 of the way of a reading: a log in memory, for tests. It keeps the contract of ``edge.log.Log``."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from edge.log.contract import LogClosedError, LogFullError, LogTruncatedError, NewRecord, Record, partition_of
from edge.wire.events import site_retirement

__all__ = ["MemoryLog"]


class MemoryLog:
    """Durable as long as the process. ``capacity`` bounds the records it holds, so that tests can fill it.

    >>> log = MemoryLog(partitions=1)
    >>> log.append([NewRecord("demo", "tick", 1000, b"")])
    [(0, 0)]
    >>> log.read(0, 0, 10)[0].receive_ms
    1000
    """

    id = ""

    def __init__(self, partitions: int = 4, capacity: int | None = None) -> None:
        self.capacity = capacity
        self._lock = threading.Lock()
        self._records: list[list[Record]] = [[] for _ in range(partitions)]
        self._begin = [0] * partitions
        self._newest: list[dict[str, int]] = [{} for _ in range(partitions)]  # receive time of each site
        self._sites: set[str] = set()
        self._closed = False

    @property
    def partitions(self) -> int:
        """How many partitions the log has."""
        return len(self._records)

    def append(self, records: Sequence[NewRecord]) -> list[tuple[int, int]]:
        """Append all records, or none when ``capacity`` is too small (``LogFullError``)."""
        with self._lock:
            self._check()
            held = sum(map(len, self._records))
            if self.capacity is not None and held + len(records) > self.capacity:
                raise LogFullError(f"the log holds {held} of at most {self.capacity} records")
            places = []
            for new in records:
                partition = partition_of(new.site, self.partitions)
                newest = self._newest[partition]
                receive_ms = newest[new.site] = max(new.receive_ms, newest.get(new.site, new.receive_ms))
                offset = self._begin[partition] + len(self._records[partition])
                self._records[partition].append(
                    Record(partition, offset, new.site, new.kind, receive_ms, new.payload, new.topic, new.origin)
                )
                if new.kind == "samples":
                    (self._sites.add if new.origin is None else self._sites.discard)(new.site)
                elif site_retirement(new) is not None:
                    self._sites.discard(new.site)
                places.append((partition, offset))
            return places

    def read(self, partition: int, offset: int, limit: int) -> list[Record]:
        """At most ``limit`` records from ``offset`` on."""
        with self._lock:
            self._check(partition)
            start = offset - self._begin[partition]
            if start < 0:
                raise LogTruncatedError(partition, offset, self._begin[partition])
            return self._records[partition][start : start + limit]

    def end_offset(self, partition: int) -> int:
        """The offset that the next record of the partition will get."""
        with self._lock:
            self._check(partition)
            return self._begin[partition] + len(self._records[partition])

    def begin_offset(self, partition: int) -> int:
        """The smallest offset that can still be read."""
        with self._lock:
            self._check(partition)
            return self._begin[partition]

    def last_receive_ms(self, partition: int) -> int | None:
        """The greatest receive time that the partition ever had."""
        with self._lock:
            self._check(partition)
            return max(self._newest[partition].values(), default=None)

    def sites(self) -> list[str]:
        """Every site whose newest ``samples`` record came without an origin."""
        with self._lock:
            self._check()
            return sorted(self._sites)

    def truncate(self, partition: int, before: int) -> None:
        """Forget records with an offset smaller than ``before``."""
        with self._lock:
            self._check(partition)
            gone = max(0, min(before - self._begin[partition], len(self._records[partition])))
            del self._records[partition][:gone]
            self._begin[partition] += gone

    def commit(self, partition: int, offset: int) -> None:
        """Do nothing: nobody watches this log."""
        with self._lock:
            self._check(partition)

    def close(self) -> None:
        """Further calls raise ``LogClosedError``."""
        self._closed = True

    def _check(self, partition: int = 0) -> None:
        if self._closed:
            raise LogClosedError("the log is closed")
        if not 0 <= partition < len(self._records):
            raise ValueError(f"partition {partition} is not in 0 ... {len(self._records) - 1}")
