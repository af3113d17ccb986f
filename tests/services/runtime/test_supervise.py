"""A supervised child is restarted when it dies, and ended for good when asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from edge.short_log import shorten
from services.runtime import supervise
from services.runtime.supervise import ChildProcess
from tests.patience import patience_s

WAITS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    """Wait for a condition."""
    deadline_s = time.monotonic() + patience_s(timeout_s)
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return condition()


def runs(pid: int) -> bool:
    """Whether that process runs: one that has ended and was not waited for yet does not."""
    with suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


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


def test_the_log_of_a_child_that_runs_for_long_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it held is kept once, and the child goes on at its new end."""
    monkeypatch.setattr(supervise, "HEALTHY_AFTER_S", 0.1)
    monkeypatch.setattr(supervise, "shorten", partial(shorten, most_bytes=10_000))
    says = "import time\nwhile True:\n    print('refused' * 20, flush=True)\n    time.sleep(0.001)"
    log = tmp_path / "log"
    child = ChildProcess("talker", [sys.executable, "-c", says], log)
    child.start()
    kept = tmp_path / "log.1"
    assert until(lambda: kept.exists() and 0 < log.stat().st_size < kept.stat().st_size)
    child.stop()
    assert log.read_bytes().startswith(b"refused")


def test_the_log_of_a_child_that_ends_again_and_again_stays_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never runs for long, and says why each time."""
    monkeypatch.setattr(supervise, "FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(supervise, "shorten", partial(shorten, most_bytes=1000))
    child = ChildProcess("refused", [sys.executable, "-c", "print('refused' * 100)"], tmp_path / "log")
    child.start()
    assert until((tmp_path / "log.1").exists)
    child.stop()


def test_a_child_that_cannot_be_started_is_an_error_not_a_wait(tmp_path: Path) -> None:
    """A missing program raises at start(); stop() is harmless afterwards."""
    child = ChildProcess("nobody", [str(tmp_path / "no-such-program")], tmp_path / "log")
    with pytest.raises(OSError, match=r"no-such-program"):
        child.start()
    child.stop()


def test_a_child_that_cannot_be_started_again_is_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names it and why; only a start that succeeds counts."""
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    program.chmod(0o700)
    child = ChildProcess("sleeper", [str(program)], tmp_path / "log")
    child.start()
    try:
        first = child.pid
        assert first is not None
        away = program.rename(tmp_path / "away")
        os.kill(first, signal.SIGKILL)
        assert until(lambda: "sleeper cannot be started again now" in caplog.text)
        assert str(program) in caplog.text
        assert (child.pid, child.restarts) == (None, 0)
        away.rename(program)
        assert until(lambda: child.pid not in (None, first))
        assert child.restarts == 1
    finally:
        child.stop()


def test_what_it_says_goes_to_its_log_file(tmp_path: Path) -> None:
    """Standard output is kept in the file, not on the terminal."""
    child = ChildProcess("speaker", WAITS, tmp_path / "logs" / "log")
    child.start()
    try:
        assert until(lambda: "up" in (tmp_path / "logs" / "log").read_text())
    finally:
        child.stop()


def test_a_child_has_the_environment_that_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That alone, also when it is started again; without one it has ours."""
    monkeypatch.setenv("OF_THE_PARENT", "1")
    command = [
        sys.executable,
        "-c",
        "import os; print(sorted(n for n in os.environ if n.startswith('OF_')), flush=True)",
    ]
    for environment, said in (({"OF_THE_CHILD": "1"}, "['OF_THE_CHILD']"), (None, "['OF_THE_PARENT']")):
        log = tmp_path / said
        child = ChildProcess("teller", command, log, environment)
        child.start()
        assert until(lambda log=log, said=said: log.read_text().splitlines()[:2] == [said, said])
        child.stop()


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the supervising process, which has threads, ends the child: no orphan goes on reading and writing."""
    child = (
        "from edge.parent_watch import when_stdin_ends; import os, time\n"
        "when_stdin_ends(lambda: os._exit(0)); print(os.getpid(), flush=True); time.sleep(600)"
    )
    parent = (
        "import sys, time; from pathlib import Path; from services.runtime.supervise import ChildProcess\n"
        f"child = ChildProcess('child', [sys.executable, '-c', {child!r}], Path({str(tmp_path / 'log')!r}))\n"
        "child.start(); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], cwd=Path(__file__).parents[3]) as supervising:
        try:
            until(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text().strip())
            pid = int((tmp_path / "log").read_text())
        finally:
            supervising.kill()
    try:
        assert until(lambda: not runs(pid)), "the child has outlived its parent"
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_no_code_of_ours_runs_between_fork_and_exec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process with threads that could wait for ever for a lock which another thread held at the fork."""
    seen: list[dict[str, object]] = []
    original = subprocess.Popen

    def popen(*arguments: Any, **options: Any) -> Any:
        seen.append(options)
        return original(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    child = ChildProcess("sleeper", WAITS, tmp_path / "log")
    child.start()
    child.stop()
    assert [options.get("preexec_fn") for options in seen] == [None]
