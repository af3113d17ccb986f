"""``/zones/{zone}/plan``: what is foreseen, and an operator's own plan."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from edge.log import Record
from edge.wire.plan import PlanMessage, decode_plan, encode_plan
from services.ingest.plans.intake import PartitionPlans
from services.ingest.windows.closed import CamePlan
from services.messages import ZonePlan
from services.serve.api.app import create_app
from services.serve.api.auth import Keys
from services.serve.api.problems import ProblemError, install
from services.serve.api.routes.plan_routes import plan_routes
from tests.services.serve.fakes import ORIGIN_MS
from tests.services.serve.system import OPERATOR, System, assert_problem

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
VALUES = {"sp_heat_c": [[ORIGIN_MS + HOUR_MS, 18.5], [ORIGIN_MS + 6 * HOUR_MS, 21]]}


def at(system: System, now_ms: int) -> TestClient:
    """A client of the routes about plans alone, at a time of the wall clock."""
    app = FastAPI()
    install(app)
    app.include_router(plan_routes(system.state, lambda: now_ms))
    return TestClient(app, raise_server_exceptions=False)


def put(client: TestClient, zone: str = "north-1", headers: Any = OPERATOR, query: str = "", **body: Any) -> Any:
    return client.put(f"/zones/{zone}/plan{query}", json={"values": VALUES} | body, headers=headers)


def test_the_plans_of_a_zone_are_told(system: System) -> None:
    """As its shard has them, with how far the stream has got."""
    plan = ZonePlan(
        source="knmi", kind="weather", zone="_site", issued_ms=ORIGIN_MS - 5, known_ms=ORIGIN_MS,
        values={"out_temp_c": [[ORIGIN_MS + HOUR_MS, 4.5]]},
    )  # fmt: skip
    system.backend.plans["demo", "north-1"] = [plan]
    answer = system.client.get("/zones/north-1/plan")
    assert answer.status_code == 200
    assert answer.json() == {"site": "demo", "zone": "north-1", "stream_ms": ORIGIN_MS, "plans": [plan]}
    assert system.client.get("/zones/north-2/plan?site=demo").json()["plans"] == []
    assert_problem(system.client.get("/zones/attic/plan"), 404, "there is no zone attic")


def test_an_operators_plan_goes_to_the_broker(system: System) -> None:
    """Issued now, of the kind of its metrics, on a topic of its zone, as devices publish theirs."""
    answer = put(at(system, ORIGIN_MS + 1000))
    assert (answer.status_code, answer.json()) == (202, {
        "site": "demo", "zone": "north-1", "source": "operator", "kind": "setpoint", "issued_ms": ORIGIN_MS + 1000,
        "topic": "hothouse/v1/demo/north-1/operator/plan",
    })  # fmt: skip
    ((topic, payload),) = system.backend.published
    plan = decode_plan(topic, payload, ORIGIN_MS + 1000).plan
    assert plan is not None
    assert (plan.zone, plan.source, plan.issued_ms) == ("north-1", "operator", ORIGIN_MS + 1000)
    assert plan.values == {"sp_heat_c": [(ms, float(value)) for ms, value in VALUES["sp_heat_c"]]}


def test_times_of_a_plan_may_be_iso_8601_with_an_offset(system: System) -> None:
    """As people and other programs write them; the same moment whatever the offset, and beside Unix ms."""
    amsterdam = timezone(timedelta(hours=1))
    moments = [datetime.fromtimestamp(ms / 1000, UTC) for ms, _ in VALUES["sp_heat_c"]]
    written = [moments[0].isoformat(), moments[1].astimezone(amsterdam).isoformat(timespec="minutes")]
    values = [[text, value] for text, (_, value) in zip(written, VALUES["sp_heat_c"], strict=True)]
    values.append([moments[1].timestamp() * 1000 + HOUR_MS, 19.0])
    issued = datetime.fromtimestamp(ORIGIN_MS / 1000, UTC).isoformat().replace("+00:00", "Z")
    answer = put(at(system, ORIGIN_MS + 1000), values={"sp_heat_c": values}, issued=issued)
    assert (answer.status_code, answer.json()["issued_ms"]) == (202, ORIGIN_MS)
    ((topic, payload),) = system.backend.published
    plan = decode_plan(topic, payload, ORIGIN_MS + 1000).plan
    assert plan is not None
    last_ms = VALUES["sp_heat_c"][1][0] + HOUR_MS
    assert plan.values == {
        "sp_heat_c": [*((int(ms), float(value)) for ms, value in VALUES["sp_heat_c"]), (last_ms, 19.0)]
    }


def test_a_harvest_is_published_as_an_event(system: System) -> None:
    """Its kind is that of its metrics; it is told as any other plan."""
    values = {"harvest_pct": [[ORIGIN_MS + HOUR_MS, 40.0]], "crop_change": [[ORIGIN_MS + 2 * HOUR_MS, 1.0]]}
    answer = put(at(system, ORIGIN_MS), values=values)
    assert (answer.status_code, answer.json()["kind"]) == (202, "event")
    ((topic, payload),) = system.backend.published
    decoded = decode_plan(topic, payload, ORIGIN_MS).plan
    assert decoded is not None
    assert {name: [list(point) for point in path] for name, path in decoded.values.items()} == values


def test_a_setpoint_that_holds_now_is_published(system: System) -> None:
    """Its only value was this morning: it is held for a day."""
    held = [[ORIGIN_MS - 6 * HOUR_MS, 800.0]]
    answer = put(at(system, ORIGIN_MS), values=VALUES | {"sp_co2_ppm": held})
    assert answer.status_code == 202
    ((topic, payload),) = system.backend.published
    plan = decode_plan(topic, payload, ORIGIN_MS).plan
    assert plan is not None
    assert [list(point) for point in plan.values["sp_co2_ppm"]] == held


def test_a_plan_for_the_whole_site_names_the_site(system: System) -> None:
    """Zone `_site`; without a site, or with one that nobody knows, it is not published."""
    client = at(system, ORIGIN_MS)
    assert put(client, "_site", query="?site=demo").json()["topic"] == "hothouse/v1/demo/_site/operator/plan"
    assert_problem(put(client, "_site"), 404, "?site=; known are demo")
    assert_problem(put(client, "_site", query="?site=elsewhere"), 404, "known are demo")
    assert len(system.backend.published) == 1


def test_the_plans_of_the_whole_site_are_told(system: System) -> None:
    """Zone `_site` again; without a site, or with one that nobody knows, there are none."""
    answer = system.client.get("/zones/_site/plan?site=demo")
    assert (answer.status_code, answer.json()["zone"], answer.json()["plans"]) == (200, "_site", [])
    assert_problem(system.client.get("/zones/_site/plan"), 404, "?site=; known are demo")
    assert_problem(system.client.get("/zones/_site/plan?site=elsewhere"), 404, "known are demo")


def counted(published: list[tuple[str, bytes]], receive_ms: int) -> list[ZonePlan]:
    """The plans that hold for the zone once its shard has read what was published, in this order."""
    plans = PartitionPlans()
    for offset, (topic, payload) in enumerate(published):
        record = Record(0, offset, "demo", "plan", receive_ms, payload, topic)
        assert plans.feed([CamePlan(record, ORIGIN_MS, receive_ms)]) == []
        plans.take_rest()
    return plans.of_zone("demo", "north-1")


def heating(value: float, at_ms: int = ORIGIN_MS + HOUR_MS) -> dict[str, list[list[float]]]:
    return {"sp_heat_c": [[at_ms, value]]}


@pytest.mark.parametrize("wall_ms", [ORIGIN_MS + 900 * DAY_MS, ORIGIN_MS - 900 * DAY_MS])
def test_in_a_replay_a_plan_is_issued_by_the_clock_of_the_stream(system: System, wall_ms: int) -> None:
    """The gateway goes by that clock: by the wall's the plan would come from the future, or be ancient."""
    system.state.receive_clock = "replayed"
    assert put(at(system, wall_ms)).json()["issued_ms"] == ORIGIN_MS + 1


def test_a_plan_counts_that_is_put_before_the_stream_moves(system: System) -> None:
    """The second has an issue of its own, and a later one: it replaces the first. So it is for the whole site."""
    system.state.receive_clock = "replayed"
    client = at(system, ORIGIN_MS + 900 * DAY_MS)
    issued = [put(client, values=heating(value)).json()["issued_ms"] for value in (18.5, 21.0)]
    assert issued == [ORIGIN_MS + 1, ORIGIN_MS + 2]
    (plan,) = counted(system.backend.published, ORIGIN_MS + 2)
    assert plan["values"] == {"sp_heat_c": [[ORIGIN_MS + HOUR_MS, 21.0]]}
    assert put(client, issued=ORIGIN_MS + 7).json()["issued_ms"] == ORIGIN_MS + 7
    assert put(client).json()["issued_ms"] == ORIGIN_MS + 8
    of_site = [put(client, "_site", query="?site=demo").json()["issued_ms"] for _ in range(2)]
    assert of_site == [ORIGIN_MS + 1, ORIGIN_MS + 2]


def test_a_plan_counts_that_is_put_while_much_waits_to_be_read(system: System) -> None:
    """The shard is two days behind, and a plan of yesterday stands in what it will read: today's is the newer."""
    now_ms, at_ms = ORIGIN_MS + 2 * DAY_MS, ORIGIN_MS + 2 * DAY_MS + HOUR_MS
    assert put(at(system, now_ms), values=heating(21.0, at_ms)).json()["issued_ms"] == now_ms
    (mine,) = system.backend.published
    old = PlanMessage("demo", "north-1", "operator", "setpoint", now_ms - DAY_MS, {"sp_heat_c": [(at_ms, 16.0)]})
    (plan,) = counted([(mine[0], encode_plan(old)), mine], now_ms)
    assert plan["values"] == {"sp_heat_c": [[at_ms, 21.0]]}


@pytest.mark.parametrize("replays", [True, False])
def test_plans_that_two_replicas_take_at_once_both_count(system: System, replays: bool) -> None:
    """In the same millisecond, or in a replay before the stream moves: the second replaces the first."""
    system.state.receive_clock = "replayed" if replays else "wall"
    replicas = [at(system, ORIGIN_MS + 1), at(system, ORIGIN_MS + 1)]
    issued = [
        put(one, values=heating(value)).json()["issued_ms"] for one, value in zip(replicas, (18.5, 21.0), strict=True)
    ]
    assert issued == [ORIGIN_MS + 1, ORIGIN_MS + 2]
    (plan,) = counted(system.backend.published, ORIGIN_MS + 2)
    assert plan["values"] == {"sp_heat_c": [[ORIGIN_MS + HOUR_MS, 21.0]]}


def test_a_plan_is_put_after_the_clock_was_ahead(system: System) -> None:
    """It is issued by the clock that is right now, not after the one before, which is of the future."""
    now_ms = [ORIGIN_MS + 3 * HOUR_MS]
    app = FastAPI()
    install(app)
    app.include_router(plan_routes(system.state, lambda: now_ms[0]))
    client = TestClient(app, raise_server_exceptions=False)
    assert put(client).json()["issued_ms"] == ORIGIN_MS + 3 * HOUR_MS
    now_ms[0], system.backend.issues = ORIGIN_MS + 1000, {}
    assert [put(client).json()["issued_ms"] for _ in range(2)] == [ORIGIN_MS + 1000, ORIGIN_MS + 1001]


def test_a_shard_that_does_not_answer_keeps_no_plan_back(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log takes the plan: the shard reads it when it is back."""

    async def next_issue(site: str, zone: str, source: str, now_ms: int) -> int:
        raise ProblemError(503, "the zone's shard does not answer now")

    monkeypatch.setattr(system.backend, "next_issue", next_issue)
    assert put(at(system, ORIGIN_MS + 1000)).json()["issued_ms"] == ORIGIN_MS + 1000


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"values": {}}, "body.values"),
        ({"values": {"sp_heat": VALUES["sp_heat_c"]}}, "did you mean sp_heat_c?"),
        ({"values": {"sp_heat_c": [[ORIGIN_MS // 1000, 18]]}}, "is it in seconds?"),
        ({"values": {"sp_heat_c": [[ORIGIN_MS + HOUR_MS, 99]]}}, "allowed -20 to 60"),
        ({"values": VALUES | {"sp_co2_ppm": [[ORIGIN_MS, -1]]}}, "sp_co2_ppm"),
        ({"values": {"sp_heat_c": [[ORIGIN_MS + HOUR_MS]]}}, "body.values"),
        ({"kind": "weather"}, "belongs into a plan of kind setpoint"),
        ({"kind": "wether"}, "body.kind"),
        ({"source": ""}, "body.source"),
        ({"values": {"sp_heat_c": []}}, "body: the plan says nothing of any metric"),
        ({"values": {"sp_heat_c": VALUES["sp_heat_c"][::-1]}}, "valid times must rise"),
        ({"values": {"sp_heat_c": VALUES["sp_heat_c"][:1] * 2}}, "twice"),
        ({"values": {"sp_heat_c": [[ORIGIN_MS + 16 * DAY_MS, 18]]}}, "is too far ahead: at most 15 days"),
        ({"issued": ORIGIN_MS + HOUR_MS}, f"body: issued {ORIGIN_MS + HOUR_MS} is"),
        ({"until": 5}, "body.until"),
        (
            {"values": {"sp_heat_c": [["2022-03-01T22:00", 18]]}},
            "body.values.sp_heat_c.0.0: '2022-03-01T22:00' has no offset from UTC; write Unix time in ms, or ISO 8601",
        ),
        ({"values": {"sp_heat_c": [["22:00", 18]]}}, "'22:00' is no time; write Unix time in ms, or ISO 8601 with an"),
        ({"issued": "2022-03-01"}, "body.issued: '2022-03-01' has no offset from UTC"),
    ],
)
def test_a_wrong_plan_is_refused_and_nothing_published(system: System, body: dict[str, Any], said: str) -> None:
    """Also where only one of its metrics is wrong: who is there to mend it need not guess what became of it."""
    assert_problem(put(at(system, ORIGIN_MS), **body), 422, said)
    assert system.backend.published == []


def test_nan_is_refused(system: System) -> None:
    """Python's JSON takes it, a plan does not."""
    body = f'{{"values": {{"sp_heat_c": [[{ORIGIN_MS + HOUR_MS}, NaN]]}}}}'
    headers = {**OPERATOR, "Content-Type": "application/json"}
    answer = at(system, ORIGIN_MS).put("/zones/north-1/plan", content=body, headers=headers)
    assert_problem(answer, 422, "body")
    assert system.backend.published == []


def test_a_metric_that_cannot_be_written_is_refused(system: System) -> None:
    """JSON may hold half of a surrogate pair: 422, and not a failure of ours."""
    content = f'{{"values":{{"\\ud800":[[{ORIGIN_MS + HOUR_MS},18]]}}}}'
    headers = {**OPERATOR, "Content-Type": "application/json"}
    answer = at(system, ORIGIN_MS).put("/zones/north-1/plan", content=content, headers=headers)
    assert_problem(answer, 422, "body.values: the name of a metric must be Unicode text")


def test_a_plan_needs_the_operators_key_and_a_broker(system: System) -> None:
    """401, 403 and 503, each with its sentence; nothing is published."""
    client = at(system, ORIGIN_MS)
    assert_problem(put(client, headers={}), 401, "needs a key")
    assert_problem(put(client, headers={"Authorization": "Bearer other"}), 403, "does not allow this order")
    system.backend.refusal = "the broker did not take it"
    assert_problem(put(client), 503, "the broker did not take it")
    assert system.backend.published == []


def test_reading_plans_needs_the_readers_key_where_one_is_set() -> None:
    """As any other reading."""
    made = System(Keys("op-key", "read-key"))
    client = TestClient(create_app(made.state))
    assert client.get("/zones/north-1/plan").status_code == 401
    assert client.get("/zones/north-1/plan", headers={"Authorization": "Bearer read-key"}).status_code == 200
    asyncio.run(made.state.stop())
