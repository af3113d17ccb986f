"""Parts of the running system are killed with SIGKILL; what it leaves must be as if nothing had happened."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from edge.log.sqlite import SqliteLog
from edge.recordings.importing import import_samples
from edge.recordings.replay import RecordingSource
from edge.simulator.publisher import Publisher
from edge.simulator.publisher.ledger import Ledger
from edge.simulator.publisher.pace import Pace
from edge.wire.plan import PlanMessage
from edge.wire.reading import Sample
from edge.wire.topic import SITE_ZONE
from services.app import System
from services.config import Settings, load_settings
from services.demo.watch import DemoWatch
from services.ingest.shard import Executors, Outputs, Shard
from services.store.history import History
from services.store.series import NullSeries
from tests.chaos.shard_process import NoLiveState, baseline_forecast
from tests.ci.record import balance
from tests.patience import patience_s
from tests.patience import until as wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(1200)]

DAY_MS = 86_400_000
START_MS = 1_643_670_000_000  # of the recording
RECORDING = Path(__file__).parents[1] / "data" / "lettuce_2022"


def test_killed_parts_recover_and_the_history_is_bit_for_bit_that_of_an_undisturbed_run(tmp_path: Path) -> None:
    """SIGKILL for the shard, the Forecaster and the gateway, with plans: /predict answers again, no bit of the history
    differs. The shard is killed once more: paths, scenarios and what is said of the night are then what they were.
    """
    source = Recording(RECORDING)
    warm_ms = source.start_ms + 2 * DAY_MS
    settings = load_settings(
        data_dir=tmp_path / "data",
        api={"port": 0},
        learn={"retrain_every_s": 0},
        stream={"snapshot_s": 2},
        sites=[{"name": source.site, "timezone": source.timezone, "primary": dict(source.primary)}],
    )
    with System(
        settings, receive_clock="replayed", warm_up=lambda log: void(import_samples(source, log, warm_ms))
    ) as system:
        watch = DemoWatch(system.url)
        assert watch.wait_until_ready(patience_s(90)), watch.problem
        ledger = Ledger()
        publisher = Publisher(source, system.broker.address(), ledger, Pace(1500 / patience_s(1)), with_clock=True)
        feeding = threading.Thread(target=publisher.run, daemon=True)
        feeding.start()
        for victim in (process_named("ray::ShardActor"), process_named("ray::ServeReplica:hothouse:Forecaster")):
            wait_until(lambda: moved(watch), "forecasts go on before the next kill")
            victim.kill()
        wait_until(lambda: moved(watch), "forecasts go on after the Forecaster was killed")
        assert system.gateway is not None
        gateway_pid = system.gateway.pid
        assert gateway_pid is not None
        psutil.Process(gateway_pid).kill()
        wait_until(lambda: moved(watch), "forecasts go on after the gateway was killed")
        source.ended.set()
        feeding.join(patience_s(120))
        assert ledger.status["complete"], ledger.status
        sent = unique_samples(source_again(), ledger.status["now_ms"])
        with balance():
            wait_until(lambda: watch.look().total("accepted") >= sent, "every sample is counted")
        wait_until(lambda: watch.look().total("backlog") == 0 and quiet(watch), "the log is read to its end")
        seen = watch.look()
        assert system.gateway.restarts >= 1
        assert seen.total("late") == 0
        assert seen.total("plans") > 8
        wait_until(lambda: shows_the_newest_row(watch), "the newest row is forecast")
        told = outlooks(watch)
        assert told is not None
        process_named("ray::ShardActor").kill()
        again = wait_until(lambda: outlooks(watch), "the shard draws scenarios again")
        watch.close()
    disturbed = content(settings)
    undisturbed = content(replayed(settings, tmp_path / "undisturbed"))
    with balance():
        assert disturbed == undisturbed
        assert len(disturbed["zones"]) > 2 * 288 * len(source.zones)
        assert seen.total("accepted") == sent
    assert again == told


class Recording(RecordingSource):
    """A recording whose devices fall silent once they are told so: the stream lasts as long as it is needed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, foreseen=[weather(START_MS + n * DAY_MS // 4) for n in range(80)])
        self.ended = threading.Event()

    def samples(self, to_ms: int) -> Iterator[tuple[int, list[Sample]]]:
        """See ``RecordingSource``."""
        for instant in super().samples(to_ms):
            if self.ended.is_set():
                return
            yield instant


def weather(issued_ms: int) -> PlanMessage:
    """A forecast of two days, another one each time."""
    times = range(issued_ms, issued_ms + 2 * DAY_MS, DAY_MS // 24)
    return PlanMessage("lettuce", SITE_ZONE, "service", "weather", issued_ms, {
        "out_temp_c": [(ms, round(5 + 3 * math.sin(ms / DAY_MS * 2 * math.pi) + issued_ms % 7 / 3, 2)) for ms in times]
    })  # fmt: skip


def shows_the_newest_row(watch: DemoWatch) -> bool:
    """Whether every zone is forecast from the newest row."""
    newest_ms = max((shard.get("origin_ms") or 0 for shard in watch.look().shards), default=0)
    return {*origins(watch)} == {newest_ms}


def outlooks(watch: DemoWatch) -> list[dict[str, Any]] | None:
    """The path, the scenarios and the events of each zone; None while one of them is not there."""
    found = []
    for site, zone in sorted(watch.seen.forecasts):
        asked = {"site": site, "zone": zone, "scenarios": "true", "events": "night,day,night_below:air_temp_c:14"}
        answer = watch._client.get("/predict", params=asked)
        if answer.status_code != httpx.codes.OK:
            return None
        found.append({name: answer.json()[name] for name in ("zone", "origin", "path", "scenarios", "events")})
    return found or None


def void(_: Any) -> None:
    """Drop a result."""


def source_again() -> RecordingSource:
    """The same recording from its beginning."""
    return RecordingSource(RECORDING)


def unique_samples(source: RecordingSource, to_ms: int) -> int:
    """How many samples the devices have sent."""
    return sum(len(samples) for _, samples in source.samples(to_ms))


def process_named(title: str) -> psutil.Process:
    """Our child whose command line begins with ``title``."""
    for process in psutil.Process().children(recursive=True):
        try:
            if " ".join(process.cmdline()).startswith(title):
                return process
        except psutil.Error:
            continue
    raise AssertionError(f"no process {title}")


def origins(watch: DemoWatch) -> list[int]:
    """The origins of all zones' forecasts."""
    return sorted(forecast["origin_ms"] for forecast in watch.look().forecasts.values())


def moved(watch: DemoWatch) -> bool:
    """Whether every zone's forecast has moved on by two steps."""
    before = origins(watch)
    deadline_s = time.monotonic() + patience_s(20)
    while time.monotonic() < deadline_s:
        now = origins(watch)
        if before and len(now) == len(before) and now[0] >= before[0] + 600_000:
            return True
        time.sleep(0.1)
    return False


def quiet(watch: DemoWatch) -> bool:
    """Whether no further sample is counted for a second."""
    before = watch.look().total("samples")
    time.sleep(1.0)
    return watch.look().total("samples") == before


def replayed(settings: Settings, folder: Path) -> Settings:
    """Run a plain shard over the same log into another folder; returns that folder's settings."""
    elsewhere = settings.model_copy(update={"data_dir": folder})
    log = SqliteLog(settings.log_path, settings.log.partitions)
    shard = Shard(
        elsewhere, range(settings.log.partitions), log, baseline_forecast, Outputs(NullSeries(), NoLiveState()),
        Executors(*(ThreadPoolExecutor(1, name) for name in Executors._fields)), time.monotonic,
    )  # fmt: skip
    while shard.step():
        pass
    shard.close()
    log.close()
    return elsewhere


def content(settings: Settings) -> dict[str, list[str]]:
    """Every row, whole, as text: each number has its own, and what is missing equals itself. Files are not compared:
    which rows one holds depends on when they were written.
    """
    history = History(settings.storage_folder, ())
    return {kind: [repr(row) for row in history.read(kind=kind).to_pylist()] for kind in ("zones", "devices")}
