"""When the system says that it is ready, what it waits for, and what its status shows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import msgspec
from fastapi.testclient import TestClient

from services.ingest.figures import ShardFigures
from services.learn.records import row_of
from services.serve.api.answer_types import StatusAnswer
from services.serve.api.app import create_app
from services.serve.api.auth import Keys
from services.serve.api.state import ApiState
from tests.services.ingest.rig import Rig, day, filled
from tests.services.serve.fakes import ORIGIN_MS, SPEC, zone_forecast
from tests.services.serve.system import System, assert_problem


class Readiness:
    """A system whose clock and shard's figures are given; ``ready`` asks /health/ready."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.system = System(Keys("op-key"), published=False)
        self.system.state = state = ApiState(self.system.backend, Keys("op-key"), SPEC, 1800, lambda: self.now_s)
        self.system.client = TestClient(create_app(state), raise_server_exceptions=False)

    def show(self, stream_ms: int, origin_ms: int | None = None, wall_s: float = 1.0, **figures: Any) -> None:
        async def run() -> None:
            self.now_s += wall_s
            if origin_ms is not None:
                await self.system.live_state.publish([zone_forecast(origin_ms=origin_ms)])
            shard = {"samples": 12, "accepted": 12, "zone_rows": 0, "behind": False, "stream_ms": {"demo": stream_ms}}
            await self.system.live_state.put_stats("shard-0", {**shard, **figures})
            await self.system.state._take(await self.system.live_state.wait(self.system.state.view.versions[0], 0))

        asyncio.run(run())

    def ready(self) -> tuple[int, str]:
        answer = self.system.client.get("/health/ready")
        return answer.status_code, answer.json().get("detail", "")


def test_ready_only_after_a_first_forecast() -> None:
    """503 with what is waited for before any zone has a forecast, 200 after."""
    one = Readiness()
    assert one.system.client.get("/health/live").status_code == 200
    assert one.ready() == (503, "not ready: no zone has a forecast yet: the shards have not reported yet")
    one.show(ORIGIN_MS, samples=0, accepted=0)
    assert one.ready() == (503, "not ready: no zone has a forecast yet: no sample has come yet")
    one.show(ORIGIN_MS, samples=5, accepted=0)
    assert "5 samples came, none could be taken" in one.ready()[1]
    row = {"site": "demo", "end_ms": ORIGIN_MS + 60_000, "closes_ms": ORIGIN_MS + 90_000}
    one.show(ORIGIN_MS, first_rows=[row])
    assert one.ready()[1].endswith(
        "12 samples came; the first row, of demo, closes in 1.5 min of the stream, at 2022-03-01 00:01:30 UTC"
    )
    one.system.state.timezone = lambda site: {"demo": "Europe/Amsterdam"}[site]
    assert one.ready()[1].endswith("at 2022-03-01 01:01:30 Europe/Amsterdam")
    one.show(ORIGIN_MS)
    assert "of weather stations alone" in one.ready()[1]
    one.show(ORIGIN_MS, zone_rows=3, zones=["demo/north-1"])
    assert "3 rows are closed; a forecast from the newest is awaited" in one.ready()[1]
    one.show(ORIGIN_MS, zone_rows=3, zones=[])
    assert "every zone has left" in one.ready()[1]
    one.show(ORIGIN_MS, ORIGIN_MS, zone_rows=4)
    assert one.ready() == (200, "")
    assert one.system.client.get("/health/ready").json()["zones_usable"] == 1


def test_ready_comes_once_whatever_the_log_holds() -> None:
    """While an import is read it is not ready and says so; nor does it go when what comes now begins hours later."""
    one, hour_ms = Readiness(), 3_600_000
    for n in range(5):  # forecasts are hours behind while much is read at once
        one.show(ORIGIN_MS + 5 * n * hour_ms, ORIGIN_MS + 5 * (n - n % 2) * hour_ms, behind=True, backlog=7000)
        status, words = one.ready()
        assert status == 503
        assert words.endswith("the log is read, 7,000 records wait")
    end_ms = ORIGIN_MS + 25 * hour_ms
    one.show(end_ms, end_ms, behind=True, backlog=20)  # as under a load that piles up some records again and again
    assert one.ready()[0] == 200
    live_ms = end_ms + round(11.9 * hour_ms)
    for second in range(0, 400, 10):
        one.show(live_ms + second * 1000, wall_s=10.0)
        assert one.ready()[0] == 200, second
    assert_problem(one.system.client.get("/predict?zone=north-1"), 503, "the newest reading is 12 h old")
    one.show(live_ms + 400_000, live_ms + 300_000)
    assert one.ready()[0] == 200
    one.show(live_ms + 2 * hour_ms, behind=True, backlog=7000)  # a backlog that a restarted shard reads
    one.show(live_ms + 4 * hour_ms)
    assert one.ready()[0] == 200


def test_readiness_goes_where_no_row_closes_or_nothing_comes() -> None:
    """After the limit of stream time without a row, or of wall time without a sign of the stream; and comes back."""
    one, limit_ms = Readiness(), 1_800_000
    one.show(ORIGIN_MS, ORIGIN_MS)
    assert one.ready()[0] == 200
    for n in range(1, 7):
        one.show(ORIGIN_MS + n * limit_ms // 4)
        assert one.ready()[0] == (200 if n <= 3 else 503)
    assert "no zone has a forecast that is fresh enough" in one.ready()[1]
    one.show(ORIGIN_MS + 2 * limit_ms, ORIGIN_MS + 2 * limit_ms - 300_000)
    assert one.ready()[0] == 200
    one.show(ORIGIN_MS + 2 * limit_ms, wall_s=1790.0)
    assert one.ready()[0] == 200
    one.show(ORIGIN_MS + 2 * limit_ms, wall_s=20.0)
    assert one.ready()[0] == 503
    one.show(ORIGIN_MS + 2 * limit_ms + 1000)
    assert one.ready()[0] == 200


def test_status_and_metrics_show_the_components(system: System) -> None:
    """Figures of the shards are in /status and, as Prometheus counters, in /metrics."""
    status = system.client.get("/status").json()
    assert status["components"]["shard-0"]["accepted"] == 12
    assert status["models"] == [{"version": "v1"}]
    text = system.client.get("/metrics").text
    assert 'hothouse_samples_accepted_total{component="shard-0"} 12.0' in text
    assert 'hothouse_samples_rejected_total{component="shard-0",reason="malformed"} 2.0' in text
    assert "hothouse_api_zones 2.0" in text


def test_status_says_since_when_a_part_has_told_nothing() -> None:
    """Its last figures stay, also those of a part that has died."""
    one = Readiness()
    one.show(ORIGIN_MS)
    one.now_s += 40
    status = one.system.client.get("/status").json()
    assert status["component_age_s"] == {"shard-0": 40.0}
    assert status["components"]["shard-0"]["accepted"] == 12


def test_metrics_leave_out_what_nothing_new_is_heard_of() -> None:
    """Replicas are asked in turn: an old count of one after a new one of another would be a new start of it."""
    one = Readiness()
    one.show(ORIGIN_MS)
    assert "hothouse_samples_accepted_total{" in one.system.client.get("/metrics").text
    one.now_s += 40
    text = one.system.client.get("/metrics").text
    assert "hothouse_samples_accepted_total{" not in text
    assert 'hothouse_component_age_seconds{component="shard-0"} 40.0' in text
    assert 'hothouse_api_live_state_age_seconds{live_state="board-0"} 40.0' in text
    one.show(ORIGIN_MS)
    assert "hothouse_samples_accepted_total{" in one.system.client.get("/metrics").text


def test_status_is_what_its_description_says(system: System, tmp_path: Path) -> None:
    """What a shard, a model, an event and a replica are shown as has every field, each of its type."""
    rig = Rig(tmp_path, filled(list(day(10))))
    shard = rig.shard()
    rig.drain(shard)
    row = row_of(SimpleNamespace(version="1", tags={}, creation_timestamp=ORIGIN_MS), ["champion"])

    async def show() -> None:
        await system.live_state.put_stats("shard-0", shard.stats())
        await system.live_state.set_models([row])
        await system.live_state.put_event({"kind": "swap", "version": "v1", "before": "online", "reason": "better"})
        await system.state._take(await system.live_state.wait(0, 0))

    asyncio.run(show())
    system.backend.replicas = {"a1": {"generation": 2, "version": "v1", "error": ""}}
    status = system.client.get("/status").json()
    kinds = get_type_hints(StatusAnswer)
    assert set(status) == set(kinds)
    assert status["models"] == [row]
    for field in set(status) - {"components"}:
        msgspec.convert(status[field], kinds[field])
    assert msgspec.convert(status["components"]["shard-0"], ShardFigures, str_keys=True) == shard.stats()


def test_whatever_fails_is_in_status_and_named_by_readiness(system: System) -> None:
    """Errors of parts, parts of parts and replicas stand in /status; /health/ready names the components, no words."""

    async def fail() -> None:
        await system.live_state.put_stats(
            "shard-0", {"last_error": "", "series": {"last_error": "ConnectionError: away"}}
        )
        await system.live_state.put_stats("retrainer", {"last_error": "", "registry_error": "MLflow does not answer"})
        await system.live_state.put_stats("gateway", {"error": "not connected to the broker: refused"})
        await system.live_state.put_stats("forecaster", {"last_error": "v1 cannot be loaded: golden output differs"})
        await system.state._take(await system.live_state.wait(0, 0))

    asyncio.run(fail())
    system.backend.replicas = {"a1": {"generation": 2, "version": "v1", "error": "golden output differs"}}
    assert system.client.get("/status").json()["errors"] == [
        "forecaster a1: golden output differs",
        "gateway: not connected to the broker: refused",
        "retrainer registry: MLflow does not answer",
        "shard-0 series: ConnectionError: away",
    ]
    ready = system.client.get("/health/ready")
    assert ready.status_code == 200
    assert ready.json()["degraded"] == ["forecaster", "gateway", "retrainer registry", "shard-0 series"]
    assert "refused" not in ready.text
