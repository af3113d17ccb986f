"""Waiting for something that the containers do by themselves."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.compose.stack import Stack, StackError
from tests.patience import patience_s

__all__ = ["forecasts", "until"]


def until(holds: Callable[[], bool], what: str, timeout_s: float, every_s: float = 0.5) -> float:
    """Wait until ``holds``; how long that took. What cannot be asked does not hold. ``timeout_s`` of a quick machine.

    Raises ``TimeoutError``.
    """
    began_s = time.monotonic()
    reason = ""
    while True:
        try:
            if holds():
                return time.monotonic() - began_s
        except (OSError, StackError, ValueError, KeyError, IndexError) as error:
            reason = f" ({type(error).__name__}: {error})"
        waited_s = time.monotonic() - began_s
        if waited_s > patience_s(timeout_s):
            raise TimeoutError(f"{what}: not within {waited_s:.0f} s{reason}")
        time.sleep(every_s)


def forecasts(stack: Stack) -> dict[str, int]:
    """:meth:`Stack.origins`, once every zone is answered for."""
    found = dict[str, int]()

    def answered() -> bool:
        found.update(stack.origins())
        return bool(found)

    until(answered, "an answer for every zone", 60)
    return found
