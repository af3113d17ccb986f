"""A thread that does the same thing every few seconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

__all__ = ["Repeating"]

_log = logging.getLogger(__name__)


class Repeating:
    """Calls ``work`` from a thread until the context ends, with ``pause_s`` between two calls; a context manager.

    The first call comes after a pause, or at once if ``at_once``. An error of one call is logged and ends nothing. The
    context waits for the end of a call, for ``end_s`` at most where that is given.
    """

    def __init__(
        self, work: Callable[[], None], pause_s: float, name: str, *, at_once: bool = False, end_s: float | None = None
    ) -> None:
        self._work, self._pause_s, self._at_once, self._end_s = work, pause_s, at_once, end_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Repeating:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(self._end_s)
        if self._thread.is_alive():
            _log.warning("%s still waits after %g s; it is left behind", self._thread.name, self._end_s)

    def _run(self) -> None:
        pause_s = 0.0 if self._at_once else self._pause_s
        while not self._stop.wait(pause_s):
            pause_s = self._pause_s
            try:
                self._work()
            except Exception:
                _log.exception("%s failed", self._thread.name)
