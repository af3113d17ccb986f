"""What a simulated greenhouse is made of: its nodes, how much they hold, and which exchange with which.

Equations and tables are numbered as in Vanthoor 2011, Biosystems Engineering 110:363, and Katzin 2020, 194:61
("A..."). Reduced: two soil layers for five, no fog, pads or side vents.
"""

from __future__ import annotations

from enum import IntEnum
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from edge.simulator.physics.fluxes import LATENT_HEAT_J_KG, RHO_CP

__all__ = [
    "AIR_FLOWS", "CONVECTIVE", "EVAPORATIONS", "FREE", "KELVIN", "LINKS", "PIPE_AREA", "RADIATIVE", "VAPOUR_STORE",
    "Node", "capacities", "steady_conductances", "view_factors",
]  # fmt: skip

_Array = NDArray[np.float64]

KELVIN = 273.15
VAPOUR_STORE = LATENT_HEAT_J_KG * 18.0 / 8314.0
"""Latent heat that a cubic metre of air holds for each Pa of vapour, times its temperature; J K/m³/Pa."""
_SIGMA = 5.67e-8
_PIPE_DIAMETER, _PIPE_LENGTH = 0.051, 1.875
PIPE_AREA = float(np.pi * _PIPE_DIAMETER * _PIPE_LENGTH)
"""Area of the heating pipes, m² for each m² of floor."""
_K_FIR = 0.94
_BELOW = 0.49  # share of a pipe's radiation that goes up, and as much down (table 3)
_EPS_COVER, _EPS_SCREEN, _EPS_PIPE = 0.85, 0.67, 0.88
_ENERGY_TAU_FIR, _BLACK_TAU_FIR = 0.15, 0.7


class Node(IntEnum):
    """Rows of the state: temperatures in K, vapour pressures in Pa, CO₂ in mg/m³; boundaries last."""

    AIR = 0
    TOP = 1
    CANOPY = 2
    COVER_IN = 3
    COVER_OUT = 4
    FLOOR = 5
    SOIL = 6
    SUBSOIL = 7
    PIPE = 8
    ENERGY_SCREEN = 9
    BLACK_SCREEN = 10
    LAMP = 11
    VAPOUR_AIR = 12
    VAPOUR_TOP = 13
    CO2_AIR = 14
    CO2_TOP = 15
    OUTSIDE = 16
    SKY = 17
    DEEP_SOIL = 18
    VAPOUR_OUT = 19
    CO2_OUT = 20


FREE = 16
_N = Node
CONVECTIVE = (  # with a power law of the difference: coefficient |d|^exponent
    (_N.FLOOR, _N.AIR), (_N.AIR, _N.ENERGY_SCREEN), (_N.AIR, _N.BLACK_SCREEN), (_N.ENERGY_SCREEN, _N.TOP),
    (_N.BLACK_SCREEN, _N.TOP), (_N.TOP, _N.COVER_IN), (_N.PIPE, _N.AIR),
)  # fmt: skip
STEADY = (
    (_N.CANOPY, _N.AIR), (_N.COVER_IN, _N.COVER_OUT), (_N.FLOOR, _N.SOIL), (_N.SOIL, _N.SUBSOIL),
    (_N.SUBSOIL, _N.DEEP_SOIL), (_N.LAMP, _N.AIR),
)  # fmt: skip
WINDY = ((_N.COVER_OUT, _N.OUTSIDE),)
AIR_FLOWS = (
    (_N.AIR, _N.TOP), (_N.TOP, _N.OUTSIDE), (_N.AIR, _N.OUTSIDE),
    (_N.VAPOUR_AIR, _N.VAPOUR_TOP), (_N.VAPOUR_TOP, _N.VAPOUR_OUT), (_N.VAPOUR_AIR, _N.VAPOUR_OUT),
    (_N.CO2_AIR, _N.CO2_TOP), (_N.CO2_TOP, _N.CO2_OUT), (_N.CO2_AIR, _N.CO2_OUT),
)  # fmt: skip
RADIATIVE = (
    (_N.CANOPY, _N.COVER_IN), (_N.CANOPY, _N.ENERGY_SCREEN), (_N.CANOPY, _N.BLACK_SCREEN), (_N.CANOPY, _N.FLOOR),
    (_N.PIPE, _N.COVER_IN), (_N.PIPE, _N.ENERGY_SCREEN), (_N.PIPE, _N.BLACK_SCREEN), (_N.PIPE, _N.FLOOR),
    (_N.PIPE, _N.CANOPY), (_N.FLOOR, _N.COVER_IN), (_N.FLOOR, _N.ENERGY_SCREEN), (_N.FLOOR, _N.BLACK_SCREEN),
    (_N.ENERGY_SCREEN, _N.COVER_IN), (_N.BLACK_SCREEN, _N.ENERGY_SCREEN), (_N.BLACK_SCREEN, _N.COVER_IN),
    (_N.LAMP, _N.FLOOR), (_N.LAMP, _N.CANOPY), (_N.LAMP, _N.ENERGY_SCREEN), (_N.LAMP, _N.BLACK_SCREEN),
    (_N.LAMP, _N.COVER_IN), (_N.COVER_OUT, _N.SKY),
)  # fmt: skip
EVAPORATIONS = (
    (_N.CANOPY, _N.VAPOUR_AIR), (_N.ENERGY_SCREEN, _N.VAPOUR_AIR), (_N.BLACK_SCREEN, _N.VAPOUR_AIR),
    (_N.COVER_IN, _N.VAPOUR_TOP),
)  # fmt: skip

LINKS = [(int(i), int(j)) for i, j in (*CONVECTIVE, *STEADY, *WINDY, *AIR_FLOWS, *RADIATIVE)]
"""All links, in the order in which their conductances are stacked."""


def capacities(shell: SimpleNamespace, crop: SimpleNamespace, lamps: SimpleNamespace) -> _Array:
    """J/K (heat), J/Pa (vapour, as latent heat) or m (CO₂) for each m² of floor; shape (FREE, zones)."""
    below, above = shell.below_screens_m, shell.height_m - shell.below_screens_m
    cover = np.cos(np.radians(25.0)) * 4e-3 * 2.6e3 * 840.0  # eq. 18
    steel, water = 7850.0 * 640.0, 1e3 * 4180.0
    capacity = np.ones((FREE, below.size))
    capacity[Node.AIR], capacity[Node.TOP] = below * RHO_CP, above * RHO_CP  # eq. 22
    capacity[Node.CANOPY] = 1.2e3 * crop.leaf_area_index  # eq. 19
    # Eq. 20 stores a tenth of the glass in each skin; with two nodes each holds half.
    capacity[[Node.COVER_IN, Node.COVER_OUT]] = 0.5 * cover
    capacity[Node.FLOOR] = 0.02 * 2300.0 * 880.0
    capacity[Node.SOIL], capacity[Node.SUBSOIL] = 0.12 * 1.73e6, 0.48 * 1.73e6
    capacity[Node.PIPE] = 0.25 * np.pi * _PIPE_LENGTH * ((0.051**2 - 0.047**2) * steel + 0.047**2 * water)  # eq. 21
    capacity[[Node.ENERGY_SCREEN, Node.BLACK_SCREEN]] = 0.35e-3 * 200.0 * 1800.0
    capacity[Node.LAMP] = lamps.heat_capacity_j_m2_k
    capacity[Node.VAPOUR_AIR] = below * VAPOUR_STORE / 293.15  # eq. 24
    capacity[Node.VAPOUR_TOP] = above * VAPOUR_STORE / 288.15
    capacity[Node.CO2_AIR], capacity[Node.CO2_TOP] = below, above
    return capacity


def steady_conductances(shell: SimpleNamespace, crop: SimpleNamespace, lamps: SimpleNamespace) -> _Array:
    """Conductances of the STEADY links (table 4), W/m²/K; shape (links, zones)."""
    ones = np.ones_like(crop.leaf_area_index)
    return np.array([
        2 * 5.0 * crop.leaf_area_index,  # table 4
        1.0 / (4e-3 / 1.05 + shell.insulation_m2_k_w),
        2.0 / (0.02 / 1.7 + 0.12 / 0.85) * ones,
        2.0 * 0.85 / (0.12 + 0.48) * ones,
        2.0 * 0.85 / (0.48 + 1.28) * ones,
        lamps.convection_w_m2_k,  # A29
    ])  # fmt: skip


def view_factors(energy: _Array, black: _Array, crop: SimpleNamespace, lamps: SimpleNamespace) -> _Array:
    """Sigma times area, emissivities and view of each radiating pair (table 3, A1)."""
    gap = np.exp(-_K_FIR * crop.leaf_area_index)
    past_lamps = 1 - lamps.area
    past_energy, past_black = 1 - energy * (1 - _ENERGY_TAU_FIR), 1 - black * (1 - _BLACK_TAU_FIR)
    leaves = 1 - gap
    floor = (1 - _BELOW * PIPE_AREA) * gap
    pipe = PIPE_AREA * _EPS_PIPE * _BELOW
    up, down = lamps.area * lamps.emissivity_top, lamps.area * lamps.emissivity_bottom
    to_cover, to_energy = past_energy * past_black * _EPS_COVER, energy * past_black * _EPS_SCREEN
    to_black = black * _EPS_SCREEN
    leaves_up, pipe_up, floor_up = leaves * past_lamps, pipe * gap * past_lamps, floor * past_lamps
    one = np.ones_like(gap)
    return _SIGMA * np.array([
        leaves_up * to_cover, leaves_up * to_energy, leaves_up * to_black, leaves * (1 - _BELOW * PIPE_AREA),
        pipe_up * to_cover, pipe_up * to_energy, pipe_up * to_black, pipe * one, pipe * leaves,
        floor_up * to_cover, floor_up * to_energy, floor_up * to_black,
        _EPS_SCREEN * energy * _EPS_COVER, black * _EPS_SCREEN * energy * _EPS_SCREEN,
        black * _EPS_SCREEN * past_energy * _EPS_COVER,
        down * floor, down * leaves, up * to_energy, up * to_black, up * to_cover, _EPS_COVER * one,
    ])  # fmt: skip
