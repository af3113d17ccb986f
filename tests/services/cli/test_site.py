"""``hothouse simulate`` and ``replay`` beside a system that runs on the data folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from edge.simulator.publisher import command
from services.cli import app

T0 = "time,air_temp_c\n2022-02-01 00:00,20\n2022-02-01 00:05,20\n"


class Publisher:
    """Nothing goes out; ``made`` has what it would have been published with."""

    made: ClassVar[list[Any]] = []

    def __init__(self, source: Any, address: Any, ledger: Any, pace: Any, **options: Any) -> None:
        self.made.append((address, options["with_clock"]))

    def run(self) -> None:
        """Publish nothing, which the command tells as a failure."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which a system runs, as it says in ``run.json``, and a recording."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "Publisher", Publisher)
    Publisher.made.clear()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "north-1.csv").write_text(T0)
    return tmp_path


def running(folder: Path, **said: str) -> None:
    (folder / "hothouse-data").mkdir(exist_ok=True)
    mqtt = {"host": "127.0.0.1", "port": 4711, "username": "", "password_file": "", "tls_ca_file": ""}
    (folder / "hothouse-data" / "run.json").write_text(json.dumps({"url": "http://x", "pid": 1, "mqtt": mqtt, **said}))


@pytest.mark.parametrize("asked", [["simulate", "--zones", "1", "--speed", "60"], ["replay", "old", "--speed", "max"]])
def test_samples_of_another_time_go_to_no_gateway_that_refuses_them(folder: Path, asked: list[str]) -> None:
    """With a gateway on the wall clock all of them would be refused; the sentence says how to start another."""
    running(folder, clock="wall")
    refused = CliRunner().invoke(app, asked)
    assert refused.exit_code == 2
    assert "HOTHOUSE_GATEWAY__CLOCK=replayed hothouse up" in refused.stderr
    assert Publisher.made == []


@pytest.mark.parametrize(
    ("said", "asked", "port", "with_clock"),
    [
        ({"clock": "wall"}, ["simulate", "--zones", "1"], 4711, False),
        ({"clock": "wall"}, ["simulate", "--zones", "1", "--speed", "60", "--no-clock"], 4711, False),
        ({"clock": "wall"}, ["simulate", "--zones", "1", "--speed", "60", "--host", "::1", "--port", "5"], 5, True),
        ({"clock": "replayed"}, ["simulate", "--zones", "1", "--speed", "60"], 4711, True),
        ({"clock": "replayed"}, ["replay", "old", "--speed", "max"], 4711, True),
        ({}, ["replay", "old", "--speed", "max"], 4711, True),
    ],
)
def test_they_find_the_broker_that_runs_here(
    folder: Path, said: dict[str, str], asked: list[str], port: int, with_clock: bool
) -> None:
    """What fits the gateway's clock goes to it; so does all to another broker, or where nobody says the clock."""
    running(folder, **said)
    assert CliRunner().invoke(app, asked).exit_code == 1
    ((address, clock),) = Publisher.made
    assert (address.port, clock) == (port, with_clock)


def test_without_a_system_it_is_the_usual_port(folder: Path) -> None:
    """As of any broker."""
    CliRunner().invoke(app, ["simulate", "--zones", "1"])
    assert Publisher.made[0][0].port == 1883
