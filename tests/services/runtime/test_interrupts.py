"""Signals at a moment that can take them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from services.runtime.interrupts import (
    deferred_interrupts,
    ignored_interrupts,
    queued_signals,
    quietly_ended,
)


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
        came = queued_signals()
        sys.settrace(second)  # calls it at every line, but not at its own nor at those of what it interrupts
        signal.raise_signal(signal.SIGINT)
        sys.settrace(traced)
        assert came.get() in (signal.SIGINT, signal.SIGTERM)
    finally:
        sys.settrace(traced)
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_ctrl_c_does_not_cut_the_clean_up_short(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    """Signals within the block end nothing, and each is answered; after it they do what they did before."""
    calls: list[int] = []
    before = signal.signal(number, lambda got, _: calls.append(got))
    try:
        with ignored_interrupts():
            signal.raise_signal(number)
            signal.raise_signal(number)
        assert calls == []
        assert capfd.readouterr().err == "still stopping: it takes some seconds more\n" * 2
        signal.raise_signal(number)
        assert calls == [number]
    finally:
        signal.signal(number, before)


def test_sigterm_ends_in_order() -> None:
    """What was begun is undone, whatever comes then; the exit code is that of a program which SIGTERM has killed."""
    code = (
        "import signal; from services.runtime.interrupts import ended_by_signals\n"
        "try:\n"
        "    with ended_by_signals(): signal.raise_signal(signal.SIGTERM)\n"
        "finally:\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    print('undone', flush=True)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (143, "undone\n")
    assert ended.stderr == "stopping ...\nstill stopping: it takes some seconds more\n"


def test_ctrl_c_during_the_first_imports_prints_no_traceback() -> None:
    """Within the block it ends the program at once; afterwards it is a KeyboardInterrupt again."""
    code = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from services.runtime.interrupts import quietly_ended\n"
        "try:\n    with quietly_ended(): pass\n    signal.raise_signal(signal.SIGINT)\n"
        "except KeyboardInterrupt: print('as before', flush=True)\n"
        "with quietly_ended(): signal.raise_signal(signal.SIGINT)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "as before\n", "")


def test_ctrl_c_that_is_ignored_stays_ignored_during_imports() -> None:
    """As for a program that a shell started in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with quietly_ended():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_python_drops_comes_again(number: signal.Signals, code: int) -> None:
    """One that interrupts a fork, whose hooks may raise nothing: the block ends all the same, and can clean up."""
    program = (
        "import os, signal, sys, time; from services.runtime.interrupts import ended_by_signals, ignored_interrupts\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"os.register_at_fork(before=lambda: signal.raise_signal({int(number)}))\n"
        "try:\n"
        "    with ended_by_signals():\n"
        "        try:\n"
        "            if os.fork() == 0: os._exit(0)\n"
        "            print('dropped', flush=True)\n"
        "            while True: time.sleep(60)\n"
        "        finally:\n"
        "            with ignored_interrupts():\n"
        "                time.sleep(1.5)\n"
        "                print('undone', flush=True)\n"
        "except KeyboardInterrupt: sys.exit(130)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "dropped\nundone\n", "stopping ...\n")
