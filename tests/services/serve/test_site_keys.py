"""A key that is limited to some sites: nothing of another one is read or ordered with it, whatever is asked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from services.access_keys import AccessKeys
from services.messages import SiteRulesShown, ZoneMixture, ZoneQuality
from services.serve.api.auth import Keys
from tests.services.serve.fakes import FakeBackend, alert, zone_forecast
from tests.services.serve.system import OPERATOR, System, assert_problem

NOW_MS = 1_646_092_800_000
OTHER = "orchard"
"""The site that is not the key's. It has a zone ``secret``, which is asked for, and a ``vault``, which never is."""
ASKED: dict[str, list[str]] = {
    "GET /predict": ["zone=secret", f"zone={OTHER}/secret", f"zone=secret&site={OTHER}", f"zones={OTHER}/secret"],
    "GET /zones": ["", f"site={OTHER}", f"zones={OTHER}/secret"],
    "GET /history": ["zone=secret", f"zone={OTHER}/secret"],
    "GET /zones/{zone}/plan": ["", f"site={OTHER}"],
    "GET /zones/{zone}/series": ["", f"site={OTHER}"],
    "GET /zones/{zone}/forecasts": ["", f"site={OTHER}"],
    "GET /alerts/scores": ["zone=secret", f"zone={OTHER}/secret"],
    "GET /alerts": ["", f"site={OTHER}", f"zone={OTHER}/secret", f"zones={OTHER}/secret"],
    "GET /alerts/{id}": [""],
    "GET /rules": ["", f"site={OTHER}", f"zone={OTHER}/secret"],
    "GET /events": [""],
    "GET /quality": ["", "zone=secret", f"zone={OTHER}/secret", f"zones={OTHER}/secret"],
    "GET /models": [""],
    "GET /models/zones": [""],
    "GET /status": [""],
    "GET /deadletters": ["newest=10"],
    "GET /metrics": [""],
    "GET /health/live": [""],
    "GET /health/ready": [""],
    "POST /predict": [""],
    "PUT /zones/{zone}/plan": ["", f"site={OTHER}"],
    "PUT /rules": [f"site={OTHER}", f"zone={OTHER}/secret"],
    "PATCH /rules": [f"site={OTHER}", f"zone={OTHER}/secret"],
    "POST /alerts/{id}/acknowledge": [""],
    "POST /alerts/{id}/mute": [""],
    "POST /alerts/{id}/unmute": [""],
    "POST /models/retrain": [""],
    "POST /models/rollback": [""],
    "POST /models/submit": [""],
    "POST /models/{version}/promote": [""],
}
BODIES: dict[str, Any] = {
    "POST /predict": {"zone": "secret", "site": OTHER, "rows": [{"end_ms": NOW_MS, "values": {"air_temp_c": 20.0}}]},
    "PUT /zones/{zone}/plan": {"values": {"sp_heat_c": [[NOW_MS + 3_600_000, 18.5]]}},
    "PUT /rules": {"crop": "lettuce"},
    "PATCH /rules": {"crop": "lettuce"},
    "POST /alerts/{id}/mute": {"hours": 8},
    "POST /models/submit": {"folder": "/tmp/model"},
}
ALL_SITES = ("GET /status", "GET /deadletters", "GET /metrics", "POST /models/")


class TwoSites(FakeBackend):
    """Answers for any site that it is asked about."""

    async def quality(self, asked: tuple[str, str] | None) -> list[ZoneQuality]:
        found = await super().quality(asked)
        return found if asked else [*found, ZoneQuality(site=OTHER, zone="secret", days=1.0, scores={})]

    async def mixtures(self) -> list[ZoneMixture]:
        found = await super().mixtures()
        return [*found, found[0] | ZoneMixture(site=OTHER, zone="secret")]  # type: ignore[typeddict-item]

    async def alert_rules(self, site: str) -> SiteRulesShown:
        return self.rules | SiteRulesShown(site=site, changed_by=f"somebody of {site}")  # type: ignore[typeddict-item]


@pytest.fixture
def system(tmp_path: Path) -> System:
    """Two sites; reading needs a key."""
    named = AccessKeys(tmp_path)
    made = System(Keys("op-key", None, named, read_needs_key=True), published=False)
    made.backend.__class__ = TwoSites
    made.keys = {  # type: ignore[attr-defined]
        scope: {"Authorization": f"Bearer {named.add(f'demo-{scope}', scope, NOW_MS, None, ['demo'])}"}
        for scope in ("read", "operate")
    }
    mine, theirs = alert("mine"), alert("theirs", site=OTHER, zone="secret")
    made.backend.alert_log = {"mine": [mine], "theirs": [theirs]}

    async def run() -> None:
        degraded = zone_forecast("secret", OTHER, degraded=["its sensors are away"])
        await made.live_state.publish([zone_forecast("north-1"), degraded, zone_forecast("vault", OTHER)])
        await made.live_state.put_alerts([mine, theirs])
        await made.live_state.put_stats("shard-0", {"accepted": 12, "stream_ms": {"demo": NOW_MS, OTHER: NOW_MS}})
        await made.state._take(await made.live_state.wait(0, 0))

    asyncio.run(run())
    return made


def ask(system: System, what: str, query: str, key: dict[str, str]) -> Any:
    """The answer to one call about the other site."""
    method, path = what.split()
    path = path.format(zone="secret", id="theirs", version="v1")
    return system.client.request(
        method, f"{path}?{query}" if query else path, json=BODIES.get(what), headers=dict(key)
    )  # fmt: skip


def test_every_call_is_tried(system: System) -> None:
    """A call that is added later has to be added here."""
    described = system.client.get("/openapi.json").json()["paths"]
    assert {f"{method.upper()} {path}" for path, methods in described.items() for method in methods} == set(ASKED)


@pytest.mark.parametrize(("what", "query"), [(what, query) for what, queries in ASKED.items() for query in queries])
@pytest.mark.parametrize("scope", ["read", "operate"])
def test_nothing_of_another_site_is_told_or_ordered(system: System, what: str, query: str, scope: str) -> None:
    """It is as if the other site was not there; what is about the whole system is refused."""
    answer = ask(system, what, query, system.keys[scope])  # type: ignore[attr-defined]
    for told in ("vault", "sensors are away", f'"site":"{OTHER}"', f'"{OTHER}/secret":'):
        assert told not in answer.text
    if OTHER not in f"{query} {BODIES.get(what)}":
        assert OTHER not in answer.text
    elif not what.startswith("GET") or (query.startswith("zone=") and what != "GET /alerts"):
        assert answer.status_code in (403, 404)
    assert system.backend.published == []
    assert system.backend.orders == []
    if what.startswith(ALL_SITES):
        assert answer.status_code == 403


def test_the_same_calls_tell_the_operator_of_the_other_site(system: System) -> None:
    """So the calls above are such that would tell."""
    told = {what for what, queries in ASKED.items() for query in queries
            if OTHER in ask(system, what, query.removeprefix(f"site={OTHER}"), OPERATOR).text}  # fmt: skip
    assert told >= {
        "GET /predict", "GET /zones", "GET /alerts", "GET /alerts/{id}", "GET /rules", "GET /quality",
        "GET /models/zones", "GET /status", "GET /health/ready",
    }  # fmt: skip


def test_its_own_site_is_read_and_ordered(system: System) -> None:
    """Without naming it, too: there is no other."""
    read, operate = system.keys["read"], system.keys["operate"]  # type: ignore[attr-defined]
    get = system.client.get
    assert get("/predict?zone=north-1", headers=read).json()["site"] == "demo"
    assert [zone["site"] for zone in get("/zones", headers=read).json()["zones"]] == ["demo"]
    assert [one["id"] for one in get("/alerts", headers=read).json()["alerts"]] == ["mine"]
    assert get("/alerts/mine", headers=read).status_code == 200
    assert get("/rules", headers=read).json()["site"] == "demo"
    assert get("/models", headers=read).status_code == 200
    acknowledged = system.client.post("/alerts/mine/acknowledge", headers=operate)
    assert acknowledged.status_code == 202
    assert len(system.backend.published) == 1
    refused = system.client.post("/models/retrain", headers=operate)
    assert_problem(refused, 403, "this is about all sites, and the key demo-operate is limited to demo")
    assert refused.json()["sites"] == ["demo"]  # of a key that is not accepted nothing is said


def test_a_stream_of_events_has_what_is_about_its_sites(system: System) -> None:
    """Zones and alerts of its own; that models changed, but not what was said of them."""

    async def run() -> list[bytes]:
        events, health = system.state.events, system.state.recent_readiness()
        events.longest_s, seen = 60, str(system.state.view.versions[0])
        streams = [events.stream(seen, health, sites) for sites in ({"demo"}, {"nowhere"}, None)]
        begun = [await anext(stream) for stream in streams]
        await system.live_state.publish([zone_forecast("north-1"), zone_forecast("secret", OTHER)])
        await system.live_state.put_alerts([alert("mine", change=9), alert("theirs", site=OTHER, change=9)])
        await system.live_state.put_event({"kind": "retrained", "version": "v2", "message": f"{OTHER} has drifted"})
        await system.state._take(await system.live_state.wait(system.state.view.versions[0], 0))
        texts = [await anext(stream) for stream in streams]
        for stream in streams:
            await stream.aclose()
        return [*begun, *texts]

    *_, mine, nowhere, every = asyncio.run(run())
    assert (mine.count(b"event: "), nowhere.count(b"event: "), every.count(b"event: ")) == (3, 1, 4), (
        "how the system is stood in hello"
    )
    assert b"north-1" in mine
    assert OTHER.encode() not in mine + nowhere
    assert every.count(OTHER.encode()) >= 3
    assert mine.splitlines()[-2:] == every.splitlines()[-2:], "the same id"


def test_where_reading_is_open_a_limit_holds_for_orders(tmp_path: Path) -> None:
    """Everybody reads everything; a limited key orders where it may."""
    named = AccessKeys(tmp_path)
    system = System(Keys("op-key", None, named))
    limited = {"Authorization": f"Bearer {named.add('demo', 'operate', NOW_MS, None, [OTHER])}"}
    assert system.client.get("/zones", headers=limited).json()["zones"]
    order = system.client.put("/zones/north-1/plan", headers=limited, json=BODIES["PUT /zones/{zone}/plan"])
    assert_problem(order, 404, "there is no zone north-1")


def test_a_release_that_knows_no_limits_does_not_take_the_key_for_one_of_all(tmp_path: Path) -> None:
    """Its file format is refused there: nothing is read with a key that could do more than it may."""
    named = AccessKeys(tmp_path)
    named.add("all", "read", NOW_MS)
    assert b"sites" not in (tmp_path / "keys.json").read_bytes(), "a file without limits is as it was"
    named.add("limited", "read", NOW_MS, None, ["demo"])
    assert [one.get("sites") for one in json.loads((tmp_path / "keys.json").read_bytes())["keys"]] == [None, ["demo"]]
