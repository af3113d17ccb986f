"""How often a shard saves."""

from __future__ import annotations

from dataclasses import replace

from services.ingest.snapshots.snapshot import Saved
from services.ingest.snapshots.snapshot_pace import (
    FORECASTS_FIRST_S,
    MAX_UNFLUSHED_ROWS,
    PAUSES_BEHIND,
    SNAPSHOT_RECORDS,
    Progress,
    SnapshotPace,
)

CALM = Progress(unsaved_records=10, unflushed_rows=5, is_behind=False, awaits_forecasts=False)


def due_after_s(pace: SnapshotPace, progress: Progress) -> int:
    """The first whole second at which it is time to save."""
    return next(now_s for now_s in range(100_000) if pace.is_due(now_s, progress))


def test_a_backlog_and_forecasts_that_wait_put_a_snapshot_off() -> None:
    """While a shard is behind it saves less often, and it does not wait for forecasts then."""
    pace = SnapshotPace(30, 0)
    assert due_after_s(pace, CALM) == 30
    assert due_after_s(pace, replace(CALM, awaits_forecasts=True)) == 30 + FORECASTS_FIRST_S
    assert due_after_s(pace, replace(CALM, awaits_forecasts=True, is_behind=True)) == 30 * PAUSES_BEHIND


def test_large_snapshots_come_less_often() -> None:
    """What is written, and what is looked at, is spread over time; small ones come as often as before."""
    pace = SnapshotPace(30, 0)
    pace.cost([Saved(400_000_000, 0), Saved(600_000_000, 0)])
    assert due_after_s(pace, CALM) == 100
    pace.cost([Saved(0, 20_000_000_000)])
    assert due_after_s(pace, CALM) == 200
    pace.cost([Saved(1, 1)])
    assert due_after_s(pace, CALM) == 30


def test_very_many_records_are_saved_at_once_and_a_full_memory_after_one_pause() -> None:
    """A backlog puts neither off by more."""
    pace = SnapshotPace(30, 0)
    assert due_after_s(pace, replace(CALM, is_behind=True, unsaved_records=SNAPSHOT_RECORDS)) == 0
    assert due_after_s(pace, replace(CALM, is_behind=True, unflushed_rows=MAX_UNFLUSHED_ROWS)) == 30
    pace.began(10)
    assert due_after_s(pace, CALM) == 40
