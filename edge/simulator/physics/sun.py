"""Where the sun stands over a site, minute by minute, for the simulator's weather."""

from __future__ import annotations

import numpy as np
import sunposition
from numpy.typing import NDArray

__all__ = ["MINUTES_A_DAY", "clear_sky_w_m2", "sine_of_elevation"]

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


def clear_sky_w_m2(sine: NDArray[np.float64]) -> NDArray[np.float64]:
    """Global radiation under a cloudless sky (Kasten and Czeplak 1980, Solar Energy 24:177: 910 sin h - 30)."""
    return np.asarray(np.maximum(910.0 * sine - 30.0, 0.0))
