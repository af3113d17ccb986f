"""Step 6 of the way of a reading: a history from before it was tables (old_files.py) is brought over, in place.

The old files of a site that begin in the same month become files of the table, in one commit, and only then they go:
no more than these are in memory. The new files' names follow from what they are made of: a run that was killed is known
by them, and the next one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa

from services.errors import HistoryError
from services.store.history import DEVICE_ROWS, ZONE_ROWS
from services.store.parquet import read_table
from services.store.plan_history import PLANS
from services.store.storage import Storage
from services.store.tables.old_files import OLD_FOLDERS, OldFile, old_files
from services.store.tables.row_table import RowTable
from services.store.tables.table_reader import TableSpec

__all__ = ["bring_over"]

_TABLES = dict(zip(OLD_FOLDERS, (ZONE_ROWS, DEVICE_ROWS, PLANS), strict=True))


def bring_over(storage: Storage, progress: Callable[[int, int], None] = lambda done, of: None) -> int:
    """Bring the rows of old files into the tables; returns how many files there were. Nothing else may write meanwhile.

    May be killed at any moment and begun again. ``progress`` is told after each file how many are done, and of how
    many. Raises :class:`HistoryError`.
    """
    sites = [(folder, site) for folder in _TABLES for site in storage.list_folder(folder).folders]
    found = {(folder, site): old_files(storage, f"{folder}/{site}") for folder, site in sites}
    of, done = sum(map(len, found.values())), 0
    for (folder, site), files in found.items():
        table = RowTable(storage, _TABLES[folder])
        retired = [file for file in files if any(other.holds(file) for other in files)]
        left = [file for file in files if file not in retired]
        for _, begun in groupby(left, key=lambda file: (file.partition, file.step_s, file.first[:7])):
            group = list(begun)
            _bring(table, f"{folder}/{site}", group)
            gone = [file for file in retired if any(other.holds(file) for other in group)]
            retired = [file for file in retired if file not in gone]
            for file in [*gone, *group]:  # a retired one first: what holds it says that it is
                storage.delete(file.key)
                done += 1
                progress(done, of)
        storage.tidy(f"{folder}/{site}", age_s=0.0, now_s=2.0**40)
    return of


def _bring(table: RowTable, folder: str, files: Sequence[OldFile]) -> None:
    tables = [_with_step(table.spec, read_table(table.storage, file.key), file.step_s) for file in files]
    rows = pa.concat_tables(tables, promote_options="default")
    first = files[0]

    def still_there() -> None:
        for file in files:
            if table.storage.entry(file.key) is None:
                raise HistoryError(
                    f"{file.key} is gone: another process brings this history over", "Start one system on a storage."
                )

    what = f"brought over from {folder}"
    table.append_once(first.partition, first.step_s, rows, what, first.first[:7], still_there)


def _with_step(spec: TableSpec, rows: pa.Table, step_s: int) -> pa.Table:
    if spec is PLANS:
        return rows
    at = rows.column_names.index("schema_version") + 1
    return rows.add_column(at, "step_s", pa.array(np.full(len(rows), step_s, np.int32)))
