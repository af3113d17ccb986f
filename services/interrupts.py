"""Ctrl-C at a moment that can take it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["deferred_interrupts"]


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """SIGINT and SIGTERM that come within the block are raised at its end; for imports, which must not be cut short.

    A KeyboardInterrupt in the middle of an import can leave that module's lock held, so that the next import of it
    waits for ever, and an extension module half made (both seen with Ray Serve and pandas). The block must be short.
    Does nothing outside the main thread, which is the only one that signals interrupt.

    >>> with deferred_interrupts():
    ...     import json
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        if before[number] not in (None, signal.SIG_IGN):
            signal.signal(number, lambda got, _: came.append(got))
    try:
        yield
    finally:
        for number in numbers:
            if before[number] not in (None, signal.SIG_IGN):
                signal.signal(number, before[number])
        if came:
            signal.raise_signal(came[0])
