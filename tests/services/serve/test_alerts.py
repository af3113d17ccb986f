"""``/alerts``: what needs somebody, and orders about it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from edge.wire.alert_orders import AcknowledgeAlert, MuteRule, decode_order
from services.serve.live_state import LiveState
from services.serve.view import View
from tests.services.serve.fakes import HOUR_MS, ORIGIN_MS, alert
from tests.services.serve.system import OPERATOR, System, alerted_system, assert_problem


@pytest.fixture
def system() -> Iterator[System]:
    """Two zones, some alerts, reading open."""
    made = alerted_system()
    yield made
    made.client.close()


def test_what_needs_somebody_comes_first(system: System) -> None:
    """By state, then by severity; the counts are of all."""
    answer = system.client.get("/alerts").json()
    assert [one["id"] for one in answer["alerts"]] == ["a1", "a3", "a6", "a5", "a2", "a4"]
    assert answer["counts"] == {"pending": 1, "firing": 2, "acknowledged": 1, "muted": 1, "resolved": 1}
    assert answer["alerts"][0] == alert("a1")


def test_alerts_are_asked_for_by_zone_rule_and_state(system: System) -> None:
    """An unknown zone, site or state is told; a zone and a site that are known may have none."""
    ids = lambda query: [one["id"] for one in system.client.get(f"/alerts?{query}").json()["alerts"]]  # noqa: E731
    assert ids("zone=north-2") == ids("zone=demo/north-2") == ids("site=demo&zone=north-2") == ["a4"]
    assert ids("state=muted,pending") == ["a5", "a2"]
    assert ids("rule=heat") == ["a2"]
    assert ids("zone=north-1&rule=frost&state=resolved") == ids("zone=north-2&rule=heat") == []
    assert ids("site=&zone=&rule=") == ids("site=demo") == ids("")
    answer = system.client.get("/alerts?zone=attic")
    assert_problem(answer, 404, "there is no zone attic; known are demo/north-1")
    assert answer.json()["zones"] == ["demo/north-1", "demo/north-2"]
    assert_problem(system.client.get("/alerts?site=attic"), 404, "there is no site attic; known are demo")
    assert system.client.get("/alerts?state=muted").json()["counts"]["firing"] == 2
    assert_problem(system.client.get("/alerts?state=loud"), 422, "query.state: there is no state 'loud'; known are")


def test_an_alert_says_how_it_came_to_be_so(system: System) -> None:
    """Also one that is over for long; an unknown one is a 404."""
    system.backend.alert_log["a1"] = [alert("a1", "pending", change=1), alert("a1")]
    answer = system.client.get("/alerts/a1").json()
    assert {name: answer[name] for name in alert()} == alert("a1")
    assert [(one["change"], one["state"]) for one in answer["changes"]] == [(1, "pending"), (2, "firing")]
    fact = {"name": "fact", "label": "no sample since 02:10", "value": None, "unit": ""}
    system.backend.alert_log["old"] = [alert("old", "resolved", why=[fact])]
    old = system.client.get("/alerts/old").json()
    assert old["state"] == "resolved"
    assert old["why"] == [{**fact, "code": "no_sample", "values": {"since": "02:10"}}]
    assert_problem(system.client.get("/alerts/none"), 404, "there is no alert none")


def test_orders_go_to_the_broker_as_events_of_their_zone(system: System) -> None:
    """Acknowledge, mute for hours of the stream's time or until one, unmute."""
    for path, body, order in (
        ("a1/acknowledge", None, AcknowledgeAlert("a1")),
        ("a1/mute", {"hours": 8}, MuteRule("frost", ORIGIN_MS + 8 * HOUR_MS)),
        ("a6/mute", {"until_ms": ORIGIN_MS + 5}, MuteRule("frost", ORIGIN_MS + 5)),
        ("a5/unmute", None, MuteRule("frost", 0)),
    ):  # fmt: skip
        answer = system.client.post(f"/alerts/{path}", json=body, headers=OPERATOR)
        id, what = path.split("/")
        assert (answer.status_code, answer.json()) == (
            202, {"id": id, "order": what, "site": "demo", "zone": "north-1", "rule": "frost"},
        )  # fmt: skip
        topic, payload = system.backend.published[-1]
        assert topic == "hothouse/v1/demo/north-1/operator/event"
        assert decode_order(payload) == order


def test_orders_that_make_no_sense_are_refused(system: System) -> None:
    """In one sentence, and nothing is published; they need the operator's key."""
    post = lambda path, body=None: system.client.post(f"/alerts/{path}", json=body, headers=OPERATOR)  # noqa: E731
    assert_problem(post("none/acknowledge"), 404, "there is no alert none")
    assert_problem(post("a2/acknowledge"), 409, "the alert is pending; it must be firing or muted")
    assert_problem(post("a1/unmute"), 409, "the alert is firing; it must be muted")
    assert_problem(post("a1/mute", {}), 422, "give hours or until_ms")
    assert_problem(post("a1/mute", {"hours": 8, "until_ms": 5}), 422, "give hours or until_ms, and not both")
    assert_problem(post("a1/mute", {"hours": 1e9}), 422, "body.hours")
    for past_ms in (0, ORIGIN_MS // 1000, ORIGIN_MS):  # the log would take it for the end of a mute
        assert_problem(post("a5/mute", {"until_ms": past_ms}), 422, "body.until_ms: that time is past; give Unix time")
    assert_problem(system.client.post("/alerts/a1/acknowledge"), 401, "this order needs a key")
    assert system.backend.published == []
    system.backend.refusal = "it was not published: no broker"
    assert_problem(post("a1/acknowledge"), 503, "no broker")


def test_a_page_is_told_of_alerts_as_they_change(system: System) -> None:
    """The live state gives what is new since; what is older than what is known changes nothing."""
    seen = system.state.view.versions[0]
    asyncio.run(system.live_state.put_alerts([alert("a1", "acknowledged", change=3), alert("a3", "pending", change=1)]))
    changes = asyncio.run(system.live_state.wait(seen, 0))
    assert changes["alerts"] == [alert("a1", "acknowledged", change=3)]
    system.state.view.take(changes)
    assert system.client.get("/alerts/a1").json()["state"] == "acknowledged"


def test_a_replica_that_begins_knows_all_alerts(system: System) -> None:
    """As it knows all forecasts."""
    view = View(600, 600, lambda: 0.0)
    view.take(asyncio.run(system.live_state.wait(0, 0)))
    assert dict(view.alerts) == dict(system.state.view.alerts)


def test_alerts_that_are_over_are_forgotten_in_the_end() -> None:
    """Some hundred are kept, the newest."""
    live_state = LiveState(1, lambda: 0)
    over = [alert(f"a{n}", "resolved", changed_ms=n) for n in range(600)]
    asyncio.run(live_state.put_alerts([alert("on"), *over]))
    found = {one["id"] for one in asyncio.run(live_state.wait(0, 0))["alerts"]}
    assert found == {"on", *(f"a{n}" for n in range(100, 600))}
