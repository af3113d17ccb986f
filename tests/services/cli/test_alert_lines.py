"""The terminal of ``hothouse up`` says how many alerts fire, and the worst one in words, when that changes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.cli.running.alert_lines import AlertLines, alert_lines
from services.cli.running.client import Client
from services.config import load_settings
from services.errors import HothouseError
from tests.services.cli.command_line import in_turn
from tests.services.serve.fakes import alert
from tests.services.serve.system import System

COLD = "demo/north-1 cold 72 % between 04:00 and 06:30; air 1.8 °C (critical)"


def test_a_line_comes_when_other_alerts_fire_and_when_none_does() -> None:
    """The same alerts, with another chance, are no news."""
    firing: list[Any] = []
    lines = AlertLines(lambda: firing)
    assert lines.line() == ""
    firing = [alert("a1")]
    assert lines.line() == f"1 alert fires: {COLD}"
    firing = [alert("a1", chance=0.8, text="cold 80 %")]
    assert lines.line() == ""
    firing = [alert("a1"), alert("a2", severity="info")]
    assert lines.line() == f"2 alerts fire, the worst: {COLD}"
    firing = []
    assert lines.line() == "no alert fires any more"
    assert lines.line() == ""


def test_while_nobody_answers_nothing_is_said() -> None:
    """A system that starts a replica again has the same alerts afterwards: they are not told twice."""
    answers: list[Any] = [[alert("a1")], HothouseError("nothing answers"), [alert("a1")]]

    lines = AlertLines(in_turn(answers))
    assert [bool(lines.line()) for _ in range(3)] == [True, False, False]


def test_it_asks_the_api_and_prints_the_worst(
    system: System,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a running system, with what /alerts calls the worst; no more than one line a change."""
    monkeypatch.setattr(Client, "_http", property(lambda _: system.client))
    url = str(httpx.URL(system.client.base_url))
    look = alert_lines(load_settings(data_dir=tmp_path), url)
    look()
    look()
    said = capsys.readouterr().out
    found = system.client.get("/alerts?state=firing").json()["alerts"]
    assert len(found) > 1
    assert re.sub(r"\s+", " ", said).strip()[9:] == (
        f"{len(found)} alerts fire, the worst: demo/{found[0]['zone']} {found[0]['text']} ({found[0]['severity']})"
    )
