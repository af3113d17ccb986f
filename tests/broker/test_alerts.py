"""An alert from a zone that falls silent to a topic that is cleared: broker, gateway, log, shard, API and delivery."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from edge.clock import CLOCK_TOPIC, encode_clock
from edge.log.sqlite import SqliteLog
from edge.mqtt.connection import MqttAddress, new_client, open_connection
from edge.mqtt.publish import publish_all, publish_once
from edge.wire.reading import encode_message
from edge.wire.topic import sample_topic
from services.alert.delivery import Deliverer
from services.alert.retained_alerts import RetainedAlerts
from services.ingest.alerts.alert_journal import changes_of
from services.ingest.shard import Shard
from services.messages import ShownAlert, SiteRulesShown
from services.serve.api.app import create_app
from services.serve.api.auth import Keys
from services.serve.api.state import ApiState
from services.serve.live_state import LiveState
from tests.broker.conftest import GatewayProcess, device, until
from tests.services.ingest.rig import Rig
from tests.services.ingest.samples import STEP, T0, sample
from tests.services.serve.fakes import SPEC, FakeBackend

pytestmark = pytest.mark.broker

OPERATOR = {"Authorization": "Bearer op-key"}


class Backend(FakeBackend):
    """Asks a shard in this process, and publishes to the gateway's broker."""

    def __init__(self, live_state: LiveState, shard: Shard, gateway: GatewayProcess, storage: Path) -> None:
        super().__init__(live_state)
        self._shard, self._gateway, self._storage = shard, gateway, storage

    async def alert_changes(self, id: str) -> list[ShownAlert]:
        return changes_of(self._storage, id)

    async def alert_rules(self, site: str) -> SiteRulesShown:
        found = self._shard.questions.alert_rules(site)
        assert found is not None
        return found

    async def publish(self, topic: str, payload: bytes) -> None:
        await asyncio.to_thread(publish_once, self._gateway.address, "test-api", topic, payload)


class House:
    """A gateway's log, a shard that reads it, the API over both, and what delivers alerts to the broker."""

    def __init__(self, gateway: GatewayProcess, folder: Path) -> None:
        self.gateway, self.now_s = gateway, 0.0
        self._log = SqliteLog(gateway.log_path)
        self._rig = Rig(folder, self._log)  # type: ignore[arg-type]
        self.shard = self._rig.shard()
        storage = self._rig.settings.storage_folder
        self._topics = RetainedAlerts(storage, self._publish, 3600, lambda: self.now_s)
        self._deliverer = Deliverer(storage, self._topics, lambda: self.now_s)
        live_state = LiveState(1000, lambda: T0)
        self.state = ApiState(Backend(live_state, self.shard, gateway, storage), Keys("op-key"), SPEC, 1800)
        self.client = TestClient(create_app(self.state))
        self._live_state = live_state

    def _publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        publish_all(self.gateway.address, "test-alerts", messages, retain=True)

    def moments(self, steps: range, *zones: str) -> None:
        """The clock goes on, and these zones send samples."""
        with device(self.gateway.address) as publish:
            for n in steps:
                at_ms = T0 + n * STEP
                samples = [sample(at_ms, n, zone, site=self.gateway.site) for zone in zones]
                taken = [(sample_topic(one.site, one.zone, one.device), encode_message([one])) for one in samples]
                clock = [(CLOCK_TOPIC, encode_clock(at_ms + tick * STEP // 10)) for tick in range(10)]
                publish([clock[0], *taken, *clock[1:]])

    def alerts(self) -> dict[str, Any]:
        """Read on, deliver, and ask the API: state by zone."""
        self.shard.step()
        self._deliverer.look()

        async def follow() -> None:
            await self._live_state.put_alerts(list(self._rig.live_state.alerts.values()))
            await self._live_state.put_stats("shard-0", {"stream_ms": {self.gateway.site: T0 + STEP}})
            await self.state._take(await self._live_state.wait(self.state.view.versions[0], 0))

        asyncio.run(follow())
        return {alert["zone"]: alert for alert in self.client.get("/alerts?rule=stale_zone").json()["alerts"]}

    def state_of(self, zone: str) -> str:
        """How it is with the silence of a zone; empty while nobody was told of any."""
        return str(self.alerts().get(zone, {}).get("state", ""))

    def close(self) -> None:
        """Release files."""
        self.shard.close()
        self._log.close()


@pytest.fixture
def house(gateway: GatewayProcess, tmp_path: Path) -> Iterator[House]:
    """It goes by the clock of a replay."""
    gateway.gateway = {"clock": "replayed"}
    gateway.start()
    made = House(gateway, tmp_path / "data")
    yield made
    made.close()


@contextmanager
def retained(address: MqttAddress, site: str) -> Iterator[dict[str, Any]]:
    """What who connects now finds on the site's topics of alerts, and what comes then, by topic."""
    client, found = new_client(address, f"test-page-{secrets.token_hex(4)}", v5=address.v5), dict[str, Any]()
    subscribed: list[bool] = []

    def on_message(_: object, __: object, message: Any) -> None:
        found[message.topic] = json.loads(message.payload) if message.payload else None

    client.on_message = on_message
    client.on_connect = lambda *_: client.subscribe(f"hothouse/v1/{site}/+/alert/+", 1)
    client.on_subscribe = lambda *_: subscribed.append(True)
    open_connection(client, address)
    try:
        until(lambda: subscribed)
        yield found
    finally:
        client.disconnect()
        client.loop_stop()


def test_a_silent_zone_is_told_acknowledged_and_over(house: House) -> None:
    """On its topic as over the API, in the same words; and nothing of it is counted as a message that nobody reads."""
    site, address = house.gateway.site, house.gateway.address
    house.moments(range(4), "z1", "z2")
    house.moments(range(4, 10), "z1")
    until(lambda: house.state_of("z2") == "firing", "the alert fires")
    alert = house.alerts()["z2"]
    topic = f"hothouse/v1/{site}/z2/alert/{alert['id']}"
    with retained(address, site) as found:
        until(lambda: topic in found, "who connects finds it")
        later = {name: found[topic][name] for name in ("seen_ms", "until_ms")}
        words = [{name: fact[name] for name in found[topic]["why"][0]} for fact in alert["why"]]  # no codes by MQTT
        assert found[topic] == alert | later | {"why": words}
        answer = house.client.post(f"/alerts/{alert['id']}/acknowledge", headers=OPERATOR)
        assert answer.status_code == 202, answer.text
        until(lambda: house.state_of("z2") == "acknowledged", "the order comes back through the log")
        until(lambda: found[topic]["state"] == "acknowledged", "the topic says so")
        house.moments(range(10, 26), "z1", "z2")
        until(lambda: house.state_of("z2") == "resolved", "it is over")
        until(lambda: found[topic]["state"] == "resolved", "the topic says so, too")
        house.now_s += 3601
        until(lambda: house.alerts() and found[topic] is None, "an hour later the topic is cleared")
    with retained(address, site) as found:
        publish_once(address, "test-end", f"hothouse/v1/{site}/z1/alert/last", b'"last"')
        until(lambda: f"hothouse/v1/{site}/z1/alert/last" in found)
        assert topic not in found
    changes = house.client.get(f"/alerts/{alert['id']}").json()["changes"]
    assert [change["state"] for change in changes] == ["firing", "acknowledged", "resolved"]
    assert house.gateway.status()["other_topics"] == 0


def test_rules_that_are_changed_over_the_api_hold(house: House) -> None:
    """They come back through broker, gateway and log; a mistake is refused at once."""
    house.moments(range(4), "z1")
    until(lambda: house.alerts() is not None and house.shard.questions.alert_rules(house.gateway.site))
    answer = house.client.patch("/rules", json={"changes": {"frost": {"limit": 9}}}, headers=OPERATOR)
    assert (answer.status_code, answer.json()["version"]) == (202, 2), answer.text
    until(lambda: house.alerts() is not None and house.client.get("/rules").json()["version"] == 2, "they hold")
    assert house.client.get("/rules").json()["changes"] == {"frost": {"limit": 9}}
    wrong = house.client.patch("/rules", json={"changes": {"frost": {"chance": 20}}}, headers=OPERATOR)
    assert (wrong.status_code, wrong.json()["errors"][0]["where"]) == (422, "changes.frost")
