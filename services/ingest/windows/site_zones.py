"""Step 5 of the way of a reading: which zones a site has; they come with a sample and leave by an event of the log.

A zone that leaves has its last row where its newest sample is; it is back with the row of its next one. Silence is
counted in time that ticks saw, so that a zone does not leave because nobody listened. All of it is a function of the
partition's records; the publisher of the event (``services.ingest.retirement``) knows how long a zone may be silent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from edge.wire.events import Retirement
from edge.wire.topic import SITE_ZONE

__all__ = ["Silent", "Zones"]

Counts = Mapping[str, int]
"""Zone -> how many samples there are of it."""


class Silent(NamedTuple):
    """A zone, or as ``_site`` a whole site, that may leave: no sample of it came in ``silent_ms`` of ticks."""

    zone: str
    until_ms: int  # the end of the newest row with a sample of it
    silent_ms: int


class Zones:
    """The zones of one site, ``_site`` among them where it has a weather station."""

    def __init__(self) -> None:
        self.left_ms: dict[str, int] = {}  # zone that has left -> the end of the last row that it was in
        self.gone = False  # the site as a whole has left
        self._seen: dict[str, tuple[int, int]] = {}  # zone -> end of its newest row with samples, time listened then
        self._leaving: dict[str, int] = {}  # zone whose last rows are still open -> samples that wait in them
        self._versions: dict[str, int] = {}  # of the newest retirement of a zone that carried one
        self._listened_ms = 0

    def listen(self, ms: int) -> None:
        """Count the time between two ticks."""
        self._listened_ms += ms

    def close(self, end_ms: int, counts: Counts) -> list[str]:
        """A row is closed, with this many samples of each zone. Returns the zones that leave after it.

        A zone that had left and has a sample is back.
        """
        leave = []
        for zone in list(self._leaving):
            self._leaving[zone] -= counts.get(zone, 0)
            if self._leaving[zone] < 0:
                del self._leaving[zone]  # a sample came after the event
            elif self._leaving[zone] == 0:
                leave.append(zone)
        for zone in counts:
            self._seen[zone] = end_ms, self._listened_ms
            self.left_ms.pop(zone, None)
            self.gone = False
        for zone in leave:
            self._leave(zone, end_ms)
        return leave

    def retire(self, change: Retirement, zone: str, waiting: Counts, closed_ms: int) -> bool:
        """Take the event; True where the zone leaves at once. ``waiting``: the samples in rows that are still open."""
        if change.version is not None:
            if change.version <= self._versions.get(zone, 0):
                return False
            self._versions[zone] = change.version
        if zone == SITE_ZONE:
            return self._retire_site(change, waiting, closed_ms)
        if zone not in self._seen and zone not in waiting:
            return False
        if change.until_ms is not None and (zone in waiting or self._seen[zone][0] > change.until_ms):
            return False
        if zone in waiting:
            self._leaving[zone] = waiting[zone]
            return False
        self._leave(zone, closed_ms)
        return True

    def silent(self) -> Iterator[Silent]:
        """Every present zone; and the site, if no zone is left but its weather station."""
        for zone, (end_ms, listened_ms) in self._seen.items():
            if zone != SITE_ZONE and zone not in self._leaving:
                yield Silent(zone, end_ms, self._listened_ms - listened_ms)
        if not self.gone and self._seen.keys() <= {SITE_ZONE} and (self._seen or self.left_ms):
            end_ms, listened_ms = self._seen.get(SITE_ZONE, (0, -(2**62)))
            yield Silent(SITE_ZONE, max([end_ms, *self.left_ms.values()]), self._listened_ms - listened_ms)

    def state(self) -> dict[str, Any]:
        """For a snapshot."""
        return {
            "left_ms": dict(self.left_ms), "gone": self.gone, "seen": dict(self._seen),
            "leaving": dict(self._leaving), "versions": dict(self._versions), "listened_ms": self._listened_ms,
        }  # fmt: skip

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        self.left_ms, self.gone = dict(state["left_ms"]), state["gone"]
        self._seen = {zone: (end_ms, listened_ms) for zone, (end_ms, listened_ms) in state["seen"].items()}
        self._leaving, self._versions = dict(state["leaving"]), dict(state["versions"])
        self._listened_ms = state["listened_ms"]

    def _retire_site(self, change: Retirement, waiting: Counts, closed_ms: int) -> bool:
        newest_ms = max([end for end, _ in self._seen.values()] + list(self.left_ms.values()), default=0)
        if waiting or self._seen.keys() - {SITE_ZONE} or newest_ms > (change.until_ms or 0):
            return False
        self.gone = True
        if SITE_ZONE not in self._seen:
            return False
        self._leave(SITE_ZONE, closed_ms)
        return True

    def _leave(self, zone: str, end_ms: int) -> None:
        self._leaving.pop(zone, None)
        self._seen.pop(zone, None)
        self.left_ms[zone] = end_ms
