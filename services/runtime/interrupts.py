"""Lets a signal interrupt only where that is safe."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from types import FrameType

__all__ = ["deferred_interrupts", "ended_by_signals", "ignored_interrupts", "queued_signals", "quietly_ended"]

_NUMBERS = (signal.SIGINT, signal.SIGTERM)
AGAIN_S = 1.0
"""After this a signal that has ended nothing comes again."""
_again: Callable[[int, FrameType | None], None] | None = None
"""Our handler of the timer."""


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
    try:
        with _handled_by(lambda got, _: came.append(got)):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


@contextmanager
def ignored_interrupts() -> Iterator[None]:
    """SIGINT and SIGTERM that come within the block end nothing; for taking apart what a first one has ended.

    Who presses Ctrl-C again would cut that short, and leave processes and folders behind. The block must end by itself,
    soon. Does nothing outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _handled_by(_nothing):
        _end_repetition()
        yield


def _nothing(_: int, __: FrameType | None) -> None:
    """Not SIG_IGN, which a child that is started meanwhile would inherit."""
    _tell("still stopping: it takes some seconds more")


def _tell(line: str) -> None:
    """For a handler: past what may hold a lock."""
    with suppress(OSError):  # the terminal may be gone
        os.write(2, f"{line}\n".encode())


@contextmanager
def _handled_by(handle: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    before = {number: handler for number in _NUMBERS if (handler := signal.getsignal(number)) is not None}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, handle)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)  # one between the two would leave the other as it is here
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _NUMBERS)


@contextmanager
def quietly_ended() -> Iterator[None]:
    """Ctrl-C within the block ends the program as SIGTERM does, at once and without a traceback; for its imports, while
    there is nothing to take apart. Does nothing outside the main thread, or where Ctrl-C is handled already.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Ctrl-C or SIGTERM ends the block in good order, with a KeyboardInterrupt. Then SIGTERM ends the program, with the
    exit code that a shell gives one which it has killed. Further signals do nothing. For the main thread.

    Python drops what is raised within some calls, such as those at a fork (seen while Ray starts). So a signal comes
    again, until the block has ended, or its clean-up has begun (:func:`ignored_interrupts`), and no error is printed.
    """
    came: list[int] = []
    told = sys.unraisablehook

    def end(number: int, _: FrameType | None) -> None:
        if not came:
            _tell("stopping ...")
        came.append(number)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)  # no thread: its start takes locks, which we may have interrupted
        raise KeyboardInterrupt  # of a SystemExit Ray makes another one, with the code 1

    def again(_: int, __: FrameType | None) -> None:
        os.kill(os.getpid(), came[0])

    global _again
    _again = again
    signal.signal(signal.SIGALRM, again)
    for number in _NUMBERS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    sys.unraisablehook = lambda dropped: None if dropped.exc_type is KeyboardInterrupt else told(dropped)
    try:
        yield
    except KeyboardInterrupt:
        for number in _NUMBERS:
            signal.signal(number, _nothing)
        if came[:1] == [signal.SIGTERM]:
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        sys.unraisablehook = told
        _end_repetition()


def _end_repetition() -> None:
    if _again is not None and signal.getsignal(signal.SIGALRM) is _again:  # else the timer is somebody else's
        signal.setitimer(signal.ITIMER_REAL, 0)


def queued_signals() -> SimpleQueue[int]:
    """From now on SIGINT and SIGTERM end nothing: each is put into the queue that is returned. For the main thread.

    Not an event: a handler that sets one never ends if it has interrupted the holder of the event's lock, which may be
    the handler of an earlier signal. The put of a ``SimpleQueue`` takes no lock that a handler can wait for.
    """
    came: SimpleQueue[int] = SimpleQueue()
    for number in _NUMBERS:
        signal.signal(number, lambda got, _: came.put(got))
    return came
