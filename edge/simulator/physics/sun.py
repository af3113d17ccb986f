"""Where the sun stands over a site, minute by minute, for the simulator's weather."""

from __future__ import annotations

import numpy as np
import sunposition
from numpy.typing import NDArray

__all__ = ["MINUTES_A_DAY", "clear_sky_w_m2", "sine_of_elevation", "sines_of_elevation"]

MINUTES_A_DAY = 1440
_NODE_MINUTES = 15


def sine_of_elevation(day: int, latitude: float, longitude: float) -> NDArray[np.float64]:
    """Sine of the sun's elevation for each minute of a UTC day (days since 1970); negative below the horizon.

    The position (Reda and Andreas 2004, Solar Energy 76:577) is computed every 15 minutes and interpolated, which
    moves the sine by less than 0.0006; the full algorithm each minute would cost more than the greenhouse.

    >>> noon = sine_of_elevation(18_800, 52.0, 0.0)[12 * 60]  # 22 June 2021
    >>> bool(abs(np.degrees(np.arcsin(noon)) - 61.4) < 0.2)
    True
    """
    nodes = np.arange(0, MINUTES_A_DAY + 1, _NODE_MINUTES, dtype=float)
    _, zenith, *_ = sunposition.sunposition(day * 86_400.0 + nodes * 60.0, latitude, longitude, 0.0, jit=False)
    return np.asarray(np.interp(np.arange(MINUTES_A_DAY, dtype=float), nodes, np.cos(np.radians(zenith))))


def sines_of_elevation(
    days: NDArray[np.int64], latitudes: NDArray[np.float64], longitudes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """As :func:`sine_of_elevation` for many places at once, each with its own day: shape (minutes, places).

    By the low-precision formulas of the Astronomical Almanac (Michalsky 1988, Solar Energy 40:227) at a small part
    of the cost; without refraction, which lifts the sun by half a degree at the horizon.

    >>> many = sines_of_elevation(np.array([18_800]), np.array([52.0]), np.array([0.0]))[:, 0]
    >>> one = sine_of_elevation(18_800, 52.0, 0.0)
    >>> bool(np.abs(many - one).max() < 0.01), bool(abs(many[720] - one[720]) < 0.0002)
    (True, True)
    """
    hour = np.arange(MINUTES_A_DAY)[:, None] / 60.0
    n = days - 10_957.5 + hour / 24.0  # days since noon of 1 January 2000
    anomaly = np.radians(357.528 + 0.9856003 * n)
    ecliptic = np.radians(280.460 + 0.9856474 * n + 1.915 * np.sin(anomaly) + 0.020 * np.sin(2 * anomaly))
    tilt = np.radians(23.439 - 4e-7 * n)
    right_ascension = np.arctan2(np.cos(tilt) * np.sin(ecliptic), np.cos(ecliptic))
    declination = np.arcsin(np.sin(tilt) * np.sin(ecliptic))
    sidereal = np.radians((6.697375 + 0.0657098242 * n + hour) * 15.0 + longitudes)
    latitude = np.radians(latitudes)
    across = np.cos(declination) * np.cos(latitude) * np.cos(sidereal - right_ascension)
    return np.asarray(np.sin(declination) * np.sin(latitude) + across)


def clear_sky_w_m2(sine: NDArray[np.float64]) -> NDArray[np.float64]:
    """Global radiation under a cloudless sky (Kasten and Czeplak 1980, Solar Energy 24:177: 910 sin h - 30)."""
    return np.asarray(np.maximum(910.0 * sine - 30.0, 0.0))
