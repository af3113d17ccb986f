"""A shard's reader of its log: how much it reads at a time, and that it sees when it is another log."""

from __future__ import annotations

import pytest

from edge.log import LogError, LogReplacedError, NewRecord
from services.ingest.log_reader import LOOK_S, READ_BYTES, READ_RECORDS, LogReader
from tests.services.ingest.rig import Clock, filled


def records(count: int, size: int = 1) -> list[NewRecord]:
    return [NewRecord("demo", "samples", 1000 + number, bytes(size)) for number in range(count)]


@pytest.mark.parametrize(("size", "then"), [(1, READ_RECORDS), (READ_BYTES // 4, 4), (2 * READ_BYTES, 1)])
def test_it_reads_about_as_many_bytes_at_a_time(size: int, then: int) -> None:
    """One record first, then as many as were as large as that."""
    reader = LogReader(filled(records(READ_RECORDS + 2, size)), Clock())
    assert len(reader.read(0, 0)[0]) == 1
    found, is_more = reader.read(0, 1)
    assert (len(found), is_more) == (then, True)


def test_a_log_that_ends_before_what_was_read_is_another_one() -> None:
    """It is told within some seconds, and until the log of before is back."""
    clock, log, other = Clock(), filled(records(10)), filled(records(9))
    reader = LogReader(log, clock)
    assert reader.read(0, 10) == ([], False)
    reader._log = other
    assert reader.read(0, 10) == ([], False)
    clock.now_s = LOOK_S
    for _ in range(2):
        with pytest.raises(LogReplacedError, match="partition 0 of the log ends at 9 and was read up to 10"):
            reader.read(0, 10)
    reader._log = log
    assert reader.read(0, 10) == ([], False)
    log.append(records(1))
    assert len(reader.read(0, 10)[0]) == 1


def test_records_that_are_gone_before_they_were_read_are_told_with_what_to_do() -> None:
    """As where Kafka's retention passed while the shard's storage was away."""
    log = filled(records(10))
    log.truncate(0, 5)
    said = "offset 2 of partition 0 was truncated; the log begins at 5, .* not read. The next start says how to go on"
    with pytest.raises(LogError, match=said):
        LogReader(log, Clock()).read(0, 2)


def test_what_was_there_at_first_is_a_replay() -> None:
    """So is all of a log that never said where it ends. What comes later is new; a log that is away is not asked."""
    log = filled(records(10))
    reader = LogReader(log, Clock())
    assert (reader.backlog({0: 0}, is_away=True), reader.replays({0: 0})) == (0, True)
    assert (reader.backlog({0: 4}, is_away=False), reader.replays({0: 4})) == (6, True)
    log.append(records(2))
    assert (reader.backlog({0: 10}, is_away=True), reader.replays({0: 10})) == (0, False)
    assert (reader.backlog({0: 10}, is_away=False), reader.replays({0: 10})) == (2, False)
