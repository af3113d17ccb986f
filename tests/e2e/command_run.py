"""A hothouse command that runs, in a process group of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.patience import patience_s, until

HOTHOUSE = Path(sys.executable).parent / "hothouse"
MARK = "HOTHOUSE_TEST_RUN"  # every process of a run inherits it
READY_S = 90.0
TROUBLE = re.compile(r"Traceback|Exception|Error\b|[Ww]arning|WARN|\*\*\*")


class Run:
    """One ``hothouse`` command in a process group of its own, with a private folder for temporary files."""

    def __init__(self, folder: Path, temporary: Path, *arguments: str) -> None:
        self.data_dir = folder / "data"
        self.temporary = temporary
        self._mark = uuid.uuid4().hex
        self._output = folder / "output"
        environment = {**os.environ, MARK: self._mark, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [HOTHOUSE, "--data-dir", self.data_dir, *arguments],
                stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=folder, env=environment,
                start_new_session=True,
            )  # fmt: skip

    @property
    def output(self) -> str:
        """What it printed so far."""
        return self._output.read_text()

    def processes(self) -> list[psutil.Process]:
        """Every process that carries this run's mark, whoever is its parent."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def has_process(self, name: str) -> bool:
        """Whether one of its processes has this in its name; those that end meanwhile have none."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if name in process.name():
                    return True
        return False

    def wait_for(self, condition: Callable[[], bool], claim: str, timeout_s: float = 0) -> None:
        """Wait while it runs, or fail with the claim and what was printed."""
        timeout_s = timeout_s or patience_s(READY_S)
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.output}"
            assert time.monotonic() < deadline_s, f"within {timeout_s:g} s: {claim}\n{self.output}"
            time.sleep(0.1)

    def stop(self, number: signal.Signals, *, group: bool) -> float:
        """Signal the process, or its whole group as a terminal's Ctrl-C does; the seconds until it has ended."""
        began_s = time.monotonic()
        (os.killpg if group else os.kill)(self.process.pid, number)
        try:
            self.process.wait(patience_s(60))
        except subprocess.TimeoutExpired:
            pytest.fail(f"{number.name} did not end it:\n{self.output}")
        return time.monotonic() - began_s

    def assert_nothing_left(self) -> None:
        """No process, so no open port either, and no temporary file; Ray's workers go a moment after their node."""
        until(lambda: not self.processes(), "no process is left")
        assert list(self.temporary.iterdir()) == []

    def assert_quiet(self) -> None:
        """Nothing that looks like a traceback or a warning was printed."""
        assert TROUBLE.search(self.output) is None, self.output

    def end(self) -> None:
        """End every process of a run that failed."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait(60)
