"""``hothouse pretrain simulate``: a fleet in a folder."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from models.pretraining.fleet_folder import FleetFolder
from services.cli.root import app
from tests.patience import until


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["pretrain", "simulate", *arguments])
    return result.exit_code, result.output


@pytest.mark.thorough
def test_a_fleet_is_simulated_into_a_folder_and_cut_as_asked(tmp_path: Path) -> None:
    """It says how much it is, and how fast; other chunks and processes give the same."""
    one, other = tmp_path / "one", tmp_path / "other"
    code, said = run("--sites", "3", "--weeks", "0.14", "--seed", "2", "--out", str(one), "--workers", "1")
    assert code == 0, said
    assert "0.4 site-weeks of 3 sites" in said
    assert "site-weeks in 15 minutes of one core" in said
    cut = ("--workers", "2", "--chunk", "2")
    assert run("--sites", "3", "--weeks", "0.14", "--seed", "2", "--out", str(other), *cut)[0] == 0
    whole, parts = FleetFolder(one), FleetFolder(other)
    assert [chunk.sites for chunk in whole.chunks] == [3]
    assert [(chunk.first_site, chunk.sites) for chunk in parts.chunks] == [(0, 2), (2, 1)]
    rows = b"".join(chunk.arrays["values"].tobytes() for chunk in parts)
    assert rows == whole.read(0).arrays["values"].tobytes()
    names = ("seed", "sites", "days", "step_s", "draws_version", "hothouse")
    assert [whole.manifest[name] for name in names] == [parts.manifest[name] for name in names]


def test_a_process_that_is_killed_is_told(tmp_path: Path) -> None:
    """As where memory runs out: it says what to do, and leaves no other process, also where SIGTERM is ignored."""
    lost_and_other: list[BaseProcess] = []

    def kill() -> None:
        until(lambda: len(multiprocessing.active_children()) == 2, "both processes run")
        lost_and_other.extend(multiprocessing.active_children())
        lost_and_other[0].kill()

    killer = threading.Thread(target=kill)
    killer.start()
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a process that starts now ignores it, too
    try:
        code, said = run("--sites", "4", "--weeks", "2", "--out", str(tmp_path), "--workers", "2", "--chunk", "2")
    finally:
        signal.signal(signal.SIGTERM, before)
    killer.join()
    assert code == 1
    assert "a process of the simulation was lost" in said
    assert "--chunk" in said
    until(lambda: lost_and_other[1].exitcode is not None, "the other process ends")
    assert lost_and_other[1].exitcode == -signal.SIGKILL


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    """With what to do; nothing is written over."""
    (tmp_path / "notes.txt").write_text("mine")
    code, said = run("--sites", "1", "--weeks", "1", "--out", str(tmp_path))
    assert code == 2
    assert "is not empty" in said
    assert "Name a new folder" in said
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """With the reason."""
    (tmp_path / "file").write_text("")
    code, said = run("--sites", "1", "--weeks", "1", "--out", str(tmp_path / "file" / "fleet"))
    assert code == 1
    assert "cannot be used" in said
