"""What a simulated site foresees: wrong as forecasts are, and changing nothing of what comes."""

from __future__ import annotations

import numpy as np
import pytest

from edge.simulator.forecasts import AHEAD_H, SimulatedForecasts
from edge.simulator.physics.weather import SyntheticWeather
from edge.simulator.simulated_site import SimulatedSite
from edge.simulator.simulator_source import SimulatorSource
from edge.wire.plan import PlanMessage, decode_plan, encode_plan, plan_topic
from models.psychrometrics import relative_humidity_pct

START_MS = 1_709_251_200_000  # 1 March 2024
HOUR_MS = 3_600_000
PLACE = (52.0, 4.5)


def site(step_ms: int = 300_000) -> SimulatedSite:
    return SimulatedSite("demo", 7, START_MS, zones=2, latitude=PLACE[0], longitude=PLACE[1], step_ms=step_ms)


def test_plans_are_such_that_the_gateway_takes_all_of_them() -> None:
    """Four forecasts and one plan a zone each day, and those of the beginning; nothing of them is refused."""
    source = SimulatorSource(site())
    found: list[tuple[int, PlanMessage]] = []
    for ts_ms, _ in source.samples(START_MS + 2 * 24 * HOUR_MS):
        found += [(ts_ms, plan) for plan in source.plans()]
    for ts_ms, plan in found:
        assert plan.issued_ms == ts_ms
        decoded = decode_plan(plan_topic(plan.site, plan.zone, plan.source), encode_plan(plan), ts_ms)
        assert (decoded.plan, decoded.refusals) == (plan, [])
    weather = [(ms - START_MS) / HOUR_MS for ms, plan in found if plan.kind == "weather"]
    assert weather == [0, 3, 9, 15, 21, 27, 33, 39, 45]
    grown = [(plan.zone, (ms - START_MS) / HOUR_MS) for ms, plan in found if plan.kind == "setpoint"]
    assert grown == [(zone, hour) for hour in (0, 23, 47) for zone in source.zones]  # midnight in Amsterdam


def test_asking_for_plans_changes_nothing_of_what_comes() -> None:
    """The same weather, the same climate, the same grower."""
    asked, left_alone = site(), site()
    until_ms = START_MS + 40 * HOUR_MS
    seen = [(ts_ms, values, asked.plans())[:2] for ts_ms, values in asked.instants(until_ms)]
    assert seen == list(left_alone.instants(until_ms))


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
    simulated, days = site(), 8
    set_, plans = {}, []
    for ts_ms, values in simulated.instants(START_MS + days * 24 * HOUR_MS):
        set_[ts_ms] = values[simulated.zones[0]]["sp_heat_c"]
        plans += [p for p in simulated.plans() if p.kind == "setpoint" and p.zone == simulated.zones[0]]
    by_plan, by_yesterday = [], []
    for plan in plans[1:-1]:
        path = plan.values["sp_heat_c"]
        for ts_ms in range(plan.issued_ms + HOUR_MS, plan.issued_ms + 24 * HOUR_MS, HOUR_MS // 2):
            planned = [value for ms, value in path if ms <= ts_ms][-1]
            by_plan.append(abs(planned - set_[ts_ms]))
            by_yesterday.append(abs(set_[ts_ms - 24 * HOUR_MS] - set_[ts_ms]))
    assert 0.0 < np.mean(by_plan) < 0.9 * np.mean(by_yesterday)
    assert max(by_plan) > 0.3
