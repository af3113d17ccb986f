"""Rows in a table are there once, whatever is killed, repeated, lost or done by two at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from services.errors import HistoryError
from services.ingest.snapshots.snapshot import FencedError
from services.store.history import ZONE_ROWS
from services.store.storage import FolderStorage, Storage
from services.store.tables import compaction, file_spans, row_table
from services.store.tables.compaction import SMALL_FILES
from services.store.tables.delta_log import DeltaLog, TableChangedError, TableFile
from services.store.tables.file_name import FileName
from services.store.tables.row_table import RowTable
from tests.storages import TABLE_KINDS, Open, opener

T0, STEP, DAY = 1_646_092_800_000, 300_000, 86_400_000  # 2022-03-01 00:00 UTC


@pytest.fixture(params=TABLE_KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Each kind that tables can lie in."""
    return opener(request.param, tmp_path, 0.1)


class _CrashError(BaseException):
    """Stands for the end of the process: nothing cleans up after it."""


def table(storage: Storage) -> RowTable:
    return RowTable(storage, ZONE_ROWS)


def rows(*numbers: int, site: str = "demo", zones: tuple[str, ...] = ("z1", "z2"), **more: float) -> pa.Table:
    count = len(numbers) * len(zones)
    ends = np.repeat([T0 + n * STEP for n in numbers], len(zones))
    columns = {"air_temp_c": pa.array(np.repeat(np.array(numbers, np.float32), len(zones)))}
    columns |= {name: pa.array(np.full(count, value, np.float32)) for name, value in more.items()}
    names = {"site": pa.array([site] * count), "zone": pa.array(list(zones) * len(numbers))}
    return pa.table({**names, "end_ms": pa.array(ends, pa.int64()), **columns})


def there(storage: Storage, site: str = "demo", zone: str = "z1") -> list[int]:
    found = table(storage).read(sites=[site], zone=zone)
    return [] if found is None else sorted((found["end_ms"].to_numpy() - T0) // STEP)


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
    assert len(writer.files(zone="z07")) <= 2
    assert writer.compact(T0 + 40 * DAY, [0]) == 0


def test_columns_that_come_later_are_missing_before(opened: Open) -> None:
    """The table has them all; rows of before have nothing there."""
    for one in (rows(1), rows(2, rh_pct=50.0), rows(3)):
        table(opened()).append(0, 300, one)
    found = table(opened()).read(zone="z1")
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


def test_a_writer_that_was_taken_over_adds_nothing(opened: Open) -> None:
    """Neither one that is told so by its check, nor one that hung after it while the newer one wrote."""
    older, newer = table(opened()), table(opened())
    older.append(0, 300, rows(1))

    def fenced() -> None:
        raise FencedError("another process owns it")

    with pytest.raises(FencedError):
        older.append(0, 300, rows(2), fenced)
    looks = 0

    def hangs() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:  # at the last moment, after its file was written
            newer.append(0, 300, rows(2))
        if looks > 3:
            raise FencedError("another process owns it")

    with pytest.raises(FencedError):
        older.append(0, 300, rows(2, 3), hangs)
    assert looks == 4
    assert there(opened()) == [1, 2]
    older.append(0, 300, rows(2, 3))
    assert there(opened()) == [1, 2, 3]


def test_an_answer_that_is_lost_adds_nothing_twice(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit was done, its writer was told that it failed: the same rows again are seen to be there."""
    writer, commit = table(opened()), DeltaLog._commit
    lost = [True, False, True]

    def lose(log: DeltaLog, *said: Any) -> None:
        commit(log, *said)
        if lost and lost.pop(0):
            raise OSError("no answer")

    monkeypatch.setattr(DeltaLog, "_commit", lose)
    with pytest.raises(HistoryError, match="no answer"):
        writer.append(0, 300, rows(1, 2))
    writer.append(0, 300, rows(1, 2, 3))
    with pytest.raises(HistoryError, match="no answer"):
        writer.append(0, 300, rows(4))
    writer.append(0, 300, rows(4))
    assert there(opened()) == [1, 2, 3, 4]


def test_a_commit_that_meets_itself_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer was lost, the library asked again, and was told that the table had changed: nothing is done twice."""
    writer, commit = table(FolderStorage(tmp_path)), DeltaLog._commit

    def refused(log: DeltaLog, *said: Any) -> None:
        commit(log, *said)
        raise TableChangedError

    for n in range(4):
        writer.append(0, 300, rows(n))
    monkeypatch.setattr(DeltaLog, "_commit", refused)
    writer.append(0, 300, rows(4))
    assert writer.compact(T0 + DAY, [0]) == 5
    writer.append_once(0, 300, rows(400), "old", "2022-03")
    assert there(writer.storage) == [0, 1, 2, 3, 4, 400]


def test_many_write_at_once(opened: Open) -> None:
    """Each partition its own rows, beside a merge of their days and readers: none is lost, none doubled."""
    table(opened()).append(9, 300, rows(0, site="other"))
    failed: list[BaseException] = []
    counts: list[int] = []
    over = threading.Event()

    def write(partition: int) -> None:
        try:
            writer = table(opened())
            for n in range(12):
                writer.append(partition, 300, rows(n, 288 * 3 + n, site=f"s{partition}"))
                writer.compact(T0 + 40 * DAY, [partition])
        except BaseException as error:
            failed.append(error)

    def read() -> None:
        try:
            reader = table(opened())
            while not over.is_set():
                found = reader.read(sites=["s1"])
                counts.append(0 if found is None else len(found))
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    watching = threading.Thread(target=read)
    for thread in (watching, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    watching.join()
    assert failed == []
    assert counts == sorted(counts)
    assert all(count % 4 == 0 for count in counts)
    for number in range(3):
        assert there(opened(), f"s{number}") == [*range(12), *(288 * 3 + n for n in range(12))]


def crashing(monkeypatch: pytest.MonkeyPatch, moments: Iterator[bool]) -> None:
    """Each file that is written and each commit may be the last thing that a process does, before or after it."""

    def around(act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(*said: Any, **more: Any) -> Any:
            if next(moments):
                raise _CrashError
            done = act(*said, **more)
            if next(moments):
                raise _CrashError
            return done

        return acted

    monkeypatch.setattr(row_table, "write_table", around(row_table.write_table))
    monkeypatch.setattr(DeltaLog, "_commit", around(DeltaLog._commit))


@settings(max_examples=25)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.lists(st.integers(1, 9), min_size=12, max_size=12))
@pytest.mark.thorough
def test_a_crash_at_any_moment_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, crashes: list[int], sizes: list[int]
) -> None:
    """Rows are written again from some way back, by a new process: each is there once, also of a merged day."""
    storage = FolderStorage(tmp_path_factory.mktemp("rows"))
    moments = iter([n == 0 for wait in crashes for n in range(wait, -1, -1)] + [False] * 10_000)
    wanted = [*range(20), *range(288 * 40, 288 * 40 + 20)]
    with pytest.MonkeyPatch.context() as patch:
        crashing(patch, moments)
        done, writer = 0, table(storage)
        turn = 0
        while done < len(wanted):
            size = sizes[turn % len(sizes)]
            turn += 1
            try:
                writer.append(0, 300, rows(*wanted[done : done + size]))
                done += size
                if turn % 3 == 0:
                    writer.compact(T0 + 45 * DAY, [0])
            except _CrashError:
                writer, done = table(storage), max(0, done - 7)
    assert there(storage) == wanted
    assert there(storage, zone="z2") == wanted


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


class Reads:
    """Counts the rows of files that are read to see which rows are there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[int] = []
        read = row_table.read_files

        def counted(storage: Storage, sizes: Any, schema: pa.Schema, columns: Any, within: Any) -> pa.Table:
            if "air_temp_c" not in columns:
                self.files.append(len(sizes))
            return read(storage, sizes, schema, columns, within)

        monkeypatch.setattr(row_table, "read_files", counted)


def test_a_start_reads_what_it_doubts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New rows of a site are known by the log; of old ones the files of their days are read, none after them."""
    storage, reads = FolderStorage(tmp_path), Reads(monkeypatch)
    for day in range(10):
        table(storage).append(0, 300, rows(288 * day, 288 * day + 1))
    assert reads.files == []
    writer = table(storage)
    writer.append(0, 300, rows(288 * 3, 288 * 3 + 1, 288 * 3 + 2))
    assert reads.files == [1]
    writer.append(0, 300, rows(288 * 10))
    writer.append(0, 300, rows(288 * 11, site="new"))
    assert reads.files == [1]
    wanted = sorted([*(288 * day + n for day in range(10) for n in (0, 1)), 288 * 3 + 2, 288 * 10])
    assert there(storage) == there(storage, zone="z2") == wanted


def test_a_site_that_lags_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where files have rows of sites that are far ahead of it."""
    storage, reads = FolderStorage(tmp_path), Reads(monkeypatch)
    for n in range(0, 40, 10):
        table(storage).append(0, 300, pa.concat_tables([rows(n + 500, site=site) for site in ("a", "c")]))
    writer = table(storage)
    for n in range(5):
        writer.append(0, 300, rows(n, site="b"))
    assert reads.files == []
    table(storage).append(0, 300, rows(4, 5, site="b"))
    assert len(reads.files) == 1
    assert there(storage, "b") == list(range(6))


def test_what_another_wrote_meanwhile_is_looked_at(opened: Open) -> None:
    """A writer whose turn came again does not trust what it knew of the table."""
    ours, another = table(opened()), table(opened())
    ours.append(0, 300, rows(1))
    another.append(0, 300, rows(2, 3))
    ours.append(0, 300, rows(2, 3, 4))
    assert there(opened()) == [1, 2, 3, 4]


def test_rows_take_the_place_of_those_that_are_there(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each file that has one; all others stay as they are, also of columns that the new rows lack. Files that were
    merged meanwhile, by the thread that merges, are looked for again.
    """
    writer, merging = table(opened()), table(opened())
    for n in range(4):
        writer.append(0, 300, rows(n, 288 * 40 + n, par=5.0))
    better = rows(1, 2, 288 * 40 + 3, 7, zones=("z2",)).set_column(
        3, "air_temp_c", pa.array(np.full(4, 50.0, np.float32))
    )
    commit, between = DeltaLog.commit, [True]

    def merged_before(log: DeltaLog, *said: Any, **more: Any) -> None:
        if between:
            between.clear()
            assert merging.compact(T0 + 50 * DAY, [0]) == 8
        commit(log, *said, **more)

    monkeypatch.setattr(DeltaLog, "commit", merged_before)
    writer.replace(0, 300, better)
    found = table(opened()).read()
    assert found is not None
    assert not between
    said = {
        (zone, (end_ms - T0) // STEP): (value, par)
        for zone, end_ms, value, par in zip(
            *(found[name].to_pylist() for name in ("zone", "end_ms", "air_temp_c", "par")), strict=True
        )
    }
    replaced = {("z2", 1), ("z2", 2), ("z2", 288 * 40 + 3)}
    assert len(found) == len(said) == 16
    assert {at for at, (value, _) in said.items() if value == 50.0} == replaced
    assert {at for at, (_, par) in said.items() if par is None} == replaced
    assert all(value == n for (zone, n), (value, _) in said.items() if (zone, n) not in replaced)
    writer.append(0, 300, rows(1, 2, 8))
    assert there(opened()) == [0, 1, 2, 3, 8, *range(288 * 40, 288 * 40 + 4)]


def test_a_writer_that_was_taken_over_replaces_nothing(opened: Open) -> None:
    """Its last check comes after its files were written."""
    older = table(opened())
    older.append(0, 300, rows(1))
    checks = iter([True, True, False])

    def fenced() -> None:
        if not next(checks):
            raise FencedError("another process owns it")

    with pytest.raises(FencedError):
        older.replace(0, 300, rows(1, par=9.0), fenced)
    found = table(opened()).read()
    assert found is not None
    assert "par" not in found.column_names or set(found["par"].to_pylist()) == {None}


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


def test_a_history_that_another_brings_over_meanwhile_is_refused(opened: Open) -> None:
    """A process that was stopped in its migration wakes when another has ended it, and merged what it made."""
    slow, quick = table(opened()), table(opened())
    begun = threading.Event()

    def stopped() -> None:
        begun.set()
        quick.append_once(0, 300, rows(1, 2, 3), "old", "2022-03")
        quick.append(0, 300, rows(4))
        assert quick.compact(T0 + 40 * DAY, [0]) > 0

    with pytest.raises(HistoryError, match="changed by another process"):
        slow.append_once(0, 300, rows(1, 2, 3), "old", "2022-03", _once(stopped))
    assert begun.is_set()
    assert there(opened()) == [1, 2, 3, 4]


def _once(act: Callable[[], None]) -> Callable[[], None]:
    acts = iter([act])
    return lambda: next(acts, lambda: None)()


def test_a_file_is_read_once_for_the_sites_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And several at once; those that were replaced are forgotten."""
    sites = ("a", "b", "c", "d")
    writer = table(FolderStorage(tmp_path))
    for day in range(12):
        new = [rows(288 * day + number, site=site) for number, site in enumerate(sites) if (day > 5) == (site < "c")]
        writer.append(0, 300, pa.concat_tables(new))
    reader, read, reading, most = table(FolderStorage(tmp_path)), file_spans.read_files, [0], [0]
    files: list[str] = []

    def counted(storage: Storage, sizes: Any, *more: Any) -> pa.Table:
        files.extend(sizes)
        reading[0] += 1
        most[0] = max(most[0], reading[0])
        time.sleep(0.05)
        reading[0] -= 1
        return read(storage, sizes, *more)

    monkeypatch.setattr(file_spans, "read_files", counted)
    for _ in range(3):
        assert [reader.newest_ms(site) for site in "abcde"] == [T0 + n * STEP for n in (288 * 11, 288 * 11 + 1)] + [
            T0 + n * STEP for n in (288 * 5 + 2, 288 * 5 + 3)
        ] + [0]
        assert [reader.oldest_ms(site) for site in "ad"] == [T0 + 288 * 6 * STEP, T0 + 3 * STEP]
        assert reader.sites() == list(sites)
    assert len(files) == len(set(files)) == 12
    assert most[0] > 1
    assert writer.compact(T0 + 40 * DAY, [0]) == 12
    assert reader.sites() == list(sites)
    assert len(reader._spans._known) == 1
