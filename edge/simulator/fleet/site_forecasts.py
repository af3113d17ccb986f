"""Weather forecasts for many simulated sites, as wrong as those of a single one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.simulator.fleet.draws import SiteDraw, chance
from edge.simulator.fleet.weathers import CLEAR_SKY
from edge.simulator.weather_forecasts import CARRIED_ON, KNOWN_AFTER_H, forecast_errors
from models.psychrometrics import relative_humidity_pct

__all__ = ["FORECAST_HOURS", "FORECAST_METRICS", "SiteForecasts"]

_Array = NDArray[np.float64]

FORECAST_METRICS = ("out_temp_c", "out_rh_pct", "wind_m_s", "out_radiation_w_m2")
FORECAST_HOURS = 54
"""Hourly, from half an hour after the forecast is issued on."""

_PART = 30


class SiteForecasts:
    """What services foresee, run after run. Errors grow, last, and are partly one bias that the next run carries on."""

    def __init__(self, sites: Sequence[SiteDraw]) -> None:
        self._sites = sites
        self._error = np.array([site.plans.forecast_error for site in sites])[:, None]
        self._chance = [chance(site.seed, site.index, _PART) for site in sites]
        self._bias = np.array([rng.standard_normal(4) for rng in self._chance])

    def issue(self, weather: _Array, minute: int) -> tuple[_Array, NDArray[np.bool_]]:
        """The forecasts issued at ``minute`` of ``weather`` (minutes, columns, sites): shape (FORECAST_HOURS, metrics,
        sites); and which of them ever come.
        """
        ahead = weather[minute : minute + 60 * FORECAST_HOURS]
        hours = ahead.reshape(FORECAST_HOURS, 60, *ahead.shape[1:])
        at = hours[:, 30]
        bright, most = hours[:, :, 2].mean(axis=1), hours[:, :, CLEAR_SKY].mean(axis=1)
        new = np.array([rng.standard_normal((FORECAST_HOURS + 1, 4)) for rng in self._chance])
        self._bias = CARRIED_ON * self._bias + math.sqrt(1.0 - CARRIED_ON**2) * new[:, 0]
        since_begun_h = np.arange(FORECAST_HOURS, dtype=np.float64) + (KNOWN_AFTER_H + 0.5)
        wrong = forecast_errors(new[:, 1:].transpose(1, 0, 2), self._bias, since_begun_h) * self._error
        rh = relative_humidity_pct(at[:, 1], at[:, 0]) + wrong[..., 1]
        light = np.minimum(np.maximum(bright + wrong[..., 3] * most, 0.05 * most), 1.05 * most)
        said = (at[:, 0] + wrong[..., 0], np.clip(rh, 5.0, 100.0), np.maximum(at[:, 4] + wrong[..., 2], 0.0), light)
        draws = [rng.random() for rng in self._chance]
        came = [
            site.plans.forecasts and draw >= site.plans.outages for site, draw in zip(self._sites, draws, strict=True)
        ]
        return np.stack(said, axis=1), np.array(came)
