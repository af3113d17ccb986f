"""What `hothouse restore` waits for, and for how long."""

from __future__ import annotations

import pytest

from edge.log import LogError
from services.cli.history import backup_commands
from services.errors import BackupError


def test_a_log_that_starts_meanwhile_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again until it answers."""
    monkeypatch.setattr(backup_commands.time, "sleep", lambda _: None)
    answers = [LogError("away"), LogError("away"), None]

    def check() -> None:
        if (error := answers.pop(0)) is not None:
            raise error

    backup_commands._await_log(check)
    assert not answers


def test_a_log_that_stays_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a minute, in one sentence with its reason."""
    now_s = [0.0]
    monkeypatch.setattr(backup_commands.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(backup_commands.time, "sleep", lambda _: now_s.append(now_s.pop() + 10.0))

    def check() -> None:
        raise LogError("kafka://there/x is away")

    with pytest.raises(BackupError, match="the log, which is not in the backup, does not answer: kafka://there/x"):
        backup_commands._await_log(check)
    assert now_s[0] > backup_commands.LOG_PATIENCE_S
