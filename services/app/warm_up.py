"""History that is appended to the log while the rest of the system starts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

from edge.log import Log
from services.config import Settings
from services.log import open_settings_log

__all__ = ["WarmUp"]


class WarmUp:
    """``work`` appends to the log in a thread of its own; what it raises, :meth:`join` raises.

    The log is opened before the constructor returns, so that the shards find it.
    """

    def __init__(self, settings: Settings, work: Callable[[Log], None]) -> None:
        self._log = open_settings_log(settings)
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="warm-up", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until it is done."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with closing(self._log) as log:
                self._work(log)
        except BaseException as error:
            self._error = error
