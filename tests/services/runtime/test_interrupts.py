"""Signals at a moment that can take them."""

from __future__ import annotations

import signal
import sys
import threading

import pytest

from services.runtime.interrupts import await_signal, deferred_interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_end_of_the_block(number: signal.Signals) -> None:
    """The block runs to its end; then the handler that was there before is called, once."""
    done, calls = [], []
    before = signal.signal(number, lambda got, _: calls.append(got))
    try:
        with deferred_interrupts():
            signal.raise_signal(number)
            signal.raise_signal(number)
            done.append("after the signal")
            assert calls == []
        assert calls == [number]
    finally:
        signal.signal(number, before)
    assert done == ["after the signal"]


def test_ctrl_c_is_raised_at_the_end() -> None:
    """With Python's own handler the end of the block raises KeyboardInterrupt."""
    done = []

    def block() -> None:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("after the signal")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background have it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            block()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["after the signal"]


def test_an_ignored_signal_stays_ignored() -> None:
    """A program that a shell started in the background ignores SIGINT; it still does."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_may_use_it() -> None:
    """Only the main thread is interrupted by signals; in another the block just runs."""
    done = []

    def work() -> None:
        with deferred_interrupts():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


def test_a_signal_within_the_handler_of_another_is_waited_for() -> None:
    """However quickly signals come: with a second one at every line of the first one's handler none hangs."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def second(*_: object) -> object:
        signal.raise_signal(signal.SIGTERM)
        return second

    traced = sys.gettrace()
    try:
        wait = await_signal()
        sys.settrace(second)  # calls it at every line, but not at its own nor at those of what it interrupts
        signal.raise_signal(signal.SIGINT)
        sys.settrace(traced)
        assert wait() in (signal.SIGINT, signal.SIGTERM)
    finally:
        sys.settrace(traced)
        for number, handler in before.items():
            signal.signal(number, handler)
