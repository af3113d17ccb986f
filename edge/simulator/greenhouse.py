"""A simulated greenhouse of several zones: house, climate computer and grower under one weather."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from edge.simulator.control import Controller
from edge.simulator.grower import Grower, Setpoints
from edge.simulator.physics.anatomy import KELVIN, Node
from edge.simulator.physics.house import Actuators, House
from edge.simulator.physics.weather import Outside, Weather
from edge.simulator.zone_config import ZoneConfig, as_arrays
from models.durations import MINUTE_MS

__all__ = ["ZONE_METRICS", "Greenhouse", "simulate", "true_values"]

_Array = NDArray[np.float64]

ZONE_METRICS = (
    "air_temp_c", "rh_pct", "co2_ppm", "par_umol_m2_s", "leaf_temp_c", "soil_temp_c", "vent_lee_pct", "vent_wind_pct",
    "heat_pipe_low_c", "lamp_pct", "screen_energy_pct", "screen_black_pct", "co2_dosing_pct", "sp_heat_c", "sp_vent_c",
    "sp_rh_pct", "sp_co2_ppm", "sp_pipe_min_c", "sp_lamp_pct", "sp_screen_energy_pct", "sp_screen_black_pct",
)  # fmt: skip


class Greenhouse:
    """The true climate of all zones, one minute at a time. Deterministic: the same arguments give the same future,
    however many steps are taken at once.
    """

    def __init__(
        self, zones: Sequence[ZoneConfig], weather: Weather, start_ms: int, *, timezone: str = "UTC", seed: int = 0
    ) -> None:
        self.zones = tuple(zone.name for zone in zones)
        self.now_ms = start_ms
        self.outside: Outside = weather.at(start_ms)
        self.grower = Grower(zones, start_ms, timezone, seed)
        self.house = House(zones, self.outside)
        self._weather = weather
        self.controller = Controller(self.house, as_arrays([zone.control for zone in zones]))
        self._setpoints = self._aim()

    def step(self) -> None:
        """Move on by one minute."""
        actuators = self.controller.step(self._setpoints, self.outside, 1.0)
        self.house.step(self.outside, actuators, 60.0)
        self.now_ms += MINUTE_MS
        self.outside = self._weather.at(self.now_ms)
        self._setpoints = self._aim()

    def advance(self, until_ms: int) -> None:
        """Move on until ``until_ms`` is reached (whole minutes)."""
        while self.now_ms + MINUTE_MS <= until_ms:
            self.step()

    def values(self) -> _Array:
        """What perfect sensors would read now: shape (len(ZONE_METRICS), zones), in that order."""
        return true_values(self.house, self.controller.actuators, self._setpoints)

    def _aim(self) -> Setpoints:
        return self.grower.setpoints(self.now_ms, self.outside.radiation_w_m2, self.outside.temp_c)


def true_values(house: House, act: Actuators, sp: Setpoints) -> _Array:
    """What perfect sensors would read: shape (len(ZONE_METRICS), zones), in that order."""
    x = house.x
    dosing = act.co2_mg_m2_s / house.shell.co2_capacity_mg_m2_s
    return np.array([
        x[Node.AIR] - KELVIN, house.rh_pct, house.co2_ppm, house.par_umol, x[Node.CANOPY] - KELVIN,
        x[Node.SOIL] - KELVIN, 100 * act.vent_lee, 100 * act.vent_wind, x[Node.PIPE] - KELVIN, 100 * act.lamp,
        100 * act.energy, 100 * act.black, 100 * dosing, sp.heat_c, sp.vent_c, sp.rh_pct, sp.co2_ppm,
        sp.pipe_min_c, sp.lamp_pct, sp.screen_energy_pct, sp.screen_black_pct,
    ])  # fmt: skip


def simulate(greenhouse: Greenhouse, until_ms: int, step_ms: int = 300_000) -> Iterator[tuple[int, _Array, Outside]]:
    """(time, :meth:`Greenhouse.values`, weather) at every ``step_ms`` after now, up to ``until_ms`` inclusive.

    Raises ``ValueError`` unless ``step_ms`` is a positive multiple of a minute.
    """
    if step_ms <= 0 or step_ms % MINUTE_MS:
        raise ValueError(f"step_ms {step_ms} is not a positive multiple of {MINUTE_MS}")
    while greenhouse.now_ms + step_ms <= until_ms:
        greenhouse.advance(greenhouse.now_ms + step_ms)
        yield greenhouse.now_ms, greenhouse.values(), greenhouse.outside
