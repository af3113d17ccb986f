"""A load generator is a process of its own.

Threads beside other work in one interpreter would wait for its lock, up to 5 ms at a time, and count that as latency.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import SpawnContext
from types import TracebackType
from typing import Any, Self

__all__ = ["Child"]


class Child:
    """A process from ``with`` to its end; ``spawn`` makes what it shares with this one."""

    def __init__(self) -> None:
        self.spawn: SpawnContext = multiprocessing.get_context("spawn")

    def runs(self, work: Callable[..., None], *arguments: Any) -> None:
        """What the process does, until it is ended."""
        self._process = self.spawn.Process(target=work, args=arguments, daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()
