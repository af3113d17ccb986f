"""Forecasts of a simulated site's own weather, as wrong as those of national services are.

Every six hours a run looks two days ahead. Its errors grow with the time ahead, last for hours, and are partly one
bias of the whole run that the next run has learned only a part of. Standard deviations at first and a day ahead: air
temperature 0.8 and 2.0 °C, humidity 5 and 10 %, wind 0.8 and 1.7 m/s, and the share of a clear sky's radiation 0.15
and 0.30.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from edge.simulator.physics.sun import clear_sky_w_m2, sine_of_elevation
from edge.simulator.physics.weather import Weather
from edge.wire.plan import Path
from models.durations import DAY_MS, HOUR_MS, MINUTE_MS
from models.psychrometrics import relative_humidity_pct

__all__ = ["AHEAD_H", "CARRIED_ON", "KNOWN_AFTER_H", "RUN_HOURS", "SimulatedForecasts", "forecast_errors", "run_of"]

_Array = NDArray[np.float64]
RUN_HOURS, KNOWN_AFTER_H = 6, 3
"""A run begins at 0, 6, 12 and 18 o'clock UTC, and its forecast is there three hours later."""

AHEAD_H = 48

_FIRST = np.array([0.8, 5.0, 0.8, 0.15])  # temperature, humidity, wind, share of a clear sky
_A_DAY_AHEAD = np.array([2.0, 10.0, 1.7, 0.30])
_OF_THE_RUN = 0.5  # share of the variance that is one bias of the run
CARRIED_ON = 0.6  # correlation of one run's bias with the next one's
_MEMORY_H = 6.0
_RUNS_BACK = 12  # earlier biases are forgotten


def run_of(ts_ms: int) -> int:
    """The number of the newest run whose forecast is there.

    >>> run_of(9 * 3_600_000) - run_of(8 * 3_600_000)
    1
    """
    return (ts_ms // HOUR_MS - KNOWN_AFTER_H) // RUN_HOURS


class SimulatedForecasts:
    """What a service foresees of ``weather``, which is asked up to two days ahead. Deterministic by ``seed``."""

    def __init__(self, weather: Weather, seed: int, latitude: float, longitude: float) -> None:
        self._weather, self._seed = weather, seed
        self._sine = lru_cache(8)(lambda day: sine_of_elevation(day, latitude, longitude))

    def values(self, ts_ms: int) -> dict[str, Path]:
        """The newest forecast at ``ts_ms``: hourly, radiation as the mean of the hour around its time."""
        first_ms = -(-ts_ms // HOUR_MS) * HOUR_MS + HOUR_MS // 2
        times = [first_ms + n * HOUR_MS for n in range(AHEAD_H)]
        if times[-1] // DAY_MS > ts_ms // DAY_MS + 2:
            raise ValueError(f"{AHEAD_H} hours ahead of {ts_ms} reach further than the weather is kept")
        begun_ms = run_of(ts_ms) * RUN_HOURS * HOUR_MS
        wrong = self._errors(run_of(ts_ms), np.array([(at - begun_ms) / HOUR_MS for at in times]))
        paths: dict[str, Path] = {"out_temp_c": [], "out_rh_pct": [], "wind_m_s": [], "out_radiation_w_m2": []}
        for at, error in zip(times, wrong, strict=True):
            out = self._weather.at(at)
            rh = float(relative_humidity_pct(out.vapour_pa, out.temp_c)) + error[1]
            said = (out.temp_c + error[0], min(max(rh, 5.0), 100.0), max(out.wind_m_s + error[2], 0.0))
            for path, value in zip(paths.values(), (*said, self._radiation(at, error[3])), strict=False):
                path.append((at, round(float(value), 1)))
        return paths

    def _radiation(self, at_ms: int, error: float) -> float:
        """The mean of an hour; an error makes the sky clearer or darker, but no sun at night."""
        minutes = [at_ms + minute * MINUTE_MS for minute in range(-30, 30, 5)]
        clear = [self._clear_sky(ms) for ms in minutes]
        true = [self._weather.at(ms).radiation_w_m2 for ms in minutes]
        bright, most = float(np.mean(true)), float(np.mean(clear))
        return min(max(bright + error * most, 0.05 * most), 1.05 * most)

    def _clear_sky(self, ts_ms: int) -> float:
        day, rest = divmod(ts_ms, DAY_MS)
        return float(clear_sky_w_m2(self._sine(day)[rest // MINUTE_MS]))

    def _errors(self, run: int, ahead_h: _Array) -> _Array:
        """``[T, 4]``, in the order of ``_FIRST``."""
        kicks = np.random.default_rng([self._seed, 6, run, 1]).standard_normal((len(ahead_h), len(_FIRST)))
        return forecast_errors(kicks, self._bias(run), ahead_h)

    def _bias(self, run: int) -> _Array:
        """Of unit variance, and correlated with that of the run before."""
        new = [np.random.default_rng([self._seed, 6, run - back, 0]).standard_normal(4) for back in range(_RUNS_BACK)]
        shares = CARRIED_ON ** np.arange(_RUNS_BACK)
        return np.asarray(shares @ np.array(new) / math.sqrt(float(np.sum(shares**2))))


def forecast_errors(kicks: _Array, bias: _Array, ahead_h: _Array) -> _Array:
    """Errors of a run, in the order of ``_FIRST``, at ``ahead_h [T]`` after it began.

    They are made of chance ``kicks [T, ..., 4]`` and of the run's ``bias [..., 4]``, both of unit variance.
    """
    spread = _FIRST + (_A_DAY_AHEAD - _FIRST) * np.minimum(ahead_h / 24.0, 2.0)[:, None]
    spread = spread.reshape(len(ahead_h), *(1,) * (kicks.ndim - 2), len(_FIRST))
    keep = math.exp(-1.0 / _MEMORY_H)
    lasting = np.empty_like(kicks)
    state = kicks[0]
    for n, kick in enumerate(kicks):
        state = lasting[n] = kick if n == 0 else keep * state + math.sqrt(1 - keep**2) * kick
    return np.asarray(spread * (math.sqrt(_OF_THE_RUN) * bias + math.sqrt(1 - _OF_THE_RUN) * lasting))
