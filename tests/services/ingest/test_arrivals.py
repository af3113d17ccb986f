"""What ``benchmarks.ingest`` measures is what a gateway writes: the same samples, in records of any size."""

from __future__ import annotations

from itertools import chain, pairwise

import pytest

from benchmarks._arrivals import START_MS, Line, grouped, make_lines, reads, to_records
from edge.log import Record
from edge.wire.samples import decode_samples
from edge.wire.vocabulary import VOCABULARY
from services.ingest.windows.partition_windows import PartitionWindows

STEP_MS, LATENESS_MS, IDLE_MS = 60_000, 30_000, 60_000


def stream() -> list[Line]:
    """Four minutes of 20 zones, ten minutes of silence, two minutes more; some messages are refused."""
    lines = [*make_lines(20, 4.0, sites=3), *make_lines(20, 2.0, seed=8, sites=3, start_ms=START_MS + 14 * 60_000)]
    return [line._replace(payload=b"?") if at % 50 == 5 else line for at, line in enumerate(lines)]


def rows_of(records: list[Record]) -> tuple[list[str], int]:
    """Every row of every site, and how many samples are in them."""
    windows = PartitionWindows(STEP_MS, LATENESS_MS, IDLE_MS, VOCABULARY)
    rows, accepted = [], 0
    for part in reads([records]):
        closed = windows.feed(part)
        accepted += closed.accepted
        rows += [repr((step.site, step.end_ms, sorted(step.devices))) for step in closed.steps]
    return sorted(rows), accepted


def test_no_two_messages_of_the_workload_share_a_receive_time() -> None:
    """Each message has a receive time of its own, so that nothing but a record's size makes records large."""
    times = [line.receive_ms for line in make_lines(100, 1.0)]
    assert len(times) > 1200
    assert all(a < b for a, b in pairwise(times))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_rows_are_the_same_whatever_the_size_of_records(size: int) -> None:
    """Duplicates, late arrivals, refusals and a long silence included."""
    records = [*chain.from_iterable(to_records(stream(), STEP_MS, IDLE_MS, LATENESS_MS))]
    expected, accepted = rows_of(records)
    made = grouped(records, size, IDLE_MS // 2)
    sizes = [len(decode_samples(record.payload)) for record in made if record.kind == "samples"]
    assert max(sizes) == min(size, max(sizes))
    assert sum(sizes) == sum(len(decode_samples(record.payload)) for record in records if record.kind == "samples")
    assert rows_of(made) == (expected, accepted)
    assert accepted > 1000
