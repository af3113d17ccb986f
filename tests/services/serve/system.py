"""The HTTP application over a live state in this process, for tests."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi.testclient import TestClient

from services.serve.api.app import create_app
from services.serve.api.auth import Keys
from services.serve.api.state import ApiState
from services.serve.live_state import LiveState
from tests.services.serve.fakes import HOUR_MS, ORIGIN_MS, SPEC, FakeBackend, alert, zone_forecast

OPERATOR = {"Authorization": "Bearer op-key"}


class System:
    """A client, and what stands behind it."""

    def __init__(self, keys: Keys, *, published: bool = True) -> None:
        self.live_state = LiveState(1000, lambda: ORIGIN_MS)
        self.backend = FakeBackend(self.live_state)
        self.state = ApiState(self.backend, keys, SPEC, stale_after_s=1800)
        self.state.events.longest_s = 0  # a client of tests reads a stream to its end
        self.client = TestClient(create_app(self.state), raise_server_exceptions=False)
        if published:
            self.fill()

    def fill(self) -> None:
        """Publish two zones, and let the view take them as its follower would."""

        async def run() -> None:
            await self.live_state.publish([zone_forecast("north-1"), zone_forecast("north-2")])
            await self.live_state.put_past("demo", "north-1", [ORIGIN_MS], {"air_temp_c": [18.0]})
            await self.live_state.put_stats("shard-0", {"accepted": 12, "rejected": {"malformed": 2}, "last_error": ""})
            await self.live_state.set_models([{"version": "v1"}])
            await self.state._take(await self.live_state.wait(0, 0))

        asyncio.run(run())


def alerted_system() -> System:
    """One of two zones with alerts of each state; reading is open, and the operator's key is ``op-key``."""
    made = System(Keys("op-key"))
    shown = [
        alert("a1"), alert("a2", "pending", severity="warning", rule="heat"),
        alert("a3", severity="info", changed_ms=ORIGIN_MS + 1), alert("a4", "resolved", zone="north-2"),
        alert("a5", "muted", muted_until_ms=ORIGIN_MS + HOUR_MS), alert("a6", "acknowledged"),
    ]  # fmt: skip
    asyncio.run(made.live_state.put_alerts(shown))
    made.state.view.take(asyncio.run(made.live_state.wait(made.state.view.versions[0], 0)))
    return made


def assert_problem(answer: Any, status: int, says: str) -> None:
    """The answer is a problem (RFC 9457) with this sentence."""
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert body["title"]
    assert says in body["detail"]
