"""docs/history.md holds: what it says of other programs is tried, on a folder and on a bucket, beside a writer."""

from __future__ import annotations

import doctest
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from deltalake import DeltaTable

from services.store.history import History
from services.store.rows import SiteStep
from services.store.storage import FolderStorage, Storage, open_storage
from tests.s3 import s3_address

PAGE = Path(__file__).parents[4] / "docs" / "history.md"
T0, STEP = 1_646_092_800_000, 300_000


def a_history(storage: Storage) -> History:
    """Two zones, twelve steps, in flushes of their own, some of them merged; one value is missing."""
    history = History(storage, ("air_temp_c",))
    for number in range(12):
        values = np.array([[18 + number / 2], [28 + number / 2 if number < 11 else np.nan]], np.float32)
        history.add([SiteStep(0, "demo", T0 + number * STEP, ("tomato-1", "tomato-2"), values, values * 0)])
        history.flush()
    return history


def _names(kind: str, tmp_path: Path) -> tuple[Storage, dict[str, Any]]:
    if kind == "folder":
        return FolderStorage(tmp_path), {"root": str(tmp_path), "options": None}
    where = s3_address(tmp_path)
    options = {
        "AWS_ENDPOINT_URL": where.endpoint, "AWS_REGION": where.region, "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": os.environ["HOTHOUSE_TEST_S3_ACCESS_KEY"],
        "AWS_SECRET_ACCESS_KEY": os.environ["HOTHOUSE_TEST_S3_SECRET_KEY"],
    }  # fmt: skip
    return open_storage(where), {"root": where.url, "options": options}


@pytest.mark.parametrize("kind", ["folder", pytest.param("s3", marks=pytest.mark.s3)])
def test_the_page_holds(kind: str, tmp_path: Path) -> None:
    """Its examples, word for word; DuckDB, Polars and pandas see the same rows as we do."""
    storage, names = _names(kind, tmp_path)
    history = a_history(storage)
    test = doctest.DocTestParser().get_doctest(PAGE.read_text(), names, PAGE.name, str(PAGE), 0)
    assert len(test.examples) >= 9
    told: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=told.append)
    assert told == []
    where, options = f"{names['root']}/history/zone_rows", names["options"]
    columns = ["zone", "end_ms", "air_temp_c"]
    table = DeltaTable(where, storage_options=options)
    rows = table.to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
    by_duckdb = duckdb.sql("SELECT zone, end_ms, air_temp_c FROM rows ORDER BY zone, end_ms").fetchall()
    assert len(pl.read_delta(where, storage_options=storage.delta_options())) == 24  # what we tell deltalake will do
    by_polars = pl.read_delta(where, storage_options=options).select(columns).sort("zone", "end_ms").rows()
    by_pandas = table.to_pandas(columns=columns).sort_values(["zone", "end_ms"]).itertuples(index=False, name=None)
    wanted = [tuple(row.values()) for row in history.read().select(columns).to_pylist()]
    assert len(wanted) == 24
    wanted[-1] = (*wanted[-1][:2], None)
    assert [_known(rows) for rows in (by_duckdb, by_polars, by_pandas)] == [wanted] * 3


def test_a_path_with_a_space_is_read_as_the_page_says(tmp_path: Path) -> None:
    """By Polars, too, which does not find the files by itself."""
    root = tmp_path / "my house"
    a_history(FolderStorage(root))
    table = DeltaTable(f"{root}/history/zone_rows")
    rows = pl.scan_pyarrow_dataset(table.to_pyarrow_dataset())
    assert rows.filter(zone="tomato-1").select(pl.col("air_temp_c").fill_nan(None).mean()).collect().item() == 20.75
    assert len(table.to_pandas(filters=[("zone", "=", "tomato-1")])) == 12


def _known(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without NaN, which equals nothing."""
    return [tuple(None if value != value else value for value in row) for row in rows]
