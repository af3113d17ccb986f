"""Step 1 of the way of a reading: what a simulated site publishes of its future: weather forecasts, its grower's plan.

The grower plans two days at local midnight, by the recipes and the weather forecast. Of the changes that the coming
days bring, the plan knows four of five; the others break it.
"""

from __future__ import annotations

from collections.abc import Sequence

from edge.simulator.grower import Grower, Setpoints
from edge.simulator.physics.weather import Weather
from edge.simulator.weather_forecasts import AHEAD_H, SimulatedForecasts, run_of
from edge.wire.plan import Path, PlanMessage
from edge.wire.topic import SITE_ZONE
from models.durations import DAY_MS, HOUR_MS

__all__ = ["GROWER", "SERVICE", "SitePlans"]

SERVICE, GROWER = "weather-service", "grower"
"""The devices, and the sources, of the two kinds of plans."""

_STEP_MS = HOUR_MS // 2
_FIELDS = {
    "sp_heat_c": "heat_c", "sp_vent_c": "vent_c", "sp_rh_pct": "rh_pct", "sp_co2_ppm": "co2_ppm",
    "sp_pipe_min_c": "pipe_min_c", "sp_lamp_pct": "lamp_pct", "sp_screen_energy_pct": "screen_energy_pct",
    "sp_screen_black_pct": "screen_black_pct",
}  # fmt: skip


class SitePlans:
    """Plans of a site's future as of now. It is asked with times that rise, and changes nothing of what it looks at."""

    def __init__(
        self, site: str, zones: Sequence[str], weather: Weather, grower: Grower, seed: int, latitude: float,
        longitude: float,
    ) -> None:  # fmt: skip
        self._site, self._zones, self._grower = site, zones, grower
        self._forecasts = SimulatedForecasts(weather, seed, latitude, longitude)
        self._run: int | None = None
        self._day: int | None = None

    def issued(self, now_ms: int) -> list[PlanMessage]:
        """What was issued since the last call; the first one gives all that there is."""
        plans = []
        if run_of(now_ms) != self._run:
            self._run = run_of(now_ms)
            values = self._forecasts.values(now_ms)
            plans.append(PlanMessage(self._site, SITE_ZONE, SERVICE, "weather", now_ms, values))
        day = self._grower.local_ms(now_ms) // DAY_MS
        if day != self._day:
            self._day = day
            plans += self._setpoint_plans(now_ms)
        return plans

    def _setpoint_plans(self, now_ms: int) -> list[PlanMessage]:
        begin_ms = now_ms // _STEP_MS * _STEP_MS
        times = [now_ms, *range(begin_ms + _STEP_MS, begin_ms + (AHEAD_H - 1) * HOUR_MS + 1, _STEP_MS)]
        weather = self._forecasts.values(now_ms)
        light, outside = dict(weather["out_radiation_w_m2"]), dict(weather["out_temp_c"])
        hours = sorted(light)

        def at(ts_ms: int) -> tuple[float, float]:
            nearest = min(hours, key=lambda hour: abs(hour - ts_ms))
            return light[nearest], outside[nearest]

        planned = self._grower.foresee(times, at)
        return [
            PlanMessage(self._site, zone, GROWER, "setpoint", now_ms, _paths(times, planned, z))
            for z, zone in enumerate(self._zones)
        ]


def _paths(times: Sequence[int], planned: Sequence[Setpoints], zone: int) -> dict[str, Path]:
    """Of a zone; a value that stays as it was is left out."""
    paths: dict[str, Path] = {}
    for metric, field in _FIELDS.items():
        path = paths[metric] = []
        for at, setpoints in zip(times, planned, strict=True):
            value = round(float(getattr(setpoints, field)[zone]), 1)
            if not path or path[-1][1] != value or at == times[-1]:
                path.append((at, value))
    return paths
