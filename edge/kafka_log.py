"""Step 3 of the way of a reading: the log on Kafka, for production.

An append is idempotent (``acks=all``) and returns once every record is acknowledged. Where that fails, Kafka may
hold none, some or all of the batch: the log then looks which of its records arrived when the *same* append is tried
again, and sends only the others, so that a retry duplicates nothing. What a record is stands in one header; a record
without it was not written by us and comes back as ``refused``.

Partitions are assigned, never negotiated: who reads what is fixed, and no rebalance ever pauses a shard.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors
from kafka.structs import OffsetAndMetadata

from edge.kafka_address import KafkaAddress, translated
from edge.kafka_topics import MAX_RECORD_BYTES, Facts, make_topics, read_range
from edge.log_contract import (
    LogClosedError,
    LogError,
    LogTruncatedError,
    NewRecord,
    Record,
    RecordKind,
    partition_of,
)
from edge.reading import Refusal

__all__ = ["FOREIGN_RECORD", "KafkaLog"]

FOREIGN_RECORD = "foreign_record"
"""The reason under which a record is refused that somebody else wrote into our topic."""

_HEADER = "hothouse-1"
_POLL_RECORDS = 500
_BUFFER_RECORDS = 1000
_FETCH_WAIT_MS = 50
_LOOK_S = 0.2


@dataclass(slots=True)
class _Attempt:
    """A batch that may have arrived in part: from which offsets on to look for it."""

    records: Sequence[NewRecord]
    name: str
    since: dict[int, int]


@dataclass(slots=True)
class _Reader:
    """Where reading of a partition goes on, and what was fetched beyond."""

    next: int
    fetched: deque[Any] = field(default_factory=deque)
    looked_s: float = 0.0
    paused: bool = False


class KafkaLog:
    """The log in the topic of ``address``, created with ``partitions`` if it is not there.

    A record that another process appended is seen within 0.2 s; one of our own at once. Several processes may append
    (none raises ``LogBusyError``); receive times are then non-decreasing among those of each. Raises
    ``LogFormatError`` where the topic is another's, ``LogError`` when Kafka does not answer.
    """

    def __init__(self, address: KafkaAddress, partitions: int = 4) -> None:
        self.address = address
        self._partitions = partitions
        self._lock = threading.RLock()
        self._closed = False
        self._facts = Facts(address)
        self._clients: dict[str, Any] = {}
        self._newest: dict[int, int] = {}
        self._ends: dict[int, int] = {}  # after our own last append
        self._sites: set[str] = set()
        self._readers: dict[int, _Reader] = {}
        self._failed: _Attempt | None = None
        try:
            with translated(str(address)):
                make_topics(address, partitions, self._facts, self._scout)
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
            self._learn_sites({new.site for new in records if new.kind == "samples"})
            targets = [partition_of(new.site, self._partitions) for new in records]
            attempt, places = self._failed, dict[int, int]()
            if attempt is not None and attempt.records == records:
                places = self._arrived(attempt)
            else:
                since = {partition: self._end(partition) for partition in set(targets)}
                attempt = _Attempt(records, secrets.token_hex(8), since)
            self._failed = attempt
            try:
                places |= self._send(attempt, targets, places)
            except BaseException:
                # Nothing of it may be sent from now on: the next attempt looks what is there.
                self._drop("producer")
                raise
            self._failed = None
            for index, partition in enumerate(targets):
                self._ends[partition] = max(self._ends.get(partition, 0), places[index] + 1)
            return [(partition, places[index]) for index, partition in enumerate(targets)]

    def read(self, partition: int, offset: int, limit: int) -> list[Record]:
        """At most ``limit`` records from ``offset`` on; waits at most the time-out for what is known to be there."""
        with self._session(partition):
            reader = self._readers.get(partition)
            if reader is None or reader.next != offset:
                reader = self._seek(partition, offset)
                if reader is None:
                    return []
            if not reader.fetched:
                self._fetch(partition, reader)
            records: list[Record] = []
            while reader.fetched and len(records) < limit:
                records.append(_decoded(reader.fetched.popleft()))
            if records:
                reader.next = records[-1].offset + 1
            return records

    def end_offset(self, partition: int) -> int:
        """The offset that the next record of the partition will get."""
        with self._session(partition):
            place = self._place(partition)
            return int(self._scout.end_offsets([place])[place])

    def begin_offset(self, partition: int) -> int:
        """The smallest offset that can still be read."""
        with self._session(partition):
            place = self._place(partition)
            return int(self._scout.beginning_offsets([place])[place])

    def last_receive_ms(self, partition: int) -> int | None:
        """The receive time of the newest record; of an empty partition, what :meth:`truncate` kept of it."""
        with self._session(partition):
            end = self.end_offset(partition)
            if self.begin_offset(partition) < end:
                (record,) = read_range(self._scout, self._place(partition), end - 1, end, self.address.timeout_s)
                return _decoded(record).receive_ms
            kept = self._facts.read(self._scout).get(f"newest:{partition}")
            return None if kept is None else int(kept)

    def sites(self) -> list[str]:
        """Every site of which a ``samples`` record was appended, or tried to be."""
        with self._session():
            return sorted(fact[5:] for fact in self._facts.read(self._scout) if fact.startswith("site:"))

    def truncate(self, partition: int, before: int) -> None:
        """Forget records with an offset smaller than ``before``; Kafka frees their room a segment at a time."""
        with self._session(partition):
            begin, end = self.begin_offset(partition), self.end_offset(partition)
            before = min(before, end)
            if before <= begin:
                return
            newest = self.last_receive_ms(partition)
            self._facts.write(self._producer, {f"newest:{partition}": str(newest).encode()})
            admin = KafkaAdminClient(**self.address.options())
            try:
                admin.delete_records({self._place(partition): before})
            finally:
                admin.close()
            self._readers.pop(partition, None)

    def commit(self, partition: int, offset: int) -> None:
        """Commit ``offset`` for the group, so that lag tools see how far reading is durable."""
        with self._session(partition):
            committer = self._client("committer", lambda: self._consumer(group_id=self.address.group))
            timeout_ms = round(self.address.timeout_s * 1000)
            committer.commit({self._place(partition): OffsetAndMetadata(offset, "", -1)}, timeout_ms=timeout_ms)

    def committed(self, partition: int) -> int | None:
        """What :meth:`commit` committed last, by whichever process of the group."""
        with self._session(partition):
            committer = self._client("committer", lambda: self._consumer(group_id=self.address.group))
            found = committer.committed(self._place(partition), timeout_ms=round(self.address.timeout_s * 1000))
            return None if found is None else int(found)

    def close(self) -> None:
        """Release the connections."""
        with self._lock:
            self._closed = True
            for name in list(self._clients):
                self._drop(name)

    def _learn_sites(self, sites: set[str]) -> None:
        """Before the append: a site that is known but has no record costs ticks, a forgotten one its last rows."""
        new = sites - self._sites
        if new:
            known = self._facts.read(self._scout)
            facts = {f"site:{site}": b"1" for site in sorted(new) if f"site:{site}" not in known}
            self._facts.write(self._producer, facts)
            self._sites |= new

    def _send(self, attempt: _Attempt, targets: Sequence[int], done: dict[int, int]) -> dict[int, int]:
        """Send the records that are not ``done``; index in the batch -> offset."""
        sent = {}
        for index, (new, partition) in enumerate(zip(attempt.records, targets, strict=True)):
            if index in done:
                continue
            if partition not in self._newest:
                self._newest[partition] = self.last_receive_ms(partition) or 0
            receive_ms = self._newest[partition] = max(new.receive_ms, self._newest[partition])
            header = f"{new.kind} {receive_ms} {attempt.name} {index} {new.topic}".encode()
            sent[index] = self._producer.send(
                self.address.topic, new.payload, key=new.site.encode(), headers=[(_HEADER, header)], partition=partition
            )
        deadline_s = time.monotonic() + self.address.timeout_s + 1
        return {i: int(f.get(timeout=max(0.0, deadline_s - time.monotonic())).offset) for i, f in sent.items()}

    def _arrived(self, attempt: _Attempt) -> dict[int, int]:
        """Which records of a failed batch are in the log: index in the batch -> offset."""
        places: dict[int, int] = {}
        for partition, since in attempt.since.items():
            place, end = self._place(partition), self.end_offset(partition)
            for record in read_range(self._scout, place, since, end, self.address.timeout_s):
                fields = _fields(record)
                if fields is not None and fields[2] == attempt.name:
                    places[int(fields[3])] = record.offset
        return places

    def _end(self, partition: int) -> int:
        return self._ends[partition] if partition in self._ends else self.end_offset(partition)

    def _seek(self, partition: int, offset: int) -> _Reader | None:
        """Read on from ``offset``; None where nothing can be there yet."""
        begin = self.begin_offset(partition)
        if offset < begin:
            raise LogTruncatedError(partition, offset, begin)
        if offset > self.end_offset(partition):
            return None
        reader = self._readers[partition] = _Reader(offset)
        consumer = self._client("consumer", self._consumer)
        places = {self._place(number) for number in self._readers}
        if places - set(consumer.assignment()):
            consumer.assign(sorted(places))
            for number, other in self._readers.items():  # a new assignment forgets every position
                other.fetched.clear()
                consumer.seek(self._place(number), other.next)
        consumer.seek(self._place(partition), offset)
        consumer.resume(self._place(partition))
        return reader

    def _fetch(self, partition: int, reader: _Reader) -> None:
        """Have something fetched of a partition, unless nothing is there."""
        if reader.paused:
            self._client("consumer", self._consumer).resume(self._place(partition))
            reader.paused = False
        self._poll(0)
        now_s = time.monotonic()
        due = now_s - reader.looked_s >= _LOOK_S or self._ends.get(partition, 0) > reader.next
        if reader.fetched or not due:
            return
        reader.looked_s = now_s
        end = self.end_offset(partition)
        while not reader.fetched and reader.next < end:
            if time.monotonic() > now_s + self.address.timeout_s:
                # It was deleted behind our back, or its server does not answer: look again from the start.
                del self._readers[partition]
                raise LogError(f"{self.address}: partition {partition} gives nothing from offset {reader.next}")
            self._poll(_FETCH_WAIT_MS)

    def _poll(self, timeout_ms: int) -> None:
        consumer = self._client("consumer", self._consumer)
        try:
            found = consumer.poll(timeout_ms, max_records=_POLL_RECORDS)
        except kafka_errors.OffsetOutOfRangeError as error:
            self._readers.clear()
            self._drop("consumer")
            raise LogError(f"{self.address}: records were deleted while they were read: {error}") from error
        for place, records in found.items():
            reader = self._readers[place.partition]
            reader.fetched.extend(records)
            if len(reader.fetched) >= _BUFFER_RECORDS:
                consumer.pause(place)
                reader.paused = True

    @contextlib.contextmanager
    def _session(self, partition: int = 0) -> Iterator[None]:
        if not 0 <= partition < self._partitions:
            raise ValueError(f"partition {partition} is not in 0 ... {self._partitions - 1}")
        with self._lock:
            if self._closed:
                raise LogClosedError(f"the log {self.address} is closed")
            with translated(str(self.address)):
                yield

    def _place(self, partition: int) -> TopicPartition:
        return TopicPartition(self.address.topic, partition)

    @property
    def _producer(self) -> KafkaProducer:
        timeout_ms = round(self.address.timeout_s * 1000)
        return self._client("producer", lambda: KafkaProducer(
            **self.address.options(), acks="all", enable_idempotence=True, allow_auto_create_topics=False,
            delivery_timeout_ms=timeout_ms, max_block_ms=timeout_ms,
            batch_size=1024 * 1024, max_request_size=MAX_RECORD_BYTES, metrics_enabled=False,
        ))  # fmt: skip

    @property
    def _scout(self) -> KafkaConsumer:
        """The consumer that answers questions and reads short ranges, beside the one that reads on."""
        return self._client("scout", self._consumer)

    def _consumer(self, **options: Any) -> KafkaConsumer:
        return KafkaConsumer(
            **self.address.options(), enable_auto_commit=False, auto_offset_reset="none",
            allow_auto_create_topics=False, fetch_max_wait_ms=_FETCH_WAIT_MS, metrics_enabled=False, **options,
        )  # fmt: skip

    def _client(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._clients:
            self._clients[name] = make()
        return self._clients[name]

    def _drop(self, name: str) -> None:
        client = self._clients.pop(name, None)
        if client is None:
            return
        with contextlib.suppress(kafka_errors.KafkaError, OSError):
            if isinstance(client, KafkaProducer):
                _abandon(client)
            else:
                client.close(timeout_ms=1000)


def _abandon(producer: KafkaProducer) -> None:
    """Close a producer without sending what waits in it.

    Its own ``close`` flushes first, and where that fails it leaves the sending thread running, which might still send.
    """
    sender = producer._sender
    sender.force_close()
    sender.join(1.0)
    producer.close(timeout=0)


def _fields(record: Any) -> tuple[str, int, str, str, str] | None:
    """Kind, receive time, batch, index and topic of a record; None where somebody else wrote it."""
    for name, value in record.headers:
        if name == _HEADER:
            kind, receive_ms, batch, index, topic = value.decode().split(" ", 4)
            return kind, int(receive_ms), batch, index, topic
    return None


def _decoded(record: Any) -> Record:
    fields = _fields(record)
    if fields is None:
        detail = f"no {_HEADER} header; sites that write to Kafka themselves use a topic of their own"
        refusal = Refusal(FOREIGN_RECORD, record.topic, detail, (record.value or b"")[:1024])
        payload = msgspec.msgpack.encode([refusal])
        return Record(record.partition, record.offset, "_unknown", "refused", record.timestamp, payload, record.topic)
    kind, receive_ms, _, _, topic = fields
    site, payload = record.key.decode(), record.value or b""
    return Record(record.partition, record.offset, site, cast(RecordKind, kind), receive_ms, payload, topic)
