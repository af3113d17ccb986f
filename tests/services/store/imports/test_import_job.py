"""What a killed import leaves behind goes, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

from services.store.imports.import_job import forget_abandoned

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
