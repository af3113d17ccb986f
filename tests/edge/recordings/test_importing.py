"""Importing a source's past into a log."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from edge.log import NewRecord, Record, partition_of
from edge.log.memory import MemoryLog
from edge.log.sqlite import SqliteLog
from edge.recordings.importing import ImportRefusedError, import_samples
from edge.recordings.replay import RecordingSource
from edge.wire.plan import PlanMessage, encode_plan
from edge.wire.reading import Refusal
from edge.wire.samples import decode_samples
from tests.edge.recordings.list_source import START_MS, ListSource, sample


def records(log: MemoryLog | SqliteLog, site: str) -> list[Record]:
    return log.read(partition_of(site, log.partitions), 0, 1_000_000)


def test_a_recording_is_in_the_log_whole(recording: Path, tmp_path: Path) -> None:
    """Every sample up to the time stands in the log, in order, in records of at most 1000, received when it was new."""
    source = RecordingSource(recording, boot_seed=1)
    to_ms = source.start_ms + 2 * 86_400_000
    log = SqliteLog(tmp_path / "log.sqlite")
    told: list[tuple[int, int]] = []
    report = import_samples(source, log, to_ms, progress=lambda ts_ms, count: told.append((ts_ms, count)))
    found = []
    for record in records(log, source.site)[:-1]:
        samples = decode_samples(record.payload)
        assert record.kind == "samples"
        assert len(samples) <= 1000
        assert record.receive_ms == max(s.ts_ms for s in samples)
        found += samples
    log.close()
    expected = [s for _, instant in RecordingSource(recording, boot_seed=1).samples(to_ms) for s in instant]
    assert found == expected
    assert (report.samples, report.refused, report.last_ms) == (len(expected), 0, to_ms)
    assert told[-1] == (to_ms, len(expected))
    assert next(source.samples(2**53))[0] > to_ms


def test_a_tick_at_the_end_closes_what_is_due() -> None:
    """The last record is a tick at the time that was asked for, also when the site was silent before it."""
    log = MemoryLog()
    report = import_samples(ListSource([(START_MS, [sample(0, START_MS, rh_pct=70)])]), log, START_MS + 900_000)
    last = records(log, "s")[-1]
    assert (last.kind, last.receive_ms, report.records) == ("tick", START_MS + 900_000, 2)


def test_what_the_gateway_would_refuse_is_refused() -> None:
    """An import asks the gateway's check: a bad value is left out and kept as a refusal, and so is a bad sample."""
    instants = [
        (START_MS, [sample(0, START_MS, rh_pct=70, co2_ppm=-4), sample(1, START_MS, rh_pct=101)]),
        (START_MS + 1, [sample(2, START_MS + 1, air_temp_c=999, nonsense=1)]),
    ]
    log = MemoryLog()
    report = import_samples(ListSource(instants), log, START_MS + 1)
    good, bad, _ = records(log, "s")
    assert [s.values for s in decode_samples(good.payload)] == [{"rh_pct": 70}, {"rh_pct": 100}]
    refusals = msgspec.msgpack.decode(bad.payload, type=list[Refusal])
    assert [(r.reason, r.whole) for r in refusals] == [("out_of_range", False), ("out_of_range", True)]
    assert bad.kind == "refused"
    assert refusals[0].topic == "hothouse/v1/s/z/d/sample"
    assert (report.samples, report.refused) == (2, 1)


def test_one_instant_of_a_large_site_makes_several_records() -> None:
    """No record holds more than 1000 samples, however many devices speak at once."""
    log = MemoryLog()
    import_samples(ListSource([(START_MS, [sample(i, START_MS, rh_pct=70) for i in range(2500)])]), log, START_MS)
    assert [len(decode_samples(r.payload)) for r in records(log, "s")[:-1]] == [1000, 1000, 500]


def test_an_import_behind_the_log_is_refused() -> None:
    """Where the log was received later than the first sample, rows may have passed it: nothing is appended."""
    log = MemoryLog()
    log.append([NewRecord("s", "tick", START_MS + 1, b"")])
    with pytest.raises(ImportRefusedError, match="after the first sample of s"):
        import_samples(ListSource([(START_MS, [sample(0, START_MS, rh_pct=70)])]), log, START_MS)
    assert len(records(log, "s")) == 1


def test_nothing_to_import_appends_nothing() -> None:
    """A source that begins later leaves the log as it is."""
    log = MemoryLog()
    report = import_samples(ListSource([(START_MS, [sample(0, START_MS, rh_pct=70)])]), log, START_MS - 1)
    assert (report.records, report.last_ms, records(log, "s")) == (0, None, [])


def test_plans_are_imported_where_they_were_issued() -> None:
    """Between the samples of before and after, with the receive time of their instant, as they would have come."""
    path = [(START_MS + 3_600_000, 4.0)]
    plan = PlanMessage("s", "_site", "knmi", "weather", START_MS + 2, {"out_temp_c": path})
    instants = [(START_MS + n, [sample(n, START_MS + n, rh_pct=70.0)]) for n in range(4)]
    log = MemoryLog(1)
    report = import_samples(ListSource(instants, {START_MS + 2: [plan]}), log, START_MS + 9)
    records = log.read(0, 0, 100)
    assert [(r.kind, r.receive_ms - START_MS) for r in records] == [
        ("samples", 1), ("plan", 2), ("samples", 3), ("tick", 9)
    ]  # fmt: skip
    assert (records[1].topic, records[1].payload) == ("hothouse/v1/s/_site/knmi/plan", encode_plan(plan))
    assert (report.samples, report.records) == (4, 4)
