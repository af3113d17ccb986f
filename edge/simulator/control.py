"""The climate computer of simulated zones: proportional control of vents, heating, screens, lamps and CO₂."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.simulator.grower import Setpoints
from edge.simulator.physics.anatomy import KELVIN, Node
from edge.simulator.physics.house import Actuators, House
from edge.simulator.physics.weather import Outside
from edge.simulator.zone_config import Control, as_arrays

__all__ = ["Controller"]

_Array = NDArray[np.float64]

_IDLE_WITHIN = np.array([[0.015], [0.015], [0.05], [0.05]])  # vents, screens
_LEE_LIMIT = 0.15  # the lee vents open so far in any weather


class Controller:
    """Turns setpoints and what the sensors say into actuator positions, each within its speed.

    ``control`` are the zones' :class:`~edge.simulator.zone_config.Control` as arrays; without it, the usual one.
    """

    def __init__(self, house: House, control: SimpleNamespace | None = None) -> None:
        self.has_screens = self.lee_vents_move = True
        self._house = house
        self._heating = house.shell.heating_w_m2
        self._co2 = house.shell.co2_capacity_mg_m2_s
        self._control = control = control or as_arrays([Control()])
        storms = np.unique(control.storm_m_s).tolist()
        self._storm_m_s = storms[0] if len(storms) == 1 else None
        vents, screens = control.vent_stroke_a_min, control.screen_stroke_a_min
        self._strokes_a_min = np.array([vents, vents, screens, screens])
        self.actuators = Actuators.off(self._heating.size)

    def step(self, sp: Setpoints, outside: Outside, minutes: float) -> Actuators:
        """The positions after ``minutes`` (1 or less) of control; the same object each time."""
        act, air, rh, how = self.actuators, self._house.air_c, self._house.rh_pct, self._control
        wet = rh - sp.rh_pct

        # Heat: a pipe temperature from the loss to outside and the lack of air temperature, not below the minimum
        # pipe; too humid air adds pipe, so that the vents can let vapour out.
        lack = sp.heat_c - air
        loss = np.maximum(how.pipe_per_loss * (sp.heat_c - outside.temp_c), 0.0)
        target = air + loss * (lack > -0.6) + how.pipe_per_k * lack
        target = np.maximum(target, np.where(wet > 0, np.minimum(sp.pipe_min_c + wet, 40.0), sp.pipe_min_c))
        pipe = self._house.x[Node.PIPE] - KELVIN
        act.heat_w_m2 = _limit(how.valve_w_m2_k * (np.minimum(target, how.pipe_max_c) - pipe), 0.0, self._heating)

        # Vents: the band is wider when it is cold or windy outside, as the same opening then does more.
        band = how.vent_band_c + 0.25 * np.maximum(air - outside.temp_c, 0.0) + 0.4 * outside.wind_m_s
        for_heat = _limit((air - sp.vent_c) / band, 0.0, 1.0)
        warm = _limit((air - sp.heat_c + 1.5) / 1.5, 0.0, 1.0)
        for_humidity = _limit(wet / how.vent_band_rh, 0.0, how.humid_vent_max) * warm
        want = np.maximum(for_heat, for_humidity)
        limit, lee_limit = self._vent_limits(outside)
        lee = np.maximum(np.minimum(1.6 * want, lee_limit), sp.vent_min_pct / 100.0)
        # The windward side opens once the lee side is well open.
        windward = _limit(2.0 * (want - 0.3), 0.0, limit)

        # Screens: a gap lets vapour pass; vents with a screen closed open it.
        gap = _limit(wet / 10.0, 0.0, 0.12) + _limit(air - sp.vent_c, 0.0, 1.0) * 0.4
        energy = np.maximum(sp.screen_energy_pct / 100.0 - gap, 0.0)
        black = np.maximum(sp.screen_black_pct / 100.0 - gap, 0.0)
        if not self.has_screens:
            energy, black = np.zeros_like(energy), np.zeros_like(black)
        if not self.lee_vents_move:
            lee = act.vent_lee
        now = np.array([act.vent_lee, act.vent_wind, act.energy, act.black])
        act.vent_lee, act.vent_wind, act.energy, act.black = _move(
            now, np.array([lee, windward, energy, black]), self._strokes_a_min * minutes
        )

        act.lamp = sp.lamp_pct / 100.0
        # CO₂: less of it while the vents let it out.
        saving = _limit(1.0 - 1.5 * (act.vent_lee + act.vent_wind), 0.15, 1.0)
        act.co2_mg_m2_s = self._co2 * _limit((sp.co2_ppm - self._house.co2_ppm) / how.co2_band_ppm, 0.0, 1.0) * saving
        return act

    def _vent_limits(self, outside: Outside) -> tuple[Any, Any]:
        """How far the weather lets vents open, windward and lee; plain numbers where it is one for all."""
        if not isinstance(outside.wind_m_s, float) or self._storm_m_s is None:
            limits = np.where(outside.wind_m_s > self._control.storm_m_s, 0.0, np.where(outside.rain, 0.3, 1.0))
            return limits, np.maximum(limits, _LEE_LIMIT)
        limit = 0.0 if outside.wind_m_s > self._storm_m_s else 0.3 if outside.rain else 1.0
        return limit, max(limit, _LEE_LIMIT)


def _limit(value: _Array, low: float, high: _Array | float) -> _Array:
    """``np.clip`` for short arrays, where its overhead would be most of the cost."""
    return np.asarray(np.minimum(np.maximum(value, low), high))


def _move(position: _Array, target: _Array, stroke: _Array) -> _Array:
    """Towards the target by at most a stroke; a motor does not run for a trifle."""
    away = target - position
    idle = (np.abs(away) < _IDLE_WITHIN) & (target > 0) & (target < 0.98)
    return np.asarray(np.where(idle, position, position + np.minimum(np.maximum(away, -stroke), stroke)))
