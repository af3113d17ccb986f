"""A thread that does the same thing every few seconds."""

from __future__ import annotations

import logging
import threading

import pytest

from services.runtime.threads.repeating import Repeating
from tests.patience import until


def test_an_error_of_one_call_does_not_end_the_calls(caplog: pytest.LogCaptureFixture) -> None:
    """Work that fails is logged by the thread's name, and called again."""
    calls = []

    def work() -> None:
        calls.append(threading.current_thread().name)
        if len(calls) == 1:
            raise ValueError("no")

    with caplog.at_level(logging.ERROR), Repeating(work, 0.001, "report"):
        until(lambda: len(calls) > 1, "it is called again")
    assert set(calls) == {"report"}
    assert "report failed" in caplog.text


def test_the_first_call_comes_at_once_where_that_is_wanted() -> None:
    """Otherwise it comes after the first pause, and never if the context ends before."""
    done, never = threading.Event(), []
    with Repeating(done.set, 3600, "memory", at_once=True), Repeating(lambda: never.append(1), 3600, "report"):
        assert done.wait(600)
    assert never == []


def test_the_end_waits_for_a_call_so_long_and_no_longer(caplog: pytest.LogCaptureFixture) -> None:
    """A call that a server holds up is left behind, and that is said."""
    begun, free = threading.Event(), threading.Event()

    def held() -> None:
        begun.set()
        free.wait()

    with Repeating(held, 3600, "mail", at_once=True, end_s=0.05):
        assert begun.wait(600)
    assert "mail still waits after 0.05 s" in caplog.text
    free.set()
