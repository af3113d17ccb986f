"""A source of given instants, and samples for it, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edge.wire.plan import PlanMessage
from edge.wire.reading import Sample

__all__ = ["START_MS", "ListSource", "sample"]

START_MS = 1_643_673_600_000


class ListSource:
    """A source of given instants."""

    site, zones, timezone, latitude, longitude = "s", ("z",), "UTC", None, None
    interval_ms = 60_000
    primary: Mapping[str, str] = {}

    def __init__(
        self, instants: list[tuple[int, list[Sample]]], plans: dict[int, list[PlanMessage]] | None = None
    ) -> None:
        self._instants, self._plans = list(instants), plans or {}
        self._at_ms = 0
        self.start_ms = instants[0][0]
        self.end_ms: int | None = instants[-1][0]

    def samples(self, to_ms: int) -> Iterator[tuple[int, list[Sample]]]:
        while self._instants and self._instants[0][0] <= to_ms:
            self._at_ms = self._instants[0][0]
            yield self._instants.pop(0)

    def plans(self) -> list[PlanMessage]:
        return self._plans.pop(self._at_ms, [])

    def skip(self, to_ms: int) -> None:
        for _ in self.samples(to_ms):
            pass


def sample(seq: int, ts_ms: int, **values: float) -> Sample:
    """A sample of the source's only device."""
    return Sample("s", "z", "d", "0011223344556677", seq, ts_ms, values)
