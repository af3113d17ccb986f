"""A history of before it was tables: every row comes over once, however often that is killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.errors import HistoryError
from services.store.history import History, zone_table
from services.store.parquet import write_table
from services.store.storage import FolderStorage, Storage
from services.store.tables.migration import bring_over
from services.store.tables.old_files import old_files
from services.store.tables.row_table import RowTable
from tests.services.store.site_steps import CHANNELS, DAY, T0, site_step
from tests.services.store.tables.written_rows import CrashError, crashing
from tests.storages import TABLE_KINDS, opener


def old_history(storage: Storage, days: int) -> list[int]:
    """Files as they were: days, and some that a larger one has taken in, retired but still there."""
    ends = [T0 + n * DAY // 2 for n in range(days * 2)]

    def put(name: str, of: list[int], step_s: int = 300) -> None:
        for site in ("demo", "north"):
            rows = zone_table(CHANNELS, [site_step(end_ms, site=site) for end_ms in of]).drop_columns("step_s")
            write_table(storage, f"history/zones/{site}/{name}-p0-{step_s}s.parquet", rows)

    for day in range(days):
        put(f"2022-{3 + day // 31:02}-{day % 31 + 1:02}", ends[2 * day : 2 * day + 2])
    put("2022-03-05-to-2022-03-12", ends[8:24])
    put("2022-03-02", [T0 + DAY + 60_000], 60)
    return ends


def chained_history(storage: Storage) -> None:
    """Compacted files that each end in the month after, where the next one begins, and a day of its own."""
    names = ["2022-02-27-to-2022-03-02", "2022-03-03-to-2022-04-01", "2022-04-02-to-2022-05-03", "2022-05-04"]
    for name in names:
        first, _, last = name.partition("-to-")
        ends_ms = [int(np.datetime64(day, "ms").astype(int)) + DAY // 2 for day in (first, last or first)]
        rows = zone_table(CHANNELS, [site_step(end_ms) for end_ms in dict.fromkeys(ends_ms)]).drop_columns("step_s")
        write_table(storage, f"history/zones/demo/{name}-p0-300s.parquet", rows)


def days_and_retired(storage: Storage) -> None:
    """Days, and what took some of them in."""
    old_history(storage, 8)


def seen(storage: Storage) -> list[Any]:
    return [History(storage, CHANNELS, step_s).read().to_pylist() for step_s in (300, 60)]


@pytest.mark.parametrize("kind", TABLE_KINDS)
def test_all_rows_come_over(kind: str, tmp_path: Path) -> None:
    """The same rows, with the step that they are of; old files go, and what is left to do is told on the way."""
    open_it = opener(kind, tmp_path, 0.1)
    ends, told = old_history(open_it(), 40), list[tuple[int, int]]()
    with pytest.raises(HistoryError, match="a version before") as refused:
        History(open_it(), CHANNELS)
    assert "hothouse migrate" in refused.value.hint
    count = bring_over(open_it(), lambda done, of: told.append((done, of)))
    assert told == [(n + 1, count) for n in range(count)]
    assert count == 2 * (40 + 2)
    history = History(open_it(), CHANNELS)
    rows = history.read(sites=["north"])
    assert rows["end_ms"].to_pylist() == ends * 2
    fresh = History(FolderStorage(tmp_path / "fresh"), CHANNELS)
    fresh.add([site_step(end_ms, site="north") for end_ms in ends])
    fresh.flush()
    assert repr(rows.to_pylist()) == repr(fresh.read().to_pylist())
    assert len(History(open_it(), CHANNELS, 60).read()) == 4
    assert bring_over(open_it()) == 0
    history.add([site_step(ends[3])])  # there already
    history.flush()
    assert len(history.read()) == len(ends) * 4


def test_months_that_hang_together_come_over_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is in memory than what begins in a month, and what is done is told after each."""
    storage, append_once, seen_before = FolderStorage(tmp_path), RowTable.append_once, list[int]()
    chained_history(storage)
    told: list[int] = []

    def counted(table: RowTable, partition: int, step_s: int, rows: pa.Table, *more: str) -> None:
        assert len(pc.unique(rows["end_ms"])) <= 2
        seen_before.append(len(told))
        append_once(table, partition, step_s, rows, *more)

    monkeypatch.setattr(RowTable, "append_once", counted)
    assert bring_over(storage, lambda done, of: told.append(done)) == 4
    assert (seen_before, told) == ([0, 1, 2, 3], [1, 2, 3, 4])
    found = History(storage, CHANNELS).read()["end_ms"].to_numpy()
    assert len(np.unique(found)) == 7
    assert len(found) == 14  # two zones


@pytest.mark.parametrize("make", [days_and_retired, chained_history])
@settings(max_examples=25)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=5))
@pytest.mark.thorough
def test_it_may_be_killed_at_any_moment(
    tmp_path_factory: pytest.TempPathFactory, make: Callable[[Storage], None], crashes: list[int]
) -> None:
    """And begun again: the same rows."""
    storage = FolderStorage(tmp_path_factory.mktemp("old"))
    make(storage)
    moments = iter([n == 0 for wait in crashes for n in range(wait, -1, -1)] + [False] * 10_000)

    with pytest.MonkeyPatch.context() as patch:
        crashing(patch, moments, (FolderStorage, "delete"), (FolderStorage, "tidy"))
        for _ in range(len(crashes) + 1):
            try:
                bring_over(storage)
            except CrashError:
                continue
            break
    whole = FolderStorage(tmp_path_factory.mktemp("whole"))
    make(whole)
    bring_over(whole)
    assert repr(seen(storage)) == repr(seen(whole))


def test_a_damaged_file_stops_it_and_is_named(tmp_path: Path) -> None:
    """Nothing is removed then."""
    storage = FolderStorage(tmp_path)
    old_history(storage, 3)
    path = tmp_path / "history/zones/demo/2022-03-02-p0-300s.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(HistoryError, match=r"2022-03-02-p0-300s\.parquet cannot be read"):
        bring_over(storage)
    assert path.exists()
    assert old_files(storage, "history/zones/demo")
