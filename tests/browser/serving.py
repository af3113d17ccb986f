"""A house for the page's tests: the API over a live state and a history of made-up rows; no Ray behind it."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn

from models.paths.steps import path_steps
from models.psychrometrics import vpd_kpa
from models.spec import ForecastSpec, Place
from services.config import SiteNames
from services.messages import Extreme, ForecastPath, ZoneForecast
from services.serve.api.app import create_app
from services.serve.api.auth import Keys
from services.serve.api.event_stream import EventStream
from services.serve.api.state import ApiState
from services.serve.live_state import LiveState
from services.store.history import History
from services.store.rows import SiteStep
from tests.patience import patience_s, until
from tests.services.serve.fakes import ORIGIN_MS, FakeBackend, zone_forecast

__all__ = ["HOUR_MS", "MINUTES", "SPEC", "STEP_MS", "House", "climate", "opened"]

STEP_MS = 300_000
HOUR_MS = 3_600_000
DAYS = 3
CHANNELS = (
    "air_temp_c", "rh_pct", "co2_ppm", "leaf_temp_c", "sp_heat_c", "sp_vent_c", "sp_screen_energy_pct", "vent_lee_pct",
    "screen_energy_pct", "heat_pipe_low_c", "out_temp_c", "out_radiation_w_m2", "wind_m_s",
)  # fmt: skip
SPEC = ForecastSpec(channels=CHANNELS, targets=("air_temp_c", "rh_pct", "co2_ppm", "vpd_kpa"))
MINUTES = (path_steps(SPEC) * SPEC.step_ms // 60_000).tolist()
"""The times of a whole path."""

ZONES = ("north-1", "north-2")


def climate(at_ms: int) -> dict[str, float]:
    """A row: warm at noon UTC, cold at midnight, and what a climate computer does about it."""
    day = math.cos((at_ms / 86_400_000 - 0.5) * 2 * math.pi)
    air, humidity = 18 + 4 * day, 75 - 15 * day
    values = (air, humidity, 600 + 100 * day, air - 0.8, 16.0, 22.0, 100.0 * (day < -0.2), 20 * max(day, 0),
              80.0 * (day < -0.2), 40 - 20 * day, 6 + 5 * day, 400 * max(day, 0), 4.0)  # fmt: skip
    named = dict(zip(CHANNELS, (float(value) for value in values), strict=True))
    return named | {"vpd_kpa": float(vpd_kpa(air, humidity))}


class Backend(FakeBackend):
    """Answers about these houses; what a change of wind does nobody knows."""

    def __init__(self, live_state: LiveState, origin_ms: int) -> None:
        super().__init__(live_state)
        self.origin_ms, self.spec = origin_ms, SPEC
        self.steps = np.array(MINUTES) // 5
        self.extremes = {"night": _extreme(14, 600, 120, 900), "day": _extreme(22, 1200, 930, 1410)}
        self.now = np.array([climate(origin_ms)[target] for target in SPEC.targets], np.float32)

    async def outlook(self, site: str, zone: str) -> Any:
        values = np.linspace(-1, 1, 100, dtype=np.float32)[:, None, None]
        found = await super().outlook(site, zone)
        scenarios = 18 + values.repeat(len(self.steps), axis=1).repeat(len(SPEC.targets), axis=2)
        return {**found, "origin_ms": self.origin_ms, "scenarios": scenarios}

    async def what_if(self, site: str, zone: str, changes: Any) -> Any:
        self.asked.append(changes)
        minutes = np.array(MINUTES)
        path = np.array([[[climate(self.origin_ms + at * 60_000)[target] + q for q in (-1, 0, 1)]
                          for target in SPEC.targets] for at in MINUTES], np.float32)  # fmt: skip
        base = {"origin_ms": self.origin_ms, "version": "v1", "now": self.now, "minutes": minutes, "path": path}
        if changes[0]["metric"] == "wind_m_s":
            says, reasons = (
                "There is not enough evidence",
                ["no house was tried with wind_m_s; ask for one of sp_heat_c"],
            )
            return {**base, "changed": None, "effect": None, "support": "none", "says": says, "reasons": reasons}
        inside = (self.origin_ms + minutes * 60_000 >= changes[0]["begin_ms"])[:, None, None]
        effect = np.where(inside, np.float32([-1.1, -0.8, -0.5]), 0).repeat(len(SPEC.targets), axis=1)
        return {**base, "changed": path + effect, "effect": effect, "support": "simulated", "says": "", "reasons": []}

    async def said_ahead(self, site: str, zone: str, target: str, horizon_min: int, start_ms: int, end_ms: int) -> Any:
        times = np.arange(start_ms // STEP_MS + 1, end_ms // STEP_MS + 1) * STEP_MS
        level = np.array([climate(int(at))[target] for at in times], np.float32)
        return {"time_ms": times, "p10": level - 1, "p50": level + 0.4, "p90": level + 2}


class House:
    """A site ``demo`` whose newest row ends at ``origin_ms``, and whose history is ``without`` some metrics.
    :meth:`open` serves it, until :meth:`close`.
    """

    def __init__(
        self, folder: Path, *, keys: Keys | None = None, timezone: str = "Europe/Amsterdam",
        origin_ms: int = ORIGIN_MS, zones: Sequence[str] = ZONES, without: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.origin_ms = origin_ms
        self.live_state = LiveState(10_000, lambda: origin_ms)
        self.backend = Backend(self.live_state, origin_ms)
        self.backend.history = History(folder, CHANNELS)
        self.zones, self._known = tuple(zones), np.where([channel in without for channel in CHANNELS], np.nan, 1)
        self.keep(range(origin_ms - DAYS * 24 * HOUR_MS, origin_ms + 1, STEP_MS))
        self.state = ApiState(
            self.backend, keys or Keys("op-key"), SPEC, stale_after_s=1800, timezone=lambda site: timezone,
            place_of=lambda site: Place(timezone, "civil", 51.98, 4.53),
            names=SiteNames({"demo": "Demo house"}, {("demo", "north-1"): "Tomatoes, north"}),
        )  # fmt: skip
        self.app = create_app(self.state)
        self._port = 0
        self._server: uvicorn.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def keep(self, ends: Iterable[int]) -> None:
        """Rows of the history that end so."""
        history = self.backend.history
        assert history is not None
        rows = ((end, np.float32([list(climate(end).values())[:-1] * self._known] * len(self.zones))) for end in ends)
        history.add(SiteStep(0, "demo", end, self.zones, row, row * 0, []) for end, row in rows)
        history.flush()

    def forecast(self, zone: str, origin_ms: int | None = None, **more: Any) -> ZoneForecast:
        """A zone's forecast, with a whole path."""
        at = self.origin_ms if origin_ms is None else origin_ms
        made = zone_forecast(zone, origin_ms=at, now={**climate(at), "rain": None}, path=whole_path(at), **more)
        made["forecasts"] = dict.fromkeys(SPEC.targets, made["forecasts"]["air_temp_c"])
        return made

    def fill(self) -> None:
        """Each zone's forecast, a shard's figures, what was kept out."""
        self.do(self.live_state.publish([self.forecast(zone) for zone in self.zones]))
        self.do(self.live_state.put_stats("shard-0", self.figures()))  # type: ignore[arg-type]

    def figures(self, stream_ms: int | None = None) -> dict[str, Any]:
        """Of the shard, whose stream is at that time."""
        return {
            "accepted": 1200, "duplicates": 3, "late": 2, "rejected": {"malformed": 4}, "samples_per_s": 12.5,
            "backlog": 0, "zone_rows": 1730, "forecasts": 40, "zones": [f"demo/{zone}" for zone in self.zones],
            "last_error": "", "watermark_ms": {"demo": self.origin_ms},
            "stream_ms": {"demo": self.origin_ms + 60_000 if stream_ms is None else stream_ms},
        }  # fmt: skip

    def open(self) -> str:
        """Serve it, at the same address as before."""
        self.state.events = EventStream(time.monotonic)
        config = uvicorn.Config(self.app, log_level="error", access_log=False, timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        listener = socket.create_server(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        started, start = threading.Event(), self.state.start

        async def noting() -> None:
            self._loop = asyncio.get_running_loop()
            await start()
            started.set()

        self.state.start = noting  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="api", daemon=True)
        self._thread.start()
        until(started.is_set, "the API starts")
        self.state.start = start  # type: ignore[method-assign]
        return f"http://127.0.0.1:{self._port}"

    def close(self) -> None:
        """Stop serving; streams are cut."""
        assert self._server is not None
        self._server.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.state.events.close)
        self._thread.join(patience_s(60))
        self._loop = None

    def do(self, action: Coroutine[Any, Any, Any]) -> Any:
        """Run it where the API runs, or here while nothing is served."""
        if self._loop is None:
            return asyncio.run(action)
        return asyncio.run_coroutine_threadsafe(action, self._loop).result(patience_s(60))


@contextmanager
def opened(house: House) -> Iterator[str]:
    """Its address, for as long as the block."""
    try:
        yield house.open()
    finally:
        house.close()


def whole_path(origin_ms: int) -> ForecastPath:
    """The day that comes, with a band that widens."""
    targets = {}
    for target, width in zip(SPEC.targets, (1.0, 4.0, 60.0, 0.15), strict=True):
        level = [climate(origin_ms + minutes * 60_000)[target] for minutes in MINUTES]
        spread = [width * (0.2 + minutes / 1440) for minutes in MINUTES]
        targets[target] = {
            "p10": [p50 - half for p50, half in zip(level, spread, strict=True)], "p50": level,
            "p90": [p50 + half for p50, half in zip(level, spread, strict=True)],
        }  # fmt: skip
    return {"horizon_min": MINUTES, "targets": targets}


def _extreme(level: float, minutes: int, first: int, last: int) -> Extreme:
    """Scenarios around a level, at a time of the path or an hour before; 21 past ones a little lower and higher."""
    count = len(SPEC.targets)
    at = np.full((100, count), MINUTES.index(minutes), np.int64)
    at[:20] = MINUTES.index(minutes - 60)
    values = level + np.linspace(-1, 1, 100, dtype=np.float32)[:, None].repeat(count, axis=1)
    past = level - 1 + np.linspace(-1, 1, 21, dtype=np.float32)[:, None].repeat(count, axis=1)
    return Extreme(first=MINUTES.index(first), last=MINUTES.index(last), values=values, at=at, past=past)
