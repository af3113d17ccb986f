"""Step 11 of the way of a reading, for trees: they are grown again every few days of the stream's time.

A thread looks at the history and starts :func:`services.learn.trees.forest_task.run_forest_job`; shards find what it
keeps. The state is what is on the storage, so that a restarted loop goes on from there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from models.trees.forest import GROW_DAYS
from services.errors import HothouseError

__all__ = ["ForestCluster", "ForestLoop"]

LOOK_S = 3.0
RETRY_S = 120.0
"""After a failure nothing is grown for so long."""
DAY_MS = 86_400_000

_log = logging.getLogger(__name__)


class ForestCluster(Protocol):
    """What the loop needs of the running system; every method may raise, and none may hang."""

    def history_span(self) -> tuple[int, int] | None:
        """The oldest and the newest ``end_ms`` of the history; ``None`` without rows, or while an import runs."""

    def grown_to_ms(self) -> int | None:
        """The newest row that the newest trees were grown on; ``None`` without trees."""

    def grow(self, cancelled: threading.Event) -> str:
        """Grow trees on the history and keep them; their name. Raises soon after ``cancelled`` is set."""

    def event(self, event: dict[str, Any]) -> None:
        """Show an event on the live state."""

    def show_forests(self, status: dict[str, Any]) -> None:
        """Show on the live state how the trees stand."""


class ForestLoop:
    """Grows trees when they are due; failures become events and status, never a dead thread."""

    def __init__(
        self, cluster: ForestCluster, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._cluster, self._wall_ms, self._monotonic_s = cluster, wall_ms, monotonic_s
        self._stopping = threading.Event()
        self._quiet_until_s = float("-inf")
        self._thread = threading.Thread(target=self._run, name="grow-trees", daemon=True)
        self._status: dict[str, Any] = {"newest": "", "grown": 0, "growing": False, "last_error": ""}

    @property
    def status(self) -> dict[str, Any]:
        """How the trees stand; ``grown`` counts since this loop started."""
        return dict(self._status)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End what is being grown, and the thread; idempotent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def grow_if_due(self) -> None:
        """Grow trees, if the history has grown by enough since the newest ones; a failure is told once."""
        if self._monotonic_s() < self._quiet_until_s:
            return
        try:
            if not self._due():
                return
            began_s = self._monotonic_s()
            self._status["growing"] = True
            name = self._cluster.grow(self._stopping)
            seconds = round(self._monotonic_s() - began_s, 1)
            self._status |= {"newest": name, "grown": self._status["grown"] + 1, "last_error": ""}
            self._tell("trees", message=f"{name} grown in {seconds:g} s")
        except Exception as error:
            if self._stopping.is_set():
                return
            message = error.message if isinstance(error, HothouseError) else f"{type(error).__name__}: {error}"
            self._quiet_until_s = self._monotonic_s() + RETRY_S
            if message != self._status["last_error"]:
                _log.warning("trees: %s", message, exc_info=not isinstance(error, HothouseError))
                self._status["last_error"] = message
                self._tell("error", message=f"trees: {message}")
        finally:
            self._status["growing"] = False

    def _due(self) -> bool:
        span = self._cluster.history_span()
        if span is None:
            return False
        oldest_ms, newest_ms = span
        grown_ms = self._cluster.grown_to_ms()
        return newest_ms - (oldest_ms if grown_ms is None else grown_ms) >= GROW_DAYS * DAY_MS

    def _tell(self, kind: str, message: str) -> None:
        try:
            self._cluster.event({"time_ms": self._wall_ms(), "kind": kind, "message": message})
        except Exception:  # a live state that restarts must not stop the learning
            _log.warning("the live state did not take the event %s: %s", kind, message)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            self.grow_if_due()
            try:
                self._cluster.show_forests(self.status)
            except Exception:
                _log.info("the live state does not answer")
