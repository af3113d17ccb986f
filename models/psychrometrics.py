"""Vapour pressure, vapour-pressure deficit, dew point and absolute humidity of moist air.

Formulas: R. G. Allen and others, *Crop evapotranspiration*, FAO Irrigation and Drainage Paper 56 (1998), equation 11
(saturation, after Tetens 1930; the dew point is its exact inverse); the ideal gas law with the specific gas constant
of water vapour, 461.5 J/kg/K, for absolute humidity. Every function takes scalars or arrays, works
element by element, keeps float32, and answers NaN where an argument is NaN; none raises, nor warns at temperatures that
air has (near and below absolute zero they do).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "DERIVED",
    "absolute_humidity_g_m3",
    "dew_point_c",
    "relative_humidity_pct",
    "saturation_vapour_pressure_pa",
    "vapour_pressure_pa",
    "vpd_kpa",
]

_GAS_CONSTANT_J_KG_K = 461.5
_FREEZING_K = 273.15
_COLDEST_C = -100.0
"""The formula has a pole at -237.3 °C; colder air than this counts as this."""
_DRIEST_PCT = 0.1
"""Humidities below this count as this where a logarithm is taken: the dew point of perfectly dry air does not exist."""

_Array = npt.NDArray[Any]


def saturation_vapour_pressure_pa(temp_c: npt.ArrayLike) -> _Array:
    """The vapour pressure over water at saturation, in Pa.

    >>> round(float(saturation_vapour_pressure_pa(20.0)))
    2338
    """
    temp = np.maximum(temp_c, _COLDEST_C)
    return np.asarray(610.8 * np.exp(17.27 * temp / (temp + 237.3)))


def vapour_pressure_pa(temp_c: npt.ArrayLike, rh_pct: npt.ArrayLike) -> _Array:
    """The vapour pressure of air of that temperature and relative humidity, in Pa.

    >>> round(float(vapour_pressure_pa(20.0, 50.0)))
    1169
    """
    return np.asarray(saturation_vapour_pressure_pa(temp_c) * np.asarray(rh_pct) / 100)


def vpd_kpa(temp_c: npt.ArrayLike, rh_pct: npt.ArrayLike) -> _Array:
    """How much vapour pressure the air lacks to saturation, in kPa; never negative.

    >>> round(float(vpd_kpa(20.0, 50.0)), 2), float(vpd_kpa(20.0, 100.0))
    (1.17, 0.0)
    """
    lack = 1 - np.asarray(rh_pct) / 100
    return np.asarray(np.maximum(saturation_vapour_pressure_pa(temp_c) * lack / 1000, 0))


def relative_humidity_pct(vapour_pressure_pa: npt.ArrayLike, temp_c: npt.ArrayLike) -> _Array:
    """The relative humidity at that vapour pressure and temperature, in %; above 100 in supersaturated air.

    >>> round(float(relative_humidity_pct(1169.0, 20.0)))
    50
    """
    return np.asarray(100 * np.asarray(vapour_pressure_pa) / saturation_vapour_pressure_pa(temp_c))


def dew_point_c(temp_c: npt.ArrayLike, rh_pct: npt.ArrayLike) -> _Array:
    """The temperature at which the air's vapour would condense, in °C.

    >>> round(float(dew_point_c(20.0, 50.0)), 1), round(float(dew_point_c(20.0, 100.0)), 6)
    (9.3, 20.0)
    """
    moist = np.maximum(np.asarray(rh_pct), _DRIEST_PCT)
    temp = np.asarray(temp_c)
    log = np.log(moist / 100) + 17.27 * temp / (temp + 237.3)
    return np.asarray(237.3 * log / (17.27 - log))


def absolute_humidity_g_m3(temp_c: npt.ArrayLike, rh_pct: npt.ArrayLike) -> _Array:
    """The water vapour in a cubic metre of air, in g/m³.

    >>> round(float(absolute_humidity_g_m3(20.0, 50.0)), 2)
    8.64
    """
    kelvin = np.asarray(temp_c) + _FREEZING_K
    return np.asarray(1000 * vapour_pressure_pa(temp_c, rh_pct) / (_GAS_CONSTANT_J_KG_K * kelvin))


DERIVED: Mapping[str, Callable[[npt.ArrayLike, npt.ArrayLike], _Array]] = {
    "vpd_kpa": vpd_kpa,
    "dew_point_c": dew_point_c,
}
"""Metrics that are computed of air temperature (°C) and relative humidity (%), where no sensor tells them."""
