"""A request ends within its time, with what was asked or with one error."""

from __future__ import annotations

import threading
from collections.abc import Callable

import httpx
import pytest

from services.runtime.threads.bounded_request import ask_within


def test_what_is_asked_is_returned_and_what_is_raised_is_raised() -> None:
    """The error is the one that was raised, so that its words may be told."""
    assert ask_within(60, lambda client: client.follow_redirects) is False
    with pytest.raises(LookupError, match="nothing there"):
        ask_within(60, _raise(LookupError("nothing there")))


def test_whichever_time_is_over_first_the_error_is_the_same() -> None:
    """That of a single read, or that of the whole request."""
    with pytest.raises(TimeoutError, match=r"^no answer within 60 s$"):
        ask_within(60, _raise(httpx.ReadTimeout("timed out")))
    released = threading.Event()
    with pytest.raises(TimeoutError, match=r"^no answer within 0\.05 s$"):
        ask_within(0.05, lambda _: released.wait())
    released.set()


def _raise(error: Exception) -> Callable[[httpx.Client], None]:
    def ask(_: httpx.Client) -> None:
        raise error

    return ask
