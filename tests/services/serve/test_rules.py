"""``/rules``: what a site and its zones are warned of, and how that is changed."""

from __future__ import annotations

import asyncio
import tomllib
from typing import Any

import pytest

from edge.wire import alert_orders
from edge.wire.alert_orders import ChangeRules, decode_order
from edge.wire.decoder import MAX_DOCUMENT_BYTES, HothouseDecoder
from models.alerts.rules_document import RulesDocument
from services.ingest.alerts.site_documents import SiteDocuments
from services.messages import SiteRulesShown
from services.serve.api.answers.alert_answers import rules_answer
from services.serve.api.routes import rule_routes
from tests.patience import patience_s
from tests.services.serve.fakes import ORIGIN_MS
from tests.services.serve.system import OPERATOR, System, assert_problem


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
    wide = {"changes": {"heat": {"limit": 335}}}
    for method in ("PATCH", "PUT"):
        answer = system.client.request(method, "/rules", json=wide, headers=OPERATOR)
        assert_problem(answer, 422, "heat: limit is 335; it must be between -20 and 60 °C")
        assert [error["where"] for error in answer.json()["errors"]] == ["changes.heat"]
    assert_problem(
        system.client.patch("/rules", json={"crop": "moss"}, headers=OPERATOR), 422, "crop 'moss' is not one"
    )
    assert_problem(system.client.put("/rules", json={"crops": "moss"}, headers=OPERATOR), 422, "body.crops")
    assert_problem(system.client.put("/rules", json={}), 401, "this order needs a key")
    assert_problem(system.client.get("/rules?site=attic"), 404, "there is no site attic; known are demo")
    assert system.backend.published == []


def test_what_an_earlier_release_took_keeps_no_other_rule_from_being_changed(system: System) -> None:
    """Also of a zone; the rule itself is refused until its number makes sense."""
    wide, other = {"heat": {"limit": 335}}, {"frost": {"limit": 4}}
    system.backend.rules["document"] = {"changes": wide}
    in_zone = "/rules?zone=north-1"
    for method, path, changes in (
        ("PATCH", "/rules", other), ("PUT", "/rules", wide | other), ("PATCH", in_zone, other), ("PUT", in_zone, other)
    ):  # fmt: skip
        answer = system.client.request(method, path, json={"changes": changes}, headers=OPERATOR)
        assert answer.status_code == 202
    answer = system.client.patch("/rules", json={"changes": {"heat": {"chance": 0.5}}}, headers=OPERATOR)
    assert_problem(answer, 422, "heat: limit is 335; it must be between -20 and 60 °C")


def test_a_site_is_named_where_there_are_several(system: System) -> None:
    """The answer names them."""
    system.state.view._streams.row("other", ORIGIN_MS, is_new=True)
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


def test_rules_of_a_version_to_come_are_awaited_and_not_replaced(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of a moment ago is still in the log; one that never comes is told, and not taken for done."""
    monkeypatch.setattr(rule_routes, "TAKEN_S", 0.3)

    def send(version: str) -> Any:
        return system.client.patch("/rules", json={"stage": "fruiting"}, headers={**OPERATOR, "If-Match": version})

    assert_problem(send('"2"'), 412, "the rules of demo are not that far: they have version 1, and version 2 was")
    assert system.backend.published == []
    monkeypatch.setattr(rule_routes, "TAKEN_S", patience_s(30))
    asked = 0

    async def taken_late(site: str) -> SiteRulesShown:
        nonlocal asked
        asked += 1
        return system.backend.rules | SiteRulesShown(site=site, version=1 if asked < 3 else 2)  # type: ignore[typeddict-item]

    monkeypatch.setattr(system.backend, "alert_rules", taken_late)
    answer = send('"2"')
    assert (answer.status_code, answer.json()["version"], len(system.backend.published)) == (202, 3, 1)


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
