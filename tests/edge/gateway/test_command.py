"""What the gateway's program says where it cannot begin: one line, as of every command, and exit code 2."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from edge.config import EdgeSettings
from edge.gateway import command


def said(capsys: pytest.CaptureFixture[str], folder: Path, **settings: Any) -> str:
    """The line."""
    given = EdgeSettings(data_dir=folder, **settings)
    assert command.main([], settings=given) == 2
    return capsys.readouterr().err


def test_a_taken_port_of_metrics_is_named_with_its_setting(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It is no argument, so nothing is said of how the program is called."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = said(capsys, tmp_path, gateway={"metrics_port": port})
    assert line == (
        f"error: metrics cannot be served: port {port} on 127.0.0.1 is taken. "
        "Set gateway.metrics_port to another port.\n"
    )


def test_a_file_that_is_not_there_is_named_with_its_setting(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As the other commands do."""
    line = said(capsys, tmp_path, mqtt={"username": "x", "password_file": tmp_path / "none"})
    assert line.startswith("error: mqtt.password_file cannot be read: ")
    assert line.count("\n") == 1
