"""How sun and lamp light is shared between cover, air, canopy and floor of a simulated greenhouse.

Equations are numbered as in Vanthoor 2011 part 1 (Biosystems Engineering 110:363) and Katzin 2020 (194:61, "A...").
Every argument and result is an array of shape (zones,).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

__all__ = ["Optics", "layers", "optics_of"]

_Array = NDArray[np.float64]

_ROOF_RHO = 0.13
_ENERGY_TAU, _ENERGY_RHO = 0.6, 0.35
_BLACK_TAU, _BLACK_RHO = 0.01, 0.35
_CANOPY_RHO_PAR, _CANOPY_RHO_NIR = 0.07, 0.35
_FLOOR_RHO_PAR, _FLOOR_RHO_NIR = 0.65, 0.5
_K_PAR, _K_NIR = 0.7, 0.27
_PAR_SHARE = 0.5
_FRAME_SHARE = 0.1
"""Share of global radiation that the construction absorbs and gives to the air (eta_GlobAir)."""


@dataclass(frozen=True, slots=True)
class Optics:
    """Where light ends: shares of outside global radiation (sun) and of lamp power (lamp); PAR above the crop."""

    sun_par_above: _Array
    sun_above: _Array
    sun_par_canopy: _Array
    sun_canopy: _Array
    sun_floor: _Array
    sun_air: _Array
    sun_cover: _Array
    lamp_par_canopy: _Array
    lamp_canopy: _Array
    lamp_floor: _Array
    lamp_air: _Array


def layers(tau1: _Array, up1: _Array, down1: _Array, tau2: _Array, rho2: _Array) -> tuple[_Array, _Array, _Array]:
    """Two layers as one (eq. 16-17): transmission, reflection upwards, reflection downwards; layer 2 is below.

    >>> glass = np.array([0.85]), np.array([0.13]), np.array([0.13])
    >>> [round(float(x[0]), 3) for x in layers(*glass, np.array([1.0]), np.array([0.0]))]
    [0.85, 0.13, 0.13]
    """
    bounce = 1.0 / (1.0 - down1 * rho2)
    return tau1 * tau2 * bounce, up1 + tau1**2 * rho2 * bounce, rho2 + tau2**2 * down1 * bounce


def optics_of(
    energy: _Array, black: _Array, leaf_area: _Array, lamps: SimpleNamespace, cover_transmission: _Array | float = 0.85
) -> Optics:
    """The shares with the energy and the blackout screen closed that far (0...1)."""
    full = np.ones_like(energy)
    cover = layers(
        cover_transmission * full,
        _ROOF_RHO * full,
        _ROOF_RHO * full,
        1 - energy * (1 - _ENERGY_TAU),
        energy * _ENERGY_RHO,
    )
    cover = layers(*cover, 1 - black * (1 - _BLACK_TAU), black * _BLACK_RHO)  # A9-A11
    tau, up, down = layers(*cover, 1 - lamps.area, 0.0 * full)  # A12-A13
    gap_par, gap_nir = np.exp(-_K_PAR * leaf_area), np.exp(-_K_NIR * leaf_area)

    indoors = 1 - _FRAME_SHARE
    sun_par_above = indoors * tau * _PAR_SHARE  # 27, A14
    canopy_par = (1 - _CANOPY_RHO_PAR) * (1 - gap_par) * (1 + gap_par * _FLOOR_RHO_PAR)  # 25, 26, 28
    floor_par = (1 - _FLOOR_RHO_PAR) * gap_par  # 34
    # Near infrared bounces between floor, canopy and cover (30-33); the cover's own transmission stands where
    # Vanthoor has one less its reflection, so that a closed blackout screen keeps it out.
    canopy_tau, canopy_rho = gap_nir, _CANOPY_RHO_NIR * (1 - gap_nir)
    floor_nir, back, _ = layers(canopy_tau, canopy_rho, canopy_rho, (1 - _FLOOR_RHO_NIR) * full, _FLOOR_RHO_NIR * full)
    entered = tau / (1 - down * back)
    canopy_nir, floor_nir = (1 - floor_nir - back) * entered, floor_nir * entered
    sun_nir = 1 - _PAR_SHARE
    lamp_nir = lamps.nir_share
    lamp_par_canopy = lamps.par_share * canopy_par  # A17-A19
    lamp_canopy = lamp_par_canopy + lamp_nir * (1 - _CANOPY_RHO_NIR) * (1 - gap_nir)  # A20
    lamp_floor = lamps.par_share * floor_par + lamp_nir * (1 - _FLOOR_RHO_NIR) * gap_nir  # A21-A22
    return Optics(
        sun_par_above=sun_par_above,
        sun_above=indoors * tau,
        sun_par_canopy=sun_par_above * canopy_par,
        sun_canopy=sun_par_above * canopy_par + indoors * canopy_nir * sun_nir,
        sun_floor=sun_par_above * floor_par + indoors * floor_nir * sun_nir,
        sun_air=_FRAME_SHARE * (tau * _PAR_SHARE + (canopy_nir + floor_nir) * sun_nir),  # 35
        sun_cover=1 - tau - up,  # 36
        lamp_par_canopy=lamp_par_canopy,
        lamp_canopy=lamp_canopy,
        lamp_floor=lamp_floor,
        lamp_air=lamps.par_share + lamp_nir - lamp_canopy - lamp_floor,  # A23
    )
