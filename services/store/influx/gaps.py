"""Step 6 of the way of a reading: the spans of time whose points left memory, or never were in it, unsent.

What they were made of is in the history, from which they are sent later.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ["KINDS", "Gap", "Gaps", "Stream", "StreamKind"]

StreamKind = Literal["rows", "forecasts"]
KINDS: tuple[StreamKind, ...] = ("rows", "forecasts")


class Stream(NamedTuple):
    """A site's rows, or its forecasts."""

    kind: StreamKind
    site: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows that end, or forecasts that were issued, after ``after_ms`` and not after ``until_ms``.

    ``points`` that were dropped from memory are not found again yet; 0 where nobody counted them.
    """

    after_ms: int
    until_ms: int
    points: int = 0


class Gaps:
    """At most one gap a stream: what is dropped from a queue is its oldest, so that gaps of a stream are one.

    >>> gaps, rows = Gaps(), Stream("rows", "demo")
    >>> gaps.add(rows, Gap(100, 200, 3))
    >>> gaps.add(rows, Gap(250, 300, 2))
    >>> gaps.fill(rows, 200, 3)
    0
    >>> gaps.oldest()
    (Stream(kind='rows', site='demo'), Gap(after_ms=200, until_ms=300, points=2))
    >>> gaps.fill(rows, 300, 1)
    1
    >>> gaps.oldest() is None
    True
    """

    def __init__(self) -> None:
        self._gaps: dict[Stream, Gap] = {}
        self.added = 0  # rises with each gap: what was read of the history before it may lack what it holds

    def __contains__(self, stream: Stream) -> bool:
        return stream in self._gaps

    def __bool__(self) -> bool:
        return bool(self._gaps)

    @property
    def points(self) -> int:
        """How many points were dropped from memory and wait to be read again."""
        return sum(gap.points for gap in self._gaps.values())

    def add(self, stream: Stream, gap: Gap) -> None:
        """Widen the stream's gap by this one."""
        self.added += 1
        held = self._gaps.get(stream)
        if held is not None:
            first, last = min(held.after_ms, gap.after_ms), max(held.until_ms, gap.until_ms)
            gap = Gap(first, last, held.points + gap.points)
        self._gaps[stream] = gap

    def oldest(self, without: Collection[Stream] = ()) -> tuple[Stream, Gap] | None:
        """The gap that begins first, of other streams than these."""
        found = (held for held in self._gaps.items() if held[0] not in without)
        return min(found, key=lambda held: (held[1].after_ms, held[0]), default=None)

    def fill(self, stream: Stream, until_ms: int, points: int) -> int:
        """What lay before ``until_ms`` was sent, ``points`` in all; returns how many are lost: dropped from memory, and
        not in the history either. That is known at the gap's end.
        """
        gap = self._gaps[stream]
        left = max(gap.points - points, 0)
        if until_ms >= gap.until_ms:
            del self._gaps[stream]
            return left
        self._gaps[stream] = Gap(until_ms, gap.until_ms, left)
        return 0
