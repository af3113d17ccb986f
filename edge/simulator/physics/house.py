"""The climate inside simulated zones: a reduced Vanthoor 2011 with the lamps and blackout screen of Katzin 2020.

Equations are numbered as in Vanthoor 2011, Biosystems Engineering 110:363, and Katzin 2020, 194:61 ("A...").
Reduced: a crop of constant leaf area without fruit or buffer; for the rest see :mod:`edge.simulator.physics.anatomy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.simulator.physics import fluxes
from edge.simulator.physics.anatomy import (
    CONVECTIVE,
    EVAPORATIONS,
    FREE,
    KELVIN,
    LINKS,
    PIPE_AREA,
    RADIATIVE,
    VAPOUR_STORE,
    Node,
    capacities,
    steady_conductances,
    view_factors,
)
from edge.simulator.physics.exchange_network import ExchangeNetwork
from edge.simulator.physics.optics import optics_of
from edge.simulator.physics.weather import Outside
from edge.simulator.zone_config import ZoneConfig, as_arrays
from models.psychrometrics import saturation_vapour_pressure_pa

__all__ = ["Actuators", "House"]

_Array = NDArray[np.float64]

_CONDENSATION = 6.4e-9 * fluxes.LATENT_HEAT_J_KG  # eq. 42, as latent heat
_SCREEN_PERMEABILITY = np.array([[0.05e-3], [0.04e-3]])  # energy and blackout screen
_UMOL_PER_J_SUN = 4.6
_MG_PER_UMOL = 0.044
_RADIATIVE_FROM = [int(i) for i, _ in RADIATIVE]
_RADIATIVE_TO = [int(j) for _, j in RADIATIVE]
_SURFACES = [int(i) for i, _ in EVAPORATIONS]
_VAPOURS = [int(j) for _, j in EVAPORATIONS]
_ONTO_SURFACES = [1, 2, 5]  # the convective links by which air reaches the surfaces that condense


@dataclass(slots=True)
class Actuators:
    """Positions 0...1 (closed 0, open 1 for vents; open 0, closed 1 for screens) and supplies; shape (zones,)."""

    vent_lee: _Array
    vent_wind: _Array
    energy: _Array
    black: _Array
    lamp: _Array
    heat_w_m2: _Array
    co2_mg_m2_s: _Array

    @classmethod
    def off(cls, zones: int) -> Actuators:
        """Everything closed, open or off."""
        return cls(*(np.zeros(zones) for _ in range(7)))


@dataclass(frozen=True, slots=True)
class _Light:
    """What light and longwave do with the screens where they are; sun for each W/m² outside, lamps for each W/m².

    ``*_gains`` (FREE, zones): what each node absorbs. ``*_seen`` (3, zones): µmol absorbed by the canopy, µmol above
    it, W above it. ``views`` (radiative links, zones).
    """

    screens: _Array
    sun_gains: _Array
    lamp_gains: _Array
    sun_seen: _Array
    lamp_seen: _Array
    views: _Array


class House:
    """The state of all zones; :meth:`step` moves it on. ``x`` has shape (nodes, zones): see :class:`Node`.

    The weather is one for all zones, or each zone's own: fields of :class:`Outside` of shape (zones,).
    """

    def __init__(
        self, zones: Sequence[ZoneConfig], outside: Outside, inside_c: float = 17.0,
        network: type[ExchangeNetwork] = ExchangeNetwork,
    ) -> None:  # fmt: skip
        count = len(zones)
        self.crop = as_arrays([zone.crop for zone in zones])
        self.lamps = as_arrays([zone.lamps for zone in zones])
        self.shell = as_arrays([zone.shell for zone in zones])
        x = np.full((len(Node), count), inside_c + KELVIN)
        x[Node.SUBSOIL] = 0.5 * (inside_c + outside.deep_soil_c) + KELVIN
        x[[Node.COVER_IN, Node.COVER_OUT, Node.TOP]] = 0.5 * (inside_c + outside.temp_c) + KELVIN
        x[[Node.VAPOUR_AIR, Node.VAPOUR_TOP]] = np.minimum(outside.vapour_pa * 1.2, 1400.0)
        x[[Node.CO2_AIR, Node.CO2_TOP]] = fluxes.co2_mg_m3(outside.co2_ppm, inside_c)
        self.x = x
        self.capacity = capacities(self.shell, self.crop, self.lamps)
        self._network = network(len(Node), FREE, LINKS, EVAPORATIONS)
        self._steady = steady_conductances(self.shell, self.crop, self.lamps)
        self._share_below = self.shell.below_screens_m / self.shell.height_m
        self._light = self._light_with(np.zeros((2, count)))
        self.par_umol = np.zeros(count)

    def replant(self, leaf_area: float) -> None:
        """From now on each zone's crop has this share of its leaf area."""
        self.crop.leaf_area_index = self.crop.leaf_area_index * leaf_area
        self.capacity = capacities(self.shell, self.crop, self.lamps)
        self._steady = steady_conductances(self.shell, self.crop, self.lamps)
        self._light = self._light_with(self._light.screens)

    @property
    def air_c(self) -> _Array:
        """Air temperature below the screens, °C."""
        return np.asarray(self.x[Node.AIR] - KELVIN)

    @property
    def rh_pct(self) -> _Array:
        """Relative humidity below the screens, %."""
        return np.asarray(100.0 * self.x[Node.VAPOUR_AIR] / saturation_vapour_pressure_pa(self.air_c))

    @property
    def co2_ppm(self) -> _Array:
        """CO₂ below the screens, ppm."""
        return fluxes.co2_ppm(self.x[Node.CO2_AIR], self.air_c)

    def step(self, outside: Outside, actuators: Actuators, seconds: float) -> None:
        """Move on by ``seconds`` (60 or less keeps the frozen coefficients honest) under the given weather."""
        x = self.x
        x[Node.OUTSIDE], x[Node.SKY] = outside.temp_c + KELVIN, outside.sky_temp_c + KELVIN
        x[Node.DEEP_SOIL], x[Node.VAPOUR_OUT] = outside.deep_soil_c + KELVIN, outside.vapour_pa
        x[Node.CO2_OUT] = fluxes.co2_mg_m3(outside.co2_ppm, outside.temp_c)
        screens = np.array([actuators.energy, actuators.black])
        if not (self._light.screens == screens).all():
            self._light = self._light_with(screens)
        light = self._light

        difference = self._network.differences(x)
        celsius = x[_SURFACES] - KELVIN
        saturation = saturation_vapour_pressure_pa(celsius)
        slope = 4098.0 * saturation / (celsius + 237.3) ** 2  # FAO-56 eq. 13
        convective = self._convective(difference[: len(CONVECTIVE)], screens)
        wind = self.shell.cover_per_floor * (2.8 + 1.2 * outside.wind_m_s)
        conductance = np.concatenate((
            convective, self._steady, wind[None], self._air_flows(outside, actuators, screens),
            self._radiative(light.views),
        ))  # fmt: skip

        lamp_w, sun_w = self.lamps.power_w_m2 * actuators.lamp, outside.radiation_w_m2
        par_canopy, self.par_umol, above = sun_w * light.sun_seen + lamp_w * light.lamp_seen
        co2 = self.co2_ppm
        leaf = fluxes.transpiration_w_m2_pa(self.crop, above, co2, saturation[0], x[Node.VAPOUR_AIR])
        # Condensation only (eq. 42-43): a surface drier than the air's dew point gives nothing back.
        drier = np.minimum(0.1 * (saturation[1:] - x[_VAPOURS[1:]]), 50.0)
        condensing = _CONDENSATION * convective[_ONTO_SURFACES] / (1.0 + np.exp(drier))
        evaporation = np.concatenate((leaf[None], condensing))

        gains = sun_w * light.sun_gains + lamp_w * light.lamp_gains
        gains[Node.PIPE] = actuators.heat_w_m2
        gains[Node.CO2_AIR] = actuators.co2_mg_m2_s - _MG_PER_UMOL * self._assimilation(par_canopy, co2)
        x[:FREE] += self._network.step(
            x, difference, conductance, evaporation, saturation, slope, gains, self.capacity / seconds
        )

    def _assimilation(self, par_umol: _Array, co2: _Array) -> _Array:
        """Photosynthesis less maintenance, with Q10 = 2 (part 2, eq. 45), µmol a second and m² of floor."""
        leaf_k = self.x[Node.CANOPY]
        at_25_c = self.crop.respiration_mg_m2_s / _MG_PER_UMOL * self.crop.leaf_area_index
        respiration = at_25_c * 2.0 ** ((leaf_k - 298.15) / 10.0)
        return np.asarray(fluxes.photosynthesis_umol(self.crop, par_umol, co2, leaf_k) - respiration)

    def _convective(self, difference: _Array, screens: _Array) -> _Array:
        """Conductances of the CONVECTIVE links (table 4: free convection), W/m²/K."""
        size = np.abs(difference)
        third = np.cbrt(size)
        # A folded screen still hangs in the air as a narrow parcel.
        fabric = 1.7 * np.maximum(screens, 0.02)
        conductance = np.empty_like(size)
        conductance[0] = np.where(difference[0] > 0, 1.7 * third[0], 1.3 * np.sqrt(np.sqrt(size[0])))
        conductance[1:3] = fabric * third[1:3]
        conductance[3:5] = fabric * third[3:5]
        conductance[5] = 1.86 * self.shell.cover_per_floor * third[5]
        conductance[6] = 1.99 * PIPE_AREA * size[6] ** 0.32
        return conductance

    def _air_flows(self, outside: Outside, actuators: Actuators, screens: _Array) -> _Array:
        """Conductances of the AIR_FLOWS links: heat, vapour (as latent heat) and CO₂ that air carries through screens
        and shell.
        """
        air, top = self.x[Node.AIR], self.x[Node.TOP]
        through = fluxes.screen_flow_m_s(screens, _SCREEN_PERMEABILITY, air, top)
        opening = 0.5 * (actuators.vent_lee + actuators.vent_wind)
        leak = 0.5 * fluxes.leakage_m_s(self.shell.leakage, outside.wind_m_s)  # eq. 71-72: half above, half below
        vents = fluxes.roof_flow_m_s(
            opening, self.shell.roof_vent_per_floor, air - KELVIN, outside.temp_c, outside.wind_m_s
        )
        # With the screens open there is one room: the vents then draw on all of it, not only on the air above.
        below = self._share_below * (1.0 - np.maximum(screens[0], screens[1])) * vents
        flow = np.array([np.minimum(through[0], through[1]), leak + vents - below, leak + below])  # A38
        return np.concatenate((fluxes.RHO_CP * flow, VAPOUR_STORE / air * flow, flow))

    def _radiative(self, views: _Array) -> _Array:
        """Conductances of the RADIATIVE links: longwave as an exact secant, sigma F (a⁴ - b⁴) over (a - b) (eq. 37)."""
        a, b = self.x[_RADIATIVE_FROM], self.x[_RADIATIVE_TO]
        return np.asarray(views * ((a * a + b * b) * (a + b)))

    def _light_with(self, screens: _Array) -> _Light:
        """Depends on the screens' positions only, which stand still most of the time."""
        lamps = self.lamps
        optics = optics_of(screens[0], screens[1], self.crop.leaf_area_index, lamps, self.shell.cover_transmission)
        sun, lamp = np.zeros((FREE, screens.shape[1])), np.zeros((FREE, screens.shape[1]))
        sun[Node.CANOPY], lamp[Node.CANOPY] = optics.sun_canopy, optics.lamp_canopy
        sun[Node.FLOOR], lamp[Node.FLOOR] = optics.sun_floor, optics.lamp_floor
        sun[Node.AIR], lamp[Node.AIR] = optics.sun_air, optics.lamp_air
        sun[Node.COVER_OUT] = optics.sun_cover
        radiant = lamps.par_share + lamps.nir_share
        lamp[Node.LAMP] = 1.0 - radiant - lamps.cooled_share
        return _Light(
            screens,
            sun,
            lamp,
            np.array(
                [_UMOL_PER_J_SUN * optics.sun_par_canopy, _UMOL_PER_J_SUN * optics.sun_par_above, optics.sun_above]
            ),
            np.array([lamps.umol_per_j * optics.lamp_par_canopy, lamps.umol_per_j * lamps.par_share, radiant]),
            view_factors(screens[0], screens[1], self.crop, lamps),
        )
