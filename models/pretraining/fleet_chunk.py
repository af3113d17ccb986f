"""Some sites of a recorded fleet: their rows, and what was known ahead at any row, for many examples at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import DAY_MS, HOUR_MS
from models.spec import Place

__all__ = ["FleetChunk"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

_WEATHER_HOLDS_H = 0.5
_SETPOINT_HOLDS_MS = DAY_MS
"""As in :mod:`models.features.plans`."""


class FleetChunk:
    """Letters: ``Z`` zones, ``N`` rows, ``B`` examples, ``T`` half-hours, ``K`` metrics.

    ``arrays`` and ``layout`` are those of the folder; every array is there as it was written.
    """

    def __init__(self, arrays: Mapping[str, _Array], layout: Mapping[str, Any], step_ms: int) -> None:
        self.arrays, self.layout, self.step_ms = arrays, layout, step_ms
        self.zones, self.rows_each = arrays["values"].shape[:2]
        self._bin_ms = int(layout["plan_bin_ms"])
        self._newest_forecast = _newest(arrays["forecast_came"])
        self._newest_plan = _newest(arrays["plan_came"])

    def rows(self, channels: Sequence[str]) -> F32:
        """The rows of all zones, with their site's weather: ``[Z, N, channels]``; NaN in those that there are none
        of.
        """
        own, site = list(self.layout["zone_metrics"]), list(self.layout["weather_metrics"])
        rows = np.full((self.zones, self.rows_each, len(channels)), np.nan, np.float32)
        for place, name in enumerate(channels):
            if name in own:
                rows[..., place] = self.arrays["values"][..., own.index(name)]
            elif name in site:
                rows[..., place] = self.arrays["weather"][..., site.index(name)][self.arrays["zone_site"]]
        return rows

    def end_ms(self, zones: I64, rows: I64) -> I64:
        """When rows end, Unix ms."""
        start = self.arrays["start_ms"][self.arrays["zone_site"][zones]]
        return np.asarray(start + (rows + 1) * self.step_ms, np.int64)

    def place(self, zone: int) -> Place:
        """Where a zone stands; its clock is the same all year."""
        site = int(self.arrays["zone_site"][zone])
        hours = int(self.arrays["utc_offset_h"][site])
        timezone = f"Etc/GMT{-hours:+d}" if hours else "Etc/GMT"
        latitude, longitude = (float(self.arrays[name][site]) for name in ("latitude", "longitude"))
        return Place(timezone, "standard", latitude, longitude)

    def foreseen(self, zones: I64, rows: I64, metrics: Sequence[str], back: int, count: int) -> F32:
        """What was foreseen when rows ended: ``[B, T, K]`` in ``count`` half-hours, of which number ``back`` is the
        one that the row lies in; NaN where nothing was.

        The same as :class:`~models.features.plans.Plans` makes of these plans, in the middle of each half-hour.
        """
        origin = self.end_ms(zones, rows)
        bins = (origin[:, None] - 1) // self._bin_ms - back + np.arange(count)
        middle = bins * self._bin_ms + self._bin_ms // 2
        weather, setpoints = self._weather(zones, origin, middle), self._setpoints(zones, origin, bins)
        forecast, plan = list(self.layout["forecast_metrics"]), list(self.layout["plan_metrics"])
        found = np.full((*bins.shape, len(metrics)), np.nan, np.float32)
        for place, name in enumerate(metrics):
            if name in forecast:
                found[..., place] = weather[..., forecast.index(name)]
            elif name in plan:
                found[..., place] = setpoints[..., plan.index(name)]
        return found

    def _weather(self, zones: I64, origin: I64, middle: I64) -> F32:
        """Hourly values with straight lines between them; the first and the last hold for half an hour."""
        site = self.arrays["zone_site"][zones]
        run = _used(self.arrays["forecast_issued_ms"][site], self._newest_forecast[site], origin)
        said = self.arrays["forecast"][site, run]  # [B, hours, K]
        issued = self.arrays["forecast_issued_ms"][site, run]
        place = (middle - issued[:, None]) / HOUR_MS - 0.5
        last = said.shape[1] - 1
        known = (run >= 0)[:, None] & (place >= -_WEATHER_HOLDS_H) & (place <= last + _WEATHER_HOLDS_H)
        place = np.clip(place, 0, last)
        before = np.minimum(place.astype(np.int64), last - 1)
        share = (place - before).astype(np.float32)[..., None]
        one = np.arange(len(zones))[:, None]
        low, high = said[one, before], said[one, before + 1]
        return np.where(known[..., None], low + share * (high - low), np.float32(np.nan))

    def _setpoints(self, zones: I64, origin: I64, bins: I64) -> F32:
        """Values by half-hours; the last one holds for a day."""
        plan = _used(self.arrays["plan_issued_ms"][zones], self._newest_plan[zones], origin)
        said = self.arrays["plan"][zones, plan]  # [B, bins, K]
        place = bins - (self.arrays["plan_issued_ms"][zones, plan] // self._bin_ms)[:, None]
        last = said.shape[1] - 1
        known = (plan >= 0)[:, None] & (place >= 0) & (place < last + _SETPOINT_HOLDS_MS // self._bin_ms)
        values = said[np.arange(len(zones))[:, None], np.clip(place, 0, last)]
        return np.where(known[..., None], values, np.float32(np.nan))


def _newest(came: _Array) -> I64:
    """Of each, the newest until it that came; -1 where none did."""
    return np.asarray(np.maximum.accumulate(np.where(came > 0, np.arange(came.shape[1]), -1), axis=1), np.int64)


def _used(issued_ms: I64, newest: I64, origin_ms: I64) -> I64:
    """Which one is used at each origin; -1 for none."""
    until = (issued_ms <= origin_ms[:, None]).sum(axis=1) - 1
    found = newest[np.arange(len(until)), np.maximum(until, 0)]
    return np.where(until >= 0, found, -1)
