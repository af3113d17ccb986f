"""Peak memory of this process and all its children: proportional set size, so that shared pages count once."""

from __future__ import annotations

import psutil

from services.runtime.threads.repeating import Repeating

__all__ = ["MemoryWatch", "total_pss_mb"]

EVERY_S = 3.0


def total_pss_mb() -> float:
    """PSS of this process and all processes below it, in MB; processes that end meanwhile count 0."""
    me = psutil.Process()
    total = 0
    for process in [me, *me.children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 1e6


class MemoryWatch:
    """Samples the total every few seconds from a thread; ``peak_mb`` is the largest seen."""

    def __init__(self) -> None:
        self.now_mb = 0.0
        self.peak_mb = 0.0
        self._samples = Repeating(self._sample, EVERY_S, "memory", at_once=True)

    def __enter__(self) -> MemoryWatch:
        self._samples.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._samples.__exit__()

    def _sample(self) -> None:
        self.now_mb = total_pss_mb()
        self.peak_mb = max(self.peak_mb, self.now_mb)
