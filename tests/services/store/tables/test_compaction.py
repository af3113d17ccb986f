"""Files of a table become fewer, and nothing is lost by that."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.errors import HistoryError
from services.store.storage import FolderStorage
from services.store.tables import compaction
from services.store.tables.compaction import SMALL_FILES
from services.store.tables.delta_log import TableFile
from services.store.tables.file_name import FileName
from services.store.tables.row_table import RowTable
from tests.services.store.tables.written_rows import DAY, STEP, T0, rows, table, there
from tests.storages import Open


def test_a_days_small_files_become_one_and_a_months_days_do(opened: Open) -> None:
    """A reader never has many files to open; what it listed before can still be read."""
    writer = table(opened())
    for n in range(20):
        writer.append(0, 300, rows(n))
    listed = writer.files()
    assert len(listed) < 2 * SMALL_FILES
    assert writer.compact(T0 + DAY, [0]) == len(listed)
    assert len(writer.files()) == 1
    for day in range(1, 40):
        writer.append(0, 300, rows(288 * day + 1))
    wanted = [*range(20), *(288 * day + 1 for day in range(1, 40))]
    assert there(opened()) == wanted
    assert writer.compact(T0 + 40 * DAY, [0]) == 31
    assert next(FileName.of(key.removeprefix("history/zone_rows/")).period for key in writer.files()) == "2022-03"
    assert len(writer.files()) == 1 + 9
    assert there(opened()) == wanted
    assert writer.compact(T0 + 40 * DAY, [0]) == 0
    for key in listed:
        assert opened().entry(key) is not None
    assert writer.span_ms() == (T0, T0 + (288 * 39 + 1) * STEP)


@given(st.lists(st.integers(1, compaction.FILE_ROWS), max_size=40), st.integers(1, 2 * compaction.FILE_ROWS))
def test_no_more_rows_are_merged_at_once_than_make_a_file(there: list[int], rows: int) -> None:
    """A day of a large site has millions, and all that are merged are in memory."""
    files = [TableFile(str(n), 1, count, 0, 0, ("a", "a"), ("z", "z")) for n, count in enumerate(there)]
    merged = compaction.small_files(files, rows)
    assert not merged or rows + sum(file.rows for file in merged) <= compaction.FILE_ROWS
    assert len(merged) == len({file.path for file in merged})
    assert not merged or len(merged) >= SMALL_FILES - 1


def test_rows_of_many_zones_are_cut_and_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A month of many zones becomes several files, each with zones of its own."""
    monkeypatch.setattr(compaction, "FILE_ROWS", 30)
    zones = tuple(f"z{n:02}" for n in range(12))
    writer = table(FolderStorage(tmp_path))
    for n in range(20):
        writer.append(0, 300, rows(n * 100, zones=zones))
    before = {zone: there(writer.storage, zone=zone) for zone in zones}
    assert writer.compact(T0 + 40 * DAY, [0])
    assert {zone: there(writer.storage, zone=zone) for zone in zones} == before
    assert len(writer.files()) == 8
    assert len(writer.files(zones=["z07"])) <= 2
    assert writer.compact(T0 + 40 * DAY, [0]) == 0


def test_a_compaction_that_would_lose_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of the files are counted against those that the log knows, before anything takes their place."""
    writer = table(FolderStorage(tmp_path))
    for n in range(4):
        writer.append(0, 300, rows(n))
    within = RowTable._in_order
    with monkeypatch.context() as patch:
        patch.setattr(RowTable, "_in_order", lambda table, found: within(table, found).slice(1))
        with pytest.raises(HistoryError, match="have 7 rows, its log says 8"):
            writer.compact(T0 + DAY, [0])
    assert there(writer.storage) == [0, 1, 2, 3]
    assert writer.compact(T0 + DAY, [0]) == 4


def test_a_damaged_month_keeps_no_other_from_being_merged(tmp_path: Path) -> None:
    """What can be merged is, what was replaced goes; then the damage is told."""
    writer = table(FolderStorage(tmp_path))
    for n in range(4):
        writer.append(0, 300, rows(n, 288 * 40 + n, 288 * 80 + n))
    months = {name: [file for file in writer.files() if f"/{name}" in file] for name in ("2022-03", "2022-04")}
    writer.storage.put(months["2022-03"][0], b"PAR1")
    removed = list[int]()
    writer._log.vacuum = lambda hours: removed.append(hours) or 0  # type: ignore[method-assign, func-returns-value]
    with pytest.raises(HistoryError, match="cannot be read"):
        writer.compact(T0 + 70 * DAY, [0])
    assert sum("/2022-04" in file for file in writer.files()) == 1 < len(months["2022-04"])
    assert removed


@pytest.mark.parametrize(("partitions", "removes"), [([0], False), ([1], True), ([2], False), ([0, 1, 2], True)])
def test_one_writer_removes_what_was_replaced(tmp_path: Path, partitions: list[int], removes: bool) -> None:
    """That of the first partition whose sites still say something, whichever number it has."""
    writer, asked = table(FolderStorage(tmp_path)), list[int]()
    writer.append(0, 300, rows(1, site="silent"))
    for partition in (1, 2):
        writer.append(partition, 300, rows(288 * 5, site=f"site-{partition}"))
    writer._log.vacuum = lambda hours: asked.append(hours) or 0  # type: ignore[method-assign, func-returns-value]
    writer.compact(T0 + 5 * DAY, partitions)
    assert bool(asked) == removes
