"""A simulated site as its sensors see it: zones and weather station, with noise, offsets and resolution.

Step 1 of the way of a reading starts from here: :class:`edge.simulator.simulator_source.SimulatorSource` makes devices
of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge.simulator.greenhouse import ZONE_METRICS, Greenhouse
from edge.simulator.physics.weather import Outside, SyntheticWeather
from edge.simulator.regimes import Regime, change_regime
from edge.simulator.site_plans import SitePlans
from edge.simulator.zone_config import default_zones
from edge.wire.plan import PlanMessage
from edge.wire.topic import SITE_ZONE
from models.durations import DAY_MS, HOUR_MS, MINUTE_MS
from models.psychrometrics import relative_humidity_pct

__all__ = ["STATION_SENSORS", "WEATHER_METRICS", "ZONE_SENSORS", "Sensor", "SimulatedSite"]

_Array = NDArray[np.float64]
_SPIN_UP_MS = 36 * HOUR_MS
_SIGMA = 5.67e-8


@dataclass(frozen=True, slots=True)
class Sensor:
    """``noise`` a reading and a fixed ``offset`` an instrument (standard deviations), ``step`` of its display."""

    noise: float = 0.0
    offset: float = 0.0
    step: float = 0.1
    low: float = -np.inf
    high: float = np.inf


_POSITION = Sensor(step=0.1, low=0.0, high=100.0)
_SETPOINT = Sensor(step=0.1)
_SENSORS = {
    "air_temp_c": Sensor(0.04, 0.12, 0.01),
    "rh_pct": Sensor(0.25, 0.8, 0.1, 1.0, 100.0),
    "co2_ppm": Sensor(3.0, 8.0, 1.0, 150.0, 5000.0),
    "par_umol_m2_s": Sensor(1.0, 0.0, 0.1, 0.0),
    "leaf_temp_c": Sensor(0.1, 0.2, 0.1),
    "soil_temp_c": Sensor(0.03, 0.2, 0.1),
    "heat_pipe_low_c": Sensor(0.1, 0.2, 0.1),
    "sp_co2_ppm": Sensor(step=1.0),
}
"""A CO₂ analyser reads from 150 ppm on; metrics not listed are positions (...pct) or setpoints."""

ZONE_SENSORS = tuple(_SENSORS.get(m, _SETPOINT if m.startswith("sp_") else _POSITION) for m in ZONE_METRICS)

WEATHER_METRICS = (
    "out_temp_c", "out_rh_pct", "out_radiation_w_m2", "out_longwave_net_w_m2", "wind_m_s", "wind_dir_deg", "rain",
    "out_rad_sum_j_cm2",
)  # fmt: skip
STATION_SENSORS = (
    Sensor(0.04, 0.1, 0.1), Sensor(0.4, 1.0, 0.1, 1.0, 100.0), Sensor(1.0, 0.0, 1.0, 0.0), Sensor(1.0, 1.0, 1.0),
    Sensor(0.05, 0.0, 0.1, 0.0), Sensor(4.0, 0.0, 1.0), Sensor(step=1.0), Sensor(step=1.0),
)  # fmt: skip


class SimulatedSite:
    """All measurements of a simulated site. Deterministic by ``seed`` and ``start_ms``.

    The greenhouse runs for a day and a half before ``start_ms``, so that soil and air have settled. ``start_ms`` is
    moved down to a whole minute. Raises ``ValueError`` for a step that is not a positive multiple of a minute, or for
    no zones.
    """

    def __init__(
        self, name: str, seed: int, start_ms: int, zones: int = 3, latitude: float = 52.0, longitude: float = 4.5,
        timezone: str = "Europe/Amsterdam", step_ms: int = MINUTE_MS,
    ) -> None:  # fmt: skip
        if zones < 1:
            raise ValueError(f"a site needs at least one zone, not {zones}")
        if step_ms <= 0 or step_ms % MINUTE_MS:
            raise ValueError(f"step_ms {step_ms} is not a positive multiple of {MINUTE_MS}")
        self.name = name
        self.latitude = latitude
        self.longitude = longitude
        self.timezone = timezone
        self.step_ms = step_ms
        self.start_ms = start_ms - start_ms % MINUTE_MS
        configs = default_zones(zones, seed)
        self.zones = tuple(config.name for config in configs)
        begin_ms = self.start_ms - _SPIN_UP_MS
        weather = SyntheticWeather(seed, begin_ms, latitude, longitude)
        self._greenhouse = Greenhouse(configs, weather, begin_ms, timezone=timezone, seed=seed)
        self._plans = SitePlans(name, self.zones, weather, self._greenhouse.grower, seed, latitude, longitude)
        self._rng = np.random.default_rng([seed, 5])
        self._sum_day, self._sum_j_cm2, self._sum_to_ms = -1, 0.0, begin_ms
        self._zone_panel = _Panel(ZONE_SENSORS, zones, self._rng)
        self._station = _Panel(STATION_SENSORS, 1, self._rng)
        self._run_to(self.start_ms - step_ms)

    def instants(self, to_ms: int) -> Iterator[tuple[int, dict[str, dict[str, float]]]]:
        """``(ts_ms, {zone or "_site": {metric: value}})`` every ``step_ms`` from ``start_ms`` up to ``to_ms``.

        Goes on where the last call stopped; how the time is cut into calls changes nothing.
        """
        while self._greenhouse.now_ms + self.step_ms <= to_ms:
            until = self._greenhouse.now_ms + self.step_ms
            self._run_to(until)
            yield until, self._read(until)

    def plans(self) -> list[PlanMessage]:
        """Weather forecasts and setpoint plans that were issued since the last call, at the newest instant given."""
        return self._plans.issued(self._greenhouse.now_ms)

    def change(self, regime: Regime, like: SimulatedSite | None = None) -> None:
        """Change the greenhouse for good from the next step on, as ``like`` was; see :func:`change_regime`."""
        change_regime(self._greenhouse, regime, None if like is None else like._greenhouse)

    def _run_to(self, until_ms: int) -> None:
        while self._greenhouse.now_ms + MINUTE_MS <= until_ms:
            self._greenhouse.step()
            self._add_sun(self._greenhouse.now_ms, self._greenhouse.outside)

    def _read(self, ts_ms: int) -> dict[str, dict[str, float]]:
        read = self._zone_panel.read(self._greenhouse.values(), self._rng).T.tolist()
        readings = {zone: dict(zip(ZONE_METRICS, row, strict=True)) for zone, row in zip(self.zones, read, strict=True)}
        station = self._station.read(self._outside()[:, None], self._rng)[:, 0].tolist()
        weather = dict(zip(WEATHER_METRICS, station, strict=True))
        weather["wind_dir_deg"] %= 360.0
        readings[SITE_ZONE] = weather
        return readings

    def _outside(self) -> _Array:
        out = self._greenhouse.outside
        air_k, sky_k = out.temp_c + 273.15, out.sky_temp_c + 273.15
        rh = float(relative_humidity_pct(out.vapour_pa, out.temp_c))
        return np.array([
            out.temp_c, rh, out.radiation_w_m2, _SIGMA * (sky_k**4 - air_k**4), out.wind_m_s, out.wind_dir_deg,
            out.rain, self._sum_j_cm2,
        ])  # fmt: skip

    def _add_sun(self, now_ms: int, outside: Outside) -> None:
        """Global radiation since local midnight, as climate computers count it."""
        day = self._greenhouse.grower.local_ms(now_ms) // DAY_MS
        if day != self._sum_day:
            self._sum_day, self._sum_j_cm2 = day, 0.0
        self._sum_j_cm2 += outside.radiation_w_m2 * (now_ms - self._sum_to_ms) / 1000 / 1e4
        self._sum_to_ms = now_ms


class _Panel:
    """Sensors of several metrics in several places; arrays of shape (metrics, places)."""

    def __init__(self, sensors: tuple[Sensor, ...], places: int, rng: np.random.Generator) -> None:
        traits = np.array([[s.noise, s.offset, s.step, s.low, s.high] for s in sensors]).T[:, :, None]
        self._noise, offset, self._step, self._low, self._high = traits
        self._offset = offset * rng.standard_normal((len(sensors), places))

    def read(self, true: _Array, rng: np.random.Generator) -> _Array:
        seen = true + self._offset + self._noise * rng.standard_normal(true.shape)
        # Rounded again in decimals, so that 0.1 · 203 is written 20.3.
        return np.asarray(np.clip(np.round(np.round(seen / self._step) * self._step, 3), self._low, self._high))
