"""Small files of the history become larger ones, and nobody sees rows twice, changed or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.learn.training import dataset
from services.store import compaction, files, parquet
from services.store.compaction import GRACE_S, LEAST_FILES, Span, compact, current
from services.store.history import History, zone_table
from services.store.rows import SiteStep
from services.store.storage import folder_storage
from tests.services.store.test_history import CHANNELS, DAY, T0, site_step

KINDS = ("zones", "devices")


class _CrashError(BaseException):
    """Stands for the end of the process: nothing cleans up after it."""


def history_of(root: Path, days: int, sites: tuple[str, ...] = ("demo",), partition: int = 0) -> History:
    """Three rows a day."""
    history = History(root, CHANNELS)
    for n in range(days * 3):
        for site in sites:
            step = site_step(T0 + n * DAY // 3, site=site)
            history.add([step.__class__(**{**_fields(step), "partition": partition})])
    history.flush()
    return history


def _fields(step: Any) -> dict[str, Any]:
    return {name: getattr(step, name) for name in step.__dataclass_fields__}


def raw(table: pa.Table) -> list[bytes]:
    """Every column's bytes, NaN and all."""
    return [
        column.combine_chunks().to_numpy(zero_copy_only=False).tobytes()
        if not pa.types.is_string(column.type)
        else repr(column.to_pylist()).encode()
        for column in table.columns
    ]


def seen(history: History) -> list[list[bytes]]:
    """What a reader sees, by both ways of reading."""
    stream = dataset.gather(history.files(), CHANNELS, 0, 2**53, ["demo/z1", "demo/z2"])
    streamed = [stream.zone_ids.tobytes(), stream.end_ms.tobytes(), stream.values.tobytes()]
    return [raw(history.read(kind=kind)) for kind in KINDS] + [streamed]


def on_disk(history: History) -> list[str]:
    """All files of the zones' rows."""
    return sorted(path.name for path in (Path(history.storage.url, "history", "zones") / "demo").iterdir())


def test_past_days_become_one_file(tmp_path: Path) -> None:
    """Ten small days become one file of both kinds, the newest stay; a reader sees the same bytes; nothing is left to
    do; what was replaced can still be read for a day, and is then gone.
    """
    history = history_of(tmp_path, 12)
    before, listed = seen(history), history.files()
    assert history.compact(T0 + 10 * DAY, [0]) == 2 * 10
    assert seen(history) == before
    assert [Path(name).name for name in history.files()] == [
        "2022-03-01-to-2022-03-10-p0-300s.parquet", "2022-03-11-p0-300s.parquet", "2022-03-12-p0-300s.parquet",
    ]  # fmt: skip
    assert history.compact(T0 + 10 * DAY, [0]) == 0
    assert len(dataset.gather(listed, CHANNELS, 0, 2**53, ["demo/z1"]).end_ms) == 12 * 3
    later = Path(history.files()[0]).stat().st_mtime + GRACE_S + 1
    history.compact(T0 + 10 * DAY, [0], wall_s=lambda: later)
    assert on_disk(history) == [Path(name).name for name in history.files()]
    assert seen(history) == before


def test_ranges_find_the_days_of_a_larger_file(tmp_path: Path) -> None:
    """A range in the middle, and the oldest and newest row, are found as before."""
    history = history_of(tmp_path, 12)

    def found() -> tuple[Any, ...]:
        names = history.files(T0 + 4 * DAY, T0 + 6 * DAY)
        count = dataset.describe(names, T0 + 4 * DAY, T0 + 6 * DAY)
        rows = raw(history.read(T0 + 4 * DAY, T0 + 6 * DAY))
        return dataset.oldest_ms(history.files()), dataset.newest_ms(history.files()), count, rows

    before = found()
    for last in (12, 13):  # some days, then all of a site that fell silent
        history.compact(T0 + last * DAY, [0])
        assert found() == before


def test_rows_that_come_late_go_into_the_larger_file(tmp_path: Path) -> None:
    """A row of a day that was compacted, or of one that had none, stands in the larger file, once."""
    history = history_of(tmp_path, 10)
    late = [site_step(T0 + 2 * DAY + 300_000), site_step(T0 + DAY)]
    history.compact(T0 + 9 * DAY, [0])
    history.add(late)
    history.flush()
    other = history_of(tmp_path / "other", 10)
    other.add(late)
    other.flush()
    assert seen(history) == seen(other)
    assert len(history.files()) == 2


def test_small_runs_large_files_and_others_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few files, another partition's, and a large one with all that would reach over it are left alone."""
    history = history_of(tmp_path, LEAST_FILES - 1)
    assert history.compact(T0 + 99 * DAY, [0]) == 0
    other = history_of(tmp_path / "other", 12, partition=1)
    assert other.compact(T0 + 99 * DAY, [0]) == 0
    many = history_of(tmp_path / "many", 2 * LEAST_FILES - 1)
    folder = Path(many.storage.url, "history", "zones") / "demo"
    small = max(path.stat().st_size for path in folder.iterdir())
    many.add([site_step(T0 + (LEAST_FILES - 1) * DAY + n * 300_000) for n in range(2, 200)])
    many.flush()
    monkeypatch.setattr(compaction, "LARGE_BYTES", 9 * small)
    assert max(path.stat().st_size for path in folder.iterdir()) > 4.5 * small
    before = seen(many)
    many.compact(T0 + 99 * DAY, [0])
    assert len(current(many.storage, "history/zones/demo")) == 2 * LEAST_FILES - 1
    assert seen(many) == before


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 6)), min_size=1, max_size=25),
    st.lists(st.integers(0, 41), min_size=1, max_size=4),
    st.integers(2, 9), st.integers(12, 400),
)  # fmt: skip
def test_any_history_reads_the_same_after_any_compactions(
    tmp_path_factory: pytest.TempPathFactory,
    days: list[tuple[int, int]],
    before_days: list[int],
    least: int,
    large: int,
) -> None:
    """Whatever days have rows, and whenever compactions and late rows come between: the same bytes as without any."""
    plain, packed = (History(tmp_path_factory.mktemp(name), CHANNELS) for name in ("plain", "packed"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "LEAST_FILES", least)
        patch.setattr(compaction, "LARGE_BYTES", large * 1000)
        chunk = -(-len(days) // len(before_days))
        for n, before in enumerate(before_days):
            rows = [
                site_step(T0 + day * DAY + k * 300_000) for day, many in days[n * chunk :][:chunk] for k in range(many)
            ]
            for history in (plain, packed):
                history.add(rows)
                history.flush()
            packed.compact(T0 + before * DAY, [0])
            packed.compact(T0, [0], wall_s=lambda: 2e10)
    if plain.files():
        assert seen(packed) == seen(plain)
        assert len(packed.files()) <= len(plain.files())


def moments(monkeypatch: pytest.MonkeyPatch, crash_at: int) -> Iterator[None]:
    """Crash before the ``crash_at``-th thing that a disk remembers: write, rename, removal, fsync."""
    count = 0

    def guarded(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            if count == crash_at:
                raise _CrashError
            count += 1
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(parquet.pq, "ParquetWriter", guarded(parquet.pq.ParquetWriter))
        patch.setattr(Path, "replace", guarded(Path.replace))
        patch.setattr(Path, "unlink", guarded(Path.unlink))
        patch.setattr(files, "sync_folder", guarded(files.sync_folder))
        patch.setattr(folder_storage, "sync_folder", guarded(folder_storage.sync_folder))
        patch.setattr(os, "fsync", guarded(os.fsync))
        yield


def test_a_crash_at_any_moment_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before any durable step, in compacting or in removing: readers see the same bytes, and the next
    compaction brings the same files as one that was not stopped, with nothing beside them.
    """
    whole = history_of(tmp_path_factory.mktemp("whole"), 10)
    whole.compact(T0 + 9 * DAY, [0], wall_s=lambda: 2e10)
    expected, end, crashes = on_disk(whole), False, 0
    while not end:
        history = history_of(tmp_path_factory.mktemp("torn"), 10)
        before = seen(history)
        for _ in moments(monkeypatch, crashes):
            try:
                history.compact(T0 + 9 * DAY, [0], wall_s=lambda: 2e10)
                end = True
            except _CrashError:
                crashes += 1
        assert seen(history) == before
        again = History(history.storage, CHANNELS)
        again.compact(T0 + 9 * DAY, [0], wall_s=lambda: 2e10)
        assert seen(again) == before
        assert on_disk(again) == expected
    assert crashes > 2 * (3 + 9)  # both kinds: write, rename, fsync, and nine removals


def test_a_file_that_changes_meanwhile_is_left_for_the_next_time(tmp_path: Path) -> None:
    """Rows that are written while a compaction copies their file are not lost."""
    history = history_of(tmp_path, 10)
    late = site_step(T0 + 2 * DAY + 300_000)
    written = []

    def write() -> None:
        if not written:
            written.append(late)
            history.add([late])
            history.flush()

    assert history.compact(T0 + 9 * DAY, [0], check=write) == 9  # the devices' only
    assert late.end_ms in history.read()["end_ms"].to_pylist()
    assert history.compact(T0 + 9 * DAY, [0]) == 9
    assert late.end_ms in history.read()["end_ms"].to_pylist()


def test_another_writer_takes_over(tmp_path: Path) -> None:
    """A writer that lost its partition replaces nothing."""
    history = history_of(tmp_path, 10)
    before = on_disk(history)

    def lost() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        history.compact(T0 + 9 * DAY, [0], check=lost)
    assert on_disk(history) == before


def test_spans_are_read_from_names_and_give_them() -> None:
    """Names of all kinds come back; others are none."""
    one, several = "2022-03-01-p3-300s.parquet", "2022-03-01-to-2022-03-09-p0-60s.parquet"
    for name in (one, several, "2022-03-01-p3-plans.parquet", "2022-03-01-to-2022-03-09-p0-plans.parquet"):
        span = Span.of(name)
        assert span is not None
        assert span.name == name
    assert Span.of("2022-03-01-p3.parquet") is None
    assert np.all([Span.of(name) is None for name in ("", ".2022-03-01-p3-300s.parquet.ab.tmp", "x")])


def test_a_day_that_comes_between_the_others_meanwhile_is_not_hidden(tmp_path: Path) -> None:
    """Late history makes a file of a day between those that are being joined: they are left for the next time."""
    history = History(tmp_path, ("air_temp_c",))
    days = [0, 1, 2, 3, 5, 6, 7, 8, 9]
    values = np.array([[20.0]], np.float32)
    history.add([SiteStep(0, "demo", T0 + n * 86_400_000 + 300_000, ("z1",), values, values) for n in days])
    history.flush()
    late = SiteStep(0, "demo", T0 + 4 * 86_400_000 + 300_000, ("z1",), values, values)

    def somebody_imports() -> None:
        if len(history.files(sites=["demo"])) == len(days):
            history.add_missing(0, "demo", zone_table(("air_temp_c",), [late]))

    folder = "history/zones/demo"
    compact(history.storage, folder, "2100-01-01", [0], somebody_imports)
    assert len(history.read()) == len(days) + 1
    compact(history.storage, folder, "2100-01-01", [0])
    assert len(history.read()) == len(days) + 1
    assert len(history.files(sites=["demo"])) < len(days)
