"""Air exchange, stomata and photosynthesis of a simulated greenhouse.

Equations are numbered as in Vanthoor 2011, Biosystems Engineering 110:363 (climate) and, marked "P2", 110:378
(crop), and Katzin 2020, 194:61 ("A..."). Arguments and results are arrays of shape (zones,) or scalars; openings are
0...1. Densities of CO₂ are mg/m³.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LATENT_HEAT_J_KG", "RHO_CP", "co2_mg_m3", "co2_ppm", "leakage_m_s", "photosynthesis_umol", "roof_flow_m_s",
    "screen_flow_m_s", "transpiration_w_m2_pa",
]  # fmt: skip

_Array = NDArray[np.float64]

RHO_CP = 1.2 * 1000.0
"""Density times specific heat of air, J/m³/K."""
LATENT_HEAT_J_KG = 2.45e6
_GRAVITY = 9.81
_CO2_MG_K_M3 = 44.0 / 8.314 * 101_325.0 * 1e-3  # mg/m³ of one ppm, times K


def co2_mg_m3(ppm: _Array | float, temp_c: _Array | float) -> _Array:
    """The density of CO₂ by the ideal gas law.

    >>> round(float(co2_mg_m3(400.0, 20.0)))
    732
    """
    return np.asarray(ppm * _CO2_MG_K_M3 / (np.asarray(temp_c) + 273.15))


def co2_ppm(mg_m3: _Array | float, temp_c: _Array | float) -> _Array:
    """Inverse of :func:`co2_mg_m3`."""
    return np.asarray(mg_m3 * (np.asarray(temp_c) + 273.15) / _CO2_MG_K_M3)


def roof_flow_m_s(
    opening: _Array | float, vent_per_floor: _Array | float, inside_c: _Array | float, outside_c: _Array | float,
    wind_m_s: _Array | float,
) -> _Array:  # fmt: skip
    """Air through the roof vents, m³ a second and m² of floor: buoyancy and wind (eq. 64, one vent 0.68 m high).

    >>> float(roof_flow_m_s(0.0, 0.1, 20.0, 10.0, 3.0))
    0.0
    """
    buoyancy = _GRAVITY * 0.68 * np.abs(inside_c - outside_c) / (inside_c + outside_c + 2 * 273.15)
    return np.asarray(opening * vent_per_floor * 0.75 / 2 * np.sqrt(buoyancy + 0.09 * wind_m_s**2))


def leakage_m_s(leakage: _Array | float, wind_m_s: _Array | float) -> _Array:
    """Air through the closed shell (eq. 70); at least that of 0.25 m/s of wind."""
    least = max(wind_m_s, 0.25) if isinstance(wind_m_s, float) else np.maximum(wind_m_s, 0.25)
    return np.asarray(leakage * least)


def screen_flow_m_s(closed: _Array, permeability: _Array | float, air_k: _Array, top_k: _Array) -> _Array:
    """Air between the rooms below and above a screen (eq. 40 as corrected by De Zwart 1996, A36-A37), m/s.

    Through the fabric with the temperature difference; through the gap by the difference in density.
    """
    rho_air, rho_top = 352.9 / air_k, 352.9 / top_k  # ideal gas at 101.3 kPa
    mean = 0.5 * (rho_air + rho_top)
    gap = 1.0 - closed
    through = closed * permeability * np.abs(air_k - top_k) ** 0.66
    return np.asarray(through + gap * np.sqrt(0.5 * mean * gap * _GRAVITY * np.abs(rho_air - rho_top)) / mean)


def transpiration_w_m2_pa(
    crop: SimpleNamespace, light_w_m2: _Array, co2: _Array, saturation_pa: _Array, vapour_pa: _Array
) -> _Array:
    """Latent heat that the canopy gives off for each Pa between leaf and air (eq. 47-51); ``co2`` in ppm."""
    day = 1.0 / (1.0 + np.exp(np.minimum(5.0 - light_w_m2, 50.0)))
    for_light = (light_w_m2 + 4.3) / (light_w_m2 + 0.54)
    for_co2 = np.minimum(1.0 + (1.1e-11 + 6.1e-7 * day) * (co2 - 200.0) ** 2, 1.5)
    for_vapour = np.minimum(1.0 + (5.2e-6 - 0.9e-6 * day) * (saturation_pa - vapour_pa) ** 2, 5.8)
    stomata = crop.min_stomatal_resistance_s_m * for_light * for_co2 * for_vapour
    return np.asarray(2.0 * RHO_CP * crop.leaf_area_index / (65.8 * (275.0 + stomata)))


def photosynthesis_umol(crop: SimpleNamespace, par_umol: _Array, co2: _Array, leaf_k: _Array) -> _Array:
    """Gross photosynthesis less photorespiration, µmol CO₂ a second and m² of floor (P2 eq. 12-23); ``co2`` in ppm."""
    lai = crop.leaf_area_index
    compensation = 1.7 * ((leaf_k - 273.15) / lai + 20.0 * (1.0 - 1.0 / lai))
    stomata = 0.67 * co2
    warm = np.exp(37e3 * (leaf_k - 298.15) / (8.314 * 298.15 * leaf_k))
    hot = (1.0 + np.exp((710.0 * 298.15 - 22e4) / (8.314 * 298.15))) / (
        1.0 + np.exp((710.0 * leaf_k - 22e4) / (8.314 * leaf_k))
    )
    potential = lai * crop.electron_transport_umol * warm * hot
    light = 0.385 * par_umol
    total = potential + light
    electrons = (total - np.sqrt(total * total - 2.8 * potential * light)) / 1.4
    gross = 0.25 * electrons * (stomata - compensation) / (stomata + 2.0 * compensation)
    return np.asarray(gross * (1.0 - compensation / stomata))
