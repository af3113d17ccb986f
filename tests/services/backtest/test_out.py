"""The file that a backtest writes: named before the replay, and written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from services.backtest.report import write
from services.cli import app
from services.errors import HothouseError


@pytest.mark.parametrize(
    ("out", "code", "sentence"),
    [
        ("p.txt", 2, "p.txt cannot hold predictions Name a file that ends in .parquet or .csv."),
        ("folder.csv", 1, "folder.csv cannot be written: it is a folder"),
        ("file/new/p.csv", 1, "p.csv cannot be written: Not a directory"),
    ],
)
def test_where_nothing_can_be_written_is_said_before_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, code: int, sentence: str
) -> None:
    """It takes minutes, and what it found would be lost."""
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("services.backtest.table.read_table", lambda folder: pytest.fail("it was read"))
    done = CliRunner().invoke(app, ["backtest", str(tmp_path), "--out", str(tmp_path / out)])
    assert done.exit_code == code
    assert sentence in " ".join(done.output.split())


def test_where_nothing_can_be_scored_that_is_said(tmp_path: Path) -> None:
    """A sensor that reports long before the times that are forecast: with forecasts from every row there are some."""
    times = pd.date_range("2022-02-01", periods=2 * 288, freq="5min")
    air = np.where(times.minute == 10, 20.0, np.nan)
    (tmp_path / "house").mkdir()
    frame = pd.DataFrame({"time": times, "air_temp_c": air, "out_temp_c": 5.0})
    frame.to_csv(tmp_path / "house" / "north.csv", index=False)
    command = ["backtest", str(tmp_path / "house"), "--out", str(tmp_path / "p.csv"), "--warmup", "1h"]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 0
    assert "nothing could be scored" in said.output
    assert "--every 5min" in said.output
    every = CliRunner().invoke(app, [*command, "--every", "5min"])
    assert "mean MAE / better of persistence" in every.output


def test_predictions_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full leaves the file of before."""
    out = tmp_path / "p.parquet"
    out.write_text("of before")

    def full(table: object, path: Path) -> None:
        Path(path).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    with pytest.raises(HothouseError, match="No space left on device"):
        write(out, pd.DataFrame({"zone": ["z"], "q10": [1.0]}))
    assert (out.read_text(), len(list(tmp_path.iterdir()))) == ("of before", 1)
