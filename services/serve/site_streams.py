"""Step 9 of the way of a reading: how far the stream of each site has got, and whether it moves.

How old a forecast is, is judged by the clock of the stream (how far the zone's site has got), because in a replay the
wall clock says nothing; whether the stream moves at all is judged by the time since it last did. A stream's clock is a
gateway's, which may have been ahead: outside a replay no stream is further than the wall clock, and a new row is
movement, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from services.ingest.figures import ShardFigures

__all__ = ["SiteStreams"]

MUCH_RECORDS = 1000
"""Fewer are read within a moment, also where they pile up again and again under load."""


@dataclass(slots=True)
class _Stream:
    """One site's. Times of the stream are in ms, those of the view's clock in s."""

    at_ms: int = 0
    moved_s: float = 0.0
    resumed_ms: int | None = None  # where it was when it last left a gap or a backlog behind it
    backlog: int = 0  # records that its shard has still to read; 0 where that keeps up


class SiteStreams:
    """Site -> its stream. ``clock_s`` is monotonic.

    ``wall_ms`` is given where receive times are those of the wall clock. A stream that comes forward by more than
    ``stale_after_s`` at once has left a gap behind it.
    """

    def __init__(
        self, stale_after_s: float, clock_s: Callable[[], float], wall_ms: Callable[[], int] | None = None
    ) -> None:
        self._stale_after_s = stale_after_s
        self._clock_s = clock_s
        self._wall_ms = wall_ms
        self._streams: dict[str, _Stream] = {}

    def of_sites(self, sites: Collection[str]) -> SiteStreams:
        """The streams of these sites alone; they do not follow."""
        some = SiteStreams(self._stale_after_s, self._clock_s, self._wall_ms)
        some._streams = {site: stream for site, stream in self._streams.items() if site in sites}
        return some

    @property
    def sites(self) -> list[str]:
        """The sites of which something came."""
        return sorted(self._streams)

    def row(self, site: str, at_ms: int, is_new: bool) -> None:
        """A row of a site ends at ``at_ms``. One that is new is movement, also where the stream was further."""
        stream = self._reach(site, at_ms)
        if is_new:
            stream.moved_s = self._clock_s()

    def figures(self, figures: ShardFigures) -> None:
        """How far the sites of a shard have got, by its newest figures."""
        behind = figures.get("behind", False)
        for site, at_ms in (figures.get("stream_ms") or figures.get("watermark_ms") or {}).items():
            known = self._streams.get(site)
            gap_ms = at_ms - known.at_ms if known else 0
            stream = self._reach(site, at_ms)
            if behind or gap_ms > 1000 * self._stale_after_s:
                stream.resumed_ms = self._reached_ms(stream)
            stream.backlog = figures.get("backlog", 0) if behind else 0

    def reached_ms(self, site: str) -> int | None:
        """How far a site's stream has got; ``None`` for one of which nothing came."""
        stream = self._streams.get(site)
        return None if stream is None else self._reached_ms(stream)

    def age_s(self, site: str, at_ms: int) -> float:
        """How long ago ``at_ms`` is for a site's stream."""
        return (self._reached_ms(self._streams[site]) - at_ms) / 1000

    def quiet_s(self, site: str) -> float:
        """How long a site's stream has stood still."""
        return self._clock_s() - self._streams[site].moved_s

    def backlog(self, site: str) -> int:
        """The records that a site's shard has still to read; 0 where it keeps up."""
        stream = self._streams.get(site)
        return stream.backlog if stream else 0

    def behind(self, site: str) -> bool:
        """Whether the site's shard is reading what has piled up in the log, as after a start or an import."""
        return self.backlog(site) >= MUCH_RECORDS

    def has_just_resumed(self, site: str) -> bool:
        """Whether a site's stream has just come forward over a gap or a backlog."""
        resumed_ms = self._streams[site].resumed_ms
        return resumed_ms is not None and self.age_s(site, resumed_ms) <= self._stale_after_s

    def _reach(self, site: str, at_ms: int) -> _Stream:
        stream = self._streams.setdefault(site, _Stream())
        if at_ms > stream.at_ms:
            stream.at_ms, stream.moved_s = at_ms, self._clock_s()
        return stream

    def _reached_ms(self, stream: _Stream) -> int:
        return stream.at_ms if self._wall_ms is None else min(stream.at_ms, self._wall_ms())
