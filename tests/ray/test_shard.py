"""A shard actor on Ray: it finds its partners by name, survives kill -9 and gives the same history."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from fastapi.testclient import TestClient
from ray import serve

from edge.clock import CLOCK_TOPIC, encode_clock
from edge.log import partition_of
from edge.log.sqlite import SqliteLog
from edge.wire.reading import encode_message
from edge.wire.topic import sample_topic
from services.config import Settings, load_settings
from services.ingest.shard_actor import THREADS, ShardActor, start_shard
from services.installation import namespace_of
from services.messages import (
    FORECASTER_DEPLOYMENT,
    ChangeAsked,
    ForecastReply,
    ForecastRequest,
    ZoneForecast,
    live_state_actor,
    shard_actor,
)  # fmt: skip
from services.runtime.joined import end_earlier_run
from services.serve.api.app import create_app
from services.serve.api.auth import Keys
from services.serve.api.state import ApiState
from services.serve.backend.ray_backend import RayBackend
from services.serve.live_state import LiveState
from tests.broker.conftest import GatewayProcess, device, local_broker
from tests.gateways import broker_settings
from tests.patience import patience_s
from tests.ray.runtime import NAMESPACE, installed, local_ray
from tests.services.ingest.rig import day
from tests.services.ingest.samples import STEP, T0, new_records, sample
from tests.services.serve.fakes import SPEC, zone_forecast
from tests.tables import content_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
STEPS = 60


class RecordingLiveState:
    """Keeps what is published; says once that it lacks each zone's past, as the real live state does."""

    def __init__(self) -> None:
        self.newest: dict[tuple[str, str], ZoneForecast] = {}
        self.past: dict[tuple[str, str], int] = {}
        self.figures: dict[str, Any] = {}
        self.alerts: dict[str, dict[str, Any]] = {}
        self.first_version = time.time_ns()

    def publish(self, forecasts: Sequence[ZoneForecast]) -> list[tuple[str, str]]:
        self.newest.update({(f["site"], f["zone"]): f for f in forecasts})
        return [key for f in forecasts if (key := (f["site"], f["zone"])) not in self.past]

    def put_past(self, site: str, zone: str, end_ms: list[int], values: dict[str, list[float | None]]) -> None:
        self.past[site, zone] = len(end_ms)

    def identity(self) -> int:
        return self.first_version

    def put_alerts(self, alerts: list[dict[str, Any]]) -> None:
        self.alerts.update({alert["id"]: alert for alert in alerts})

    def put_stats(self, component: str, stats: dict[str, Any]) -> int:
        self.figures[component] = stats
        return self.first_version

    def seen(self) -> dict[str, Any]:
        return {"newest": self.newest, "past": self.past, "figures": self.figures, "first_version": self.first_version,
                "alerts": self.alerts}  # fmt: skip


class BaselineForecaster:
    """Answers with the baseline under a version of its own."""

    def forecast(self, request: ForecastRequest) -> ForecastReply:
        return ForecastReply(version="test", quantiles=request["baseline"])


class PidShard(ShardActor):
    """A shard that tells its process, so that a test can kill it, and whether it imported torch; its disk can hang."""

    def pid(self) -> int:
        return os.getpid()

    def modules(self) -> list[str]:
        import sys

        return [name for name in ("torch", "mlflow") if name in sys.modules]

    def hang(self) -> None:
        """As in a round that waits for a disk for ever."""
        self._shard._round.acquire()


@pytest.fixture(scope="module")
def runtime() -> Iterator[Any]:
    """Ray with a live state and a Forecaster under their real names; the value is the live state."""
    folder = tempfile.mkdtemp(prefix="r-")  # short: Ray puts sockets in it
    try:
        with local_ray(namespace=NAMESPACE, _temp_dir=folder):
            options = {"namespace": NAMESPACE, "num_cpus": 0, "max_restarts": -1}
            live_state = ray.remote(RecordingLiveState).options(name=live_state_actor(), **options).remote()
            serve.start(proxy_location="Disabled")
            deployment = serve.deployment(BaselineForecaster).options(
                name=FORECASTER_DEPLOYMENT, ray_actor_options={"num_cpus": 0.1}
            )
            serve.run(deployment.bind(), name="hothouse", route_prefix=None)
            yield live_state
            serve.shutdown()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def started(settings: Settings, index: int) -> Any:
    return start_shard(settings, index, range(settings.log.partitions), PidShard)


def until(condition: Callable[[], Any]) -> Any:
    """The first true answer; an actor that is away while Ray restarts it is asked again."""
    deadline, last = time.monotonic() + patience_s(90), ""
    while time.monotonic() < deadline:
        try:
            if found := condition():
                return found
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
            last = str(error)
        time.sleep(0.05)
    raise AssertionError(f"the condition did not come true within 90 s; {last}")


def ask(actor: Any, method: str) -> Any:
    return ray.get(getattr(actor, method).remote(), timeout=patience_s(30))


def content(settings: Settings) -> list[list[bytes]]:
    return [content_of(settings.storage_folder, kind) for kind in ("zones", "devices")]


def test_a_killed_shard_recovers_and_the_history_is_the_same(runtime: Any, tmp_path: Path) -> None:
    """Kill -9 twice in the middle: it comes back by itself, publishes, and leaves the history of a quiet run."""
    records, histories = list(day(STEPS)), []
    for index, kills in enumerate((0, 2)):
        settings = installed(load_settings(
            data_dir=tmp_path / str(index), log={"partitions": 2}, stream={"snapshot_s": 0.2, "shards": 1}
        ))  # fmt: skip
        log = SqliteLog(settings.log_path, settings.log.partitions)
        actor = started(settings, index)
        for part in range(3):
            log.append(records[part * len(records) // 3 : (part + 1) * len(records) // 3])
            if part < kills:
                until(lambda: ask(actor, "stats")["steps"] > 0)  # noqa: B023 (awaited within the round)
                os.kill(ask(actor, "pid"), signal.SIGKILL)
        stats = until(lambda: (s := ask(actor, "stats"))["steps"] == STEPS - 1 and not s["backlog"] and s)  # noqa: B023
        assert (stats["accepted"], stats["duplicates"], stats["late"]) == (3 * STEPS, STEPS // 10, STEPS // 10)
        offsets = ask(actor, "flush")
        assert sum(offsets.values()) == len(records)
        assert ask(actor, "ping") == "ok"
        assert ask(actor, "modules") == []
        newest = until(lambda: _shown(runtime, stats["origin_ms"]))  # noqa: B023
        assert newest["model_version"] == "test"
        until(lambda: ask(runtime, "seen")["past"].get(("demo", "z1")))
        until(lambda: shard_actor(index) in ask(runtime, "seen")["figures"])  # noqa: B023
        ask(actor, "stop")
        ray.kill(actor)
        log.close()
        histories.append(content(settings))
    assert histories[0] == histories[1]
    assert all(histories[0])


def _shown(live_state: Any, origin_ms: int) -> ZoneForecast | None:
    newest = ask(live_state, "seen")["newest"].get(("demo", "z2"))
    return newest if newest is not None and newest["origin_ms"] == origin_ms else None


def test_a_shard_that_dies_while_its_storage_is_away_goes_on_once_it_is_back(runtime: Any, tmp_path: Path) -> None:
    """Ray restarts it until it can read its snapshot."""
    settings = installed(load_settings(data_dir=tmp_path, log={"partitions": 1}))
    log = SqliteLog(settings.log_path, 1)
    actor = started(settings, 9)
    log.append(list(day(10)))
    until(lambda: ask(actor, "stats")["steps"] == 9)
    ask(actor, "flush")
    storage, away, pid = settings.storage_folder, tmp_path / "away", ask(actor, "pid")
    os.kill(pid, signal.SIGSTOP)  # else it may make the folder anew before the file is there
    storage.rename(away)
    storage.touch()  # what is asked for below it is an error of the disk
    os.kill(pid, signal.SIGKILL)
    said = settings.logs_dir / f"{shard_actor(9)}.log"
    until(lambda: said.read_text().count("it cannot begin yet, and is restarted") >= 2)
    storage.unlink()
    away.rename(storage)
    log.append(list(day(20))[-30:])
    until(lambda: (s := ask(actor, "stats"))["steps"] >= 18 and not s["backlog"])
    ask(actor, "stop")
    ray.kill(actor)
    log.close()


def test_a_restarted_live_state_is_told_everything_again(runtime: Any, tmp_path: Path) -> None:
    """After the live state died, forecasts and past of every zone come back without a new step."""
    zones = {("demo", "z1"), ("demo", "z2")}
    settings = installed(load_settings(data_dir=tmp_path, log={"partitions": 1}))
    log = SqliteLog(settings.log_path, 1)
    actor = started(settings, 7)
    log.append(list(day(10)))

    def told(another_than: int) -> int:
        """The live state that knows all of it."""
        seen = ask(runtime, "seen")
        whole = set(seen["newest"]) == set(seen["past"]) == zones and shard_actor(7) in seen["figures"]
        return int(seen["first_version"]) if whole and seen["first_version"] != another_than else 0

    until(lambda: ask(actor, "stats")["steps"] == 9)
    first = until(lambda: told(0))
    ray.kill(runtime, no_restart=False)
    until(lambda: told(first))
    ask(actor, "stop")
    ray.kill(actor)
    log.close()


def test_each_shard_tells_its_own_live_state(runtime: Any, tmp_path: Path) -> None:
    """Of two shards each is known by one live state alone, also after that was killed."""
    settings = installed(load_settings(
        data_dir=tmp_path, log={"partitions": 2}, stream={"shards": 2}, ray={"live_states": 2}
    ))  # fmt: skip
    second = ray.remote(RecordingLiveState).options(
        name=live_state_actor(1), namespace=NAMESPACE, num_cpus=0, max_restarts=-1
    ).remote()  # fmt: skip
    sites = [next(f"s{n}" for n in range(99) if partition_of(f"s{n}", 2) == partition) for partition in range(2)]
    log = SqliteLog(settings.log_path, 2)
    log.append(new_records([[sample(T0 + n * STEP, n, site=site)] for site in sites for n in range(10)]))
    shards = [start_shard(settings, index, [index], PidShard) for index in range(2)]

    def told(live_state: Any, another_than: int = 0) -> Any:
        seen = ask(live_state, "seen")
        return seen["first_version"] != another_than and {site for site, _ in seen["newest"]} & set(sites) and seen

    first = until(lambda: told(runtime))
    before = until(lambda: told(second))
    ray.kill(second, no_restart=False)
    after = until(lambda: told(second, before["first_version"]))
    for seen, site in ((first, sites[0]), (ask(runtime, "seen"), sites[0]), (before, sites[1]), (after, sites[1])):
        assert {one for one, _ in seen["newest"]} & set(sites) == {site}
    for actor in shards:
        ask(actor, "stop")
        ray.kill(actor)
    log.close()


def test_questions_do_not_wait_behind_calls_that_wait_for_a_disk(runtime: Any, tmp_path: Path) -> None:
    """While abandoned calls for figures hold every thread there is for them, a what-if is answered."""
    settings = installed(load_settings(data_dir=tmp_path, log={"partitions": 1}))
    log = SqliteLog(settings.log_path, 1)
    actor = started(settings, 8)
    log.append(list(day(10)))
    targets = len(settings.forecast.targets)
    origin_ms = until(lambda: (s := ask(actor, "stats"))["steps"] == 9 and not s["backlog"] and s["origin_ms"])

    change = ChangeAsked(metric="sp_heat_c", how="add", value=-1.0, begin_ms=origin_ms, end_ms=origin_ms + 90 * STEP)

    def newest() -> Any:
        found = ray.get(actor.what_if.remote("demo", "z1", [change]), timeout=patience_s(30))
        return found if found is not None and found["origin_ms"] == origin_ms else None

    until(newest)
    ask(actor, "hang")
    abandoned = [actor.stats.remote() for _ in range(THREADS)] + [actor.flush.remote() for _ in range(THREADS)]
    assert not ray.wait(abandoned, num_returns=1, timeout=1)[0]
    found = ray.get_actor(shard_actor(8), NAMESPACE)  # as the API does
    again = ray.get(found.what_if.remote("demo", "z1", [change]), timeout=patience_s(30))
    assert (again["origin_ms"], again["support"]) == (origin_ms, "none")  # of less than an hour
    now = np.full((1, targets), 20.0, np.float32)
    asked = found.baseline.remote("demo", "z1", origin_ms, now)
    assert ray.get(asked, timeout=patience_s(30)).shape[0] == 1
    assert (ask(found, "refresh"), ask(found, "ping")) == (None, "ok")
    assert not ray.wait(abandoned, num_returns=1, timeout=0)[0]
    ray.kill(actor)
    log.close()


def test_a_plan_is_put_and_got_by_the_api(runtime: Any, tmp_path: Path) -> None:
    """Over the broker, the gateway's log and the shard's actor, with the API's own backend; after kill -9, too. Until
    there is one, yesterday's setpoints are due.
    """
    site = next(f"s{n}" for n in range(99) if partition_of(f"s{n}", 4) == 3)
    hour_ms, operator = 3_600_000, {"Authorization": "Bearer op-key"}
    body = {"values": {"sp_heat_c": [[T0 + hour_ms, 18.5], [T0 + 6 * hour_ms, 21.0]]}}
    with local_broker(tmp_path / "broker", "amqtt") as broker, GatewayProcess(broker.address, tmp_path) as gateway:
        gateway.gateway = {"clock": "replayed"}
        gateway.start()
        settings = installed(load_settings(
            data_dir=tmp_path, log={"partitions": 4}, stream={"shards": 4, "snapshot_s": 0.2},
            sites=[{"name": site, "repeat_setpoints": ["*"]}],
            mqtt=broker_settings(broker.address, password_file=tmp_path / "password"),
        ))  # fmt: skip
        actor = started(settings, 3)
        with device(broker.address) as publish, api_of(settings, site) as client:

            def go_on(first: int) -> None:
                for n in range(first, first + 4):
                    taken = encode_message([sample(T0 + n * STEP, n, site=site, air_temp_c=20.0, sp_heat_c=18.0)])
                    publish([(CLOCK_TOPIC, encode_clock(T0 + n * STEP)), (sample_topic(site, "z1", "climate"), taken)])
                until(lambda: ask(actor, "stats")["zone_rows"] == first + 3)

            def got() -> Any:
                answer = client.get("/zones/z1/plan")
                assert answer.status_code in (200, 503), answer.text
                return answer.status_code == 200 and answer.json()["plans"]

            go_on(0)
            assert got() == []
            assert [(plan.zone, plan.source) for plan in ask(actor, "repeated_plans")] == [("z1", "yesterday")]
            answer = client.put("/zones/z1/plan", json=body, headers=operator)
            assert answer.status_code == 202, answer.text
            (plan,) = until(got)
            assert (plan["zone"], plan["source"], plan["values"]) == ("z1", "operator", body["values"])
            go_on(4)
            assert ask(actor, "repeated_plans") == []
            ask(actor, "flush")
            os.kill(ask(actor, "pid"), signal.SIGKILL)
            assert until(got) == [plan]
            ask(actor, "stop")
            ray.kill(actor)


@contextmanager
def api_of(settings: Settings, site: str) -> Iterator[TestClient]:
    """The API in this process, which asks the actors; it knows the site's zone ``z1``."""
    live_state = LiveState(1000, lambda: T0)
    state = ApiState(RayBackend(settings, None), Keys("op-key"), SPEC, stale_after_s=1800, receive_clock="replayed")

    async def fill() -> None:
        await live_state.publish([zone_forecast("z1", site, origin_ms=T0)])
        await live_state.put_stats("shard-3", {"stream_ms": {site: T0 + 3 * STEP}})
        await state._take(await live_state.wait(0, 0))

    asyncio.run(fill())
    with TestClient(create_app(state)) as client:
        yield client


def test_two_installations_on_one_cluster_leave_each_other_alone(runtime: Any, tmp_path: Path) -> None:
    """Each has a shard of the same name; what a run of one left is ended by it, and the other's goes on."""
    both = [load_settings(data_dir=tmp_path / name, log={"partitions": 1}) for name in ("ours", "theirs")]
    shards = [started(settings, 0) for settings in both]
    for shard in shards:
        until(lambda shard=shard: ask(shard, "ping"))
    end_earlier_run(namespace_of(both[0]))
    assert ask(shards[1], "ping") == "ok"
    with pytest.raises(ValueError, match="shard-0"):
        ray.get_actor(shard_actor(0), namespace_of(both[0]))
    ask(shards[1], "stop")
