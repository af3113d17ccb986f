"""Step 2 of the way of a reading: from a site's own log, the buffer, to the central one: store and forward.

Records leave in their order. A batch is sent until the target has it; only then is it truncated from the buffer, so the
buffer's beginning *is* the durable position, and what a crash left in doubt is sent again. A target may lose what it
has just acknowledged (a broker that is killed); for such a target the last minute is kept, and sent again after a
failure. Each record carries its origin, by which step 5 drops the copy. Receive times stay those of this gateway.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from edge.log.contract import Log, LogError, LogReplacedError, LogTruncatedError, NewRecord, Origin, Record
from edge.log.sqlite import SqliteLog
from edge.timing import Backoff, Periodic
from edge.wire.envelope import is_envelope

__all__ = ["LogTarget", "Target", "Uplink", "Waiting"]

_logger = logging.getLogger(__name__)
_BATCH_RECORDS = 1000
_BATCH_BYTES = 128 * 1024
"""Kafka's client gives a request five seconds: what a line of a quarter of a megabit carries in that time."""
_TRIM_RECORDS = 5000
_TRIM_S = 1.0
_CAME_BACK_S = 60.0
"""So long nothing is sent after a record came back: somebody has to correct the address."""
_POLL_S = 0.05


class Target(Protocol):
    """Where records go. ``tail_s``: seconds after its answer in which it may still lose them; 0 if they are durable."""

    tail_s: float

    def send(self, records: Sequence[NewRecord]) -> None:
        """Return once it has taken all of them; a ``LogError`` leaves it open, and the same call is repeated."""

    def check(self) -> None:
        """Raise a ``LogError`` where it may have lost what it took less than ``tail_s`` ago; asked when all is sent."""

    def close(self) -> None:
        """Release connections."""


class LogTarget:
    """A log as target, such as ``KafkaLog``; opened by ``open_log`` when it is first needed, again if that fails or
    another log took its place.
    """

    tail_s = 0.0

    def __init__(self, open_log: Callable[[], Log]) -> None:
        self._open_log = open_log
        self._log: Log | None = None

    def send(self, records: Sequence[NewRecord]) -> None:
        """Append them."""
        if self._log is None:
            self._log = self._open_log()
        try:
            self._log.append(records)
        except LogReplacedError:
            self.close()  # which log it is the central side decides, not each of its sites: the next try opens it anew
            raise

    def check(self) -> None:
        """Nothing: what is appended is durable."""

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None


class _Batch(NamedTuple):
    partition: int
    end: int
    records: list[NewRecord]


class Waiting(NamedTuple):
    """What the target has not taken yet; ``oldest_ms`` is the oldest record's receive time."""

    records: int
    oldest_ms: int | None


class _Taken(NamedTuple):
    """The target has taken a partition up to ``end``, and said so at ``at_s``."""

    at_s: float
    partition: int
    end: int


class Uplink:
    """Carries the records of ``buffer`` to ``target``, from :meth:`run` until its event is set.

    ``clock_s`` is monotonic. ``after_send`` is called between the target's answer and the truncation: tests crash
    there. One thread calls :meth:`step`, :meth:`trim` and :meth:`run`.
    """

    def __init__(
        self, buffer: SqliteLog, target: Target, clock_s: Callable[[], float] = time.monotonic,
        after_send: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.sent = 0
        self.errors = 0
        self.last_error = ""
        self._buffer, self._target, self._clock_s = buffer, target, clock_s
        self._after_send = after_send
        self._next = {partition: buffer.begin_offset(partition) for partition in range(buffer.partitions)}
        self._begin, self._safe = dict(self._next), dict(self._next)  # begin <= safe <= next
        self._safe_at_loss: dict[int, int] = {}
        self._taken: deque[_Taken] = deque()
        self._turns = deque(self._next)
        self._batch: _Batch | None = None
        self._came_back_s = float("-inf")

    def is_own(self, topic: str) -> bool:
        """Whether a message has a record of the buffer: it then came back to the broker that the gateway reads, and
        appended to the buffer it would be sent for ever. Nothing is lost with it: while that is so, nothing more is
        sent, and what was sent stays in the buffer. Any thread may ask.
        """
        is_own = is_envelope(topic) and topic.split("/")[4].partition(".")[0] == self._buffer.id
        if is_own:
            self._came_back_s = self._clock_s()
        return is_own

    def step(self) -> bool:
        """Carry one batch; False when nothing is left. After a ``LogError`` it goes on where nothing can be missing."""
        if self._clock_s() < self._came_back_s + _CAME_BACK_S:
            self._go_back()
            raise LogError(
                "records come back from where uplink.to leads: it, or a bridge, must not lead to the broker that this "
                "gateway reads"
            )
        if self._batch is None:  # else the target may have a part of it: only the same batch completes that
            self._batch = self._fill()
        try:
            if self._batch is None:
                if self._next != self._safe:
                    self._target.check()
                return False
            self._target.send(self._batch.records)
        except LogError as error:
            if self._go_back():
                raise LogError(
                    f"{error}. No connection lasts for {self._target.tail_s:g} s, so the same records are sent again "
                    "and again. What to do: mend the line, or let the broker save its queues more often (Mosquitto: "
                    "autosave_interval), and set uplink.tail_s to a little more"
                ) from error
            raise
        partition, end, records = self._batch
        if self._after_send is not None:
            self._after_send()
        self._next[partition], self._batch = end, None
        self.sent += len(records)
        self._taken.append(_Taken(self._clock_s(), partition, end))
        if sum(self._next.values()) - sum(self._begin.values()) >= _TRIM_RECORDS:
            self.trim()
        return True

    def _go_back(self) -> bool:
        """Go back to what the target cannot have lost; whether that is no further than at the loss before."""
        if self._target.tail_s == 0:
            return False
        again, before = self._next != self._safe, self._safe_at_loss
        self._next, self._batch = dict(self._safe), None
        self._taken.clear()  # it may lose what is sent again, too
        if again:
            self._safe_at_loss = dict(self._safe)
        return again and self._safe == before

    def trim(self) -> None:
        """Truncate what the target cannot lose any more; raises ``LogError`` if the disk refuses."""
        now_s = self._clock_s()
        while self._taken and self._taken[0].at_s + self._target.tail_s <= now_s:
            _, partition, end = self._taken.popleft()
            self._safe[partition] = end
        for partition, end in self._safe.items():
            if end > self._begin[partition]:
                self._buffer.truncate(partition, end)
                self._begin[partition] = end

    def waiting(self) -> Waiting:
        """How much waits, and since when; any thread may ask. Raises ``LogError`` if the buffer cannot be read."""
        records, oldest = 0, list[int]()
        for partition, start in self._next.copy().items():
            records += self._buffer.end_offset(partition) - start
            with contextlib.suppress(LogTruncatedError):  # taken and truncated meanwhile
                oldest += [record.receive_ms for record in self._buffer.read(partition, start, 1)]
        return Waiting(records, min(oldest, default=None))

    def run(self, stop: threading.Event) -> None:
        """Carry until ``stop``; what fails is tried again with back-off and jitter, and never given up."""
        backoff = Backoff(jitter=random.SystemRandom().random)
        trim = Periodic(_TRIM_S, self._clock_s())
        while not stop.is_set():
            try:
                more = self.step()
                if trim.due(self._clock_s()):
                    self.trim()
            except LogError as error:
                self.errors += 1
                if str(error) != self.last_error:
                    _logger.warning("the uplink fails and tries again: %s", error)
                self.last_error = str(error)
                stop.wait(backoff.next_s())
                continue
            backoff.reset()
            self.last_error = ""
            if not more:
                stop.wait(_POLL_S)
        self._leave()

    def _leave(self) -> None:
        try:
            self.trim()
        except LogError as error:
            _logger.warning("what has arrived is sent again at the next start: %s", error)
        self._target.close()

    def _fill(self) -> _Batch | None:
        for partition in self._turns:
            try:
                records = self._buffer.read(partition, self._next[partition], _BATCH_RECORDS)
            except LogTruncatedError as error:
                self._go_on_from(partition, error.begin)
                records = self._buffer.read(partition, error.begin, _BATCH_RECORDS)
            start = self._next[partition]
            size = kept = 0
            for record in records:
                size += len(record.payload)
                if kept and size > _BATCH_BYTES:
                    break
                kept += 1
            if kept:
                self._turns.rotate(-1 - self._turns.index(partition))  # the others first, next time
                return _Batch(partition, start + kept, [self._as_new(record) for record in records[:kept]])
        return None

    def _go_on_from(self, partition: int, begin: int) -> None:
        """Another uplink has sent what was before ``begin``: a second gateway ran on this buffer for a while."""
        _logger.warning(
            "the uplink goes on at offset %d of partition %d: another one of %s has sent what was before it",
            begin, partition, self._buffer.path,
        )  # fmt: skip
        self._taken = deque(taken for taken in self._taken if taken.partition != partition)
        self._next[partition] = self._safe[partition] = self._begin[partition] = begin

    def _as_new(self, record: Record) -> NewRecord:
        # A record from before format 2 has no origin; its offset names it as well, under a name of its own.
        origin = record.origin or Origin(f"{self._buffer.id}.{record.partition}", record.offset)
        return NewRecord(record.site, record.kind, record.receive_ms, record.payload, record.topic, origin)
