"""What is read of a table: its sites and their ends, columns that came later, each file once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from services.errors import HistoryError
from services.store.history import ZONE_ROWS
from services.store.storage import FolderStorage, Storage
from services.store.tables import file_spans
from services.store.tables.delta_log import DeltaLog, TableChangedError
from tests.patience import patience_s
from tests.services.store.tables.written_rows import DAY, STEP, T0, rows, table, there
from tests.storages import Open


def test_columns_that_come_later_are_missing_before(opened: Open) -> None:
    """The table has them all; rows of before have nothing there."""
    for one in (rows(1), rows(2, rh_pct=50.0), rows(3)):
        table(opened()).append(0, 300, one)
    found = table(opened()).read(zones=["z1"])
    assert found is not None
    said = {row["end_ms"]: row["rh_pct"] for row in found.to_pylist()}
    assert said == {T0 + STEP: None, T0 + 2 * STEP: 50.0, T0 + 3 * STEP: None}


def test_sites_and_their_ends(opened: Open) -> None:
    """Of one table that several partitions write."""
    writer = table(opened())
    writer.append(0, 300, pa.concat_tables([rows(5, site="a"), rows(7, site="c")]))
    writer.append(1, 300, rows(1, 9, site="b"))
    writer.append(1, 60, rows(11, site="b"))
    reader = table(opened())
    assert (reader.sites(), reader.sites(partition=1)) == (["a", "b", "c"], ["b"])
    assert [reader.newest_ms(site, 300) for site in "abcd"] == [T0 + n * STEP if n else 0 for n in (5, 9, 7, 0)]
    assert [reader.oldest_ms(site, 300) for site in "abcd"] == [T0 + n * STEP if n else 0 for n in (5, 1, 7, 0)]


def test_other_programs_see_the_same_rows(tmp_path: Path) -> None:
    """Also while they are written, merged, and what was replaced is removed."""
    writer = table(FolderStorage(tmp_path))
    for n in range(30):
        writer.append(0, 300, rows(n * 20))
        seen = pa.table(DeltaTable(tmp_path / "history/zone_rows").to_pyarrow_table())
        assert sorted(seen["end_ms"].to_pylist()) == sorted([T0 + m * 20 * STEP for m in range(n + 1)] * 2)
    writer.compact(T0 + 40 * DAY, [0])
    writer._log.vacuum(0)
    assert there(writer.storage) == [n * 20 for n in range(30)]
    assert len(list((tmp_path / "history/zone_rows/p0").iterdir())) == len(writer.files())


def test_what_others_put_there_is_refused(tmp_path: Path) -> None:
    """A file that we did not write is named; nobody guesses what it is."""
    writer = table(FolderStorage(tmp_path))
    writer.append(0, 300, rows(1))
    log = DeltaLog(writer.storage, ZONE_ROWS.folder, "end_ms")
    file = next(iter(log.state().files.values()))
    with pytest.raises(TableChangedError):
        log.commit([], [file, file.__class__(**{**fields(file), "path": "p0/gone.parquet"})], rows(1).schema)
    other = Path(tmp_path, "history/zone_rows/theirs.parquet")
    other.write_bytes(Path(tmp_path, "history/zone_rows", file.path).read_bytes())
    log.commit([file.__class__(**{**fields(file), "path": other.name})], [], rows(1).schema)
    with pytest.raises(HistoryError, match=r"theirs\.parquet is no file of ours"):
        table(writer.storage).read()


def fields(file: Any) -> dict[str, Any]:
    return {name: getattr(file, name) for name in file.__dataclass_fields__}


def test_the_damaged_file_is_named(opened: Open) -> None:
    """Not another one that is read at the same time."""
    writer = table(opened())
    for day in range(12):
        writer.append(0, 300, rows(288 * day))
    damaged = writer.files()[7]
    writer.storage.put(damaged, b"PAR1")
    for columns in (None, ["site"]):
        with pytest.raises(HistoryError, match=f"{Path(damaged).name} cannot be read"):
            table(opened()).read(columns=columns)


def test_a_file_is_read_once_for_the_sites_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And several at once; those that were replaced are forgotten."""
    sites = ("a", "b", "c", "d")
    writer = table(FolderStorage(tmp_path))
    for day in range(12):
        new = [rows(288 * day + number, site=site) for number, site in enumerate(sites) if (day > 5) == (site < "c")]
        writer.append(0, 300, pa.concat_tables(new))
    reader, read, second = table(FolderStorage(tmp_path)), file_spans.read_files, threading.Event()
    files: list[str] = []
    alone: list[str] = []

    def counted(storage: Storage, sizes: Any, *more: Any) -> pa.Table:
        files.extend(sizes)
        if alone and len(files) > len(alone) + 1:
            second.set()
        assert not alone or second.wait(patience_s(10)), "nothing else is read meanwhile"
        return read(storage, sizes, *more)

    monkeypatch.setattr(file_spans, "read_files", counted)
    for _ in range(3):
        assert [reader.newest_ms(site) for site in "abcde"] == [T0 + n * STEP for n in (288 * 11, 288 * 11 + 1)] + [
            T0 + n * STEP for n in (288 * 5 + 2, 288 * 5 + 3)
        ] + [0]
        assert [reader.oldest_ms(site) for site in "ad"] == [T0 + 288 * 6 * STEP, T0 + 3 * STEP]
        alone = alone or list(files)  # each of these may have said it all; what is left is read at once
        assert reader.sites() == list(sites)
    assert len(files) == len(set(files)) == 12
    assert writer.compact(T0 + 40 * DAY, [0]) == 12
    assert reader.sites() == list(sites)
    assert len(reader._spans._known) == 1
