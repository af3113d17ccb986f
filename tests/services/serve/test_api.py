"""The HTTP application over a live state in this process: contracts, problems, limits."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from edge.figure_fields import figures_of
from services.config import SiteNames, SiteSettings
from services.ingest.figures import ShardFigures
from services.learn.experts import EXPERTS
from services.serve.api.auth import Keys
from services.serve.api.middleware.body_limit import MAX_BODY_BYTES
from services.serve.api.schemas import ExpertName
from tests.services.serve.fakes import ORIGIN_MS, zone_forecast
from tests.services.serve.system import OPERATOR, System, assert_problem


def test_predict_answers_the_newest_forecast(system: System) -> None:
    """``GET /predict`` has every field of the contract."""
    answer = system.client.get("/predict", params={"zone": "north-1"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == set(zone_forecast())
    assert set(answer.json()["forecasts"]["air_temp_c"][0]) == {"horizon_min", "time_ms", "time", "p10", "p50", "p90"}


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "/predict?zone=attic", 404, "there is no zone attic; known are demo/north-1, demo/north-2"),
        ("GET", "/predict", 422, "query.zone: field required"),
        ("GET", "/nowhere", 404, "there is nothing at /nowhere"),
        ("DELETE", "/predict", 405, "/predict does not answer DELETE"),
        ("GET", "/history?zone=north-3", 404, "there is no zone north-3"),
        ("POST", "/models/%20/promote", 422, "path.version"),
        ("POST", "/models/retrain", 401, "needs a key"),
        ("GET", "/predict?zon=north-1", 422, "query.zon: there is no such parameter; did you mean zone?"),
        (
            "GET",
            "/predict?zone=north-1&horizon=60",
            422,
            "query.horizon: there is no such parameter; did you mean horizons?",
        ),
        (
            "GET",
            "/predict?zone=north-1&zone=north-2",
            422,
            "query.zone: give it once, several values with commas where",
        ),
        (
            "GET",
            "/predict?zone=north-1&events=night&x=1&events=day",
            422,
            "query.x: there is no such parameter; known are zone,",
        ),
        ("POST", "/models/rollback?expert=trees&expert=tuned", 422, "takes them; it is there 2 times"),
        ("GET", "/zones?site=attic", 404, "there is no site attic; known are demo"),
        ("POST", "/models/retrain?force=1", 422, "query.force: there is no such parameter; known are expert"),
    ],
)
def test_errors_are_problems(system: System, method: str, path: str, status: int, says: str) -> None:
    """Each refusal has its status and one clear sentence."""
    assert_problem(system.client.request(method, path), status, says)


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [("/zones/", "/zones"), ("/predict/?zone=demo/north-1", "/predict?zone=demo/north-1"), ("/page", "/page/")],
)
def test_a_slash_too_many_leads_to_no_other_address(system: System, path: str, leads_to: str) -> None:
    """A replica sees HTTP, also where its client speaks HTTPS: a whole address would lead away from that."""
    answer = system.client.get(path, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, leads_to)


def test_head_is_answered_as_get_without_the_body(system: System) -> None:
    """Monitors and ``curl -I`` ask so: of each described GET, the page and an error the same status and headers."""
    described = system.client.get("/openapi.json").json()["paths"]
    paths = [path.format(zone="north-1", id="a1") for path, methods in described.items() if "get" in methods]
    assert {"/predict", "/health/ready", "/events", "/metrics"} < set(paths)
    for path in [*paths, "/predict?zone=north-1", "/zones?nonsense=1", "/", "/docs", "/page/store.js", "/nowhere"]:
        got, answer = system.client.get(path), system.client.head(path)
        assert (answer.status_code, answer.content) == (got.status_code, b""), path
        assert set(answer.headers) == set(got.headers), path
    assert [path for path, methods in described.items() if "head" in methods] == []
    refused = system.client.head("/models/retrain")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


def test_head_of_the_events_opens_no_stream(system: System) -> None:
    """It would hold its connection for most of a minute, and count for the streams that a client may have."""
    system.state.events.longest_s = 3600
    answer = system.client.head("/events")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert system.state.events.open == 0


def sensible(schema: dict[str, Any]) -> Any:
    """A value of a parameter: its default, an example, or any of its kind."""
    number = "integer" in json.dumps(schema)
    return schema.get("default", schema.get("examples", ["300" if number else "x"])[0])


def test_every_route_refuses_an_unknown_parameter(system: System) -> None:
    """What was misspelled must not pass for what was meant, wherever; known parameters are never the ones refused."""
    described = system.client.get("/openapi.json").json()["paths"]
    calls = [(method.upper(), path, said) for path, methods in described.items() for method, said in methods.items()]
    assert len(calls) >= 12
    for method, path, said in calls:
        asked = [one for one in said.get("parameters", []) if one["in"] == "query" and one["name"] != "zones"]
        known = {one["name"]: sensible(one["schema"]) for one in asked}  # zone and zones do not go together
        answer = system.client.request(
            method, path.format(version="v1", zone="north-1", id="a1"), params={**known, "nonsense": "1"}
        )
        assert_problem(answer, 422, "query.nonsense: ")
        assert [error["where"] for error in answer.json()["errors"]] == ["query.nonsense"], f"{method} {path}"
        assert "application/problem+json" in said["responses"]["422"]["content"], f"{method} {path} does not declare it"
        assert (
            "query"
            not in system.client.request(method, path.format(version="v1", zone="north-1", id="a1"), params=known).text
        )
    assert system.backend.orders == []


def test_the_page_and_the_description_do_not_mind(system: System) -> None:
    """Who adds a parameter to a file's address, to get it anew, gets it."""
    for path in ("/", "/page/app.js", "/openapi.json"):
        assert system.client.get(f"{path}?v=2").status_code == 200


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "the body is not JSON, at character 1"),
        (b"{}", "body.zone: field required"),
        (b'{"zone": "north-1"}', "give changes"),
        (b'{"zone": "north-1", "changes": []}', "body.changes: list should have at least 1 item"),
        (b'{"zone": "north-1", "changes": {"sp_heat_c": "warm"}}', "body.changes.0.set"),
        (b'{"zone": "north-1", "changes": {"sp_heat_c": 400}}', "allowed is -20 to 60"),
        (b'{"zone": "north-1", "changes": {"sp_heet_c": 4}}', "sp_heet_c is not a metric; did you mean sp_heat_c?"),
        (b'{"zone": "north-1", "changes": {"sp_heat_c": 4}, "more": 1}', "body.more"),
        (b'{"zone": "north-1", "changes": [{"metric": "sp_heat_c"}]}', "with one of add, set, at_least, at_most"),
        (b'{"zone": "north-1", "changes": [{"metric": "sp_heat_c", "add": 1, "set": 18}]}', "here are 2"),
        (b'{"zone": "north-1", "changes": [{"metric": "sp_heat_c", "add": 90}]}', "allowed is -80 to 80"),
        (b'{"zone": "north-1", "changes": [{"metric": "sp_heat_c", "add": 1, "from": "soon"}]}', "'soon' is no time"),
        (b'{"zone": "north-1", "changes": [{"metric": "sp_heat_c", "add": 1, "from": "25:00"}]}', "'25:00' is no time"),
        (b'{"zone": "north-1", "changes": [{"metric": "sp_heat_c", "add": 1, "from": "0900-01-01"}]}', "2000 and 2100"),
        (b'{"zone": "north-1", "changes": [{"metric": "sp_heat_c", "add": 1, "from": 1}]}', "from: '1' is no time; w"),
        (b'{"zone": "north-1", "changes": [{"metric": "sp_heat_c", "add": 1, "to": 2e12}]}', "'2000000000000.0' is no"),
        (b'{"zone": "north-1", "changes": [{"metric": "sp_heat_c", "add": 1, "from": true}]}', "'True' is no time"),
        (
            b'{"zone": "north-1", "changes": [{"metric": "sp_heat_c", "add": 1, "to": "2022-02-28T20:00Z"}]}',
            "body.changes.0.to: 2022-02-28T20:00:00Z is not after its beginning, 2022-03-01T00:00:00Z",
        ),
        (
            b'{"zone": "north-1", "changes": [{"metric": "sp_heat_c", "add": 1, "from": "2022-02-28T19:00Z",'
            b' "to": "2022-02-28T20:00Z"}]}',
            "the change is over before the forecast begins",
        ),
        (
            b'{"zone": "north-1", "changes": [{"metric": "sp_heat_c", "add": 1, "from": "2022-03-03T19:00Z",'
            b' "to": "2022-03-03T20:00Z"}]}',
            "2022-03-03T19:00:00Z does not lie in the day after the forecast's origin",
        ),
        (
            b'{"zone": "north-1", "changes": [{"metric": "sp_heat_c", "add": 1, "from": "2022-03-02T00:00Z"}]}',
            "body.changes.0.from: 2022-03-02T00:00:00Z does not lie in the day after the forecast's origin",
        ),
        (
            b'{"zone": "north-1", "changes": {"sp_heat_c": 4}, "rows": [{"end_ms": 1646092800000, "values": {}}]}',
            "and not both",
        ),
        (
            b'{"zone": "north-1", "rows": [{"end_ms": 1646092800001, "values": {"air_temp_c": 4}}]}',
            "multiple of the step",
        ),
        (b'{"zone": "north-1", "rows": [{"end_ms": 1646092800000, "values": {}}]}', "the newest row holds none of"),
        (b'{"zone": "north-1", "changes": {"sp_heat_c": NaN}}', ""),
    ],
)
def test_a_bad_body_is_422(system: System, body: bytes, says: str) -> None:
    """A malformed or implausible question is refused, naming what is wrong."""
    answer = system.client.post("/predict", content=body, headers={"Content-Type": "application/json"})
    assert_problem(answer, 422, says)


def test_rows_make_a_window_of_their_own(system: System) -> None:
    """Rows are put on the grid of steps; what is left out is missing; the network alone answers."""
    rows = [
        {"end_ms": ORIGIN_MS + 600_000, "values": {"air_temp_c": 10.0, "rh_pct": 50.0}},
        {"end_ms": ORIGIN_MS + 1_200_000, "values": {"air_temp_c": 12.0, "rh_pct": None}},
    ]
    answer = system.client.post("/predict", json={"zone": "north-1", "rows": rows})
    assert answer.status_code == 200, answer.text
    assert answer.json()["origin_ms"] == ORIGIN_MS + 1_200_000
    first = answer.json()["forecasts"]["air_temp_c"][0]
    assert (first["p10"], first["p50"], first["p90"]) == (11.0, 12.0, 13.0)
    (window,) = system.backend.requests[0]["values"]
    np.testing.assert_array_equal(window[-3:, 0], np.float32([10, np.nan, 12]))
    np.testing.assert_array_equal(window[-3:, 1], np.float32([50, np.nan, np.nan]))


def test_a_large_body_is_refused(system: System) -> None:
    """413 for a body over the limit, whether its length is announced or not."""
    large = b'{"zone": "' + b"x" * MAX_BODY_BYTES + b'"}'
    assert_problem(system.client.post("/predict", content=large), 413, "larger than")
    pieces = iter([large[:100], large[100:]])
    assert_problem(system.client.post("/predict", content=pieces), 413, "larger than")


def test_a_refused_order_is_409(system: System) -> None:
    """What the gate refuses is told with its reason."""
    system.backend.refusal = "v2 is worse than what serves"
    assert_problem(system.client.post("/models/v2/promote", headers=OPERATOR), 409, "v2 is worse")


def test_answers_are_described(system: System) -> None:
    """OpenAPI has a schema for what each JSON route answers, each reference leads to one, and each figure of a shard
    has the words that /metrics has.
    """
    described = system.client.get("/openapi.json").json()
    schemas = described["components"]["schemas"]
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(described)))
    assert sorted(references - set(schemas)) == []
    bare = [
        f"{method} {path}"
        for path, methods in described["paths"].items()
        for method, said in methods.items()
        for code, answer in said["responses"].items()
        for kind, content in answer.get("content", {}).items()
        if code < "300" and kind == "application/json" and not (content.get("schema") or content.get("example"))
    ]
    assert bare == []
    status = described["paths"]["/status"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert status == {"$ref": "#/components/schemas/StatusAnswer"}
    assert set(schemas["StatusAnswer"]["properties"]) == set(system.client.get("/status").json())
    shard = schemas["ShardFigures"]["properties"]
    assert shard["late"] == {"type": "integer", "description": figures_of(ShardFigures)["late",].help}
    assert [name for name, *inner in figures_of(ShardFigures) if not inner and "description" not in shard[name]] == []


def test_a_zone_that_left_is_nowhere(system: System) -> None:
    """Neither /zones, /predict, /history, readiness nor /metrics have it; 404 says that it left. Its next forecast is
    shown again.
    """
    left = [{"site": "demo", "zone": "north-1", "left_ms": ORIGIN_MS}]

    async def show(figures: dict[str, Any], *forecasts: Any) -> None:
        await system.live_state.put_stats("shard-0", figures)
        await system.live_state.publish(forecasts)
        await system.state._take(await system.live_state.wait(system.state.view.versions[0], 0))

    def zones() -> list[str]:
        return [zone["zone"] for zone in system.client.get("/zones").json()["zones"]]

    asyncio.run(show({"left": left, "zones": ["demo/north-2"]}))
    assert zones() == ["north-2"]
    for path in ("/predict?zone=north-1", "/predict?zone=demo/north-1", "/history?zone=north-1"):
        assert_problem(system.client.get(path), 404, "has left and comes back with its next sample")
    assert_problem(system.client.get("/predict?zone=attic"), 404, "there is no zone attic")
    assert system.client.get("/health/ready").json()["zones"] == 1
    text = system.client.get("/metrics").text
    assert "hothouse_api_zones 1.0" in text
    assert "north-1" not in text
    asyncio.run(show({"left": []}, zone_forecast("north-1", origin_ms=ORIGIN_MS + 300_000)))
    assert zones() == ["north-1", "north-2"]
    assert system.client.get("/predict?zone=north-1").status_code == 200


def test_zones_models_and_history(system: System) -> None:
    """/zones lists zones with units, /models what is registered and what serves, /history the past."""
    zones = system.client.get("/zones").json()
    assert [zone["zone"] for zone in zones["zones"]] == ["north-1", "north-2"]
    assert zones["units"]["vpd_kpa"] == "kPa"
    assert system.client.get("/models").json() == {
        "models": [{"version": "v1"}], "serving": ["v1"], "errors": [],
    }  # fmt: skip
    (served,) = system.client.get("/models/zones").json()["zones"]
    assert served["serving"] == {"network": "v1", "trees": "trees-v2"}
    assert served["weights"]["trees"] == {"5": 0.3, "60": 0.0}
    assert system.client.get("/history?zone=north-1").json()["end_ms"] == [ORIGIN_MS]


def test_the_application_follows_the_live_state() -> None:
    """While it runs, the application takes what is published without being asked."""
    system = System(Keys("op-key"), published=False)
    with system.client as client:
        client.portal.call(system.live_state.publish, [zone_forecast("late")])  # type: ignore[union-attr]
        for _ in range(100):
            if client.get("/predict?zone=late").status_code == 200:
                break
        else:
            pytest.fail("the forecast was never seen")
        system.state.check_health()


@pytest.mark.parametrize(
    "path",
    ["/predict?zone=attic", "/zones?site=attic", "/history?zone=attic", "/zones/attic/plan", "/zones/attic/series",
     "/zones/_site/plan?site=attic", "/alerts?zone=attic", "/alerts/attic", "/rules?site=attic", "/quality?zone=attic"],
)  # fmt: skip
def test_nothing_is_said_to_be_absent_before_the_live_state_has_answered(path: str) -> None:
    """A replica that has just started knows no zone: 503, ask again. What is unknown after that is a 404."""
    system = System(Keys("op-key"), published=False)
    answer = system.client.get(path)
    assert_problem(answer, 503, "the live state does not answer now; try again in a few seconds")
    assert answer.headers["retry-after"] == "5"
    system.fill()
    assert system.client.get(path).status_code == 404


def test_a_site_is_not_asked_for_before_the_live_state_has_answered() -> None:
    """A system of one site answers for it where none is named."""
    system = System(Keys("op-key"), published=False)
    assert_problem(system.client.get("/rules"), 503, "the live state does not answer now")
    system.fill()
    assert system.client.get("/rules").status_code == 200


def test_openapi_has_examples_and_problems(system: System) -> None:
    """The description of /predict shows an example and its problem answers."""
    predict = system.client.get("/openapi.json").json()["paths"]["/predict"]["get"]
    assert predict["responses"]["200"]["content"]["application/json"]["example"]["zone"] == "north-1"
    assert "application/problem+json" in predict["responses"]["404"]["content"]


def test_every_status_of_a_problem_is_documented(system: System) -> None:
    """The table of docs/api.md has those of the description, and no other."""
    table = (Path(__file__).parents[3] / "docs/api.md").read_text().partition("\n## Errors\n")[2]
    told = {status for first in re.findall(r"^\| ([\d, ]+) \|", table, re.M) for status in first.split(", ")}
    routes = [route for path in system.client.get("/openapi.json").json()["paths"].values() for route in path.values()]
    assert told == {status for route in routes for status in route["responses"] if status >= "4"}


def test_orders_name_the_experts_that_have_models() -> None:
    """What the routes take is what the learning loop has."""
    assert set(get_args(get_args(ExpertName)[0])) == set(EXPERTS)


def test_sites_and_zones_have_names_that_people_gave_them(system: System) -> None:
    """``GET /zones`` says what people call site and zones, and their own names where nobody said otherwise; a zone
    whose forecast is too old is stale.
    """
    names = SiteNames.of([
        SiteSettings(name="demo", label="De Linde", zone_labels={"north-1": "Tomatoes"}), SiteSettings(name="other"),
    ])  # fmt: skip
    system.state.names = names
    answer = system.client.get("/zones").json()
    assert [(zone["zone"], zone["label"], zone["stale"]) for zone in answer["zones"]] == [
        ("north-1", "Tomatoes", False), ("north-2", "north-2", False),
    ]  # fmt: skip
    (site,) = answer["sites"]
    assert (site["site"], site["label"], site["timezone"], site["latitude"]) == ("demo", "De Linde", "UTC", None)
    assert site["clock"] == "civil"
    assert "other" not in names.sites
    system.state.view._streams.row("demo", ORIGIN_MS + 3_600_000, is_new=True)
    assert all(zone["stale"] for zone in system.client.get("/zones").json()["zones"])


def test_a_zone_says_when_it_was_last_read(system: System) -> None:
    """Rows of a silent zone go on to close beside those of one that lives; the time of its last reading stays."""

    async def row(n: int) -> None:
        origin_ms = ORIGIN_MS + n * 300_000
        ages = {"air_temp_c": 10.0 + 300 * n, "rh_pct": None}
        silent = zone_forecast("north-1", origin_ms=origin_ms, freshness_s=ages)
        await system.live_state.publish([silent, zone_forecast("north-2", origin_ms=origin_ms)])
        await system.state._take(await system.live_state.wait(system.state.view.versions[0], 0))

    for n in (1, 12):
        asyncio.run(row(n))
        silent, living = system.client.get("/zones").json()["zones"]
        assert (silent["origin_ms"], silent["read_ms"]) == (ORIGIN_MS + n * 300_000, ORIGIN_MS - 10_000)
        assert (living["origin_ms"], living["read_ms"]) == (silent["origin_ms"], silent["origin_ms"] - 10_000)
    assert (silent["stale"], living["stale"]) == (True, False)
