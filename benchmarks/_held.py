"""How rates went, for ``benchmarks.live``: was each held, how late were forecasts, what did it take of the cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks._load import SITES

__all__ = ["ForecastLag", "Held", "show", "told"]

LAST_LAG_S, MOST_LAG_S = 1.0, 3.0
GROWTH = 0.01
"""Lag grows where this share of what is published is not worked off."""


@dataclass(frozen=True)
class Held:
    """How a rate went: ``lag_s`` is the mean of the last quarter, ``growth`` the slope of the lag in seconds a second,
    ``forecast_lag_s`` the longest of any site and step; ``cores`` is what each part used.
    """

    rate: float
    seconds: float
    published_per_s: float
    lag_s: float
    most_lag_s: float
    growth: float
    forecasts: int
    forecast_lag_s: float
    cores: dict[str, float]

    @property
    def is_held(self) -> bool:
        """Whether all was published that should be, and came through in time."""
        in_time = self.lag_s <= LAST_LAG_S and max(self.most_lag_s, self.forecast_lag_s) <= MOST_LAG_S
        return self.published_per_s > 0.98 * self.rate and in_time and self.growth < GROWTH


def told(held: Held) -> str:
    """A line."""
    return (
        f"{held.rate:7.0f} samples/s for {held.seconds:.0f} s: {'held' if held.is_held else 'not held'};"
        f" published {held.published_per_s:.0f}/s, lag {held.lag_s} s (most {held.most_lag_s} s,"
        f" growing {held.growth:+.3f} s/s), of {held.forecasts} forecasts at most {held.forecast_lag_s} s"
    )


def show(tried: Sequence[Held]) -> None:
    """Print the table: a line a rate, with the cores of each part."""
    parts = sorted({part for held in tried for part in held.cores})
    print(
        f"{'samples/s':>9} {'s':>4} {'held':>5} {'lag s':>6} {'most':>6} {'forecasts':>9}   cores: {'all':>5}", end=""
    )
    print("".join(f" {part:>{max(5, len(part))}}" for part in parts))
    for held in tried:
        print(
            f"{held.rate:9.0f} {held.seconds:4.0f} {'yes' if held.is_held else 'no':>5} {held.lag_s:6.2f}"
            f" {held.most_lag_s:6.2f} {held.forecast_lag_s:9.2f}   {'':6} {sum(held.cores.values()):5.2f}"
            + "".join(f" {held.cores.get(part, 0.0):{max(5, len(part))}.2f}" for part in parts)
        )


class ForecastLag:
    """How long after a step's rows may close each site's forecast can be asked for; steps
    that end after ``from_s``, when samples begin to come, count.
    """

    def __init__(self, origin_s: Callable[[str], float], from_s: float, step_s: float, lateness_s: float) -> None:
        self.count, self.longest_s, self.newest_s = 0, 0.0, 0.0
        self._origin_s, self._step_s, self._lateness_s = origin_s, step_s, lateness_s
        self._waits = dict.fromkeys(SITES, from_s // step_s * step_s + step_s)  # the end whose forecast is next

    def look(self, now_s: float) -> None:
        """Ask for the forecasts that are due."""
        late_s = []
        for site, end_s in self._waits.items():
            if now_s < end_s + self._lateness_s:
                continue
            late_s.append(now_s - end_s - self._lateness_s)
            if self._origin_s(site) >= end_s:
                self.count += 1
                self._waits[site] = max(end_s, self._end_due(now_s)) + self._step_s
        if late_s:
            self.newest_s = max(late_s)
            self.longest_s = max(self.longest_s, self.newest_s)

    def _end_due(self, now_s: float) -> float:
        return (now_s - self._lateness_s) // self._step_s * self._step_s
