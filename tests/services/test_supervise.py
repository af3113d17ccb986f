"""A supervised child is restarted when it dies, and ended for good when asked."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from services.supervise import ChildProcess
from tests.patience import patience_s

WAITS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    """Wait for a condition."""
    deadline_s = time.monotonic() + patience_s(timeout_s)
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return condition()


def test_a_killed_child_is_started_again_and_a_stopped_one_is_not(tmp_path: Path) -> None:
    """SIGKILL brings a new process; stop() ends the new one and nothing comes after it."""
    child = ChildProcess("sleeper", WAITS, tmp_path / "log")
    child.start()
    first = child.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert until(lambda: child.pid not in (None, first))
    assert child.restarts == 1
    child.stop()
    assert child.pid is None
    assert child.restarts == 1


def test_a_child_that_cannot_be_started_is_an_error_not_a_wait(tmp_path: Path) -> None:
    """A missing program raises at start(); stop() is harmless afterwards."""
    child = ChildProcess("nobody", [str(tmp_path / "no-such-program")], tmp_path / "log")
    with pytest.raises(OSError, match=r"no-such-program"):
        child.start()
    child.stop()


def test_what_it_says_goes_to_its_log_file(tmp_path: Path) -> None:
    """Standard output is kept in the file, not on the terminal."""
    child = ChildProcess("speaker", WAITS, tmp_path / "logs" / "log")
    child.start()
    try:
        assert until(lambda: "up" in (tmp_path / "logs" / "log").read_text())
    finally:
        child.stop()
