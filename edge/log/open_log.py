"""Step 3 of the way of a reading: the log at an address, a file or ``kafka://host:port/topic``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge.log.contract import Log, LogError
from edge.log.sqlite import SqliteLog, check_records

__all__ = ["check_records", "is_kafka", "open_log"]


def is_kafka(address: str) -> bool:
    """Whether an address is Kafka's, not a file's.

    >>> is_kafka("kafka://broker:9092/hothouse"), is_kafka("hothouse-data/log.sqlite")
    (True, False)
    """
    return address.startswith("kafka:")


def open_log(address: str, partitions: int, **kafka: Any) -> Log:
    """Open a log, created with ``partitions`` if it is not there.

    ``kafka`` are fields of ``KafkaAddress``; a file has no use for them. Raises ``LogError``, and ``ValueError`` for
    what is no address.
    """
    if not is_kafka(address):
        return SqliteLog(Path(address), partitions)
    try:
        from edge.log.kafka.address import kafka_address
        from edge.log.kafka.kafka_log import KafkaLog
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "kafka":
            raise
        raise LogError("a log on Kafka needs kafka-python: pip install '.[kafka]' in Hothouse's folder") from error
    return KafkaLog(kafka_address(address, **kafka), partitions)
