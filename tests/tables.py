"""What lies in the tables of a folder, for tests that compare it bit for bit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from services.store.history import DEVICE_ROWS, ZONE_ROWS
from services.store.plan_history import PLANS
from services.store.storage import FolderStorage
from services.store.tables.row_table import RowTable

__all__ = ["content_of", "leave_out", "raw"]

_TABLES = {"zones": ZONE_ROWS, "devices": DEVICE_ROWS, "plans": PLANS}


def content_of(root: Path, kind: str) -> list[bytes]:
    """The columns of all rows of a storage's table; nothing where there is none."""
    spec = _TABLES[kind]
    rows = RowTable(FolderStorage(root), spec).read()
    return [] if rows is None or not len(rows) else raw(rows.sort_by([(name, "ascending") for name in spec.order]))


def raw(rows: pa.Table) -> list[bytes]:
    """Every column's bytes, NaN and all."""
    return [
        repr(column.to_pylist()).encode() if pa.types.is_string(column.type)
        else column.combine_chunks().to_numpy(zero_copy_only=False).tobytes()
        for column in rows.columns
    ]  # fmt: skip


def leave_out(root: Path, kind: str, site: str) -> None:
    """Take a site's files, which hold no other's rows, out of a table."""
    table = RowTable(FolderStorage(root), _TABLES[kind])
    state = table._log.state()
    gone = [file for file in state.files.values() if file.sites == (site, site)]
    assert gone
    assert state.schema is not None
    table._log.commit([], gone, state.schema)
