"""A job is made of its rows alone; what a killed import leaves behind goes, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from services.store.imports.import_job import forget_abandoned, new_job

DAY_S = 86_400.0


def made(path: Path, at_s: float) -> Path:
    """A file that was written at that time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    os.utime(path, (at_s, at_s))
    return path


def test_what_imports_left_that_were_killed_goes_a_day_later(tmp_path: Path) -> None:
    """Rows without a note, and those that were half written. An import of today may still write its note."""
    imports = tmp_path / "imports"
    made(imports / "killed" / "rows.parquet", 0.0)
    made(imports / "half" / ".rows.parquet.1.tmp", 0.0)
    kept = [
        made(imports / "job" / "rows.parquet", 0.0), made(imports / "job" / "job.json", 0.0),
        made(imports / "today" / "rows.parquet", DAY_S), made(imports / "writes" / ".rows.parquet.2.tmp", DAY_S),
    ]  # fmt: skip
    forget_abandoned(tmp_path, 1.5 * DAY_S)
    assert sorted(path for path in imports.rglob("*") if path.is_file()) == sorted(kept)
    assert sorted(path.name for path in imports.iterdir()) == ["job", "today", "writes"]


def test_the_order_and_the_pieces_of_rows_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows are the same job, and lie there by end and zone, in groups that a shard reads together."""
    monkeypatch.setattr("services.store.imports.import_job.ROW_GROUP", 5)
    whole = pa.table({"zone": ["a", "b"] * 6, "end_ms": pa.array(np.repeat(np.arange(6) * 300_000, 2)),
                      "air_temp_c": pa.array(np.arange(12, dtype=np.float32))})  # fmt: skip
    pieces = pa.concat_tables([whole.slice(0, 7).combine_chunks(), whole.slice(7).combine_chunks()])
    mixed = whole.take(np.random.default_rng(1).permutation(12))
    ids = {new_job(tmp_path / name, "demo", rows).id for name, rows in (("a", whole), ("b", pieces), ("c", mixed))}
    assert len(ids) == 1
    for name in "abc":
        file = pq.ParquetFile(tmp_path / name / "imports" / min(ids) / "rows.parquet")
        assert file.num_row_groups == 3
        assert file.read().equals(whole)
