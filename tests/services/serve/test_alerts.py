"""``/alerts`` and ``/rules``: what needs somebody, orders about it, and what a site is warned of."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from edge.wire import alert_orders
from edge.wire.alert_orders import AcknowledgeAlert, ChangeRules, MuteRule, decode_order
from edge.wire.decoder import MAX_DOCUMENT_BYTES, HothouseDecoder
from models.alerts.rules_document import RulesDocument
from services.ingest.alerts.site_documents import SiteDocuments
from services.messages import ShownAlert, SiteRulesShown
from services.serve.api.answers.alert_answers import rules_answer
from services.serve.api.auth import Keys
from services.serve.live_state import LiveState
from services.serve.view import View
from tests.services.serve.fakes import ORIGIN_MS
from tests.services.serve.system import OPERATOR, System, assert_problem

HOUR_MS = 3_600_000


def alert(id: str = "a1", state: str = "firing", **more: Any) -> ShownAlert:
    """An alert about a cold night."""
    return {
        "id": id, "change": 2, "site": "demo", "zone": "north-1", "rule": "frost", "kind": "frost",
        "severity": "critical", "state": state, "chance": 0.72, "from_ms": ORIGIN_MS + HOUR_MS,
        "until_ms": ORIGIN_MS + 3 * HOUR_MS, "began_ms": ORIGIN_MS - HOUR_MS, "changed_ms": ORIGIN_MS,
        "seen_ms": ORIGIN_MS, "fired_ms": ORIGIN_MS, "came_ms": None, "came_true": None, "muted_until_ms": None,
        "text": "cold 72 % between 04:00 and 06:30; air 1.8 °C",
        "why": [{"name": "air", "label": "air", "value": 1.8, "unit": "°C"}], **more,
    }  # type: ignore[return-value]  # fmt: skip


@pytest.fixture
def system() -> Iterator[System]:
    """Two zones, some alerts, reading open."""
    made = System(Keys("op-key"))
    shown = [
        alert("a1"), alert("a2", "pending", severity="warning", rule="heat"),
        alert("a3", severity="info", changed_ms=ORIGIN_MS + 1), alert("a4", "resolved", zone="north-2"),
        alert("a5", "muted", muted_until_ms=ORIGIN_MS + HOUR_MS), alert("a6", "acknowledged"),
    ]  # fmt: skip
    asyncio.run(made.live_state.put_alerts(shown))
    made.state.view.take(asyncio.run(made.live_state.wait(made.state.view.versions[0], 0)))
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
    system.backend.alert_log["old"] = [alert("old", "resolved")]
    assert system.client.get("/alerts/old").json()["state"] == "resolved"
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


def test_rules_are_shown_with_what_they_watch_and_what_was_changed(system: System) -> None:
    """Those that are off, too; and as a file."""
    document = {"crop": "tomato", "stage": "fruiting", "changes": {
        "frost": {"limit": 9.0, "hours": ["18:00", "07:00"]}, "heat": {"off": True},
        "cool evening": {"kind": "frost", "limit": 15.0},
    }}  # fmt: skip
    system.backend.rules |= {"document": document, "version": 3, "changed_by": "api", "changed_ms": 7}
    answer = system.client.get("/rules").json()
    assert (answer["site"], answer["version"], answer["crop"], answer["changes"]) == (
        "demo",
        3,
        "tomato",
        document["changes"],
    )
    rules = {rule["name"]: rule for rule in answer["rules"]}
    assert (rules["frost"]["limit"], rules["frost"]["changed"], rules["frost"]["hours"]) == (
        9.0, ["limit", "hours"], ["18:00", "07:00"],
    )  # fmt: skip
    assert (rules["heat"]["off"], rules["cool evening"]["is_own"], rules["frost"]["is_own"]) == (True, True, False)
    assert (rules["vpd_high"]["unit"], rules["vpd_high"]["sign"], rules["drift"]["sign"]) == ("kPa", 1, 0)
    assert tomllib.loads(answer["toml"]) == {"crop": "tomato", "stage": "fruiting", "rules": document["changes"]}


def test_a_rule_looks_no_further_than_forecasts_go() -> None:
    """What it says is how far it looks; what was written stays written."""
    document = RulesDocument.of({"changes": {"frost": {"lead_h": 18}}})
    shown = SiteRulesShown(
        site="demo", version=1, changed_ms=None, changed_by="defaults", document=document.as_dict()
    )  # fmt: skip
    answer = rules_answer(shown, document, 1, reach_h=6.0)
    leads = {rule["name"]: rule["lead_h"] for rule in answer["rules"]}
    assert (leads["frost"], leads["condensation"], leads["heat"]) == (6.0, 6.0, 4.0)
    assert answer["changes"] == {"frost": {"lead_h": 18}}


def test_rules_are_changed_by_an_order_and_answered_as_they_will_be(system: System) -> None:
    """Put replaces all, patch merges, null takes back; what changes nothing keeps the version."""
    given = {"crop": "lettuce", "changes": {"frost": {"limit": 3}}}
    answer = system.client.put("/rules", json=given, headers=OPERATOR)
    assert (answer.status_code, answer.json()["crop"], answer.json()["version"]) == (202, "lettuce", 2)
    topic, payload = system.backend.published[-1]
    assert topic == "hothouse/v1/demo/_site/operator/event"
    assert decode_order(payload) == ChangeRules(
        {"crop": "lettuce", "stage": "growing", "changes": {"frost": {"limit": 3}}}, keep_zones=True
    )
    system.backend.rules["document"] = {
        "crop": "lettuce",
        "stage": "growing",
        "changes": {"frost": {"limit": 3}, "heat": {"off": True}},
    }
    patch = {"changes": {"frost": {"limit": None, "chance": 0.4}, "heat": None}}
    answer = system.client.patch("/rules?site=demo", json=patch, headers=OPERATOR)
    assert answer.json()["changes"] == {"frost": {"chance": 0.4}}
    assert decode_order(system.backend.published[-1][1]) == ChangeRules(patch, merge=True)
    assert system.client.patch("/rules", json={}, headers=OPERATOR).json()["version"] == 1


def test_wrong_rules_are_refused_with_a_sentence_each(system: System) -> None:
    """Nothing is published."""
    given = {"changes": {"frost": {"chance": 20}, "heat": {"colour": "red"}}}
    answer = system.client.put("/rules", json=given, headers=OPERATOR)
    assert_problem(answer, 422, "frost: chance is 20; it must be between 0.01 and 0.99")
    assert [error["where"] for error in answer.json()["errors"]] == ["changes.frost", "changes.heat"]
    assert_problem(
        system.client.patch("/rules", json={"crop": "moss"}, headers=OPERATOR), 422, "crop 'moss' is not one"
    )
    assert_problem(system.client.put("/rules", json={"crops": "moss"}, headers=OPERATOR), 422, "body.crops")
    assert_problem(system.client.put("/rules", json={}), 401, "this order needs a key")
    assert_problem(system.client.get("/rules?site=attic"), 404, "there is no site attic; known are demo")
    assert system.backend.published == []


def test_a_site_is_named_where_there_are_several(system: System) -> None:
    """The answer names them."""
    system.state.view._stream_ms["other"] = ORIGIN_MS
    answer = system.client.get("/rules")
    assert_problem(answer, 422, "query.site: name the site; known are demo, other")
    assert answer.json()["sites"] == ["demo", "other"]


ZONED: dict[str, Any] = {
    "crop": "tomato", "stage": "fruiting", "changes": {"frost": {"limit": 9.0}},
    "zones": {"north-2": {"crop": "lettuce", "changes": {"frost": {"chance": 0.4}}}},
}  # fmt: skip


def test_a_zone_shows_the_rules_that_hold_there(system: System) -> None:
    """With its crop, and what it has of its own; the site says which zones have any."""
    system.backend.rules["document"] = ZONED
    of_site = system.client.get("/rules").json()
    assert "zone" not in of_site
    assert (of_site["changes"], of_site["zones"]) == (ZONED["changes"], ZONED["zones"])
    of_zone = system.client.get("/rules?zone=north-2").json()
    assert (of_zone["zone"], of_zone["crop"], of_zone["stage"]) == ("north-2", "lettuce", "fruiting")
    assert of_zone["changes"] == {"frost": {"chance": 0.4}}
    (frost,) = [rule for rule in of_zone["rules"] if rule["name"] == "frost"]
    assert (frost["limit"], frost["chance"], frost["changed"]) == (9.0, 0.4, ["limit", "chance"])
    assert system.client.get("/rules?zone=demo/north-1").json()["changes"] == {}
    evening = {"cool evening": {"kind": "frost", "limit": 15.0}}
    off = {"north-2": {"changes": {"cool evening": {"off": True}}}}
    system.backend.rules["document"] = {**ZONED, "changes": evening, "zones": off}
    shown = {rule["name"]: rule for rule in system.client.get("/rules?zone=north-2").json()["rules"]}
    assert (shown["cool evening"]["off"], shown["cool evening"]["limit"]) == (True, 15.0)
    system.backend.rules["document"] = ZONED
    assert_problem(system.client.get("/rules?zone=attic"), 404, "there is no zone attic; known are demo/north-1")
    assert tomllib.loads(of_zone["toml"])["zones"] == {
        "north-2": {"crop": "lettuce", "rules": {"frost": {"chance": 0.4}}}
    }


def test_a_zones_rules_are_changed_by_an_order_of_that_zone(system: System) -> None:
    """Put replaces what it has of its own, patch merges; an empty body takes all back."""
    system.backend.rules["document"] = ZONED

    def change(verb: str, body: dict[str, Any]) -> tuple[dict[str, Any], ChangeRules]:
        answer = system.client.request(verb, "/rules?zone=north-2", json=body, headers=OPERATOR)
        assert answer.status_code == 202, answer.text
        topic, payload = system.backend.published[-1]
        assert topic == "hothouse/v1/demo/north-2/operator/event"
        order = decode_order(payload)
        assert isinstance(order, ChangeRules)
        return answer.json(), order

    put = {"changes": {"heat": {"off": True}}}
    answer, order = change("PUT", put)
    assert (order, answer["zones"], answer["crop"]) == (ChangeRules(put), {"north-2": put}, "tomato")
    patch = {"crop": None, "changes": {"frost": {"limit": 3.0}}}
    answer, order = change("PATCH", patch)
    assert order == ChangeRules(patch, merge=True)
    assert answer["zones"] == {"north-2": {"changes": {"frost": {"chance": 0.4, "limit": 3.0}}}}
    answer, order = change("PUT", {})
    assert (order, answer["zones"], answer["version"]) == (ChangeRules({}), {}, 2)


def test_who_puts_the_rules_of_a_site_and_knows_no_zones_keeps_those_of_zones(system: System) -> None:
    """A program of before zones had rules takes nothing away; who names zones says all of them."""
    system.backend.rules |= {"document": ZONED, "zones": ["north-1", "north-2"]}
    put = lambda body: system.client.put("/rules", json=body, headers=OPERATOR)  # noqa: E731
    assert put({"crop": "pepper"}).json()["zones"] == ZONED["zones"]
    order = decode_order(system.backend.published[-1][1])
    assert isinstance(order, ChangeRules)
    assert (order.keep_zones, "zones" in order.rules) == (True, False)
    own = {"north-1": {"stage": "young"}}
    assert put({"crop": "pepper", "zones": own}).json()["zones"] == own
    assert put({"crop": "pepper", "zones": {}}).json()["zones"] == {}
    patched = system.client.patch("/rules", json={"zones": {"north-2": None, **own}}, headers=OPERATOR)
    assert patched.json()["zones"] == own


def test_a_put_of_the_site_undoes_no_change_of_a_zone_that_it_had_not_seen(system: System) -> None:
    """The zone's change is in the log a moment before, and no shard has taken it yet when the site's is published."""
    documents, headers = SiteDocuments(), OPERATOR
    system.backend.rules |= {**documents.shown("demo"), "zones": ["north-1"]}
    system.client.put("/rules?zone=north-1", json={"crop": "lettuce"}, headers=headers)
    system.client.put("/rules", json={"crop": "pepper"}, headers=headers)
    for topic, payload in system.backend.published:
        order = decode_order(payload)
        assert isinstance(order, ChangeRules)
        documents.take("demo", topic.split("/")[3], order, ORIGIN_MS)
    document = documents.of("demo").document
    assert (document.crop, document.zones) == ("pepper", {"north-1": {"crop": "lettuce"}})


def test_rules_that_were_changed_meanwhile_are_not_replaced(system: System) -> None:
    """With If-Match: at once where it is known, and else when the order is taken; one sentence says so."""
    documents = SiteDocuments()
    documents.take("demo", "_site", ChangeRules({"crop": "tomato"}), ORIGIN_MS)
    system.backend.rules |= documents.shown("demo")

    def send(verb: str, version: str, body: dict[str, Any]) -> Any:
        return system.client.request(verb, "/rules", json=body, headers={**OPERATOR, "If-Match": version})

    for verb in ("PUT", "PATCH"):
        assert_problem(send(verb, '"1"', {"crop": "pepper"}), 412, "the rules of demo were changed meanwhile")
    assert system.backend.published == []
    for wrong in ("one", '"-1"', '"1", "2"', '"0"'):
        assert_problem(send("PUT", wrong, {}), 422, "header.If-Match")
    assert send("PUT", "*", {"crop": "pepper"}).status_code == 202
    assert [send("PUT", '"2"', {"crop": crop}).status_code for crop in ("lettuce", "cucumber")] == [202, 202]
    for _, payload in system.backend.published[1:]:
        order = decode_order(payload)
        assert isinstance(order, ChangeRules)
        documents.take("demo", "_site", order, ORIGIN_MS)
    assert documents.of("demo").document.crop == "lettuce"


def test_null_in_a_patch_of_zones_takes_back_what_it_names(system: System) -> None:
    """All changes of a zone, or all that it has; the crop of the zone stays."""
    system.backend.rules |= {"document": ZONED, "zones": ["north-1", "north-2"]}
    for path, body in (("", {"zones": {"north-2": {"changes": None}}}), ("?zone=north-2", {"changes": None})):
        answer = system.client.patch(f"/rules{path}", json=body, headers=OPERATOR)
        assert (answer.status_code, answer.json()["zones"]) == (202, {"north-2": {"crop": "lettuce"}})
        order = decode_order(system.backend.published[-1][1])
        assert isinstance(order, ChangeRules)
        document = RulesDocument.of(ZONED)
        taken = document.with_zone("north-2", order.rules, merge=True) if path else document.merged(order.rules)
        assert taken.zones == {"north-2": {"crop": "lettuce"}}
    answer = system.client.patch("/rules", json={"changes": None}, headers=OPERATOR)
    assert (answer.status_code, answer.json()["changes"]) == (202, {})


def test_others_are_answered_while_a_large_document_is_read(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents are not read on the thread that answers everybody."""
    on_loop = list[bool]()
    read = RulesDocument.of.__func__  # type: ignore[attr-defined]

    def noting(cls: type[RulesDocument], said: Any) -> RulesDocument:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            on_loop.append(False)
        else:
            on_loop.append(True)
        found: RulesDocument = read(cls, said)
        return found

    monkeypatch.setattr(RulesDocument, "of", classmethod(noting))
    system.client.get("/rules")
    system.client.put("/rules", json={"crop": "pepper"}, headers=OPERATOR)
    system.client.patch("/rules", json={"crop": "pepper"}, headers=OPERATOR)
    assert len(on_loop) >= 5
    assert not any(on_loop)


def test_rules_that_no_gateway_takes_are_refused_and_not_published(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """202 would promise rules that never come; what gateways take is published, however many zones have rules."""
    monkeypatch.setattr(alert_orders, "MAX_RULES_BYTES", 100_000)
    options = {"limit": 12.5, "chance": 0.2, "severity": "critical", "hours": ["18:00", "07:00"]}
    names = [f"zone-{n:04d}" for n in range(200)]
    system.backend.rules |= {"zones": names}
    for count, status in ((4, 202), (6, 422)):
        own = {"changes": {f"cold {n}": {"kind": "frost", **options} for n in range(count)}}
        for verb in ("PUT", "PATCH"):
            body = {"zones": dict.fromkeys(names, own)}
            answer = system.client.request(verb, "/rules", json=body, headers=OPERATOR)
            assert answer.status_code == status, answer.text[:300]
    assert_problem(answer, 422, "bytes long, and 100,000 is the most")
    topics = [topic for topic, _ in system.backend.published]
    assert topics == ["hothouse/v1/demo/_site/operator/event"] * 2
    for topic, payload in system.backend.published:
        assert len(payload) > MAX_DOCUMENT_BYTES
        assert HothouseDecoder().take(topic, payload, ORIGIN_MS).record is not None


@pytest.mark.parametrize("verb", ["PUT", "PATCH"])
@pytest.mark.parametrize("table", ['{"limit":1}', '{"kind":"frost","limit":1}', '{"colour":1}', "7"])
def test_a_name_that_cannot_be_written_is_refused(system: System, verb: str, table: str) -> None:
    """JSON may hold half of a surrogate pair: 422 with a sentence, not a failure of ours."""
    headers = {**OPERATOR, "Content-Type": "application/json"}
    for content in (f'{{"changes":{{"\\ud800":{table}}}}}', '{"zones":{"\\ud800":{"changes":{}}}}'):
        assert_problem(system.client.request(verb, "/rules", content=content, headers=headers), 422, "")
    assert system.backend.published == []


def test_wrong_rules_of_a_zone_are_refused_with_its_name(system: System) -> None:
    """Also a zone that is not there; nothing is published."""
    system.backend.rules |= {"document": ZONED, "zones": ["north-1"]}
    for verb, where, body, says in (
        ("PUT", "?zone=north-2", {"changes": {"frost": {"chance": 20}}}, "zone north-2: frost: chance is 20"),
        ("PATCH", "", {"zones": {"north-2": {"crop": "moss"}}}, "zone north-2: crop 'moss' is not one of"),
        ("PATCH", "", {"zones": {"z9": {}}}, "body.zones: there is no zone z9 in demo; known are north-1, north-2"),
        ("PUT", "", {"zones": {"z9": {}}}, "body.zones: there is no zone z9 in demo"),
        ("PUT", "?zone=north-2", {"zones": {}}, "body.zones: a zone has no zones"),
        ("PATCH", "?zone=north-2", {"zones": {"z9": {}}}, "body.zones: a zone has no zones"),
    ):  # fmt: skip
        answer = system.client.request(verb, f"/rules{where}", json=body, headers=OPERATOR)
        assert_problem(answer, 422, says)
    assert_problem(system.client.put("/rules?zone=attic", json={}, headers=OPERATOR), 404, "there is no zone attic")
    assert system.backend.published == []
