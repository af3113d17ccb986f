"""Where `hothouse backup` writes nothing; what `hothouse restore` waits for, and for how long."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from edge.log import LogError
from services.cli.history import backup_commands
from services.errors import BackupError
from services.store.backup import RESTORING
from tests.services.cli.command_line import hothouse


def state_in(folder: Path) -> Path:
    """A data folder with something in its storage."""
    (folder / "storage" / "snapshots").mkdir(parents=True)
    (folder / "storage" / "slot.json").write_text("{}")
    return folder


def test_a_backup_makes_no_folder(tmp_path: Path) -> None:
    """A disk that is not mounted would get it: the backup would lie on the disk of what it backs up."""
    answer = hothouse("--data-dir", str(state_in(tmp_path / "data")), "backup", str(tmp_path / "usb" / "b.tar"))
    assert (answer.exit_code, (tmp_path / "usb").exists()) == (1, False)
    assert f"the folder {tmp_path / 'usb'} does not exist" in answer.output.replace("\n", "")


def test_half_of_a_restore_is_not_backed_up(tmp_path: Path) -> None:
    """It would look like a backup, and take the place of a good one."""
    (state_in(tmp_path / "data") / "storage" / RESTORING).touch()
    answer = hothouse("--data-dir", str(tmp_path / "data"), "backup", str(tmp_path / "b.tar"))
    assert (answer.exit_code, (tmp_path / "b.tar").exists()) == (1, False)
    assert "holds half of a backup" in answer.output.replace("\n", " ")


def test_sigterm_leaves_nothing_of_a_backup(tmp_path: Path) -> None:
    """As when systemd stops it: half a backup, under a hidden name, would fill the disk for ever."""
    program = (
        "import signal; from services.store import backup; from services.cli import main\n"
        "backup._copy = lambda *_: signal.raise_signal(signal.SIGTERM)\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program, "--data-dir", state_in(tmp_path / "data"), "backup", tmp_path / "b.tar"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.strip()) == (143, "stopping ...")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_log_that_starts_meanwhile_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again until it answers."""
    monkeypatch.setattr(backup_commands, "time", SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic))
    answers = [LogError("away"), LogError("away"), None]

    def check() -> None:
        if (error := answers.pop(0)) is not None:
            raise error

    backup_commands._await_log(check)
    assert not answers


def test_a_log_that_stays_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a minute, in one sentence with its reason."""
    now_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now_s[0], sleep=lambda _: now_s.append(now_s.pop() + 10.0))
    monkeypatch.setattr(backup_commands, "time", clock)

    def check() -> None:
        raise LogError("kafka://there/x is away")

    with pytest.raises(BackupError, match="the log, which is not in the backup, does not answer: kafka://there/x"):
        backup_commands._await_log(check)
    assert now_s[0] > backup_commands.LOG_PATIENCE_S
