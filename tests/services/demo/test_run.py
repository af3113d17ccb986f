"""The demo's folder: its own leftovers are cleared, everything else is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.demo.run import MARKER, _prepare
from services.demo.summary import checks, ledger
from services.errors import ConfigError, StartError
from services.observe.timeline import event_line
from services.runtime.folder import FolderLock


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """A folder with files and no marker is refused, and keeps them."""
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="not of an earlier demo"):
        _prepare(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_an_earlier_demo_is_cleared(tmp_path: Path) -> None:
    """What is behind the marker goes; the marker stays."""
    (tmp_path / MARKER).touch()
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "old").touch()
    _prepare(tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {MARKER, "lock"}


def test_a_running_demo_is_left_alone(tmp_path: Path) -> None:
    """While one holds the folder, a second is refused and deletes nothing."""
    (tmp_path / MARKER).touch()
    (tmp_path / "log.sqlite").touch()
    with FolderLock(tmp_path), pytest.raises(StartError, match="already runs"):
        _prepare(tmp_path)
    assert (tmp_path / "log.sqlite").exists()


def test_a_folder_that_is_a_file_is_a_configuration_error(tmp_path: Path) -> None:
    """The sentence names data_dir and the path."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"data_dir is .*file"):
        _prepare(tmp_path / "file")


def test_text_from_outside_is_no_markup() -> None:
    """A message with brackets is shown as it is."""
    line = event_line({"kind": "error", "message": "cannot read [/tmp/x]", "time_ms": 0})
    assert r"\[/tmp/x]" in line


def test_a_missing_sample_fails_the_run() -> None:
    """One published sample that is not counted anywhere is seen by the checks."""
    counted = ledger(6, [{"accepted": 3, "duplicates": 1, "late": 1, "rejected": {}, "zone_rows": 1}])
    probe = {"sent": 1, "failed": 0}
    summary = {**counted, "probe": probe, "errors": [], "forecasts": 1, "retrain_every_s": 0}
    outcome = {claim: holds for claim, holds, _ in checks(summary)}
    assert outcome.pop("every published sample is accounted for") is False
