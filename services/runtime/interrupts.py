"""Waits for a signal, and lets one interrupt only where that is safe."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

__all__ = ["await_signal", "deferred_interrupts"]


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """SIGINT and SIGTERM that come within the block are raised at its end; for imports, which must not be cut short.

    A KeyboardInterrupt in the middle of an import can leave that module's lock held, so that the next import of it
    never ends, and an extension module half made (both seen with Ray Serve and pandas). The block must be short. Does
    nothing outside the main thread, which is the only one that signals interrupt.

    >>> with deferred_interrupts():
    ...     import json
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: handler for number in numbers if (handler := signal.getsignal(number)) is not None}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, lambda got, _: came.append(got))
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # one between the two would leave the other as it is here
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        if came:
            signal.raise_signal(came[0])


def await_signal() -> Callable[[], int]:
    """From now on SIGINT and SIGTERM end nothing: the function that is returned waits for the first of them, and says
    which it was. For the main thread.

    Not an event: a handler that sets one never ends if it has interrupted the holder of the event's lock, which may be
    the handler of an earlier signal. The put of a ``SimpleQueue`` takes no lock that a handler can wait for.
    """
    came: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: came.put(got))
    return came.get
