"""The history is a function of the rows, however often and in whatever parts it was written."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.errors import HistoryError
from services.store.files import write_atomically
from services.store.history import History, age_column, zone_table
from services.store.rows import SiteStep
from services.store.tables.delta_log import KEPT_H
from services.store.tables.row_table import RowTable
from tests.services.store.site_steps import CHANNELS, DAY, T0, site_step


def raw(history: History, kind: str) -> list[bytes]:
    """Every column's bytes, NaN and all."""
    columns = history.read(kind=kind).columns
    return [column.combine_chunks().cast(pa.string()).to_string().encode() for column in columns]


@settings(max_examples=25)
@given(st.permutations(list(range(9))), st.lists(st.integers(1, 4), min_size=9, max_size=9))
@pytest.mark.thorough
def test_the_history_is_a_function_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], sizes: list[int]
) -> None:
    """Any order, number of flushes, restarts and repetition gives the same rows, each of them once."""
    steps = [site_step(T0 + (n - 4) * DAY // 4) for n in range(9)]
    once, often = (History(tmp_path_factory.mktemp(name), CHANNELS) for name in ("once", "often"))
    once.add(steps)
    once.flush()
    left = [*order, order[0], order[-1]]
    for number, size in enumerate(sizes):
        if number % 3 == 2:
            often = History(often.storage, CHANNELS)
        often.add(steps[n] for n in left[:size])
        often.flush()
        left = left[size:]
    often.add(steps[n] for n in left)
    often.flush()
    for kind in ("zones", "devices"):
        assert raw(once, kind) == raw(often, kind)


def test_rows_come_back_bit_for_bit(tmp_path: Path) -> None:
    """Values and ages are float32 as given, NaN stays NaN and not null."""
    history = History(tmp_path, CHANNELS)
    step = site_step(T0)
    history.add([step])
    history.flush()
    table = history.read()
    assert table.column_names[:5] == ["site", "zone", "end_ms", "schema_version", "step_s"]
    assert table.column_names[5:] == ["air_temp_c", "rh_pct", *map(age_column, CHANNELS)]
    for index, channel in enumerate(CHANNELS):
        assert table[channel].null_count == 0
        assert table[channel].to_numpy().tobytes() == step.values[:, index].tobytes()
        assert table[age_column(channel)].to_numpy().tobytes() == step.ages_s[:, index].tobytes()
    assert history.read(kind="devices").to_pylist()[0] | {"mean": 0} == {
        "site": "demo", "zone": "z1", "device": "d", "metric": "air_temp_c", "end_ms": T0, "schema_version": 1,
        "step_s": 300, "count": 3, "mean": 0, "min": 0.0, "max": pytest.approx(0.2), "last": pytest.approx(0.15),
    }  # fmt: skip


def test_a_range_is_open_at_its_start_and_closed_at_its_end(tmp_path: Path) -> None:
    """``start < row end <= end``, over days and sites, and only the files of those days are named."""
    history = History(tmp_path, CHANNELS)
    history.add([site_step(T0 + n * DAY, site=site) for n in range(4) for site in ("a", "b")])
    history.flush()
    found = history.read(T0, T0 + 2 * DAY, ["b"])
    assert found["end_ms"].to_pylist() == [T0 + DAY, T0 + 2 * DAY] * 2
    assert set(found["site"].to_pylist()) == {"b"}
    assert len(history.files(T0 + DAY, T0 + 2 * DAY)) == 1
    assert history.sites() == ["a", "b"]
    assert len(history.read(T0 + 9 * DAY)) == 0


def test_a_pause_is_no_time_with_rows(tmp_path: Path) -> None:
    """What is shorter than a day is none; a day's files and those of another site count once."""
    history = History(tmp_path, CHANNELS)
    assert history.covered_ms(0, T0) == 0
    for n in (0, 1, 2, 4, 150, 151):
        history.add([site_step(T0 + n * DAY // 2), site_step(T0 + n * DAY // 2, site="other")])
        history.flush()
    assert history.covered_ms(T0, T0 + 76 * DAY) == 2 * DAY + DAY // 2
    assert history.covered_ms(T0 + DAY // 4, T0 + DAY) == 3 * DAY // 4
    assert history.covered_ms(T0 + 40 * DAY, T0 + 76 * DAY) == DAY // 2


def test_a_site_with_a_wrong_clock_does_not_say_which_row_is_newest(tmp_path: Path) -> None:
    """Its row of next year stood for now in every training, so that no other site's rows were young enough for one.
    Where all sites are ahead, this machine's clock may be what is wrong.
    """
    history = History(tmp_path, CHANNELS)
    assert history.span_ms(now_ms=T0) is None
    ahead_ms = T0 + 365 * DAY
    history.add([site_step(T0), site_step(ahead_ms, site="ahead"), site_step(T0 + DAY, site="right")])
    history.flush()
    assert history.span_ms(now_ms=T0 + DAY) == (T0, T0 + DAY)
    assert history.span_ms(now_ms=T0) == (T0, T0 + DAY)  # a day is not far
    assert history.span_ms(now_ms=ahead_ms) == (T0, ahead_ms)
    assert history.span_ms(now_ms=0) == (T0, ahead_ms)


def test_an_empty_history_reads_as_an_empty_table(tmp_path: Path) -> None:
    """Reading before the first row is no error."""
    assert len(History(tmp_path, CHANNELS).read()) == len(History(tmp_path, CHANNELS).read(kind="devices")) == 0


def test_what_a_crash_left_is_no_row_and_goes(tmp_path: Path) -> None:
    """A file that was written but never committed is in no table; it is removed once nobody can be writing it."""
    history = History(tmp_path, CHANNELS)
    history.add([site_step(T0)])
    history.flush()
    left = Path(history.files()[0]).with_name("2022-03-01-300s-00ff.parquet")
    left.write_bytes(Path(history.files()[0]).read_bytes())
    assert len(history.read()) == 2
    history.compact(T0, [0])
    assert left.exists()
    past_s = left.stat().st_mtime - 3600 * (KEPT_H + 1)
    os.utime(left, (past_s, past_s))
    history.compact(T0, [0])
    assert not left.exists()
    assert len(history.read()) == 2


def test_a_corrupt_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    """A damaged file is neither skipped nor overwritten, and rows that may be in it wait for the next flush."""
    history = History(tmp_path, CHANNELS)
    history.add([site_step(T0)])
    history.flush()
    path = Path(history.files()[0])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(HistoryError, match=r"2022-03-01-300s"):
        history.read()
    history = History(tmp_path, CHANNELS)
    history.add([site_step(T0)])
    with pytest.raises(HistoryError):
        history.flush()
    assert history.pending == 1


def test_a_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    """``write_atomically`` replaces a file whole or not at all."""
    path = tmp_path / "f"
    write_atomically(path, lambda tmp: tmp.write_bytes(b"old") and None)

    def torn(tmp: Path) -> None:
        tmp.write_bytes(b"ne")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, torn)
    assert path.read_bytes() == b"old"


def test_rows_of_another_step_are_kept_apart(tmp_path: Path) -> None:
    """All are written with the version they were made under; a reader gets those of its step."""
    fine = dataclasses.replace(site_step(T0 + 60_000), step_ms=60_000, schema_version=7)
    history = History(tmp_path, CHANNELS)
    history.add([site_step(T0), fine])
    history.flush()
    for reader, end_ms, version in ((history, T0, 1), (History(tmp_path, CHANNELS, 60), T0 + 60_000, 7)):
        for kind in ("zones", "devices"):
            table = reader.read(kind=kind)
            assert set(table["end_ms"].to_pylist()) == {end_ms}
            assert set(table["schema_version"].to_pylist()) == {version}


def test_rows_that_come_again_or_late(tmp_path: Path) -> None:
    """Also in the middle of a file; what is there stays as it is."""
    history = History(tmp_path, CHANNELS)
    for numbers in ([1, 3], [2], [1, 4]):
        history.add(site_step(T0 + n * 300_000) for n in numbers)
        history.flush()
    changed = dataclasses.replace(site_step(T0 + 600_000), schema_version=2)
    history.add([changed])
    history.flush()
    table = history.read()
    assert table["end_ms"].to_pylist() == 2 * [T0 + n * 300_000 for n in (1, 2, 3, 4)]
    assert table["schema_version"].to_pylist() == 8 * [1]


def test_rows_of_an_import_that_knew_fewer_metrics_are_compared_by_those(tmp_path: Path) -> None:
    """An earlier release began the import; since then there is one more metric."""
    history = History(tmp_path, CHANNELS)
    history.add([site_step(T0)])
    history.flush()
    rows = zone_table(CHANNELS, [site_step(T0), site_step(T0 + 300_000)]).drop_columns([CHANNELS[-1]])
    assert history.add_missing(0, "demo", rows) == (2, 2, 0, 0)


def test_rows_that_end_with_a_row_of_another_step_are_there_already(tmp_path: Path) -> None:
    """The step was five minutes, and is one: of the five rows of an import four are added, and counted as that."""
    history = History(tmp_path, CHANNELS, step_s=300)
    history.add([site_step(T0 + 300_000)])
    history.flush()
    shorter = History(tmp_path, CHANNELS, step_s=60)
    rows = zone_table(CHANNELS, [site_step(T0 + n * 60_000) for n in range(1, 6)], 60)
    assert shorter.add_missing(0, "demo", rows) == (8, 2, 0, 0)
    assert shorter.add_missing(0, "demo", rows) == (0, 10, 0, 0)
    assert len(shorter.read()) == 8


def unread(step: SiteStep, held: float = np.nan) -> SiteStep:
    """The same rows, of a time in which nothing came; the last channel's value of before holds."""
    ages = np.full_like(step.ages_s, 300.0)
    values = np.full_like(step.values, np.nan)
    values[:, -1] = held
    return dataclasses.replace(step, values=values, ages_s=ages)


def test_a_row_with_a_reading_of_a_metric_that_is_none_any_more_stays(tmp_path: Path) -> None:
    """The settings named another metric once, and nothing else was read in that row."""
    before = History(tmp_path, (*CHANNELS, "sap_flow"))
    silent = unread(site_step(T0))
    one = np.ones((len(silent.zones), 1), np.float32)
    values, ages_s = np.hstack([silent.values, 5 * one]), np.hstack([silent.ages_s, 10 * one])
    before.add([dataclasses.replace(silent, values=values, ages_s=ages_s)])
    before.flush()
    assert History(tmp_path, CHANNELS).add_missing(0, "demo", zone_table(CHANNELS, [site_step(T0)])).filled == 0
    assert before.read()["sap_flow"].to_pylist() == [5.0, 5.0]


def test_rows_in_which_nothing_was_read_are_filled(tmp_path: Path) -> None:
    """A gateway was away: what others know of that time takes the place of its rows, and of no other row. What holds
    and the others do not know stays.
    """
    history = History(tmp_path, CHANNELS)
    steps = [site_step(T0 + n * 300_000) for n in range(6)]
    history.add([steps[0], *(unread(step, 7.5) for step in steps[1:5]), steps[5]])
    history.flush()
    rows = zone_table(CHANNELS, [*steps[:4], unread(steps[4])])
    for name in (CHANNELS[-1], age_column(CHANNELS[-1])):
        nothing = pa.array(np.full(len(rows), np.nan, np.float32))
        rows = rows.set_column(rows.column_names.index(name), name, nothing)
    assert history.add_missing(0, "demo", rows) == (0, 4, 0, 6)
    after = history.read()
    assert len(after) == 12
    whole = zone_table(CHANNELS, [*steps[:4], unread(steps[4]), steps[5]]).sort_by(
        [("zone", "ascending"), ("end_ms", "ascending")]
    )
    for name in CHANNELS[:-1]:
        np.testing.assert_array_equal(after[name].to_numpy(), whole[name].to_numpy())
    held = after.filter(pa.array((after["end_ms"].to_numpy() > T0) & (after["end_ms"].to_numpy() < T0 + 5 * 300_000)))
    assert set(held[CHANNELS[-1]].to_pylist()) == {7.5}
    assert history.add_missing(0, "demo", rows) == (0, 10, 0, 0)


def test_metrics_that_were_unread_for_over_an_hour_are_filled(tmp_path: Path) -> None:
    """A zone's sensors were away while the weather station sent on: what was read stays, and the row says nothing that
    it did not know of itself but the missing values. A shorter gap of a metric stays.
    """
    history = History(tmp_path, CHANNELS)
    steps = [site_step(T0 + n * 300_000) for n in range(3)]
    missing_s = (600.0, 3600.0, np.nan)  # for how long the first channel was unread

    def live(step: SiteStep, age_s: float) -> SiteStep:
        values, ages_s = step.values.copy(), step.ages_s.copy()
        values[:, 0], ages_s[:, 0] = np.nan, age_s
        values[:, -1], ages_s[:, -1] = 7.5, 10.0
        return dataclasses.replace(step, values=values, ages_s=ages_s)

    history.add([live(step, age_s) for step, age_s in zip(steps, missing_s, strict=True)])
    history.flush()
    before, rows = history.read(), zone_table(CHANNELS, [dataclasses.replace(step, schema_version=9) for step in steps])
    assert history.add_missing(0, "demo", rows) == (0, 2, 3, 4)
    after = history.read()
    first, ends = CHANNELS[0], after["end_ms"].to_numpy()
    for name in (first, age_column(first)):
        said = np.where(ends > T0, rows.sort_by([("zone", "ascending"), ("end_ms", "ascending")])[name].to_numpy(),
                        before[name].to_numpy())  # fmt: skip
        np.testing.assert_array_equal(after[name].to_numpy(), said)
    others = [name for name in before.column_names if name not in (first, age_column(first))]
    assert after.select(others).equals(before.select(others))
    assert history.add_missing(0, "demo", rows) == (0, 6, 3, 0)


def test_a_row_that_gets_nothing_is_not_counted_as_filled(tmp_path: Path) -> None:
    """What a counter gained stands in the row of its next reading: a row that knows nothing else adds nothing."""
    channels = ("air_temp_c", "irrigation_l_m2")
    live, known = (
        SiteStep(0, "demo", T0, ("z1",), np.array([values], np.float32), np.array([ages_s], np.float32))
        for values, ages_s in (((np.nan, np.nan), (np.nan, 7200)), ((np.nan, 0.5), (np.nan, 30)))
    )
    history = History(tmp_path, channels)
    history.add([live])
    history.flush()
    before = raw(history, "zones")
    assert history.add_missing(0, "demo", zone_table(channels, [known])) == (0, 1, 0, 0)
    assert raw(history, "zones") == before


def test_much_is_flushed_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that memory holds little of it several times. What is durable waits no more if the next piece fails."""
    monkeypatch.setattr("services.store.history.FLUSHED_ROWS", 10)
    history, append, written = History(tmp_path, CHANNELS), RowTable.append, list[int]()

    def counted(table: RowTable, partition: int, step_s: int, rows: pa.Table, *more: Any) -> None:
        if len(written) == 3:
            written.append(0)
            raise HistoryError("the disk is full")
        written.append(len(rows))
        append(table, partition, step_s, rows, *more)

    monkeypatch.setattr(RowTable, "append", counted)
    steps = [site_step(T0 + n * 300_000) for n in range(12)]
    history.add(steps)
    assert history.pending_rows == sum(len(step.zones) + len(step.devices) for step in steps)
    with pytest.raises(HistoryError, match="the disk is full"):
        history.flush()
    assert 0 < history.pending < len(steps)
    history.flush()
    assert (history.pending, history.pending_rows) == (0, 0)
    assert max(written) <= 12
    assert len(history.read()) == 2 * len(steps)
    assert len(history.read(kind="devices")) == sum(len(step.devices) for step in steps)
