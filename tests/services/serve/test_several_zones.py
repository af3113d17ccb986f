"""Several zones a call: each as it is alone, and one clear problem for each that is not there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from edge.wire.vocabulary import VOCABULARY
from services.serve.api.answers.forecast_answers import ForecastsAnswer
from services.serve.api.auth import Keys
from services.serve.api.predict_parameters import answer_of
from services.serve.api.routes import predict_routes, several_zones
from services.serve.api.routes.several_zones import each_zone
from tests.patience import core_slowness, patience_s
from tests.services.serve.fakes import ORIGIN_MS, alert, zone_forecast
from tests.services.serve.system import System, assert_problem


@pytest.fixture
def system() -> Iterator[System]:
    """Two sites; ``north-1`` is in both, and ``east`` has a forecast that is too old."""
    made = System(Keys("op-key"))

    async def more() -> None:
        others = [zone_forecast("north-1", "attic"), zone_forecast("east", origin_ms=ORIGIN_MS - 7_200_000)]
        await made.live_state.publish(others)
        await made.live_state.put_alerts([alert("a1"), alert("a2", zone="north-2"), alert("a3", zone="gone")])
        await made.state._take(await made.live_state.wait(0, 0))

    asyncio.run(more())
    yield made
    made.client.close()


def get(system: System, path: str) -> Any:
    """What a call is answered."""
    answer = system.client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("more", ["", "&targets=air_temp_c&horizons=60,30", "&events=night&quantiles=0.05,0.5"])
def test_each_zone_is_answered_as_it_is_alone(system: System, more: str) -> None:
    """In the order in which they were asked for, with all parameters."""
    found = get(system, f"/predict?zones=north-2,%20demo/north-1{more}")
    alone = [get(system, f"/predict?zone={zone}{more}") for zone in ("north-2", "demo/north-1")]
    assert found == {"zones": alone, "problems": []}
    msgspec.convert(found, ForecastsAnswer)


def test_what_takes_long_is_worked_out_beside_the_event_loop(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred zones with fifty quantiles each are seconds, in which others are answered."""
    inside = []

    def answered(*given: Any, **options: Any) -> dict[str, Any]:
        try:
            inside.append(asyncio.get_running_loop())
        except RuntimeError:
            inside.append(None)
        return answer_of(*given, **options)

    monkeypatch.setattr(predict_routes, "answer_of", answered)
    get(system, "/predict?zones=north-2,demo/north-1&quantiles=0.05,0.5")
    assert inside == [None, None]


def test_what_is_said_of_a_thousand_zones_is_written_fast(system: System) -> None:
    """Each open page asks for it after each step, and others are answered meanwhile."""
    zones = [zone_forecast(f"z{n}", now=dict.fromkeys(VOCABULARY, 1.5)) for n in range(1000)]
    alerts = [alert(f"a{n}", zone=f"z{n % 1000}") for n in range(3000)]

    async def fill() -> None:
        await system.live_state.publish(zones)
        await system.live_state.put_alerts(alerts)
        await system.state._take(await system.live_state.wait(0, 0))

    asyncio.run(fill())
    for path in ("/zones", "/alerts"):
        took_s = []
        for _ in range(3):
            began_s = time.process_time()
            answer = system.client.get(path)
            took_s.append(time.process_time() - began_s)
            assert (answer.status_code, len(answer.content) > 500_000) == (200, True)
        assert min(took_s) < 0.05 * core_slowness(), path  # with FastAPI's encoder it is over a tenth of a second


def test_a_call_of_many_zones_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been answered by then is given; of the others each is named, also of those that were not begun."""
    monkeypatch.setattr(several_zones, "LONGEST_S", 0.3)

    class Known:
        def find(self, name: str, site: str | None) -> tuple[str, str]:
            return site or "demo", name

    async def answer(zone: tuple[str, str]) -> str:
        await asyncio.sleep(0 if zone[1] == "z0" else 60)
        return zone[1]

    async def call() -> tuple[list[str], list[Any], float]:
        clock = asyncio.get_running_loop().time
        began_s = clock()
        found, problems = await each_zone(Known(), [f"z{n}" for n in range(40)], None, answer)  # type: ignore[arg-type]
        return found, problems, clock() - began_s

    found, problems, took_s = asyncio.run(call())
    assert found == ["z0"]
    assert [(one["zone"], one["status"]) for one in problems] == [(f"z{n}", 503) for n in range(1, 40)]
    assert "no answer for z39 within the 0.3 s of a call" in problems[-1]["detail"]
    assert took_s < patience_s(5)


def test_a_zone_without_an_answer_is_named_with_the_reason(system: System) -> None:
    """With the status and the words that it has alone; the others are answered."""
    found = get(system, "/predict?zones=cellar,north-2,north-1,east,demo/north-1")
    assert [one["zone"] for one in found["zones"]] == ["north-2", "north-1"]
    assert [(one["zone"], one["status"]) for one in found["problems"]] == [
        ("cellar", 404), ("north-1", 422), ("east", 503),
    ]  # fmt: skip
    for problem in found["problems"]:
        alone = system.client.get(f"/predict?zone={problem['zone']}")
        assert (problem["status"], problem["detail"]) == (alone.status_code, alone.json()["detail"])
    assert get(system, "/predict?zones=cellar")["zones"] == []


def test_the_site_may_be_said_once_for_all(system: System) -> None:
    """As with one zone."""
    found = get(system, "/predict?zones=north-1,north-2&site=demo")
    assert [(one["site"], one["zone"]) for one in found["zones"]] == [("demo", "north-1"), ("demo", "north-2")]


@pytest.mark.parametrize("path", ["/predict", "/zones", "/quality", "/alerts"])
def test_what_names_no_zones_or_too_many_is_refused(system: System, path: str) -> None:
    """A bound, a name at least, and not both ways to say it."""
    many = ",".join(f"z{n}" for n in range(101))
    assert_problem(system.client.get(f"{path}?zones={many}"), 422, "query.zones: 101 zones are named; 100 is the most")
    assert_problem(system.client.get(f"{path}?zones=,"), 422, "query.zones: name at least one zone")
    if path != "/zones":
        both = system.client.get(f"{path}?zones=north-2&zone=north-2")
        assert_problem(both, 422, "query.zones: give zone or zones, and not both")


def test_a_wrong_parameter_refuses_the_call(system: System) -> None:
    """It would be wrong for every zone; scenarios of many zones would be megabytes."""
    assert_problem(system.client.get("/predict?zones=north-2&targets=joy"), 422, "targets: 'joy' is not forecast")
    eleven = ",".join(f"z{n}" for n in range(11))
    assert_problem(
        system.client.get(f"/predict?zones={eleven}&scenarios=true"), 422, "query.scenarios: 10 zones a call have them"
    )
    assert "scenarios" in get(system, "/predict?zones=north-2&scenarios=true")["zones"][0]


def test_a_call_without_a_zone_is_answered_as_before(system: System) -> None:
    """Byte for byte, as programs may look at it."""
    answer = system.client.get("/predict")
    assert answer.content == (
        b'{"type":"about:blank","title":"Unprocessable Content","status":422,"detail":"query.zone: field required",'
        b'"errors":[{"where":"query.zone","message":"Field required"}]}'
    ).replace(b"Content", answer.json()["title"].split()[1].encode())


def test_zones_and_quality_are_those_that_were_asked_for(system: System) -> None:
    """Without ``zones`` they answer as before, with no problems to tell."""
    assert "problems" not in get(system, "/zones") | get(system, "/quality") | get(system, "/alerts")
    found = get(system, "/zones?zones=east,attic/north-1,cellar")
    assert [(one["site"], one["zone"]) for one in found["zones"]] == [("demo", "east"), ("attic", "north-1")]
    assert [one["site"] for one in found["sites"]] == ["demo", "attic"]
    assert [(one["zone"], one["status"]) for one in found["problems"]] == [("cellar", 404)]
    assert [one["zone"] for one in get(system, "/zones?site=attic")["zones"]] == ["north-1"]
    found = get(system, "/quality?zones=east,cellar,north-2")
    assert [one["zone"] for one in found["zones"]] == ["east", "north-2"]
    assert found["zones"][0] == get(system, "/quality?zone=east")["zones"][0]
    assert [one["zone"] for one in found["problems"]] == ["cellar"]
    assert_problem(
        system.client.get("/quality?zones=east&target=air_temp_c&horizon_min=60"), 422,
        "query.zones: past forecasts are those of one zone",
    )  # fmt: skip


def test_alerts_of_several_zones(system: System) -> None:
    """Also of a zone that has left; a zone without an alert is none that is not there."""
    found = get(system, "/alerts?zones=north-2,gone,east,cellar,north-1")
    assert {one["id"] for one in found["alerts"]} == {"a1", "a2", "a3"}
    assert found["counts"]["firing"] == 3
    assert [(one["zone"], one["status"]) for one in found["problems"]] == [("cellar", 404)]
    found = get(system, "/alerts?zones=attic/north-1,demo/north-2&state=firing")
    assert [one["id"] for one in found["alerts"]] == ["a2"]


def test_shards_are_asked_a_few_zones_at_a_time(system: System) -> None:
    """A call of a hundred zones does not fill their queues."""
    at_once, most = 0, 0
    answers = system.backend.outlook

    async def counted(site: str, zone: str) -> Any:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return await answers(site, zone)

    async def many() -> None:
        await system.live_state.publish([zone_forecast(f"z{n}") for n in range(40)])
        await system.state._take(await system.live_state.wait(0, 0))

    asyncio.run(many())
    system.backend.outlook = counted  # type: ignore[method-assign]
    found = get(system, "/predict?events=night&zones=" + ",".join(f"z{n}" for n in range(40)))
    assert len(found["zones"]) == 40
    assert 1 < most <= 8
