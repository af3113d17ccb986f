"""The history as a frame and as a file: the rows that are there, and no others."""

from __future__ import annotations

import resource
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from edge.wire.vocabulary import VOCABULARY, is_weather
from services.backtest.frames import table_of_frames
from services.backtest.table import read_table
from services.cli import app
from services.errors import HothouseError
from services.store.frames import RowPieces, rows_frame
from services.store.history import History
from services.store.imports.import_job import open_jobs
from services.store.rows import SiteStep

T0 = 1_646_092_800_000  # 2022-03-01 00:00 UTC
CHANNELS = tuple(VOCABULARY)
STEP_MS = 300_000


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data folder with a day of two sites; only air temperature and humidity have values."""
    history = History(tmp_path / "storage", CHANNELS)
    for site, zones in (("north", ("z1", "z2")), ("south", ("z1",))):
        for n in range(1, 289):
            values = np.full((len(zones), len(CHANNELS)), np.nan, np.float32)
            values[:, CHANNELS.index("air_temp_c")] = 20 + np.arange(len(zones)) + n / 100
            values[0, CHANNELS.index("rh_pct")] = 70
            history.add([SiteStep(0, site, T0 + n * STEP_MS, zones, values, values)])
    history.flush()
    return tmp_path


def export(data_dir: Path, *options: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["--data-dir", str(data_dir), "export", *options])


def test_a_frame_holds_the_rows_that_are_asked_for(data_dir: Path) -> None:
    """Sorted, in UTC, after the one time and up to the other; metrics that never had a value are left out."""
    frame = rows_frame(data_dir / "storage", CHANNELS, 300)
    assert list(frame.columns) == ["site", "zone", "time", "air_temp_c", "rh_pct"]
    assert len(frame) == 3 * 288
    assert frame.time.iloc[0] == pd.Timestamp("2022-03-01 00:05", tz="UTC")
    named = frame[["site", "zone"]].drop_duplicates()
    assert named.to_numpy().tolist() == [["north", "z1"], ["north", "z2"], ["south", "z1"]]
    assert frame[frame.zone == "z2"].rh_pct.isna().all()
    noon, later = (datetime(2022, 3, 1, hour, tzinfo=UTC) for hour in (12, 13))
    part = rows_frame(data_dir / "storage", CHANNELS, 300, sites=["north"], zones=["z2"], since=noon, until=later)
    assert part.time.tolist() == list(pd.date_range("2022-03-01 12:05", "2022-03-01 13:00", freq="5min", tz="UTC"))
    assert part.air_temp_c.iloc[0] == pytest.approx(21 + 145 / 100)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_command_writes_them(data_dir: Path, ending: str) -> None:
    """What is read back from the file is the frame; a line says how much of which time it is."""
    out = data_dir / f"rows.{ending}"
    done = export(data_dir, str(out), "--site", "north", "--since", "2022-03-01T12:00")
    assert done.exit_code == 0, done.output
    assert f"288 rows of 2 zones, 2022-03-01 12:05 to 2022-03-02 00:00 UTC, in {out}" in done.output.replace("\n", "")
    back = pd.read_parquet(out) if ending == "parquet" else pd.read_csv(out, parse_dates=["time"])
    noon = datetime(2022, 3, 1, 12, tzinfo=UTC)
    frame = rows_frame(data_dir / "storage", CHANNELS, 300, sites=["north"], since=noon)
    pd.testing.assert_frame_equal(back, frame, check_dtype=False)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_some_zones_at_a_time_make_the_same_file(data_dir: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """A year of twenty zones need not fit in memory: rows come in pieces of whole zones, all with the same columns."""
    whole, asked = data_dir / f"whole.{ending}", ("--zone", "z1", "--zone", "z2")
    assert export(data_dir, str(whole), *asked).exit_code == 0
    assert len(list(RowPieces(data_dir / "storage", CHANNELS, 300))) == 1
    monkeypatch.setattr("services.store.tables.compaction.FILE_ROWS", 144)
    pieces = list(RowPieces(data_dir / "storage", CHANNELS, 300))
    assert [len(piece) for piece in pieces] == [288, 288, 288]
    assert {tuple(piece.columns) for piece in pieces} == {("site", "zone", "time", "air_temp_c", "rh_pct")}
    done, out = export(data_dir, str(data_dir / f"pieces.{ending}"), *asked), data_dir / f"pieces.{ending}"
    assert "864 rows of 3 zones, 2022-03-01 00:05 to 2022-03-02 00:00 UTC" in done.output.replace("\n", "")
    read = pd.read_parquet if ending == "parquet" else pd.read_csv
    pd.testing.assert_frame_equal(read(out), read(whole))


def test_what_was_exported_can_be_backtested(data_dir: Path) -> None:
    """An exported site is a recording: its rows are those of the history, value for value."""
    frame = rows_frame(data_dir / "storage", CHANNELS, 300, sites=["north"])
    table = table_of_frames(frame.drop(columns="site"), {})
    assert table.names == ("z1", "z2")
    column = CHANNELS.index("air_temp_c")
    np.testing.assert_array_equal(table.values[1, :, column], frame[frame.zone == "z2"].air_temp_c.to_numpy())


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_what_was_exported_comes_in_elsewhere(tmp_path: Path, ending: str) -> None:
    """Every metric, value for value, over the hour that a clock shows twice: times are UTC, whatever the site's clock.
    A counter's rows are what it gained, and a file has its sum, as a meter shows it; with gaps in between.
    """
    here, folder, zones = History(tmp_path / "here" / "storage", CHANNELS), tmp_path / "rows", ("z1", "z2")
    folder.mkdir()
    start_ms, generator = 1_667_088_000_000, np.random.default_rng(1)  # 2022-10-30, 00:00 UTC
    low, high = (np.array([getattr(VOCABULARY[name], of) for name in CHANNELS]) for of in ("low", "high"))
    for n in range(1, 61):
        values = np.round(low + (high - low) * generator.uniform(0.3, 0.4, (2, len(CHANNELS))), 2).astype(np.float32)
        values[1] = np.where([is_weather(name) for name in CHANNELS], values[0], values[1])
        values[:, CHANNELS.index("irrigation_l_m2")] = (0.25 * (n % 3), np.nan if n % 10 == 5 else 0.1)
        here.add([SiteStep(0, "north", start_ms + n * STEP_MS, zones, values, values)])
    here.flush()
    for zone in zones:
        assert export(tmp_path / "here", str(folder / f"{zone}.{ending}"), "--zone", zone).exit_code == 0
    done = CliRunner().invoke(app, [
        "--data-dir", str(tmp_path / "there"), "import", str(folder), "--site", "north", "--timezone",
        "Europe/Amsterdam", "--no-wait",
    ])  # fmt: skip
    assert done.exit_code == 0, done.output
    (job,) = open_jobs(tmp_path / "there" / "storage")
    order = [(name, "ascending") for name in ("zone", "end_ms")]
    there, rows = pa.concat_tables(job.days()).sort_by(order), here.read().sort_by(order)
    assert there.select(["zone", "end_ms"]).equals(rows.select(["zone", "end_ms"]))
    for name in CHANNELS:
        expected = rows[name].to_numpy().copy()
        if name == "irrigation_l_m2":
            expected[::60] = 0  # what the first row gained nobody knows who sees the meter for the first time
        np.testing.assert_allclose(there[name].to_numpy(), expected, rtol=1e-6, atol=1e-6, err_msg=name)


def test_the_sum_of_a_counter_over_years_keeps_what_each_row_gained(tmp_path: Path) -> None:
    """In single precision a meter at 9,000 l/m² would not tell 0.1 from 0.1004."""
    history, column = History(tmp_path, CHANNELS), CHANNELS.index("irrigation_l_m2")
    for n, gained in enumerate((9000, 0.1, 0.1, 0.1), 1):
        values = np.full((1, len(CHANNELS)), np.nan, np.float32)
        values[0, column] = gained
        history.add([SiteStep(0, "north", T0 + n * STEP_MS, ("z1",), values, values)])
    history.flush()
    meter = rows_frame(tmp_path, CHANNELS, 300).irrigation_l_m2
    np.testing.assert_allclose(np.diff(meter), 0.1, atol=2e-6)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_file_of_several_zones_is_no_recording_of_one(data_dir: Path, ending: str) -> None:
    """A backtest of the folder says so, instead of reading one zone and leaving the others out."""
    folder = data_dir / "exported"
    folder.mkdir()
    assert export(data_dir, str(folder / f"rows.{ending}"), "--site", "north").exit_code == 0
    with pytest.raises(HothouseError, match=r"288 of 576 rows have a time that is there twice.* a file a zone"):
        read_table(folder)
    assert export(data_dir, str(folder / f"rows.{ending}"), "--site", "north", "--zone", "z2").exit_code == 0
    assert read_table(folder).names == ("rows",)


def test_rows_of_another_step_are_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step was changed: a file has rows of one step, and a line says of which others there are, and how to."""
    history, values = History(data_dir / "storage", CHANNELS, 60), np.full((1, len(CHANNELS)), 20, np.float32)
    history.add([SiteStep(0, "north", T0 + 300 * STEP_MS, ("z1",), values, values, step_ms=60_000)])
    history.flush()
    done = export(data_dir, str(data_dir / "rows.csv"))
    assert "864 rows of 3 zones" in done.output
    assert "rows of 60 s are left out" in done.output
    monkeypatch.setenv("HOTHOUSE_STREAM__STEP_S", "60")
    done = export(data_dir, str(data_dir / "shorter.csv"))
    assert "1 row of 1 zone," in done.output
    assert "rows of 300 s are left out" in done.output


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("rows.txt",), 2, "rows.txt cannot hold rows"),
        (("rows.csv", "--site", "east"), 1, "has no such row"),
        (("rows.csv", "--zone", "z9"), 1, "has no such row"),
        (("gone/rows.csv",), 1, "cannot be written"),
        (("gone/rows.parquet",), 1, "cannot be written"),
    ],
)
def test_what_cannot_be_exported_is_told(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], code: int, says: str
) -> None:
    """One sentence, and no file."""
    monkeypatch.chdir(data_dir)
    done = export(data_dir, *options)
    assert (done.exit_code, says in done.output) == (code, True), done.output
    assert not (data_dir / options[0]).exists()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_an_export_that_breaks_off_leaves_what_was_there(data_dir: Path, ending: str) -> None:
    """As on a full disk: here no file may be longer than a kilobyte. Half a file would look like a whole one."""
    out = data_dir / f"rows.{ending}"
    out.write_text("of yesterday")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        done = export(data_dir, str(out))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (done.exit_code, "cannot be written" in done.output) == (1, True), done.output
    assert out.read_text() == "of yesterday"
    assert list(data_dir.glob(".rows*")) == []
