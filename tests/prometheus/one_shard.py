"""A shard without Ray, the API and a real Prometheus, on a greenhouse whose time goes on when a test says so.

What is figured, shown and scraped is so by the code of the running system; only what carries it from process to process
is not there.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn

from edge.log import Log, LogError, NewRecord
from edge.log.memory import MemoryLog
from edge.wire.reading import Sample
from edge.wire.samples import encode_samples
from services.config import Settings
from services.errors import HistoryError
from services.forecast_spec import forecast_spec
from services.ingest.figures import ShardFigures
from services.ingest.shard import Executors, Outputs, Shard
from services.ingest.sinks.series_sink import series_writer
from services.messages import ForecastReply, ForecastRequest, ShownAlert, ZoneForecast
from services.serve.api.app import create_app
from services.serve.api.auth import Keys
from services.serve.api.state import ApiState
from services.serve.live_state import LiveState
from tests.patience import patience_s, until
from tests.prometheus.rule_file import quickened
from tests.prometheus.server import Prometheus
from tests.services.ingest.planned import weather
from tests.services.ingest.rig import Inline
from tests.services.ingest.samples import BOOT, T0
from tests.services.learn.synthetic import small_settings
from tests.services.serve.fakes import FakeBackend

__all__ = ["STEP_MS", "House", "Network", "OneShard", "one_shard"]

STEP_MS = 900_000
"""The longest step for which the limits of ages are no longer than half an hour, but for the lateness."""
A_DAY = 86_400_000 // STEP_MS
ZONES = ("z1", "z2")
KNOWN_DAYS = 400
DAY_S = 10.0
"""A day of the house, for rules whose range of a day is as long: the shortest with enough scrapes in it."""


class House:
    """Two zones, a weather station's plans, and what goes wrong with them. All of its course is known to who made it.

    Of zone ``z2``: ``stuck`` its humidity sensor says the same for ever, ``silent`` it sends nothing. ``pipe_c``: the
    heating is run otherwise by so much. ``late_ms``: the devices' clocks are late.
    """

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        day = np.arange(KNOWN_DAYS * A_DAY) / A_DAY
        sun = np.maximum(np.sin((day - 0.25) * 2 * np.pi), 0)
        weather = np.zeros(len(day))
        for step in range(1, len(day)):
            weather[step] = 0.9 * weather[step - 1] + rng.normal(0, 0.7)
        self.air_c = 18 + 5 * sun + weather + rng.normal(0, 0.1, (len(ZONES), len(day)))
        self.rh_pct = 75 - 10 * sun + weather + rng.normal(0, 0.5, (len(ZONES), len(day)))
        self.stuck = self.silent = False
        self.pipe_c, self.late_ms = 0.0, 0
        self.steps = 0

    @property
    def now_ms(self) -> int:
        """When its next samples are received."""
        return T0 + self.steps * STEP_MS

    def samples(self) -> NewRecord:
        """What both zones send at the end of a step."""
        at, now_ms = self.steps, self.now_ms
        self.steps += 1
        batch = [
            Sample("demo", zone, "climate", BOOT, at, now_ms - self.late_ms, {
                "air_temp_c": round(float(self.air_c[row, at]), 3),
                "rh_pct": 71.3 if self.stuck and zone == "z2" else round(float(self.rh_pct[row, at]), 3),
                "heat_pipe_low_c": round(40 + self.pipe_c + float(self.air_c[0, at] - self.air_c[1, at]), 3),
            })
            for row, zone in enumerate(ZONES)
            if not (self.silent and zone == "z2")
        ]  # fmt: skip
        return NewRecord("demo", "samples", now_ms, encode_samples(batch))


class Network:
    """Stands for the Forecaster: a network that knows a house well, until it is ``broken`` or ``away``."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._rng = np.random.default_rng(8)
        self.broken = self.away = False

    def forecast(self, request: ForecastRequest) -> ForecastReply:
        """Somewhat better than what the shard knows by itself; once broken, far from it."""
        if self.away:
            raise ConnectionError("the Forecaster is away")
        quantiles = request["baseline"].copy()
        wrong = 15.0 if self.broken else self._rng.normal(0, 0.7, quantiles.shape[:3])
        for number, origin_ms in enumerate(request["origin_ms"].tolist()):
            ahead, zone = (origin_ms - T0) // STEP_MS + HORIZON_STEPS, number % len(ZONES)
            truth = np.stack([self._house.air_c[zone, ahead], self._house.rh_pct[zone, ahead]], axis=-1)
            quantiles[number] = truth[..., None]
        quantiles += np.asarray(wrong, np.float32)[..., None]
        return ForecastReply(version="v1", quantiles=quantiles)


HORIZON_STEPS = np.array([2, 4, 8])


class OneShard:
    """What runs, see :func:`one_shard`. The test's own thread does the shard's rounds."""

    def __init__(self, settings: Settings, log: Log) -> None:
        self.house, self.log = House(), log
        self.network = Network(self.house)
        self._live_state = LiveState(1, lambda: 0)
        state = ApiState(FakeBackend(self._live_state), Keys("op-key"), forecast_spec(settings), stale_after_s=1800)
        self._server = uvicorn.Server(uvicorn.Config(create_app(state), log_level="error", access_log=False))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:{1}".format(*self._listener.getsockname())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="api", daemon=True)
        self._series = series_writer(settings, [0])
        self.shard = Shard(
            settings, range(log.partitions), log, self.network.forecast, Outputs(self._series, self),
            Executors(Inline(), Inline(), Inline()), time.monotonic,
        )  # fmt: skip
        self.prometheus: Prometheus
        self._next_round_s = self._next_step_s = 0.0

    def start(self) -> None:
        """Serve the API."""
        self._thread.start()
        until(lambda: self._server.started, "the API answers")

    def close(self) -> None:
        """Stop all but Prometheus."""
        self._series.close()
        self._server.should_exit = True
        self._thread.join(patience_s(30))

    def send(self, *records: NewRecord) -> None:
        """Append to the log, and let the shard read all there is."""
        self.log.append(records)
        while self.round():
            pass
        self.round()

    def step(self, *, pace_s: float = 0.0) -> None:
        """A step of the house, once it is time for it: a day is as long as the rules' range of one, or as ``pace_s`` a
        step makes it.
        """
        time.sleep(max(self._next_step_s - time.monotonic(), 0))
        self._next_step_s = time.monotonic() + (pace_s or DAY_S / A_DAY)
        self.send(self.house.samples())

    def slow_step(self) -> None:
        """A step a second: what the API hears each second would be a gap in a stream that goes faster."""
        self.step(pace_s=1.0)

    def plan(self) -> None:
        """A weather forecast that is issued now."""
        self.send(weather(self.house.now_ms))

    def known(self, days: int) -> None:
        """Days that the shard reads at once."""
        self.send(*(self.house.samples() for _ in range(days * A_DAY)))

    def round(self) -> bool:
        """One round of the shard; what fails is tried again by the next, as in its actor."""
        try:
            return self.shard.step()
        except LogError as error:
            self.shard.failed("log", error)
        except (HistoryError, OSError) as error:
            self.shard.failed("storage", error)
        return False

    def round_each_second(self) -> None:
        """A round of a shard that has next to no time."""
        if time.monotonic() >= self._next_round_s:
            self._next_round_s = time.monotonic() + 1
            self.round()

    @contextmanager
    def causes(self, *names: str, meanwhile: Callable[[], object] | None = None) -> Iterator[None]:
        """What the block does lets each of these fire that did not fire before. The house goes on, or what else is done
        ``meanwhile``.
        """
        self.ends(*names)
        yield
        waited = set(names)

        def all_have() -> bool:
            (meanwhile or self.step)()
            waited.difference_update(self.prometheus.firing())
            return not waited

        until(all_have, f"{' and '.join(names)} fire", 90)

    def ends(self, *names: str, meanwhile: Callable[[], object] | None = None) -> None:
        """Go on until none fires any more."""

        def none_does() -> bool:
            (meanwhile or self.step)()
            return not set(names) & self.prometheus.firing()

        until(none_does, f"{' and '.join(names)} end", 120)

    def publish(self, forecasts: Sequence[ZoneForecast]) -> None:
        """See ``services.ingest.sinks.live_state_sink``."""
        self._tell(self._live_state.publish(forecasts))

    def put_past(self, site: str, zone: str, end_ms: list[int], values: dict[str, list[float | None]]) -> None:
        """See ``services.ingest.sinks.live_state_sink``."""
        self._tell(self._live_state.put_past(site, zone, end_ms, values))

    def put_alerts(self, alerts: Sequence[ShownAlert]) -> None:
        """See ``services.ingest.sinks.live_state_sink``."""
        self._tell(self._live_state.put_alerts(alerts))

    def put_stats(self, stats: ShardFigures) -> None:
        """See ``services.ingest.sinks.live_state_sink``."""
        self._tell(self._live_state.put_stats("shard-0", stats))

    def _tell(self, action: Coroutine[Any, Any, Any]) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(action, self._loop).result(patience_s(30))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve([self._listener])


@contextmanager
def one_shard(folder: Path, log: Log | None = None, **sections: Any) -> Iterator[OneShard]:
    """A shard on ``log``, of which nothing is known yet; ``sections`` are more settings."""
    settings = small_settings(folder / "data").model_copy(update=sections)
    found, rules = OneShard(settings, log or MemoryLog(1)), quickened(times=round(86_400 / DAY_S))
    found.start()
    try:
        with Prometheus(folder / "prometheus", {"hothouse": found.url}, rules) as prometheus:
            found.prometheus = prometheus
            yield found
    finally:
        found.close()
