"""A file that the settings name and that is not there stops a start before anything runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.app.whole_system import System
from services.config import load_settings
from services.errors import ConfigError


@pytest.mark.parametrize(
    ("section", "name"),
    [("mqtt", "password_file"), ("influx", "token_file"), ("alerts", "webhook_secret_file"), ("alerts", "rules_file")],
)
def test_a_file_that_is_not_there_is_named(tmp_path: Path, section: str, name: str) -> None:
    """With its setting, and with the exit code of a wrong setting; the data folder is not made."""
    settings = load_settings(data_dir=tmp_path / "data", **{section: {name: tmp_path / "nothing"}})
    with pytest.raises(ConfigError, match=rf"{section}\.{name} is .*/nothing: there is no such file"):
        System(settings)._check_files()
    assert not (tmp_path / "data").exists()


def test_a_file_that_nobody_lets_us_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Ray starts. Root may read everything, so that the machine is asked in its place."""
    (secret := tmp_path / "secret").write_text("x")
    monkeypatch.setattr(os, "access", lambda path, _: path != secret)
    settings = load_settings(data_dir=tmp_path / "data", mqtt={"password_file": secret})
    with pytest.raises(ConfigError, match=r"mqtt\.password_file is .*/secret: it cannot be read"):
        System(settings)._check_files()


def test_files_of_other_commands_are_not_looked_for(tmp_path: Path) -> None:
    """The key of commands, and of the weather service; and a file that is written."""
    nothing = tmp_path / "nothing"
    settings = load_settings(
        client={"key_file": nothing}, weather={"key_file": nothing}, gateway={"status_file": nothing}
    )
    System(settings)._check_files()
