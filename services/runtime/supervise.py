"""Keep one child process running: restart it with back-off when it dies, end it in order when asked."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from edge.short_log import shorten
from edge.timing import Backoff

__all__ = ["ChildProcess"]

_log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 10.0
HEALTHY_AFTER_S = 10.0


class ChildProcess:
    """A supervised child; its output goes to ``log_file``, which stays short, and never to the terminal.

    Its standard input is a pipe that ends when this process does, also by ``kill -9``: a child that must not outlive us
    heeds it (:mod:`edge.parent_watch`). Nothing of ours runs between fork and exec, where a process with threads may
    wait without end for a lock that another thread held.

    A child that ran at least ``HEALTHY_AFTER_S`` is restarted almost at once; one that keeps dying waits twice as long
    each time, up to ``LONGEST_DELAY_S``. ``restarts`` counts how often it was started again. ``environment`` is the
    child's, ours where it is not given.
    """

    def __init__(
        self, name: str, command: Sequence[str], log_file: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.restarts = 0
        self.last_exit: int | None = None
        self._command = list(command)
        self._environment = environment
        self._log_file = log_file
        self._stopping = threading.Event()
        self._started = threading.Event()
        self._starting = threading.Lock()  # stop() never misses a child that is just being started
        self._start_error: OSError | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher = threading.Thread(target=self._watch, name=f"supervise-{name}", daemon=True)

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Start the child and watch it from a thread; raises ``OSError`` when it cannot be started at all."""
        self._watcher.start()
        self._started.wait()
        if self._process is None:
            assert self._start_error is not None
            raise self._start_error

    def stop(self, timeout_s: float = 5.0) -> None:
        """SIGTERM, then SIGKILL after ``timeout_s``; idempotent. The watcher restarts nothing afterwards."""
        with self._starting:
            self._stopping.set()
            process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process is not None and process.stdin is not None:
            process.stdin.close()
        if self._watcher.is_alive():
            self._watcher.join(LONGEST_DELAY_S)

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        before = self._process
        if before is not None and before.stdin is not None:
            before.stdin.close()
        shorten(self._log_file)  # also of a child that ends again and again
        with self._log_file.open("ab") as output:
            # A session of its own: Ctrl-C on the terminal reaches us only, and we stop the parts in order.
            return subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True,
                env=self._environment,
            )  # fmt: skip

    def _watch(self) -> None:
        backoff = Backoff(FIRST_DELAY_S, LONGEST_DELAY_S)
        try:
            self._process = self._spawn()
        except OSError as error:
            self._start_error = error
            return
        finally:
            self._started.set()
        while not self._stopping.is_set():
            try:
                self.last_exit = self._process.wait(HEALTHY_AFTER_S)
            except subprocess.TimeoutExpired:
                backoff.reset()
                shorten(self._log_file)
                continue
            if self._stopping.wait(backoff.next_s()):
                return
            with self._starting:
                if self._stopping.is_set():
                    return
                try:
                    again = self._spawn()
                except OSError as error:  # out of memory or processes, or a full disk: the old one stays ended
                    _log.warning("%s cannot be started again now, and is tried again: %s", self.name, error)
                    continue
                self.restarts += 1  # first: who sees the new process finds it counted
                self._process = again
