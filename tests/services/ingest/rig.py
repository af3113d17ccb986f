"""A shard with stand-ins for the Forecaster, the live state and the clock, and a day of records for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.wire.reading import Refusal
from edge.wire.topic import SITE_ZONE
from services.config import Settings, SiteSettings, StreamSettings
from services.ingest.shard import Executors, Outputs, Shard
from services.ingest.sinks.sink import Sink
from services.messages import (
    ASK_AGAIN,
    ONLINE_VERSION,
    ForecastReply,
    ForecastRequest,
    ShownAlert,
    ShownAlerts,
    ZoneForecast,
)
from services.observe.spans import Spans
from services.store.deadletters import DeadLetters
from services.store.forecasts import IssuedForecast, IssuedForecasts
from services.store.series import NullSeries
from services.store.storage import storage_of
from tests.services.ingest.samples import STEP, T0, new_records, sample
from tests.tables import content_of

__all__ = [
    "MOMENTS",
    "ZONES",
    "Clock",
    "Crashed",
    "FakeForecaster",
    "FakeLiveState",
    "Held",
    "Inline",
    "Rig",
    "day",
    "dying",
    "filled",
    "issued_by",
]

ZONES = ("z1", "z2")
MOMENTS = (
    "taken", "forecast kept", "before flush", "flushed", "plans kept", "examples kept", "letters kept",
    "alerts kept", "snapshot kept",
)  # fmt: skip


class Crashed(BaseException):
    """Stands for kill -9 at a named moment."""


def dying(moment: str, nth: int = 1) -> Callable[[str], None]:
    """Dies when the moment comes for the n-th time."""
    left = nth

    def failpoint(name: str) -> None:
        nonlocal left
        left -= name == moment
        if name == moment and left == 0:
            raise Crashed

    return failpoint


class Inline(Executor):
    """Runs at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Held(Executor):
    """Runs when told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    def release(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future, call in waiting:
            future.set_result(call())


class FakeForecaster:
    """Answers with the baseline, or ``network`` more; keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[ForecastRequest] = []
        self.version, self.network = ONLINE_VERSION, 0.0
        self.away = False
        self.asked_again = 0

    def __call__(self, request: ForecastRequest) -> ForecastReply:
        if self.away:
            raise ConnectionError("the forecaster is away")
        if self.version != ONLINE_VERSION and not request["values"].shape[1]:
            self.asked_again += 1
            return ForecastReply(version=ASK_AGAIN, quantiles=request["baseline"])
        self.requests.append(request)
        return ForecastReply(version=self.version, quantiles=request["baseline"] + np.float32(self.network))


class FakeLiveState:
    def __init__(self) -> None:
        self.published: list[ZoneForecast] = []
        self.past: list[tuple[str, str]] = []
        self.figures: list[dict[str, Any]] = []
        self.alerts = ShownAlerts()

    def publish(self, forecasts: Sequence[ZoneForecast]) -> None:
        self.published += forecasts

    def put_past(self, site: str, zone: str, end_ms: list[int], values: dict[str, list[float | None]]) -> None:
        assert len(end_ms) == len(values["air_temp_c"])
        self.past.append((site, zone))

    def put_alerts(self, alerts: Sequence[ShownAlert]) -> None:
        self.alerts.take(alerts)

    def put_stats(self, stats: dict[str, Any]) -> None:
        self.figures.append(stats)


class Clock:
    """Seconds that move on by ``tick_s`` with each look."""

    def __init__(self, tick_s: float = 0.0) -> None:
        self.now_s, self.tick_s = 0.0, tick_s

    def __call__(self) -> float:
        self.now_s += self.tick_s
        return self.now_s


class Rig:
    """A log and a data folder that outlive the shards opened on them."""

    def __init__(self, folder: Path, log: MemoryLog, **stream: Any) -> None:
        site = SiteSettings(name="demo", timezone="Europe/Amsterdam")
        self.settings = Settings(data_dir=folder, sites=(site,), stream=StreamSettings(**stream))
        self.log, self.forecaster, self.live_state = log, FakeForecaster(), FakeLiveState()
        self.executor: Executor = Inline()
        self.merger: Executor = Inline()
        self.saver: Executor = Inline()
        self.sinks: list[Sink] = []
        self.spans: Spans | None = None
        self.clock = Clock()

    def shard(self, failpoint: Callable[[str], None] = lambda name: None) -> Shard:
        return Shard(
            self.settings, range(self.log.partitions), self.log, self.forecaster,
            Outputs(NullSeries(), self.live_state, tuple(self.sinks), self.spans),
            Executors(self.executor, self.merger, self.saver), self.clock, failpoint,
        )  # fmt: skip

    def drain(self, shard: Shard) -> None:
        while shard.step():
            pass
        shard.step()
        shard.step()

    def content(self, kinds: Sequence[str] = ("zones", "devices")) -> dict[str, object]:
        """Every row and forecast, bit for bit; no kind that has none."""
        root, found = self.settings.storage_folder, dict[str, object]()
        for kind in kinds:
            parts = sorted((root / "history" / kind).rglob("*.parquet"))
            found[kind] = [p.read_bytes() for p in parts] if kind == "forecasts" else content_of(root, kind)
        return {kind: content for kind, content in found.items() if content}

    def dead_letters(self) -> list[Any]:
        found = []
        for number in range(self.log.partitions):
            dead_letters = DeadLetters(self.settings.storage_folder, number)
            found += dead_letters.newest(1000)
        return found

    def read_all(self) -> Rig:
        """Read the log to its end with a shard that nothing disturbs."""
        shard = self.shard()
        self.drain(shard)
        shard.close()
        return self

    def read_killed(self, records: Sequence[NewRecord], moment: str, nth: int) -> None:
        """Read ``records`` as they come, seven at a time, with a shard that dies the ``nth`` time at a moment, and
        with those that are started after it.
        """
        left, crashes = list(records), 0
        shard = self.shard(dying(moment, nth))
        while left or shard.step():
            batch, left = left[:7], left[7:]
            self.log.append(batch)
            try:
                shard.step()
            except Crashed:
                crashes += 1
                shard = self.shard()
        self.drain(shard)
        shard.close()
        assert crashes == 1


def day(steps: int = 40) -> Iterator[NewRecord]:
    """Two zones and weather, with a duplicate, a late sample and a refusal now and then."""
    for n in range(steps):
        at = T0 + n * STEP
        batch = [
            *(sample(at, n, zone, air_temp_c=20 + n % 7 / 3, rh_pct=70.0, co2_ppm=500.0 + n) for zone in ZONES),
            sample(at, n, SITE_ZONE, "ws", out_temp_c=4.0 + n % 5),
        ]
        yield from new_records([batch])
        if n % 10 == 5:
            yield from new_records([batch[:1]])
            old = sample(at - 3 * STEP, 1000 + n, "z1")
            yield NewRecord("demo", "samples", at, msgspec.msgpack.encode([old]))
            refused = Refusal("malformed", "t", "not JSON", b"{", True, 1)
            yield NewRecord("demo", "refused", at, msgspec.msgpack.encode([refused]))


def issued_by(settings: Settings) -> list[IssuedForecast]:
    """What was issued for the site ``demo``."""
    said = settings.forecast
    return IssuedForecasts(storage_of(settings), 0).read("demo", 0, said.horizons_min, said.targets)


def filled(records: Sequence[NewRecord], partitions: int = 1) -> MemoryLog:
    log = MemoryLog(partitions)
    log.append(records)
    return log
