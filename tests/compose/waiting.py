"""Waiting for something that the containers do by themselves."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.compose.stack import StackError

__all__ = ["until"]


def until(holds: Callable[[], bool], what: str, timeout_s: float, every_s: float = 0.5) -> float:
    """Wait until ``holds``; how long that took. What cannot be asked does not hold. Raises ``TimeoutError``."""
    began_s = time.monotonic()
    reason = ""
    while True:
        try:
            if holds():
                return time.monotonic() - began_s
        except (OSError, StackError, ValueError, KeyError, IndexError) as error:
            reason = f" ({type(error).__name__}: {error})"
        if time.monotonic() - began_s > timeout_s:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s{reason}")
        time.sleep(every_s)
