"""How a subprocess of ours notices that its parent is gone: its standard input, a pipe, ends.

A parent that is killed closes its end of the pipe too, on every platform and from whichever thread it started us.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

__all__ = ["when_stdin_ends"]


def when_stdin_ends(call: Callable[[], object]) -> None:
    """Call ``call`` once, from another thread, when standard input is closed."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        call()

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()
