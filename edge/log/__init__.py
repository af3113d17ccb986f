"""Step 3 of the way of a reading: the durable, partitioned append log.

Everything downstream is a pure function of the records of a partition, in their order. ``SqliteLog`` is the
default and the edge buffer; ``KafkaLog`` (``edge/log/kafka/kafka_log.py``) keeps the same contract in production;
``MemoryLog`` keeps it for tests.
"""

from __future__ import annotations

from edge.log.contract import (
    Log,
    LogBusyError,
    LogClosedError,
    LogCorruptError,
    LogError,
    LogFormatError,
    LogFullError,
    LogReplacedError,
    LogTruncatedError,
    NewRecord,
    Origin,
    Record,
    RecordKind,
    partition_of,
)

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
