"""Rows in a table are there once, whatever is killed, repeated, lost or done by two at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.errors import HistoryError
from services.ingest.snapshots.snapshot import FencedError
from services.store.storage import FolderStorage, Storage
from services.store.tables import row_table
from services.store.tables.delta_log import DeltaLog, TableChangedError
from tests.services.store.tables.written_rows import DAY, STEP, T0, CrashError, crashing, rows, table, there
from tests.storages import Open


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
            except CrashError:
                writer, done = table(storage), max(0, done - 7)
    assert there(storage) == wanted
    assert there(storage, zone="z2") == wanted


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
