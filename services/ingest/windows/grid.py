"""Step 5 of the way of a reading: where a site's rows end; the step may change at an instant that both steps share."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

__all__ = ["Grid"]

I64 = npt.NDArray[np.int64]


class Grid:
    """Rows end at the multiples of ``step_ms``, after a change at those of another step.

    >>> grid = Grid(300_000)
    >>> grid.change(120_000, after_ms=650_000)
    1200000
    >>> [grid.end_of(1_199_999), grid.end_of(1_200_001), *grid.between(300_000, 1_400_000)]
    [1200000, 1320000, 600000, 900000, 1200000, 1320000]
    """

    def __init__(self, step_ms: int) -> None:
        self._parts = [(0, step_ms)]  # (from, step), rising; the first holds for everything before the second

    @property
    def newest_step_ms(self) -> int:
        """The step of the rows to come."""
        return self._parts[-1][1]

    @property
    def only_step_ms(self) -> int | None:
        """The step of all rows, where that is one."""
        return self._parts[0][1] if len(self._parts) == 1 else None

    def change(self, step_ms: int, after_ms: int) -> int:
        """Let rows have another step from the first instant at or after ``after_ms`` that ends a row of both steps,
        and of no change before this one; gives that instant.
        """
        since, before = self._parts[-1]
        both = math.lcm(before, step_ms)
        begin = -(-max(after_ms, since) // both) * both
        self._parts.append((begin, step_ms))
        return begin

    def forget(self, until_ms: int) -> None:
        """Forget rows that end at or before ``until_ms``: nobody asks for them any more."""
        while len(self._parts) > 1 and self._parts[1][0] <= until_ms:
            del self._parts[0]

    def step_ms(self, end_ms: int) -> int:
        """The length of the row that ends at ``end_ms``."""
        if len(self._parts) == 1:
            return self._parts[0][1]
        return next((step for since, step in reversed(self._parts) if since < end_ms), self._parts[0][1])

    def end_of(self, ts_ms: int) -> int:
        """The end of the row that an instant belongs to."""
        step_ms = self.step_ms(ts_ms)
        return -(-ts_ms // step_ms) * step_ms

    def ends_of(self, ts_ms: I64) -> I64:
        """The ends of the rows that many instants belong to."""
        first = self._parts[0][1]
        ends: I64 = -(-ts_ms // first) * first
        for since, step in self._parts[1:]:
            ends = np.where(ts_ms > since, -(-ts_ms // step) * step, ends)
        return ends

    def last_end(self, until_ms: int) -> int:
        """The newest end at or before ``until_ms``."""
        for since, step in reversed(self._parts[1:]):
            if until_ms >= since:
                return max(since, until_ms // step * step)
        return until_ms // self._parts[0][1] * self._parts[0][1]

    def between(self, after_ms: int, until_ms: int) -> Iterator[int]:
        """The ends after ``after_ms``, which is one, up to and with ``until_ms``."""
        end_ms = self.end_of(after_ms + 1)
        while end_ms <= until_ms:
            yield end_ms
            end_ms = self.end_of(end_ms + 1)

    def state(self) -> list[tuple[int, int]]:
        """For a snapshot."""
        return list(self._parts)

    def load(self, state: list[tuple[int, int]]) -> None:
        """Inverse of :meth:`state`."""
        self._parts = [(since, step) for since, step in state]
