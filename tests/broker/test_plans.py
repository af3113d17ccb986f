"""A plan's whole way: published by a device or an operator, carried by broker, gateway and log, used by a row, and
shown at ``/zones/{zone}/plan``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from edge.clock import CLOCK_TOPIC, encode_clock
from edge.log.sqlite import SqliteLog
from edge.mqtt.publish import publish_once
from edge.wire.plan import plan_topic
from edge.wire.reading import encode_message
from edge.wire.topic import sample_topic
from services.ingest.shard import Shard
from services.messages import ZonePlan
from services.serve.api.app import create_app
from services.serve.api.auth import Keys
from services.serve.api.state import ApiState
from services.serve.live_state import LiveState
from tests.broker.conftest import GatewayProcess, device, until
from tests.services.ingest.rig import Rig
from tests.services.ingest.samples import STEP, T0, sample
from tests.services.serve.fakes import SPEC, FakeBackend, zone_forecast

pytestmark = pytest.mark.broker

HOUR = 3_600_000
OPERATOR = {"Authorization": "Bearer op-key"}


class Backend(FakeBackend):
    """Asks a shard in this process, and publishes to the gateway's broker."""

    def __init__(self, live_state: LiveState, shard: Shard, gateway: GatewayProcess) -> None:
        super().__init__(live_state)
        self._shard, self._gateway = shard, gateway

    async def plan(self, site: str, zone: str) -> list[ZonePlan]:
        return self._shard.questions.plan(site, zone) or []

    async def next_issue(self, site: str, zone: str, source: str, now_ms: int) -> int:
        return self._shard.questions.next_issue(site, zone, source, now_ms) or 0

    async def publish(self, topic: str, payload: bytes) -> None:
        await asyncio.to_thread(publish_once, self._gateway.address, "test-api", topic, payload)


@pytest.fixture
def shard(gateway: GatewayProcess, tmp_path: Path) -> Iterator[Shard]:
    """A shard that reads the gateway's log, of whose site three rows have closed."""
    gateway.gateway = {"clock": "replayed"}
    gateway.start()
    with device(gateway.address) as publish:
        for n in range(5):
            publish(moment(gateway.site, n))
    log = SqliteLog(gateway.log_path)
    rig = Rig(tmp_path / "data", log)  # type: ignore[arg-type]
    made = rig.shard()
    until(lambda: has_rows(made, 3))
    yield made
    made.close()
    log.close()


def has_rows(shard: Shard, count: int) -> bool:
    """Read on; whether so many rows have closed."""
    shard.step()
    return bool(shard.stats()["zone_rows"] >= count)


def moment(site: str, n: int) -> list[tuple[str, bytes]]:
    """The clock, and a sample of the zone."""
    at_ms = T0 + n * STEP
    taken = encode_message([sample(at_ms, n, site=site)])
    return [(CLOCK_TOPIC, encode_clock(at_ms)), (sample_topic(site, "z1", "climate"), taken)]


def client_of(site: str, shard: Shard, gateway: GatewayProcess) -> TestClient:
    """The API over them; it knows the zone's forecast."""
    live_state = LiveState(1000, lambda: T0)
    backend = Backend(live_state, shard, gateway)
    state = ApiState(backend, Keys("op-key"), SPEC, stale_after_s=1800, receive_clock="replayed")

    async def fill() -> None:
        await live_state.publish([zone_forecast("z1", site, origin_ms=T0 + 3 * STEP)])
        await live_state.put_stats("shard-0", {"stream_ms": {site: T0 + 4 * STEP}})
        await state._take(await live_state.wait(0, 0))

    asyncio.run(fill())
    return TestClient(create_app(state))


def document(**changed: Any) -> bytes:
    """A weather forecast, issued after the newest sample."""
    path = [[T0 + n * HOUR, 4.0 + n] for n in range(1, 40)]
    said = {"issued": T0 + 4 * STEP, "source": "knmi", "kind": "weather", "values": {"out_temp_c": path}}
    return json.dumps(said | changed).encode()


def test_a_device_publishes_and_the_zone_shows_it(gateway: GatewayProcess, shard: Shard) -> None:
    """Once, though it came twice; the bad ones beside it are dead letters, and rows go on."""
    site = gateway.site
    topic = plan_topic(site, "_site", "service")
    with device(gateway.address) as publish:
        bad = [document(issued=T0 + HOUR), document(values={"out_temp": []}), b"{", document(kind="wether")]
        publish([(topic, document()), *((topic, payload) for payload in bad), (topic, document())])
        for n in range(5, 9):
            publish(moment(site, n))
    until(lambda: has_rows(shard, 7))
    answer = client_of(site, shard, gateway).get("/zones/z1/plan")
    assert answer.status_code == 200, answer.text
    (plan,) = answer.json()["plans"]
    assert (plan["zone"], plan["source"], plan["kind"], plan["issued_ms"]) == (
        "_site",
        "knmi",
        "weather",
        T0 + 4 * STEP,
    )
    assert plan["values"]["out_temp_c"][0] == [T0 + HOUR, 5.0]
    stats = shard.stats()
    assert (stats["plans"], stats["plans_repeated"]) == (1, 1)
    assert stats["plans_refused"] == {"future_ts": 1, "unknown_metric": 1, "malformed": 2}
    assert stats["rejected"] == {}


def test_an_operator_puts_a_plan_and_the_zone_shows_it(gateway: GatewayProcess, shard: Shard) -> None:
    """Issued by the clock of the stream, and used from the next row on."""
    client = client_of(gateway.site, shard, gateway)
    body = {"values": {"sp_heat_c": [[T0 + HOUR, 18.5], [T0 + 6 * HOUR, 21.0]]}}
    assert client.put("/zones/z1/plan", json=body, headers=OPERATOR).status_code == 202
    with device(gateway.address) as publish:
        for n in range(5, 9):
            publish(moment(gateway.site, n))
    until(lambda: has_rows(shard, 7))
    (plan,) = client.get("/zones/z1/plan").json()["plans"]
    assert (plan["zone"], plan["source"], plan["values"]) == ("z1", "operator", body["values"])
    assert plan["known_ms"] <= T0 + 5 * STEP
