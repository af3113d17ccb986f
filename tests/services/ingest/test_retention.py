"""Old records leave the log when nothing needs them any more, and rows stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.log import NewRecord
from edge.log.memory import MemoryLog
from models.durations import DAY_MS
from services.ingest import retention
from services.ingest.retention import Retention
from tests.services.ingest.rig import Rig, day, filled
from tests.services.ingest.samples import T0


def tick(site: str, day: float) -> NewRecord:
    return NewRecord(site, "tick", T0 + int(day * DAY_MS), b"")


def log_of(*days: float) -> MemoryLog:
    """A tick on each day, and nine more in the seconds after the last: by these the site's clock goes."""
    return filled([tick("demo", day) for day in (*days, *(days[-1] + second / 86_400 for second in range(1, 10)))])


def test_only_what_is_old_and_passed_leaves() -> None:
    """Age is counted back from the newest record; a record that a snapshot still needs stays however old it is."""
    log = log_of(0, 1, 2, 8, 9, 10)
    assert Retention(log, 0).apply(0, lambda: 6) == 0
    keep = Retention(log, 7)
    assert keep.apply(0, lambda: 2) == 2
    assert keep.apply(0, lambda: 6) == 1
    assert (log.begin_offset(0), [r.offset for r in log.read(0, 3, 3)]) == (3, [3, 4, 5])
    assert keep.apply(0, lambda: 6) == 0


def test_one_clock_that_is_ahead_neither_keeps_all_nor_throws_kept_days_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site's receive times never fall, so that all its later records have the time of the one that was ahead."""
    monkeypatch.setattr(retention, "LOOK_EVERY_RECORDS", 48)
    log = MemoryLog(1)
    keep = Retention(log, 7)
    for hour in range(60 * 24):
        b_ms = T0 + (hour if hour < 240 else 365 * 24) * 3_600_000
        log.append([NewRecord("a", "tick", T0 + hour * 3_600_000, b""), NewRecord("b", "tick", b_ms, b"")])
        while keep.apply(0, lambda: log.end_offset(0)):
            pass
        oldest_hour = log.begin_offset(0) // 2
        assert max(0, hour - 9 * 24) <= oldest_hour <= max(0, hour - 7 * 24)


def removed(log: MemoryLog, keep_days: int) -> int:
    """How many records leave at the first look, if snapshots stand at the end."""
    return Retention(log, keep_days).apply(0, lambda: log.end_offset(0))


@pytest.mark.parametrize("looks_at", [20, 5_000])
@pytest.mark.parametrize("days_behind", [10, 31, 400])
def test_a_site_that_was_cut_off_takes_no_kept_day_of_its_neighbour(
    days_behind: int, looks_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However old its records are when they come, and also where a look sees nobody else: those of its neighbour that
    stand before them are young.
    """
    monkeypatch.setattr(retention, "LOOK_EVERY_RECORDS", looks_at)
    log = log_of(*(hour / 24 for hour in range(1, 24)))
    for number in range(100):
        log.append([tick("other", 1 - days_behind + number / 10)])
        assert removed(log, 1) == 0


@pytest.mark.parametrize("days_ahead", [20, 400])
def test_a_clock_that_is_always_wrong_counts_for_its_own_site_alone(days_ahead: int) -> None:
    """Both sites keep a day, whichever of the two is right."""
    log = MemoryLog(1)
    for hour in range(100):
        log.append([tick("now", hour / 24), tick("later", days_ahead + hour / 24)])
    kept_hours = 100 - removed(log, 1) / 2
    assert 24 <= kept_hours <= 24 + retention.TIMES


def test_one_reading_ahead_of_the_only_site_takes_none_of_its_kept_days() -> None:
    """All records that come after it have its time. Nothing more leaves until that has come."""
    log = log_of(0, 1, 2, 8, 9, 10)
    for _ in range(100):
        log.append([tick("demo", 400)])
        removed(log, 7)
        assert log.begin_offset(0) == 3


def test_a_site_that_has_left_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no clock any more: its records are old by that of its neighbour."""
    monkeypatch.setattr(retention, "LOOK_EVERY_RECORDS", 10)
    log = filled([tick("left", 0), tick("left", 0.1), *(tick("demo", 10 + minute / 1440) for minute in range(10))])
    assert removed(log, 7) == 2


def test_an_empty_log_and_no_snapshot_are_left_alone() -> None:
    """Nothing to count back from, nothing passed: nothing leaves."""
    assert Retention(MemoryLog(1), 7).apply(0, lambda: 0) == 0
    assert Retention(log_of(0, 100), 7).apply(0, lambda: 0) == 0


def test_where_nothing_is_to_leave_nobody_looks_what_has_passed() -> None:
    """In a bucket that look is a list of a folder, which is paid for."""
    looks: list[int] = []

    def passed() -> int:
        looks.append(1)
        return 6

    keeps_all, keeps_week = Retention(log_of(0, 1, 2, 8, 9, 10), 0), Retention(log_of(8, 9, 10), 7)
    assert (keeps_all.apply(0, passed), keeps_week.apply(0, passed), looks) == (0, 0, [])
    assert (Retention(log_of(0, 1, 2, 8, 9, 10), 7).apply(0, passed), looks) == (3, [1])


def test_much_leaves_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that appends never wait for long."""
    monkeypatch.setattr(retention, "PIECE", 3)
    log = log_of(*range(20))
    keep = Retention(log, 7)
    assert [keep.apply(0, lambda: 20) for _ in range(6)] == [3, 3, 3, 3, 0, 0]
    log.append([tick("demo", 20 + second / 86_400) for second in range(10)])
    assert keep.apply(0, lambda: 21) == 1


def test_a_shard_lets_old_records_go_and_its_rows_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the log begins behind them, a restart from either snapshot works, and the history is the same."""
    monkeypatch.setattr(retention, "DAY_MS", 3_600_000)
    records = list(day(60))
    keeping, letting = Rig(tmp_path / "all", filled(records)), Rig(tmp_path / "few", MemoryLog(1))
    letting.settings = letting.settings.model_copy(
        update={"log": letting.settings.log.model_copy(update={"keep_days": 1})}
    )
    full = keeping.shard()
    keeping.drain(full)
    full.close()
    for start in range(0, len(records), 40):
        letting.log.append(records[start : start + 40])
        shard = letting.shard()
        letting.drain(shard)
        shard.close()
    begin = letting.log.begin_offset(0)
    assert begin > 0
    assert len(records) - begin >= 12
    assert letting.content() == keeping.content()
    newest = max((letting.settings.storage_folder / "snapshots").glob("p0-*.snapshot"))
    newest.write_bytes(b"")
    again = letting.shard()
    letting.drain(again)
    assert again.flush() == {0: len(records)}
    assert letting.content() == keeping.content()
