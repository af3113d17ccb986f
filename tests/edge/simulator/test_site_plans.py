"""What a simulated site foresees: wrong as forecasts are, and changing nothing of what comes."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from edge.simulator.grower import Grower, Setpoints
from edge.simulator.physics.weather import SyntheticWeather
from edge.simulator.simulated_site import SimulatedSite
from edge.simulator.simulator_source import SimulatorSource
from edge.simulator.site_plans import SitePlans
from edge.simulator.weather_forecasts import AHEAD_H, SimulatedForecasts
from edge.simulator.zone_config import default_zones
from edge.wire.plan import PlanMessage, decode_plan, encode_plan, plan_topic
from models.psychrometrics import relative_humidity_pct

pytestmark = pytest.mark.thorough

START_MS = 1_709_251_200_000  # 1 March 2024
HOUR_MS = 3_600_000
PLACE = (52.0, 4.5)


class Site:
    """Weather and a grower, without the greenhouse: it takes no time."""

    def __init__(self) -> None:
        configs = default_zones(2, 7)
        self.zones = [config.name for config in configs]
        self.weather = SyntheticWeather(7, START_MS, *PLACE)
        self.grower = Grower(configs, START_MS, "Europe/Amsterdam", 7)
        self.plans = SitePlans("demo", self.zones, self.weather, self.grower, 7, *PLACE)

    def setpoints(self, ts_ms: int) -> Setpoints:
        out = self.weather.at(ts_ms)
        return self.grower.setpoints(ts_ms, out.radiation_w_m2, out.temp_c)


def times(days: float) -> range:
    return range(START_MS, START_MS + round(days * 24 * HOUR_MS), HOUR_MS // 6)


def test_plans_are_such_that_the_gateway_takes_all_of_them() -> None:
    """Four forecasts and one plan a zone each day, and those of the beginning; nothing of them is refused."""
    site, found = Site(), list[tuple[float, PlanMessage]]()
    for ts_ms in times(2):
        site.setpoints(ts_ms)
        found += [((ts_ms - START_MS) / HOUR_MS, plan) for plan in site.plans.issued(ts_ms)]
    for hour, plan in found:
        assert plan.issued_ms == START_MS + hour * HOUR_MS
        decoded = decode_plan(plan_topic(plan.site, plan.zone, plan.source), encode_plan(plan), plan.issued_ms)
        assert (decoded.plan, decoded.refusals) == (plan, [])
    assert [hour for hour, plan in found if plan.kind == "weather"] == [0, 3, 9, 15, 21, 27, 33, 39, 45]
    grown = [(plan.zone, hour) for hour, plan in found if plan.kind == "setpoint"]
    assert grown == [(zone, hour) for hour in (0, 23, 47) for zone in site.zones]  # midnight in Amsterdam


def test_a_simulated_site_publishes_them() -> None:
    """With the first of its instants; a time that is skipped brings the newest only."""
    physical = SimulatedSite("demo", 7, START_MS, zones=2, step_ms=300_000)
    source = SimulatorSource(physical)
    next(source.samples(START_MS))
    assert [plan.kind for plan in source.plans()] == ["weather", "setpoint", "setpoint"]
    assert source.plans() == []
    source.skip(START_MS + 4 * HOUR_MS)
    assert [(plan.kind, plan.issued_ms) for plan in source.plans()] == [("weather", START_MS + 4 * HOUR_MS)]


def test_asking_for_plans_changes_nothing_of_what_comes() -> None:
    """The same weather, and the same grower."""
    asked, left_alone = Site(), Site()
    for ts_ms in times(4):
        asked.plans.issued(ts_ms)
        assert asked.weather.at(ts_ms) == left_alone.weather.at(ts_ms)
        one, other = asked.setpoints(ts_ms), left_alone.setpoints(ts_ms)
        for field in fields(Setpoints):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


@pytest.fixture(scope="module")
def errors() -> np.ndarray[tuple[int, int, int], np.dtype[np.float64]]:
    """Errors of 160 runs, [run, hours ahead, (temperature, humidity, wind)]."""
    weather = SyntheticWeather(7, START_MS, *PLACE)
    forecasts = SimulatedForecasts(weather, 7, *PLACE)
    found = []
    for run in range(160):
        values = forecasts.values(START_MS + (6 * run + 3) * HOUR_MS)
        of_run = []
        for n in range(AHEAD_H):
            at_ms = values["out_temp_c"][n][0]
            out = weather.at(at_ms)
            true = (out.temp_c, float(relative_humidity_pct(out.vapour_pa, out.temp_c)), out.wind_m_s)
            said = [values[name][n][1] for name in ("out_temp_c", "out_rh_pct", "wind_m_s")]
            of_run.append(np.array(said) - true)
        found.append(of_run)
    return np.array(found)


def test_errors_grow_with_the_time_ahead(errors: np.ndarray[tuple[int, int, int], np.dtype[np.float64]]) -> None:
    """As national services' do: air temperature from about 1 to 2 °C, wind from 0.9 to 1.7 m/s a day ahead."""
    spread = errors.std(axis=0)
    first, day = spread[:4].mean(axis=0), spread[18:24].mean(axis=0)
    assert 0.7 < first[0] < 1.3
    assert 1.5 < day[0] < 2.4
    assert 0.5 < first[2] < 1.2
    assert 1.2 < day[2] < 2.2
    assert (day > 1.3 * first).all()
    assert abs(errors[..., 0].mean()) < 0.4


def test_errors_last_for_hours_and_from_run_to_run(
    errors: np.ndarray[tuple[int, int, int], np.dtype[np.float64]],
) -> None:
    """A run that is too warm stays too warm, and the next one is a little too."""
    temperature = errors[..., 0] / errors[..., 0].std(axis=0)
    assert 0.8 < float(np.mean(temperature[:, 1:] * temperature[:, :-1])) < 0.98
    assert 0.15 < float(np.mean(temperature[1:, :18] * temperature[:-1, 6:24])) < 0.6


def test_the_grower_keeps_to_most_of_the_plan() -> None:
    """What is set follows it better than yesterday does, and not always."""
    site, set_, plans = Site(), dict[int, float](), list[PlanMessage]()
    for ts_ms in times(20):
        set_[ts_ms] = float(site.setpoints(ts_ms).heat_c[0])
        plans += [p for p in site.plans.issued(ts_ms) if p.kind == "setpoint" and p.zone == site.zones[0]]
    by_plan, by_yesterday = [], []
    for plan in plans[2:-1]:
        path = plan.values["sp_heat_c"]
        for ts_ms in range(plan.issued_ms + HOUR_MS, plan.issued_ms + 24 * HOUR_MS, HOUR_MS // 2):
            planned = [value for ms, value in path if ms <= ts_ms][-1]
            by_plan.append(abs(planned - set_[ts_ms]))
            by_yesterday.append(abs(set_[ts_ms - 24 * HOUR_MS] - set_[ts_ms]))
    assert 0.0 < np.mean(by_plan) < 0.9 * np.mean(by_yesterday)
    assert max(by_plan) > 0.3
