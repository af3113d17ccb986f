"""A forecast service's answer becomes a plan, or one sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.config import WeatherSettings
from services.weather.open_meteo import WeatherError, plan_of_answer, query
from tests.services.weather.answers import HTML, REFUSED, answer, document

NOW_MS = 1_646_136_000_000  # 2022-03-01 12:00 UTC
HOUR_MS = 3_600_000
VARIABLES = WeatherSettings().variables


def plan_of(content: bytes, now_ms: int = NOW_MS) -> tuple[dict[str, Any], list[str]]:
    plan, missing = plan_of_answer(content, "demo", VARIABLES, "open-meteo", now_ms)
    assert (plan.site, plan.zone, plan.source, plan.kind, plan.issued_ms) == (
        "demo", "_site", "open-meteo", "weather", now_ms,
    )  # fmt: skip
    return dict(plan.values), missing


def test_an_answer_is_a_plan_of_the_whole_site() -> None:
    """Hourly, with some hours that have passed; radiation, the mean of the hour before, in the middle of it."""
    values, missing = plan_of(answer(NOW_MS))
    assert missing == []
    assert set(values) == set(VARIABLES.values())
    temperature, radiation = values["out_temp_c"], values["out_radiation_w_m2"]
    assert temperature[0][0] == NOW_MS - 6 * HOUR_MS
    assert dict(temperature)[NOW_MS + HOUR_MS] == round(6 + 13 / 4, 1)
    assert dict(radiation)[NOW_MS - HOUR_MS // 2] == 400.0
    assert temperature[-1][0] == NOW_MS + 59 * HOUR_MS


def test_what_is_asked_names_place_variables_and_units() -> None:
    """Times in seconds since 1970 and wind in m/s, so that no time zone and no unit has to be guessed."""
    asked = query(51.98, 4.53, VARIABLES, 3)
    assert asked["hourly"].split(",") == list(VARIABLES)
    assert (asked["latitude"], asked["longitude"], asked["forecast_days"]) == ("51.98", "4.53", "3")
    assert (asked["timeformat"], asked["wind_speed_unit"]) == ("unixtime", "ms")


def test_nulls_at_the_end_and_a_lacking_variable_cost_only_themselves() -> None:
    """What the model does not say is left out, and named where it is a whole variable."""
    found = document(NOW_MS, temperature_2m=[5.0] * 20 + [None] * 52)
    del found["hourly"]["wind_speed_10m"]
    found["hourly"]["relative_humidity_2m"] = [None] * 72
    values, missing = plan_of(json.dumps(found).encode())
    assert len(values["out_temp_c"]) == 14
    assert "wind_m_s" not in values
    assert missing == [
        "relative_humidity_2m says nothing of what is to come: it has no value", "the answer lacks wind_speed_10m"
    ]  # fmt: skip


def test_another_unit_is_named_and_left_out() -> None:
    """A service that does not know wind_speed_unit answers in km/h: no wind is better than a storm."""
    found = document(NOW_MS)
    found["hourly_units"]["wind_speed_10m"] = "km/h"
    values, missing = plan_of(json.dumps(found).encode())
    assert "wind_m_s" not in values
    assert missing == ["wind_speed_10m comes in km/h, wind_m_s is in m/s"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HTML, "the service answered with HTML: '<!DOCTYPE html>"),
        (b"", "no JSON"),
        (answer(NOW_MS)[:200], "no JSON"),
        (REFUSED, "the service refuses: Data corrupted"),
        (b"[]", "no `hourly`"),
        (b'{"hourly": []}', "no `hourly`"),
        (b'{"hourly": {}}', "no list `time`"),
        (answer(NOW_MS, time=["2022-03-01T00:00"] * 72), "timeformat=unixtime"),
        (answer(NOW_MS, time=list(range(72, 0, -1))), "does not rise"),
        (answer(NOW_MS, time=[NOW_MS + n * HOUR_MS for n in range(72)]), "in seconds since 1970, it has 1646391600000"),
        (answer(NOW_MS, time=[10**18 + n for n in range(72)]), "in seconds since 1970"),
        (answer(NOW_MS, time=[n - 10**15 for n in range(72)]), "in seconds since 1970"),
        (answer(NOW_MS - 365 * 24 * HOUR_MS), "it ends at 2021-03-03T23:00Z"),
        (answer(NOW_MS, temperature_2m=["mild"] * 72, relative_humidity_2m=[1], shortwave_radiation={},
                wind_speed_10m=[None] * 72, wind_direction_10m=[True] * 72), "temperature_2m holds something"),
        (answer(NOW_MS, temperature_2m=[280.0] * 72, relative_humidity_2m=[950] * 72,
                shortwave_radiation=[9e9] * 72, wind_speed_10m=[-4] * 72, wind_direction_10m=[999] * 72),
         "out_temp_c 280.0 °C, allowed -50 to 60"),
    ],
)  # fmt: skip
def test_an_answer_that_is_no_forecast_is_one_sentence(content: bytes, said: str) -> None:
    """HTML, half an answer, last year's data, kelvins: none of it becomes a plan."""
    with pytest.raises(WeatherError, match=r".") as refused:
        plan_of(content)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
