"""A fleet of simulated sites, simulated together: each column of one house is a zone under the weather of its site."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edge.simulator.control import Controller
from edge.simulator.fleet.draws import SiteDraw, chance
from edge.simulator.fleet.edits import HOW, SetpointEdit
from edge.simulator.fleet.fleet_recording import PLAN_METRICS, FleetRecording
from edge.simulator.fleet.growers import PLAN_BINS, PLAN_EVERY_MIN, Growers
from edge.simulator.fleet.row_sensors import FLEET_METRICS, humidity_deficit_g_m3, sense_station, sense_zone
from edge.simulator.fleet.site_forecasts import FORECAST_HOURS, FORECAST_METRICS, SiteForecasts
from edge.simulator.fleet.station import StationRows
from edge.simulator.fleet.weather_changes import WeatherChange, change_weather
from edge.simulator.fleet.weathers import SiteWeathers
from edge.simulator.greenhouse import ZONE_METRICS, true_values
from edge.simulator.physics.house import House
from edge.simulator.physics.weather import Outside
from edge.simulator.physics.wide_network import WideNetwork
from edge.simulator.weather_forecasts import KNOWN_AFTER_H, RUN_HOURS
from edge.simulator.zone_config import as_arrays
from models.durations import MINUTE_MS

__all__ = ["simulate_fleet"]

_Array = NDArray[np.float64]
F32 = NDArray[np.float32]
I64 = NDArray[np.int64]

_DAY_MIN = 1440
_SPIN_UP_DAYS = 1
_AHEAD_DAYS = 3  # of the weather, which forecasts look into
_FEWEST = 8  # zones; of fewer, sums are added up in another order
_PART = 50


def simulate_fleet(
    sites: Sequence[SiteDraw], days: int, step_s: int = 300,
    changes: Mapping[tuple[int, int], Sequence[SetpointEdit]] | None = None,
    told: Callable[[int], None] | None = None, weather_changes: Mapping[int, Sequence[WeatherChange]] | None = None,
) -> FleetRecording:  # fmt: skip
    """``days`` of each site from its start on, as rows of ``step_s``, after one day in which house and soil settle.

    Bit for bit the same for a site, whichever others are simulated with it. ``changes`` are further changes of the
    setpoints of zones, named by their site's place in ``sites`` and their number in it: the counterfactual run of the
    same house under the same weather, with the same edits and sensors. ``weather_changes`` are those of the weather, by
    the site's place. The same site may be given twice. ``told`` is called after each day with the number of days
    done. Raises ``ValueError`` unless a step is whole minutes that make up half-hours.
    """
    if step_s <= 0 or step_s % 60 or 1800 % step_s:
        raise ValueError(f"step_s {step_s} must be whole minutes, and make up half an hour")
    if not sites or days < 1:
        raise ValueError(f"{len(sites)} sites for {days} days: at least one of each is needed")
    return _Fleet(sites, days, step_s // 60, changes or {}, weather_changes or {}).run(told)


class _Fleet:
    def __init__(
        self, sites: Sequence[SiteDraw], days: int, every_min: int,
        changes: Mapping[tuple[int, int], Sequence[SetpointEdit]],
        weather_changes: Mapping[int, Sequence[WeatherChange]],
    ) -> None:  # fmt: skip
        self._asked = len(sites)
        count = sum(len(site.zones) for site in sites)
        self._sites = sites = [*sites, *[sites[-1]] * max(_FEWEST - count, 0)]
        self._days, self._every = days, every_min
        self._zones = [(s, z) for s, site in enumerate(sites) for z in range(len(site.zones))]
        numbers = {zone: number for number, zone in enumerate(self._zones)}
        unknown = [zone for zone in changes if zone not in numbers]
        if unknown:
            raise ValueError(f"there is no zone {unknown[0][1]} in site {unknown[0][0]} to be changed")
        nowhere = [site for site in weather_changes if not 0 <= site < self._asked]
        if nowhere:
            raise ValueError(f"there is no site {nowhere[0]} of which the weather could be changed")
        self._weather_changes, self._weather_day = weather_changes, -_SPIN_UP_DAYS
        self._of_site = np.array([s for s, _ in self._zones])
        minutes = days * _DAY_MIN
        self._growers = Growers(sites, minutes, {numbers[zone]: edits for zone, edits in changes.items()})
        self._forecasts = SiteForecasts(sites)
        self._weathers = SiteWeathers(sites, -_SPIN_UP_DAYS)
        self._ahead = [self._next_weather() for _ in range(_AHEAD_DAYS + 1)]  # of today and the coming days
        outside = self._outside(0)
        configs = [sites[s].zones[z].config for s, z in self._zones]
        self._house = House(configs, outside, network=WideNetwork)
        self._controller = Controller(self._house, as_arrays([config.control for config in configs]))
        start = -_SPIN_UP_DAYS * _DAY_MIN
        self._setpoints = self._growers.setpoints(start, outside.radiation_w_m2, outside.temp_c)
        self._values = np.empty((len(self._zones), minutes // every_min, len(ZONE_METRICS)), np.float32)
        self._sum = np.zeros((len(ZONE_METRICS), len(self._zones)))
        self._station = StationRows([site.utc_offset_h for site in sites], every_min)
        self._runs: list[tuple[int, _Array, NDArray[np.bool_]]] = []
        self._plans: list[tuple[I64, _Array]] = []

    def run(self, told: Callable[[int], None] | None) -> FleetRecording:
        weather = []
        for day in range(-_SPIN_UP_DAYS, self._days):
            self._simulate(day)
            rows = self._station.rows(self._ahead[0], self._ahead[1])
            if day >= 0:
                weather.append(rows)
                if told:
                    told(day + 1)
            self._ahead = [*self._ahead[1:], self._next_weather()]
        return self._recording(np.concatenate(weather, dtype=np.float32))

    def _next_weather(self) -> _Array:
        self._weather_day += 1
        return change_weather(self._weathers.next_day(), self._weather_day - 1, self._weather_changes)

    def _outside(self, minute: int) -> Outside:
        """The zones' weather at a minute of today, or at tomorrow's first."""
        day, rest = divmod(minute, _DAY_MIN)
        return Outside(*self._ahead[day][rest, : len(Outside._fields)][:, self._of_site])

    def _simulate(self, day: int) -> None:
        outside, minute = self._outside(0), day * _DAY_MIN
        for today in range(_DAY_MIN):
            if today % (RUN_HOURS * 60) == KNOWN_AFTER_H * 60:
                self._runs.append((minute + today, *self._forecasts.issue(np.concatenate(self._ahead), today)))
            actuators = self._controller.step(self._setpoints, outside, 1.0)
            self._house.step(outside, actuators, 60.0)
            outside, now = self._outside(today + 1), minute + today + 1
            self._setpoints = self._growers.setpoints(now, outside.radiation_w_m2, outside.temp_c)
            if now > 0:
                self._sum += true_values(self._house, actuators, self._setpoints)
                if now % self._every == 0:
                    self._values[:, now // self._every - 1] = self._sum.T / self._every
                    self._sum[:] = 0.0
        self._foresee()

    def _foresee(self) -> None:
        """What the growers planned in the last day, of the weather as it was foreseen."""
        issued = self._growers.noted_min
        issues = np.array([minute for minute, _, _ in self._runs])
        run = np.searchsorted(issues, issued, side="right") - 1  # before the first forecast the first one is taken
        run = np.maximum(run, 0)
        hourly = np.stack([said for _, said, _ in self._runs[run.min() :]])[run - run.min(), :, :, self._of_site]
        middle = (issued - issues[run])[None] + PLAN_EVERY_MIN * (np.arange(PLAN_BINS)[:, None] + 0.5)
        place = np.clip((middle - 30.0) / 60.0, 0.0, FORECAST_HOURS - 1.001)
        before = place.astype(np.int64)
        share, zones = place - before, np.arange(len(issued))
        between = [
            (1.0 - share) * hourly[zones, before, k] + share * hourly[zones, before + 1, k]
            for k in (FORECAST_METRICS.index("out_radiation_w_m2"), FORECAST_METRICS.index("out_temp_c"))
        ]
        self._plans.append(self._growers.foresee(*between))

    def _recording(self, weather: F32) -> FleetRecording:
        sites, asked = self._sites[: self._asked], self._asked
        zones = [zone for zone in self._zones if zone[0] < asked]
        z, step_ms = len(zones), self._every * MINUTE_MS
        starts = np.array([site.start_ms for site in sites])
        values = np.stack([
            sense_zone(sites[s], n, self._values[number], self._every) for number, (s, n) in enumerate(zones)
        ])  # fmt: skip
        seen = np.stack([sense_station(site, weather[:, :, s], self._every) for s, site in enumerate(sites)])
        issues = np.array([minute for minute, _, _ in self._runs])
        forecast = np.stack([said[:, :, :asked] for _, said, _ in self._runs]).transpose(3, 0, 1, 2)
        issued = np.stack([minutes[:z] for minutes, _ in self._plans], axis=1)
        planned = np.stack([said[:, :, :z] for _, said in self._plans]).transpose(3, 0, 1, 2)
        plan, came = self._published(zones, issued, planned.astype(np.float32), values)
        edits = [(number, edit) for number in range(z) for edit in self._growers.edits[number]]
        return FleetRecording(
            step_ms=step_ms, site=np.array([site.index for site in sites]), start_ms=starts,
            latitude=np.array([site.latitude for site in sites], np.float32),
            longitude=np.array([site.longitude for site in sites], np.float32),
            utc_offset_h=np.array([site.utc_offset_h for site in sites]),
            zone_site=np.array([s for s, _ in zones]), zone=np.array([n for _, n in zones]),
            values=values, weather=seen, forecast_issued_ms=starts[:, None] + issues * MINUTE_MS,
            forecast_came=np.stack([here[:asked] for _, _, here in self._runs], axis=1).astype(np.uint8),
            forecast=forecast.astype(np.float32), plan_issued_ms=starts[self._of_site[:z], None] + issued * MINUTE_MS,
            plan_came=came.astype(np.uint8), plan=plan,
            edit_zone=np.array([number for number, _ in edits], np.int64),
            edit_metric=np.array([PLAN_METRICS.index(edit.metric) for _, edit in edits], np.int64),
            edit_begin_ms=np.array([edit.begin_min * MINUTE_MS for _, edit in edits], np.int64),
            edit_end_ms=np.array([edit.end_min * MINUTE_MS for _, edit in edits], np.int64),
            edit_how=np.array([HOW.index(edit.how) for _, edit in edits], np.int64),
            edit_value=np.array([edit.value for _, edit in edits], np.float32),
            edit_planned=np.array([edit.planned for _, edit in edits], np.uint8),
        )  # fmt: skip

    def _published(
        self, zones: Sequence[tuple[int, int]], issued: I64, planned: F32, values: F32
    ) -> tuple[F32, NDArray[np.bool_]]:
        """The plans as they came, and which of them did: some are repeated, broken, or say nothing of a metric."""
        heat, rh = PLAN_METRICS.index("sp_heat_c"), PLAN_METRICS.index("sp_rh_pct")
        deficit = humidity_deficit_g_m3(planned[..., heat], planned[..., rh])
        plan = np.concatenate((planned, deficit[..., None]), axis=-1).round(1)
        came = np.zeros(plan.shape[:2], dtype=bool)
        for number, (s, n) in enumerate(zones):
            site = self._sites[s]
            habit, rng = site.plans, chance(site.seed, site.index, _PART, n)
            broken = rng.random(plan.shape[1])
            came[number] = (habit.setpoints != "none") & (broken >= habit.broken / 2)
            if habit.setpoints == "repeated":
                plan[number] = self._repeated(issued[number], values[number])
            other = np.flatnonzero((broken >= habit.broken / 2) & (broken < habit.broken))
            plan[number, other] = plan[number, np.maximum(other - 1, 0)]
            plan[number, :, :, [k for k, name in enumerate(PLAN_METRICS) if name in site.sensors.absent]] = np.nan
        return plan, came & np.isfinite(plan).any(axis=(2, 3))

    def _repeated(self, issued: I64, values: F32) -> F32:
        """Yesterday's setpoints as the plan of today and tomorrow."""
        bins = np.arange(PLAN_BINS)
        yesterday = issued[:, None] + PLAN_EVERY_MIN * (bins % (PLAN_BINS // 2)) + PLAN_EVERY_MIN // 2 - _DAY_MIN
        row = yesterday // self._every
        known = (row >= 0) & (row < len(values))
        said = np.full((*row.shape, len(PLAN_METRICS)), np.nan, np.float32)
        for k, name in enumerate(PLAN_METRICS):
            if name in FLEET_METRICS:
                column = values[:, FLEET_METRICS.index(name)]
                said[..., k] = np.where(known, column[np.clip(row, 0, len(values) - 1)], np.nan)
        return said
