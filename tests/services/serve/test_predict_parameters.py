"""``GET /predict`` with parameters: what is left out, and what is added."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from services.messages import Extreme, ZoneOutlook
from services.serve.api.routes import predict_routes
from tests.patience import patience_s
from tests.services.serve.fakes import ORIGIN_MS, zone_forecast
from tests.services.serve.system import System, assert_problem

STEP_MS = 300_000


def asked(system: System, **parameters: Any) -> dict[str, Any]:
    """The answer for a zone."""
    answer = system.client.get("/predict", params={"zone": "north-1", **parameters})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_predict_says_the_path_beside_its_fields(system: System) -> None:
    """Without parameters the answer has what it had, and the path."""
    body = asked(system)
    assert {"site", "zone", "origin", "now", "forecasts", "degraded", "path"} <= body.keys()
    assert body["path"]["targets"]["air_temp_c"]["p50"] == [20, 20]
    assert "scenarios" not in body


def test_targets_and_quantiles_are_parameters(system: System) -> None:
    """Only what was asked for is there, under names that say the quantile."""
    body = asked(system, targets="air_temp_c", quantiles="0.05,0.5")
    assert list(body["forecasts"]) == list(body["path"]["targets"]) == ["air_temp_c"]
    point = body["forecasts"]["air_temp_c"][0]
    assert set(point) == {"horizon_min", "time_ms", "time", "p5", "p50"}
    whole = asked(system)["forecasts"]["air_temp_c"][0]
    assert point["p5"] < whole["p10"] < point["p50"] == pytest.approx(whole["p50"], abs=1e-3)


def test_a_horizon_may_be_learned_or_lie_on_the_path(system: System) -> None:
    """60 minutes are learned, 90 are on the path of air temperature."""
    points = asked(system, targets="air_temp_c", horizons="60,90")["forecasts"]["air_temp_c"]
    assert [point["horizon_min"] for point in points] == [60, 90]
    assert points[1]["p10"] == 17
    assert points[1]["time_ms"] == asked(system)["origin_ms"] + 90 * 60_000


def test_scenarios_are_of_the_forecast_beside_them(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard has those of a new forecast a moment before the forecast gets to the API, which is waited for."""
    ask, calls = system.backend.outlook, 0
    system.backend.origin_ms = ORIGIN_MS + STEP_MS

    async def soon(site: str, zone: str) -> ZoneOutlook:
        nonlocal calls
        calls += 1
        if calls == 2:
            await system.live_state.publish([zone_forecast(origin_ms=ORIGIN_MS + STEP_MS)])
            await system.state._take(await system.live_state.wait(system.state.view.versions[0], 0))
        return await ask(site, zone)

    monkeypatch.setattr(system.backend, "outlook", soon)
    monkeypatch.setattr(predict_routes, "PUBLISHED_S", patience_s(30))
    assert asked(system, scenarios="true")["origin_ms"] == ORIGIN_MS + STEP_MS


def test_a_forecast_that_does_not_get_here_holds_up_no_scenarios(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live state is away, and the shard goes on: both are told as they are."""
    monkeypatch.setattr(predict_routes, "PUBLISHED_S", 0.01)
    system.backend.origin_ms = ORIGIN_MS + STEP_MS
    body = asked(system, scenarios="true")
    assert (body["origin_ms"], len(body["scenarios"]["targets"]["air_temp_c"])) == (ORIGIN_MS, 100)


def test_scenarios_come_on_request(system: System) -> None:
    """A hundred of each target, as long as the path."""
    drawn = asked(system, scenarios="true", targets="air_temp_c")["scenarios"]
    assert drawn["horizon_min"] == [30, 90]
    assert len(drawn["targets"]["air_temp_c"]) == 100
    assert all(len(one) == 2 for one in drawn["targets"]["air_temp_c"])


def test_events_are_read_from_scenarios(system: System) -> None:
    """The night's minimum with its time, the mean, hours outside of a band, and chances of crossing limits."""
    events = asked(
        system, targets="air_temp_c",
        events="night,day,mean,outside:air_temp_c:19.9:30,below:air_temp_c:20:30,above:air_temp_c:30,"
        "night_below:air_temp_c:10",
    )["events"]  # fmt: skip
    night, day, mean, outside, below, above, chance = events
    assert night["p10"] < night["p50"] == pytest.approx(10, abs=0.01)
    assert night["time"] == night["from"] == "2022-03-01T00:30:00Z"
    assert night["goes_on"] is True
    assert day["missing"] == "no day ends within the path"
    assert mean["p50"] == pytest.approx(20, abs=0.01)
    assert 0 <= outside["p10"] <= outside["p50"] <= 1.5
    assert below["chance"] == pytest.approx(0.5, abs=0.02)
    assert below["minutes"] == 30
    assert above["chance"] == 0
    assert chance["chance"] == pytest.approx(0.5, abs=0.01)
    assert (chance["limit"], chance["nights"]) == (10, 6)


def test_past_nights_have_their_say_until_a_night_begins(system: System) -> None:
    """All past nights were below the limit: that counts for a night that lies ahead, not for what is left of one."""
    values = 10 + np.linspace(-1, 1, 100, dtype=np.float32)[:, None].repeat(3, axis=1)
    at, past = np.ones((100, 3), np.int64), np.full((6, 3), 9.5, np.float32)
    found = []
    for first in (0, 1):
        system.backend.extremes = {"night": Extreme(first=first, last=1, values=values, at=at, past=past)}
        (said,) = asked(system, events="night_below:air_temp_c:10")["events"]
        assert said["goes_on"] == (first == 0)
        found.append(said["chance"])
    assert found == pytest.approx([0.5, (2 * 0.5 + 1) / 3], abs=0.01)


def test_a_night_without_a_limit_is_compared_with_the_nights_so_far(system: System) -> None:
    """The limit is what one in ten of the zone's nights was below; the answer names it, and how many nights."""
    system.backend.past_nights = np.repeat(np.linspace(9, 11, 21, dtype=np.float32)[:, None], 3, axis=1)
    (chance,) = asked(system, events="night_below:air_temp_c")["events"]
    assert (chance["limit"], chance["nights"]) == (pytest.approx(9.2), 21)
    assert chance["chance"] == pytest.approx(0.1, abs=0.01)


def test_nights_of_which_a_target_is_not_known_say_nothing_of_it(system: System) -> None:
    """A zone without a sensor of one target has its usual limits of the others, and none of that one."""
    system.backend.past_nights = np.repeat(np.linspace(9, 11, 21, dtype=np.float32)[:, None], 3, axis=1)
    system.backend.past_nights[:, 1] = np.nan
    known, unknown = asked(system, events="night_below:air_temp_c,night_below:rh_pct")["events"]
    assert known["nights"] == 21
    assert unknown["missing"] == "too few nights were seen as a whole: 0 of 5"


def test_a_zone_with_few_nights_has_no_usual_limit(system: System) -> None:
    """Four nights do not say what an unusually cold one is; with a limit of the caller's own there is a chance."""
    system.backend.past_nights = np.full((4, 3), 9.5, np.float32)
    (missing,) = asked(system, events="night_below:air_temp_c")["events"]
    assert missing["missing"] == "too few nights were seen as a whole: 4 of 5"
    assert "chance" not in missing
    (given,) = asked(system, events="night_below:air_temp_c:10")["events"]
    assert given["chance"] == pytest.approx(0.5, abs=0.01)


def test_an_event_names_its_own_target(system: System) -> None:
    """Also one that ``targets`` leaves out; of one that the zone has no forecast of, it is said that there is none."""
    rh, vpd, night = asked(system, targets="air_temp_c", events="above:rh_pct:30,above:vpd_kpa:2:60,night")["events"]
    assert (rh["target"], rh["chance"], night["target"]) == ("rh_pct", 0, "air_temp_c")
    assert vpd == {"event": "above", "target": "vpd_kpa", "missing": "there is no forecast of vpd_kpa"}


def test_an_empty_parameter_is_as_if_left_out(system: System) -> None:
    """Alone and beside others; one that has only commas names nothing."""
    whole, some = asked(system), asked(system, targets="air_temp_c")
    assert asked(system, targets="", horizons="", quantiles="", events="") == whole
    assert asked(system, targets="air_temp_c", horizons="", quantiles="", events="") == some
    assert list(asked(system, targets="", horizons="60")["forecasts"]) == list(whole["forecasts"])


def test_a_target_that_is_not_known_now_has_events_of_the_way_ahead(system: System) -> None:
    """A sensor is silent at the origin: the mean and the hours outside begin with the first time of the path."""
    system.backend.now = np.full(3, np.nan, np.float32)
    mean, outside, below = asked(
        system, targets="air_temp_c", events="mean,outside:air_temp_c:30:40,below:air_temp_c:30"
    )["events"]  # fmt: skip
    assert mean["p50"] == pytest.approx(20, abs=0.01)
    assert outside["p50"] == pytest.approx(13 / 12, abs=1e-3)  # of the steps that end after 30 to 90 minutes
    assert below["chance"] == 1


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"targets": "soil"}, "query.targets: 'soil' is not forecast; known are air_temp_c"),
        ({"horizons": "half"}, "query.horizons: 'half' is not a whole number"),
        ({"horizons": "61"}, "horizons: 61 min is no time of the path"),
        ({"quantiles": "2"}, "query.quantiles: '2' is not a number from 0.01 to 0.99"),
        ({"quantiles": "nan"}, "quantiles: 'nan' is not a number"),
        ({"targets": ","}, "query.targets: ',' names nothing"),
        ({"events": " , "}, "query.events: ' , ' names nothing"),
        ({"events": "frost"}, "query.events: 'frost' is no event; known are night, day"),
        ({"events": "night:air_temp_c"}, "events: night takes nothing"),
        ({"events": "below:air_temp_c"}, "is not of the form below:TARGET:LIMIT:MINUTES"),
        ({"events": "below:air_temp_c:warm"}, "events, limit of below: 'warm' is not a number"),
        ({"events": "below:air_temp_c:12:5000"}, "are not between 0 and 1440"),
        ({"events": "outside:air_temp_c:20:10"}, "ends below its beginning"),
        ({"scenario": "true"}, "did you mean scenarios?"),
    ],
)
def test_a_parameter_that_is_wrong_gets_a_sentence(system: System, parameters: dict[str, str], says: str) -> None:
    """422, with what is allowed."""
    assert_problem(system.client.get("/predict", params={"zone": "north-1", **parameters}), 422, says)
