"""What lies in the tables of a folder, for tests that compare it bit for bit."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from services.store.history import DEVICE_ROWS, ZONE_ROWS
from services.store.plan_history import PLANS
from services.store.storage import FolderStorage, always
from services.store.tables.file_name import FileName
from services.store.tables.read_files import read_files
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
    """Take a site's rows out of a table, files and all."""
    table = RowTable(FolderStorage(root), _TABLES[kind])
    state = table._log.state()
    gone = [file for file in state.files.values() if file.sites[0] <= site <= file.sites[1]]
    assert gone
    assert state.schema is not None
    kept = []
    for file in gone:
        rows = read_files(
            table.storage, table._sizes([file]), state.schema, state.schema.names, pc.field("site") != site
        )
        if len(rows):
            kept.append(table._write(FileName.of(file.path).path(uuid.uuid4().hex), rows, always))
    table._log.commit(kept, gone, state.schema)
