"""Steps 1 to 3 of the way of a reading, for the past: a source's history appended straight to the log.

Each record has the receive time of its newest sample, and live readings come afterwards. The shards read these records
like any other, so windows, history and learners are warmed by the code that runs live. The log has one writer at a
time: import first, then start the gateway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from edge.log import Log, NewRecord, partition_of
from edge.recordings.sample_source import SampleSource
from edge.wire.plan import PlanMessage, encode_plan, plan_topic
from edge.wire.reading import Refusal, Sample, check_values, encode_refusals
from edge.wire.samples import encode_samples
from edge.wire.topic import sample_topic

__all__ = ["ImportRefusedError", "ImportReport", "import_samples"]

SAMPLES_A_RECORD = 1000
RECORDS_AN_APPEND = 16


class ImportRefusedError(Exception):
    """The log already holds something newer than the first sample to import."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was appended: ``samples`` that passed, ``refused`` whole ones, ``records``, and the newest event time."""

    samples: int
    refused: int
    records: int
    last_ms: int | None


def import_samples(
    source: SampleSource, log: Log, to_ms: int, progress: Callable[[int, int], None] | None = None
) -> ImportReport:
    """Append the source's samples up to and including ``to_ms`` to ``log``, and a tick at ``to_ms``.

    A record holds at most 1000 samples and its receive time is that of its newest, so rows close on the way as they
    would have live. The tick lets every row close whose lateness and idle time have passed by then. Calls
    ``progress(ts_ms, samples)`` after each append. Afterwards the source stands behind ``to_ms``.

    Raises :class:`ImportRefusedError`, before anything is appended, when the site's partition has a record that was
    received after the first sample: its rows may be closed already.
    """
    records = _Records(source.site, log, progress)
    for ts_ms, instant in source.samples(to_ms):
        plans = source.plans()
        if records.last_ms is None:
            _check_order(source.site, log, ts_ms)
        elif plans or records.has_no_room_for(len(instant)):
            records.close()
        records.last_ms = ts_ms
        for plan in plans:
            records.add_plan(plan)
        for sample in instant:
            records.add(sample)
    return records.end(to_ms)


class _Records:
    """What an import appends, record by record; ``last_ms`` is the newest instant of the open one."""

    def __init__(self, site: str, log: Log, progress: Callable[[int, int], None] | None) -> None:
        self._site, self._log, self._progress = site, log, progress
        self.last_ms: int | None = None
        self._passed: list[Sample] = []
        self._refusals: list[Refusal] = []
        self._closed: list[NewRecord] = []
        self._samples, self._refused, self._appended = 0, 0, 0

    def has_no_room_for(self, samples: int) -> bool:
        """Whether the open record must be closed before it takes this many ``samples`` more."""
        return len(self._passed) + samples > SAMPLES_A_RECORD or len(self._refusals) >= SAMPLES_A_RECORD

    def add(self, sample: Sample) -> None:
        """Take one sample; impossible values in it are refused, as the gateway refuses them."""
        values, wrong = check_values(sample.values)
        if values:
            passed = sample if values == sample.values else msgspec.structs.replace(sample, values=values)
            self._passed.append(passed)
            self._samples += 1
        else:
            self._refused += 1
        if wrong or not values:
            self._refusals.extend(_refusals(sample, wrong, whole=not values))

    def add_plan(self, plan: PlanMessage) -> None:
        """A plan is a record of its own, before the samples of the instant at which it was issued."""
        assert self.last_ms is not None
        topic = plan_topic(plan.site, plan.zone, plan.source)
        self._closed.append(NewRecord(plan.site, "plan", self.last_ms, encode_plan(plan), topic))

    def close(self) -> None:
        """Begin another record; some together are appended to the log."""
        self._close_open()
        if len(self._closed) >= RECORDS_AN_APPEND:
            self._append()

    def end(self, to_ms: int) -> ImportReport:
        """Append what is left, and a tick at ``to_ms``."""
        if self.last_ms is not None:
            self._close_open()
            self._closed.append(NewRecord(self._site, "tick", max(to_ms, self.last_ms), b""))
            self._append()
        return ImportReport(self._samples, self._refused, self._appended, self.last_ms)

    def _close_open(self) -> None:
        assert self.last_ms is not None
        for at in range(0, len(self._passed), SAMPLES_A_RECORD):  # one instant of a large site may exceed a record
            payload = encode_samples(self._passed[at : at + SAMPLES_A_RECORD])
            self._closed.append(NewRecord(self._site, "samples", self.last_ms, payload))
        if self._refusals:
            self._closed.append(NewRecord(self._site, "refused", self.last_ms, encode_refusals(self._refusals)))
        self._passed, self._refusals = [], []

    def _append(self) -> None:
        assert self.last_ms is not None
        self._log.append(self._closed)
        self._appended += len(self._closed)
        self._closed = []
        if self._progress is not None:
            self._progress(self.last_ms, self._samples)


def _refusals(sample: Sample, wrong: list[tuple[str, str]], whole: bool) -> list[Refusal]:
    """One for a whole sample, or one for each value of a sample that passed without it, as the gateway has it."""
    topic = sample_topic(sample.site, sample.zone, sample.device)
    if not whole:
        return [Refusal(reason, topic, detail, whole=False) for reason, detail in wrong]
    reason = wrong[0][0] if wrong else "no_values"
    return [Refusal(reason, topic, "; ".join(detail for _, detail in wrong) or "the sample carries no value")]


def _check_order(site: str, log: Log, first_ms: int) -> None:
    newest = log.last_receive_ms(partition_of(site, log.partitions))
    if newest is not None and newest > first_ms:
        raise ImportRefusedError(
            f"the log already holds records received until {newest}, after the first sample of {site} ({first_ms})"
        )
