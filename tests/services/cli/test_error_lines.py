"""The terminal of ``hothouse up`` says which parts fail, and that they work again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from services.cli.running.client import Client
from services.cli.running.error_lines import ErrorLines, error_lines
from services.config import load_settings
from services.errors import HothouseError
from tests.services.cli.command_line import in_turn
from tests.services.serve.system import System

FULL = "shard-0: a/1.parquet cannot be written: no space left on device, 3 MiB wait"
ADVICE = "`hothouse status` shows all that fails now; docs/operations.md says what to do"


def test_what_fails_is_told_once_and_that_it_works_again() -> None:
    """Each part by itself. Another file or number in the sentence is no news; another sentence is."""
    errors: list[str] = []
    lines = ErrorLines(lambda: errors)
    assert lines.lines() == []
    errors = [FULL]
    assert lines.lines() == []  # it may be gone at the next look
    assert lines.lines() == [
        "shard-0 fails: a/1.parquet cannot be written: no space left on device, 3 MiB wait",
        ADVICE,
    ]
    errors = [FULL.replace("3", "1,024").replace("a/1", "b/2"), "retrainer: no space left on device."]
    assert lines.lines() == []
    assert lines.lines() == ["retrainer fails: no space left on device", ADVICE]
    errors = [FULL]
    assert lines.lines() == ["retrainer works again"]  # what comes and goes is told once
    errors = ["shard-0: the log cannot be read"]
    assert lines.lines() == ["shard-0 fails: the log cannot be read", ADVICE]
    errors = []
    assert lines.lines() == ["shard-0 works again"]
    assert lines.lines() == []


def test_what_fails_for_a_moment_and_what_the_gateway_says_is_not_told() -> None:
    """The gateway has a line of its own (:mod:`services.cli.running.gateway_lines`)."""
    answers: list[Any] = [[FULL], [], [FULL], [], ["gateway: away"], ["gateway: away"]]
    lines = ErrorLines(lambda: answers.pop(0))
    assert [lines.lines() for _ in list(answers)] == [[]] * 6


def test_while_nobody_answers_nothing_is_said() -> None:
    """A part that failed before still fails: it is not told twice, nor said to work."""
    answers: list[Any] = [[FULL], [FULL], HothouseError("nothing answers"), [FULL]]

    lines = ErrorLines(in_turn(answers))
    assert [bool(lines.lines()) for _ in range(4)] == [False, True, False, False]


def test_it_asks_the_api(
    system: System,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a running system, with the words of /status."""
    monkeypatch.setattr(Client, "_http", property(lambda _: system.client))
    system.state.view.stats["shard-0"] = {"last_error": "no space left on device"}
    look = error_lines(load_settings(data_dir=tmp_path), str(httpx.URL(system.client.base_url)))
    look()
    look()
    assert "shard-0 fails: no space left on device" in capsys.readouterr().out
