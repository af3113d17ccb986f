"""Of a Parquet table no more is read than what may be asked for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from services.errors import HistoryError
from services.store.parquet import read_between, read_table, write_table
from services.store.storage import stored_in

TABLE = pa.table({"at": [1, 2, 3, 4, 5, 6, 7], "zone": list("aabbaab"), "value": [0.5 * n for n in range(7)]})


@pytest.mark.parametrize(
    ("after", "until", "read"),
    [(0, 9, [1, 2, 3, 4, 5, 6, 7]), (2, 3, [3, 4]), (3, 5, [3, 4, 5, 6]), (6, 9, [7]), (7, 9, []), (-5, 0, [])],
)
def test_row_groups_that_may_hold_the_span_are_read(tmp_path: Path, after: int, until: int, read: list[int]) -> None:
    """The span is open below and closed above; the table has groups of two rows. Names compare as text does."""
    storage = stored_in(tmp_path)
    write_table(storage, "t.parquet", TABLE, group_rows=2)
    found = read_between(storage, "t.parquet", "at", after, until)
    assert found["at"].to_pylist() == read
    assert found.schema == read_table(storage, "t.parquet").schema
    part = read_between(storage, "t.parquet", "at", after, until, ["at", "zone"], ["zone"])
    assert part.column_names == ["at", "zone"]
    named = [at for at in read if TABLE["zone"][at - 1].as_py() == "b"]
    assert part.filter(pc.field("zone") == "b")["at"].to_pylist() == named


@pytest.mark.parametrize(("site", "read"), [("a", [1, 2, 5, 6]), ("b", [3, 4, 7]), ("c", [])])
def test_row_groups_without_the_site_are_not_read(tmp_path: Path, site: str, read: list[int]) -> None:
    """A site that stopped months ago is looked for in all files since then."""
    storage = stored_in(tmp_path)
    write_table(storage, "t.parquet", TABLE.rename_columns(["at", "site", "value"]), group_rows=2)
    found = read_between(storage, "t.parquet", "at", 0, 9, site=site)
    assert found["at"].to_pylist() == read
    assert found.column_names == ["at", "site", "value"]


def test_a_damaged_table_is_told(tmp_path: Path) -> None:
    storage = stored_in(tmp_path)
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(HistoryError, match=r"t\.parquet cannot be read"):
        read_between(storage, "t.parquet", "at", 0, 9)
