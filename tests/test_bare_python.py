"""What the Makefile and CI start with the machine's own Python needs no package: nothing is installed there yet."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STARTED = sorted(
    set(re.findall(r"\$\(PYTHON\) -m (tests\.[a-z_.]+)", (ROOT / "Makefile").read_text()))
    | set(re.findall(r"\$\{PYTHON:-python3\}\" -m (tests\.[a-z_.]+)", (ROOT / ".ci" / "run").read_text()))
)


def test_they_are_found() -> None:
    assert STARTED == ["tests.ci.run", "tests.compose.run", "tests.kubernetes.run"]


@pytest.mark.parametrize("name", STARTED)
def test_a_python_without_packages_takes_it(name: str) -> None:
    """``-S`` leaves every installed package out."""
    started = subprocess.run(
        [sys.executable, "-S", "-m", name, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (started.returncode, started.stderr) == (0, "")
