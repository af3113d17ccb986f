"""How long to wait: programs are slower on a slow or busy machine, and no less correct."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any

__all__ = ["budget_s", "core_slowness", "patience_s", "slowness", "until"]

COUNTED = 2_000_000
REFERENCE_S = 0.04
"""Seconds that counting to ``COUNTED`` takes where ten seconds mean ten seconds."""
ARRAYS, ARRAYS_REFERENCE_S = 20_000, 0.06
"""The same for arithmetic with so many small arrays."""


@cache
def slowness() -> float:
    """How many times slower than that a core of this machine is; at least 1.

    By the clock on the wall: a core that is lent to other machines meanwhile counts no CPU time.
    """
    began_s = time.monotonic()
    for _ in range(COUNTED):
        pass
    return max((time.monotonic() - began_s) / REFERENCE_S, 1.0)


def core_slowness() -> float:
    """The same of the core's own time, as it is now: for budgets of CPU time of code that computes with small arrays.

    A processor that counts as fast as another may take twice as long for these.
    """
    import numpy as np  # `make e2e` waits, too, where nothing is installed

    values, began_s = np.ones(3), time.process_time()
    for _ in range(ARRAYS):
        values = np.clip(values * 1.01 + 0.5, 0, 10)
    return max((time.process_time() - began_s) / ARRAYS_REFERENCE_S, 1.0)


def patience_s(seconds: float) -> float:
    """So many seconds of a quick, idle machine: more on a slow one, and as many times more as programs share a core."""
    return seconds * slowness() * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def budget_s(seconds: float) -> float:
    """A budget of so many seconds on this machine, as it is while other tests run: at most three times as many."""
    return min(patience_s(seconds), 3 * seconds)


def until(condition: Callable[[], Any], claim: str = "it happens", timeout_s: float = 60.0) -> Any:
    """Wait for a condition and return what it gave, or fail with the claim; ``timeout_s`` of a quick machine."""
    began_s = time.monotonic()
    while not (found := condition()):
        waited_s = time.monotonic() - began_s
        assert waited_s < patience_s(timeout_s), f"not within {waited_s:.0f} s: {claim}"
        time.sleep(0.02)
    return found
