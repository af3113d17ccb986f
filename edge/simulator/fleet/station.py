"""The true weather of many simulated sites as the rows of their weather stations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge.simulator.physics.sun import MINUTES_A_DAY
from edge.simulator.simulated_site import WEATHER_METRICS
from models.psychrometrics import relative_humidity_pct

__all__ = ["StationRows"]

_Array = NDArray[np.float64]
_SIGMA = 5.67e-8


class StationRows:
    """Day after day; it remembers how much sun there was since local midnight, as climate computers count it."""

    def __init__(self, utc_offsets_h: Sequence[int], minutes_a_row: int) -> None:
        self._midnight = [(-60 * offset) % MINUTES_A_DAY for offset in utc_offsets_h]
        self._every = minutes_a_row
        self._sum_j_cm2 = np.zeros(len(utc_offsets_h))

    def rows(self, today: _Array, tomorrow: _Array) -> _Array:
        """Means of WEATHER_METRICS of weather (minutes, columns, sites): shape (rows, metrics, sites).

        A row holds the minutes after the last one's up to its own end, so the last needs tomorrow's first.
        """
        seen = np.concatenate((today[1:], tomorrow[:1]))
        air_k, sky_k = seen[:, 0] + 273.15, seen[:, 3] + 273.15
        wind = np.radians(seen[:, 5])
        columns = {
            "out_temp_c": seen[:, 0], "out_rh_pct": relative_humidity_pct(seen[:, 1], seen[:, 0]),
            "out_radiation_w_m2": seen[:, 2], "out_longwave_net_w_m2": _SIGMA * (sky_k**4 - air_k**4),
            "wind_m_s": seen[:, 4], "rain": seen[:, 6], "out_rad_sum_j_cm2": self._sums(seen[:, 2]),
        }  # fmt: skip
        means = {name: self._mean(column) for name, column in columns.items()}
        east, north = self._mean(np.sin(wind)), self._mean(np.cos(wind))
        means["wind_dir_deg"] = np.degrees(np.arctan2(east, north)) % 360.0
        return np.stack([means[name] for name in WEATHER_METRICS], axis=1)

    def _mean(self, column: _Array) -> _Array:
        by_row = column.reshape(-1, self._every, column.shape[1])
        total = by_row[:, 0].copy()
        for minute in range(1, self._every):
            total += by_row[:, minute]
        return total / self._every

    def _sums(self, radiation_w_m2: _Array) -> _Array:
        total = np.cumsum(radiation_w_m2 * (60.0 / 1e4), axis=0)
        for site, midnight in enumerate(self._midnight):
            last = midnight - 1 if midnight else MINUTES_A_DAY - 1  # the minute that ends the local day
            before = self._sum_j_cm2[site]
            self._sum_j_cm2[site] = 0.0 if last == MINUTES_A_DAY - 1 else total[-1, site] - total[last, site]
            total[last + 1 :, site] -= total[last, site]
            total[: last + 1, site] += before
        return np.asarray(total)
