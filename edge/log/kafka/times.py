"""Step 3 of the way of a reading: the newest receive time of each site in a log on Kafka.

The log promises that receive times of a site never decrease, also after a restart and after truncation. So they are
kept as a fact beside the records, with the offset up to which it is true. Later records are read at the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from edge.log.kafka.address import KafkaAddress
from edge.log.kafka.record import decode_record
from edge.log.kafka.topics import TopicFacts, read_pieces

__all__ = ["SiteTimes"]

_SAVE_RECORDS = 10_000
"""A fact is written this often, and with the first append after a start that read more: what a start reads on stays
bounded, however few records each process appends."""


class _Fact(msgspec.Struct):
    offset: int
    sites: dict[str, int]


@dataclass(slots=True)
class _Partition:
    """``sites`` holds what is before ``offset``, and what we appended ourselves."""

    offset: int
    sites: dict[str, int] = field(default_factory=dict)
    appended: int = 0
    is_read: bool = False  # to its end, once


class SiteTimes:
    """Newest receive times by partition; the caller's lock guards it."""

    def __init__(self, address: KafkaAddress, facts: TopicFacts) -> None:
        self._address, self._facts = address, facts
        self._partitions: dict[int, _Partition] = {}

    def newest(self, consumer: KafkaConsumer, partition: int) -> int | None:
        """The greatest of a partition, records of other processes included."""
        return max(self._read_on(consumer, partition).sites.values(), default=None)

    def lift(self, consumer: KafkaConsumer, partition: int, site: str, receive_ms: int) -> int:
        """The receive time that a record of the site gets, from now on the site's newest."""
        known = self._partitions.get(partition)
        if known is None or not known.is_read:
            known = self._read_on(consumer, partition)
        lifted = known.sites[site] = max(receive_ms, known.sites.get(site, receive_ms))
        return lifted

    def appended(self, partitions: Sequence[int]) -> None:
        """A record was appended to each of these partitions."""
        for partition in partitions:
            self._partitions[partition].appended += 1

    def write_due(self, producer: KafkaProducer, ends: Mapping[int, int]) -> None:
        """Write the facts that are due, before an append: where that fails, nothing was appended. ``ends``: of ours."""
        for partition, known in self._partitions.items():
            if known.appended >= _SAVE_RECORDS:
                self._write(producer, partition, ends.get(partition, known.offset))

    def save(self, consumer: KafkaConsumer, producer: KafkaProducer, partition: int) -> None:
        """Write the fact now: records are about to be truncated."""
        known = self._read_on(consumer, partition)
        self._write(producer, partition, known.offset)

    def _write(self, producer: KafkaProducer, partition: int, end: int) -> None:
        known = self._partitions[partition]
        fact = msgspec.json.encode(_Fact(end, known.sites))
        self._facts.write(producer, {f"newest:{partition}": fact})
        known.appended = 0

    def _read_on(self, consumer: KafkaConsumer, partition: int) -> _Partition:
        place = TopicPartition(self._address.topic, partition)
        begin = int(consumer.beginning_offsets([place])[place])
        end = int(consumer.end_offsets([place])[place])
        known = self._partitions.get(partition)
        if known is None:
            known = _Partition(max(begin, end - _SAVE_RECORDS))
            if (text := self._facts.read(consumer).get(f"newest:{partition}")) is not None:
                fact = msgspec.json.decode(text, type=_Fact | int)
                if isinstance(fact, int):  # format 1: of the partition, no site named
                    known.sites[""] = fact
                else:
                    known.offset, known.sites = fact.offset, fact.sites
            self._partitions[partition] = known
        known.offset = max(known.offset, begin)
        # What has come stays, where the rest does not come in time: the next try goes on there.
        for records, after in read_pieces(consumer, place, known.offset, end, self._address.timeout_s):
            for record in map(decode_record, records):
                known.sites[record.site] = max(record.receive_ms, known.sites.get(record.site, record.receive_ms))
            known.appended += after - known.offset
            known.offset = after
        known.is_read = True
        return known
