"""deploy/images/simulator.sh: how the simulated greenhouse is started in a container."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def started(folder: Path, **environment: str) -> list[str]:
    """The arguments that the script starts ``hothouse`` with."""
    program = folder / "bin" / "hothouse"
    program.parent.mkdir(exist_ok=True)
    program.write_text('#!/bin/sh\nfor each in "$@"; do echo "$each"; done\n')
    program.chmod(0o700)
    path = f"{program.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", ROOT / "deploy/images/simulator.sh", "--clock"], check=True, capture_output=True, text=True,
        env={"PATH": path, "SIMULATOR_FOLDER": str(folder), **environment},
    )  # fmt: skip
    return done.stdout.splitlines()


def test_what_is_published_is_written_down_where_that_is_asked_for(tmp_path: Path) -> None:
    """At 300 times real time it is near a gigabyte a day; what an earlier release left goes, and what was asked for
    stays.
    """
    left, asked_for = tmp_path / "messages-1646092800.tsv", tmp_path / "published-1646092800.tsv"
    left.touch()
    asked_for.touch()
    words = started(tmp_path, SIMULATOR_MESSAGES="1", SIMULATOR_OPTIONS="--seed 11")
    assert words[words.index("--messages-file") + 1].startswith(f"{tmp_path}/published-")
    assert words[words.index("--seed") + 1] == "11"
    assert started(tmp_path) == ["simulate", "--speed", "1", "--status-file", f"{tmp_path}/status.json", "--clock"]
    assert not left.exists()
    assert asked_for.exists()


def test_a_fast_one_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Its log takes no samples of the past."""
    (tmp_path / "status.json").write_text('{"published": 9, "now_ms": 1646092800000, "done": true}\n')
    words = started(tmp_path, SIMULATOR_SPEED="300")
    assert words[words.index("--start-ms") + 1] == "1646092800000"


@pytest.mark.parametrize("file", ["tests/compose/e2e.yaml", "tests/kubernetes/greenhouse/simulator.yaml"])
def test_the_tests_that_compare_ask_for_it(file: str) -> None:
    """They read what was published, and count what became of it."""
    assert "SIMULATOR_MESSAGES" in "".join(map(str, yaml.safe_load_all((ROOT / file).read_text())))
