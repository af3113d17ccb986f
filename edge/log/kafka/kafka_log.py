"""Step 3 of the way of a reading: the log on Kafka, for production.

An append is idempotent (``acks=all``) and returns once every record is acknowledged. Where that fails, Kafka may
hold none, some or all of the batch: the log then looks which of its records arrived when the *same* append is tried
again, and sends only the others, so that a retry duplicates nothing. What a record looks like there is in
``edge.log.kafka.record``.

Partitions are assigned, never negotiated: each reader's are fixed, and no rebalance ever pauses a shard.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kafka import KafkaAdminClient, TopicPartition
from kafka.structs import OffsetAndMetadata

from edge.log.contract import LogClosedError, NewRecord, Record, partition_of
from edge.log.kafka.address import KafkaAddress, translated
from edge.log.kafka.clients import KafkaClients
from edge.log.kafka.reader import KafkaReader
from edge.log.kafka.record import HEADER, decode_header, encode_header
from edge.log.kafka.settled import settled_end
from edge.log.kafka.times import SiteTimes
from edge.log.kafka.topics import TopicFacts, check_format, log_name, make_topics, read_pieces
from edge.wire.events import site_retirement

__all__ = ["KafkaLog"]


@dataclass(slots=True)
class _Attempt:
    """A batch that may have arrived in part: from which offsets on to look for it, and what was found before them."""

    records: Sequence[NewRecord]
    name: str
    since: dict[int, int]
    places: dict[int, int] = field(default_factory=dict)  # index in the batch -> offset


class KafkaLog:
    """The log in the topic of ``address``, created with ``partitions`` if it is not there.

    A record that another process appended is seen within 0.2 s; one of our own at once. Several processes may append
    (none raises ``LogBusyError``); receive times are then non-decreasing among those of each. A topic that was deleted
    and made anew is seen within some seconds; from then on every call raises ``LogReplacedError``. ``id`` is empty with
    servers before Kafka 2.8. Raises ``LogFormatError`` where the topic is another's, ``LogError`` when Kafka does not
    answer.
    """

    def __init__(self, address: KafkaAddress, partitions: int = 4) -> None:
        self.address = address
        self._partitions = partitions
        self._lock = threading.RLock()
        self._closed = False
        self._facts = TopicFacts(address)
        self._clients = KafkaClients(address)
        self._reader = KafkaReader(address, self._clients)
        self._times = SiteTimes(address, self._facts)
        self._ends: dict[int, int] = {}  # after our own last append
        self._sites: dict[str, bool] = {}  # whether its samples come without an origin
        self._failed: _Attempt | None = None
        try:
            with translated(str(address)):
                self._clients.topic_id = make_topics(address, partitions, self._facts, self._clients.scout)
                check_format(address, partitions, self._facts, self._clients.scout)
                self.id = log_name(address, self._facts, self._clients.scout, self._clients.topic_id)
        except BaseException:
            self.close()
            raise

    @property
    def partitions(self) -> int:
        """How many partitions the log was created with."""
        return self._partitions

    def append(self, records: Sequence[NewRecord]) -> list[tuple[int, int]]:
        """Append all records; after a ``LogError`` the same append, tried again, completes what has arrived."""
        if not records:
            with self._session():
                return []
        with self._session():
            self._times.write_due(self._clients.producer, self._ends)
            of_sites = [new for new in records if new.kind == "samples" or site_retirement(new) is not None]
            self._learn_sites({new.site: new.kind == "samples" and new.origin is None for new in of_sites})
            targets = [partition_of(new.site, self._partitions) for new in records]
            attempt = self._failed
            if attempt is not None and attempt.records == records:
                self._look_for(attempt)
            else:
                since = {partition: self._end(partition) for partition in set(targets)}
                attempt = _Attempt(records, secrets.token_hex(8), since)
            self._failed = attempt
            try:
                places = attempt.places | self._send(attempt, targets)
            except BaseException:
                # Nothing of it may be sent from now on: the next attempt looks what is there.
                self._clients.drop_producer()
                raise
            self._failed = None
            for index, partition in enumerate(targets):
                self._ends[partition] = max(self._ends.get(partition, 0), places[index] + 1)
            self._times.appended(targets)
            return [(partition, places[index]) for index, partition in enumerate(targets)]

    def read(self, partition: int, offset: int, limit: int) -> list[Record]:
        """At most ``limit`` records from ``offset`` on; waits at most the time-out for what is known to be there."""
        with self._session(partition):
            records = self._reader.read(partition, offset, limit, self._ends.get(partition, 0))
            if records:
                self._clients.check_topic(ask=True)
            return records

    def end_offset(self, partition: int) -> int:
        """The offset that the next record of the partition will get."""
        with self._session(partition):
            place = self._place(partition)
            return int(self._clients.scout.end_offsets([place])[place])

    def begin_offset(self, partition: int) -> int:
        """The smallest offset that can still be read."""
        with self._session(partition):
            place = self._place(partition)
            return int(self._clients.scout.beginning_offsets([place])[place])

    def last_receive_ms(self, partition: int) -> int | None:
        """The greatest receive time that the partition ever had."""
        with self._session(partition):
            return self._times.newest(self._clients.scout, partition)

    def sites(self) -> list[str]:
        """Every site whose newest ``samples`` record, appended or tried, had no origin."""
        with self._session():
            facts = self._facts.read(self._clients.scout).items()
            return sorted(fact[5:] for fact, value in facts if fact.startswith("site:") and value == b"1")

    def truncate(self, partition: int, before: int) -> None:
        """Forget records with an offset smaller than ``before``; Kafka frees their room a segment at a time."""
        with self._session(partition):
            begin, end = self.begin_offset(partition), self.end_offset(partition)
            before = min(before, end)
            if before <= begin:
                return
            self._times.save(self._clients.scout, self._clients.producer, partition)
            admin = KafkaAdminClient(**self.address.options())
            try:
                admin.delete_records({self._place(partition): before})
            finally:
                admin.close()
            self._reader.forget(partition)

    def commit(self, partition: int, offset: int) -> None:
        """Commit ``offset`` for the group, so that lag tools see how far reading is durable."""
        with self._session(partition):
            timeout_ms = round(self.address.timeout_s * 1000)
            self._clients.committer.commit(
                {self._place(partition): OffsetAndMetadata(offset, "", -1)}, timeout_ms=timeout_ms
            )

    def committed(self, partition: int) -> int | None:
        """What :meth:`commit` committed last, by whichever process of the group."""
        with self._session(partition):
            timeout_ms = round(self.address.timeout_s * 1000)
            found = self._clients.committer.committed(self._place(partition), timeout_ms=timeout_ms)
            return None if found is None else int(found)

    def close(self) -> None:
        """Release the connections."""
        with self._lock:
            self._closed = True
            self._clients.close()

    def _learn_sites(self, sites: dict[str, bool]) -> None:
        """Before the append: a site that is known but has no record costs ticks, a forgotten one its last rows."""
        new = {site: ours for site, ours in sites.items() if self._sites.get(site) != ours}
        if new:
            known = self._facts.read(self._clients.scout)
            facts = {f"site:{site}": b"%d" % ours for site, ours in sorted(new.items())}
            changed = {fact: value for fact, value in facts.items() if known.get(fact, b"0") != value}
            self._facts.write(self._clients.producer, changed)
            self._sites |= new

    def _send(self, attempt: _Attempt, targets: Sequence[int]) -> dict[int, int]:
        """Send the records that were not found; index in the batch -> offset."""
        sent = {}
        for index, (new, partition) in enumerate(zip(attempt.records, targets, strict=True)):
            if index in attempt.places:
                continue
            receive_ms = self._times.lift(self._clients.scout, partition, new.site, new.receive_ms)
            headers = [(HEADER, encode_header(new, receive_ms, attempt.name, index))]
            sent[index] = self._clients.producer.send(
                self.address.topic, new.payload, key=new.site.encode(), headers=headers, partition=partition
            )
        deadline_s = time.monotonic() + self.address.timeout_s + 1
        return {i: int(f.get(timeout=max(0.0, deadline_s - time.monotonic())).offset) for i, f in sent.items()}

    def _look_for(self, attempt: _Attempt) -> None:
        """Find which records of a failed batch are in the log. Others may have appended more meanwhile, as while a site
        was cut off, than is read in the time of one call: the next goes on there.
        """
        for partition in attempt.since:
            place, timeout_s = self._place(partition), self.address.timeout_s
            end = settled_end(self._clients.scout, place, timeout_s)
            # What retention has removed meanwhile cannot be searched: if some of ours was there, it is sent again.
            start = max(attempt.since[partition], self.begin_offset(partition))
            for records, after in read_pieces(self._clients.scout, place, start, end, timeout_s):
                for record in records:
                    header = decode_header(record)
                    if header is not None and header.batch == attempt.name:
                        attempt.places[header.place] = record.offset
                attempt.since[partition] = after

    def _end(self, partition: int) -> int:
        return self._ends[partition] if partition in self._ends else self.end_offset(partition)

    @contextlib.contextmanager
    def _session(self, partition: int = 0) -> Iterator[None]:
        if not 0 <= partition < self._partitions:
            raise ValueError(f"partition {partition} is not in 0 ... {self._partitions - 1}")
        with self._lock:
            if self._closed:
                raise LogClosedError(f"the log {self.address} is closed")
            with translated(str(self.address)):
                self._clients.check_topic()
                yield

    def _place(self, partition: int) -> TopicPartition:
        return TopicPartition(self.address.topic, partition)
