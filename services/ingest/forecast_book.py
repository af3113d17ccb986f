"""Step 8 of the way of a reading: what was issued of one partition's rows, and what counts of it after a crash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from services.ingest.forecasting import MAX_ORIGINS, ForecastOrigin
from services.store.forecasts import IssuedForecast

__all__ = ["ForecastBook", "Issued"]


class Issued(NamedTuple):
    """A forecast with the rows that it was made from."""

    origin: ForecastOrigin
    forecast: IssuedForecast


class ForecastBook:
    """The newest forecast of each site; and those from before a crash, which stay as they were.

    What was issued after a snapshot is learned from again at the row of the replay after which it was issued. That is
    its origin where it came at once, a later row where the network's answer took longer.
    """

    def __init__(self, step_ms: int) -> None:
        self._step_ms = step_ms
        self._newest: dict[str, Issued] = {}
        self._before: dict[str, dict[int, IssuedForecast]] = {}  # site -> origin -> what was issued of it
        self._again: dict[tuple[str, int], list[IssuedForecast]] = {}  # (site, row after which it was issued)

    def put(self, origin: ForecastOrigin, forecast: IssuedForecast) -> None:
        """A forecast was issued; the newest forecast of an origin counts."""
        before = self._newest.get(origin.site)
        if before is None or before.origin.end_ms <= origin.end_ms:
            self._newest[origin.site] = Issued(origin, forecast)

    def newest(self) -> Iterator[Issued]:
        """The newest forecast of each site."""
        return iter(self._newest.values())

    def of_zone(self, site: str, zone: str) -> Issued | None:
        """The newest forecast of a site, if the zone is in it."""
        found = self._newest.get(site)
        return found if found is not None and zone in found.origin.zones else None

    def origins_ms(self) -> dict[str, int]:
        """Site -> origin of its newest forecast."""
        return {site: found.origin.end_ms for site, found in self._newest.items()}

    def of_before(self, origin: ForecastOrigin, version: str) -> IssuedForecast | None:
        """What ``version`` said of an origin before a crash: learned from at its row of the replay, and not again."""
        found = self._before.get(origin.site, {}).get(origin.end_ms)
        return found if found is not None and (found.version, found.zones) == (version, origin.zones) else None

    def begin_row(self, site: str, end_ms: int) -> None:
        """A row closes: forecasts that lie too far back to be asked for again are thrown away."""
        before = self._before.get(site)
        if before and end_ms > max(before) + MAX_ORIGINS * self._step_ms:
            before.clear()

    def has_before(self, site: str, origin_ms: int) -> bool:
        """Whether anything was issued for this origin before a crash."""
        return origin_ms in self._before.get(site, {})

    def expect(self, forecast: IssuedForecast, newest_ms: int) -> bool:
        """Take a forecast from before a crash, the newest issued last; its site's newest row ends at ``newest_ms``.
        Returns whether it was issued after that very row, so that it counts now.
        """
        self._before.setdefault(forecast.site, {})[forecast.origin_ms] = forecast
        after_ms = forecast.origin_ms + forecast.age_steps * self._step_ms
        if after_ms > newest_ms:
            self.wait(forecast, after_ms)
        return after_ms == newest_ms

    def wait(self, forecast: IssuedForecast, row_ms: int) -> None:
        """Let it count after the row that ends at ``row_ms``."""
        self._again.setdefault((forecast.site, row_ms), []).append(forecast)

    def take_waiting(self, site: str, row_ms: int) -> Sequence[IssuedForecast]:
        """What counts after this row."""
        return self._again.pop((site, row_ms), [])
