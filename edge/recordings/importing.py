"""Steps 1-3 of the way of a reading, for the past: a source's history appended straight to the log.

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
from edge.wire.plan import encode_plan, plan_topic
from edge.wire.reading import Refusal, Sample, check_values
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
    samples, refused, records = 0, 0, 0
    last_ms: int | None = None
    passed: list[Sample] = []
    refusals: list[Refusal] = []
    waiting: list[NewRecord] = []

    def close_record() -> None:
        assert last_ms is not None
        for at in range(0, len(passed), SAMPLES_A_RECORD):  # one instant of a large site may exceed a record
            payload = encode_samples(passed[at : at + SAMPLES_A_RECORD])
            waiting.append(NewRecord(source.site, "samples", last_ms, payload))
        if refusals:
            waiting.append(NewRecord(source.site, "refused", last_ms, msgspec.msgpack.encode(refusals)))
        passed.clear()
        refusals.clear()

    def append() -> None:
        nonlocal records
        log.append(waiting)
        records += len(waiting)
        waiting.clear()
        if progress is not None and last_ms is not None:
            progress(last_ms, samples)

    for ts_ms, instant in source.samples(to_ms):
        plans = source.plans()
        if last_ms is None:
            _check_order(source.site, log, ts_ms)
        elif plans or len(passed) + len(instant) > SAMPLES_A_RECORD or len(refusals) >= SAMPLES_A_RECORD:
            close_record()
            if len(waiting) >= RECORDS_AN_APPEND:
                append()
        last_ms = ts_ms
        for plan in plans:
            topic = plan_topic(plan.site, plan.zone, plan.source)
            waiting.append(NewRecord(plan.site, "plan", ts_ms, encode_plan(plan), topic))
        for sample in instant:
            values, wrong = check_values(sample.values)
            if values:
                passed.append(sample if values == sample.values else msgspec.structs.replace(sample, values=values))
                samples += 1
            else:
                refused += 1
            if wrong or not values:
                refusals.extend(_refusals(sample, wrong, whole=not values))
    if last_ms is not None:
        close_record()
        waiting.append(NewRecord(source.site, "tick", max(to_ms, last_ms), b""))
        append()
    return ImportReport(samples, refused, records, last_ms)


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
