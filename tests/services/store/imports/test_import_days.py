"""An import's rows are read a day at a time, and none is lost at the borders of days and row groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from models.durations import DAY_MS
from services.errors import HistoryError
from services.store.imports import import_job
from services.store.imports.import_job import new_job
from services.store.storage import MemoryServer, ObjectStorage, Storage

T0 = 1_646_092_800_000  # 2022-03-01, 00:00 UTC


def rows_of(days: int, zones: int = 2, columns: int = 1) -> pa.Table:
    """A row each half hour, the last of a day at midnight: it belongs to the day that begins then."""
    ends = np.repeat(T0 + 1_800_000 * np.arange(1, 48 * days + 1), zones)
    values = {f"m{n}": pa.array(np.arange(len(ends), dtype=np.float32) + n) for n in range(columns)}
    names = [f"z{n % zones}" for n in range(len(ends))]
    return pa.table({"site": ["demo"] * len(ends), "zone": names, "end_ms": ends, **values})


@pytest.mark.parametrize("group", [1, 7, 96, 1000], ids=lambda rows: f"{rows} rows a group")
@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_every_row_is_in_its_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, group: int) -> None:
    """In whatever pieces a file is written: one piece is that of a version before."""
    monkeypatch.setattr(import_job, "ROW_GROUP", group)
    storage: Storage | Path = tmp_path if kind == "folder" else ObjectStorage(MemoryServer())
    rows = rows_of(4)
    days = new_job(storage, "demo", rows).days()
    assert len(days) == 5
    found = [set((day["end_ms"].to_numpy() // DAY_MS).tolist()) for day in days]
    assert found == [{T0 // DAY_MS + n} for n in range(5)]
    assert pa.concat_tables(days).cast(rows.schema).equals(rows)
    assert days[2].equals(days[2])


def test_years_of_rows_are_not_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard goes through an import with some thousand rows of it at a time."""
    monkeypatch.setattr(import_job, "ROW_GROUP", 1000)
    rows = rows_of(365, columns=20)
    job, size = new_job(tmp_path, "demo", rows), rows.nbytes
    del rows
    before, most = pa.total_allocated_bytes(), 0
    for day in job.days():
        most = max(most, pa.total_allocated_bytes() - before + day.nbytes)
    assert most < size / 5


def test_a_file_that_is_damaged_or_gone_is_named(tmp_path: Path) -> None:
    """The shard tells that import, and goes on with others."""
    job = new_job(tmp_path, "demo", rows_of(1))
    path = next(tmp_path.rglob("rows.parquet"))
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(HistoryError, match=r"rows\.parquet cannot be read"):
        job.days()
    job.forget_rows()
    with pytest.raises(HistoryError, match=r"rows\.parquet cannot be read"):
        job.days()
