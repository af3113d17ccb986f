"""A child process that says what it is doing, so that it can be killed, or stopped, in the middle of it.

The child writes ``flush begins 3`` and ``flush ends 3``; what it had begun and not ended when it died is what was hit.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

import psutil

from tests.patience import patience_s, until

__all__ = ["AT_FIRST_S", "ToldChild", "say"]

AT_FIRST_S = 0.2
"""So long an activity takes, before one was seen from its beginning to its end."""


def say(*words: object) -> None:
    """One line to whoever started this process, at once."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class ToldChild:
    """``python -m MODULE ...``; ``took_s``, which children may share, is how long each activity took the last time."""

    def __init__(self, module: str, arguments: Sequence[str], took_s: dict[str, float]) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._took_s, self._begun_s = took_s, dict[str, float]()
        self._errors: list[str] = []
        self._readers = [threading.Thread(target=one) for one in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def begun(self, activity: str) -> int:
        """How often it has begun that."""
        return sum(line.startswith(f"{activity} begins") for line in list(self.lines))

    def ended(self, activity: str) -> list[str]:
        """What it said each time when it had ended that."""
        return [
            line.removeprefix(f"{activity} ends").strip() for line in list(self.lines) if f"{activity} ends" in line
        ]

    def open(self) -> set[str]:
        """What it has begun and not ended."""
        count = Counter[str]()
        for line in list(self.lines):
            activity, _, rest = line.partition(" ")
            count[activity] += {"begins": 1, "ends": -1}.get(rest.split(" ")[0], 0)
        return {activity for activity, n in count.items() if n > 0}

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
        """Whether it came true while the child lived; fails if neither happens."""
        until_s = time.monotonic() + patience_s(timeout_s)
        while not condition():
            if self.process.poll() is not None:
                return condition()
            assert time.monotonic() < until_s, f"the child hangs: {self.lines[-5:]}"
            time.sleep(0.001)
        return True

    def reach(self, activity: str, rng: random.Random, most: int = 3, feed: Callable[[], None] = lambda: None) -> bool:
        """Wait until it is somewhere in one of the next ``most`` times that it does that; whether it lived so long.

        ``feed`` gives it something to do, before each of them.
        """
        for _ in range(rng.randint(1, most)):
            before = self.begun(activity)
            feed()
            if not self.wait_for(lambda before=before: self.begun(activity) > before):  # type: ignore[misc]
                return False
        time.sleep(rng.uniform(0, self._took_s.get(activity, AT_FIRST_S)))
        return self.process.poll() is None

    def stop(self) -> set[str]:
        """SIGSTOP; what it is in the middle of, once it stands still and all that it said is read."""
        self.process.send_signal(signal.SIGSTOP)
        until(lambda: psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED, "it stands still")
        read = -1
        while read != len(self.lines):  # what it said before is in the pipe at most, whose reader waits for it
            read = len(self.lines)
            time.sleep(0.05)
        return self.open()

    def kill(self) -> set[str]:
        """SIGKILL; what it was doing when it died, which is empty if it had ended by itself."""
        self.process.kill()
        self.end()
        return self.open() if self.process.returncode == -9 else set()

    def end(self, timeout_s: float = 60.0) -> str:
        """Wait for its end; what it wrote to its standard error."""
        self.process.wait(patience_s(timeout_s))
        for reader in self._readers:
            reader.join()
        return "".join(self._errors)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            for line in stdout:
                activity, _, rest = line.rstrip("\n").partition(" ")
                now_s = time.monotonic()
                if rest.startswith("begins"):
                    self._begun_s[activity] = now_s
                elif rest.startswith("ends") and activity in self._begun_s:
                    self._took_s[activity] = now_s - self._begun_s[activity]
                if line.endswith("\n"):  # a line that was cut off by a kill was not said
                    self.lines.append(line.rstrip("\n"))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stderr:
            self._errors.extend(stderr)
