"""Step 3 of the way of a reading: what every log promises, and what it raises.

Everything downstream is a pure function of the records of a partition, in their order. Import these names from
``edge.log``.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

__all__ = [
    "Log",
    "LogBusyError",
    "LogClosedError",
    "LogCorruptError",
    "LogError",
    "LogFormatError",
    "LogFullError",
    "LogReplacedError",
    "LogTruncatedError",
    "NewRecord",
    "Origin",
    "Record",
    "RecordKind",
    "partition_of",
]

RecordKind = Literal["samples", "refused", "tick", "plan", "event"]
"""``samples``: encode_samples; ``refused``: msgpack list[Refusal]; ``tick``: empty, carries only its receive time;
``plan``: encode_plan, what passed of it; ``event``: the checked JSON as it came. Both have their topic in
``NewRecord.topic``."""


class LogError(Exception):
    """Base of all errors of a log. The class itself is raised when the storage failed and nothing was appended."""


class LogBusyError(LogError):
    """Another process appends to this log; only one may."""


class LogClosedError(LogError):
    """The log was used after ``close``."""


class LogCorruptError(LogError):
    """What was read is not what was appended."""


class LogFormatError(LogError):
    """The log was created in another format, or with another number of partitions."""


class LogFullError(LogError):
    """No room is left; nothing of the batch was appended, and the same append may be tried again."""


class LogReplacedError(LogError):
    """There is another log now where the one was that was opened or read. It goes on when that one is back."""


class LogTruncatedError(LogError):
    """The record was truncated away; ``begin`` is the smallest offset that can still be read."""

    def __init__(self, partition: int, offset: int, begin: int) -> None:
        super().__init__(f"offset {offset} of partition {partition} was truncated; the log begins at {begin}")
        self.begin = begin


class Origin(NamedTuple):
    """The permanent name of a record, through every uplink: the log that held it first, and its number among the
    records of its *site* there (from 0, without gaps). Two records of a site with one origin are one record that was
    sent twice.
    """

    log: str
    number: int


class NewRecord(NamedTuple):
    """A record to append. ``receive_ms`` is when the *first* gateway took it; the log keeps it non-decreasing a site
    by lifting a smaller one to the site's newest. Sites that share a partition do not lift each other: what one sends
    after a day without a connection keeps its times. ``origin`` is set for a record that comes out of another log.
    """

    site: str
    kind: RecordKind
    receive_ms: int
    payload: bytes
    topic: str = ""
    origin: Origin | None = None


class Record(NamedTuple):
    """A record as read: its place in the log and what was appended. ``SqliteLog`` gives an origin of its own to a
    record that came without one; other logs leave it ``None``.
    """

    partition: int
    offset: int
    site: str
    kind: RecordKind
    receive_ms: int
    payload: bytes
    topic: str
    origin: Origin | None = None


def partition_of(site: str, partitions: int) -> int:
    """The partition of a site: CRC-32 of its name, so that weather and zones meet in one shard.

    >>> partition_of("demo", 4)
    0
    """
    return zlib.crc32(site.encode()) % partitions


class Log(Protocol):
    """An ordered, durable log. One process appends at a time; any number read. Safe to share between threads.

    Every call raises ``LogReplacedError`` while another log is in the place of the one that was opened, also where that
    one is as long.
    """

    @property
    def id(self) -> str:
        """The log's permanent name, which no other log has; empty where it has none."""

    @property
    def partitions(self) -> int:
        """How many partitions the log was created with; never changes."""

    def append(self, records: Sequence[NewRecord]) -> list[tuple[int, int]]:
        """Append all records or none; returns their ``(partition, offset)`` only when they are durable.

        Raises ``LogFullError`` without room, ``LogBusyError`` when another process appends. Where a log is on other
        machines, a ``LogError`` may leave it unknown what arrived: the same append, tried again, duplicates nothing.
        """

    def read(self, partition: int, offset: int, limit: int) -> list[Record]:
        """At most ``limit`` records from ``offset`` on (inclusive), in order; empty when there is none yet.

        Raises ``LogTruncatedError`` when ``offset`` was truncated away, ``LogCorruptError`` on a damaged record.
        """

    def end_offset(self, partition: int) -> int:
        """The offset that the next record of the partition will get."""

    def begin_offset(self, partition: int) -> int:
        """The smallest offset that can still be read (equals ``end_offset`` when empty)."""

    def last_receive_ms(self, partition: int) -> int | None:
        """The greatest receive time that the partition ever had, ``None`` when it never had a record."""

    def sites(self) -> list[str]:
        """Every site whose newest ``samples`` record came without an origin, sorted; truncating forgets none. One that
        was retired as a whole since then (``edge.wire.events.site_retirement``) is left out.

        The process that appends to this log also appends their ticks. A site whose records come from another log gets
        its ticks there.
        """

    def truncate(self, partition: int, before: int) -> None:
        """Forget records with an offset smaller than ``before`` (at most the end); offsets are never used again."""

    def commit(self, partition: int, offset: int) -> None:
        """Tell tools that watch the log that all before ``offset`` is processed; Hothouse does not depend on it."""

    def close(self) -> None:
        """Release files and connections; further calls raise ``LogClosedError``, another ``close`` does nothing."""
