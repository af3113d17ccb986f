"""What a program says."""

from __future__ import annotations

import subprocess
from pathlib import Path


def said_by(*command: str | Path) -> str:
    """What a tool says; the test fails with it where the tool is not content."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
