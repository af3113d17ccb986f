"""Step 5 of the way of a reading: a record that an uplink sent twice counts once. Pure.

An uplink sends a record again when it cannot know whether it arrived: after a crash, after a lost answer. The copies
carry the same origin (``edge.log.Origin``), whose numbers have no gaps within a site, so that what was seen of one log
is soon one range: "all below N". A range more is a gap, which a record on another way still has to fill.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from edge.log import Origin

__all__ = ["MAX_LOGS", "MAX_RANGES", "Ranges", "SeenOrigins"]

MAX_RANGES = 4096
"""Ranges kept of a site and log. Beyond it the lowest are forgotten: a copy from so far back is taken again, where its
samples are still recognised by their own ids. The other way round a record would be lost."""

MAX_LOGS = 64
"""Logs kept of a site: a buffer that was deleted begins again under a new id. Beyond it the first is forgotten."""

Ranges = list[tuple[int, int]]


class SeenOrigins:
    """The origins seen of one site."""

    def __init__(self, seen: Mapping[str, Ranges] | None = None) -> None:
        self._seen: dict[str, Ranges] = {log: [(a, b) for a, b in ranges] for log, ranges in (seen or {}).items()}

    def is_new(self, origin: Origin) -> bool:
        """Whether this is the first time; from now on it is not.

        >>> origins = SeenOrigins()
        >>> [origins.is_new(Origin("a", number)) for number in (0, 2, 0, 1, 2)]
        [True, True, False, True, False]
        >>> origins.state()
        {'a': [(0, 3)]}
        """
        ranges, number = self._of(origin.log), origin.number
        if ranges and ranges[-1][1] == number:  # nearly always: the next one
            ranges[-1] = (ranges[-1][0], number + 1)
            return True
        at = bisect_right(ranges, number, key=lambda one: one[0])  # ranges[at - 1] begins at or before it
        if at and number < ranges[at - 1][1]:
            return False
        start, end = number, number + 1
        if at and ranges[at - 1][1] == number:
            at -= 1
            start = ranges.pop(at)[0]
        if at < len(ranges) and ranges[at][0] == end:
            end = ranges.pop(at)[1]
        ranges.insert(at, (start, end))
        del ranges[:-MAX_RANGES]
        return True

    def are_next(self, origins: Sequence[Origin]) -> bool:
        """Whether these follow the newest of their log without a gap, as nearly all do; then they have been seen.

        >>> origins = SeenOrigins({"a": [(0, 3)]})
        >>> origins.are_next([Origin("a", 3), Origin("a", 4)]), origins.are_next([Origin("a", 4)]), origins.state()
        (True, False, {'a': [(0, 5)]})
        """
        logs, numbers = zip(*origins, strict=True)
        ranges = self._seen.get(logs[0])
        begin = numbers[0]
        if not ranges or ranges[-1][1] != begin or logs.count(logs[0]) < len(logs):
            return False
        if numbers != tuple(range(begin, begin + len(numbers))):
            return False
        ranges[-1] = (ranges[-1][0], begin + len(numbers))
        return True

    def _of(self, log: str) -> Ranges:
        ranges = self._seen.get(log)
        if ranges is None:
            if len(self._seen) >= MAX_LOGS:
                del self._seen[next(iter(self._seen))]
            ranges = self._seen[log] = []
        return ranges

    def state(self) -> dict[str, Ranges]:
        """Log -> half-open ranges of numbers seen, rising and apart; what :class:`SeenOrigins` is made of again."""
        return {log: list(ranges) for log, ranges in self._seen.items()}
