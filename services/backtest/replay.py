"""A prequential replay: every row is forecast from before it is learned from, by the classes that run live."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge.reading import VOCABULARY
from models.features import targets_of
from models.forecaster import OnlineForecaster
from models.spec import ForecastSpec
from services.backtest.table import Table, sun_sine
from services.errors import HothouseError
from services.learn.trees import Grower

__all__ = ["MODEL_VERSION", "Forecasts", "Options", "replay", "spec_of"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

MODEL_VERSION = "online-1"
TARGETS = ("air_temp_c", "rh_pct", "co2_ppm")
HORIZONS_MIN = (30, 60, 180, 360, 720, 1440)
GROW_DAYS = 5
"""The trees are grown again this often."""

_DAY_MS = 86_400_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What decides a backtest besides its recordings."""

    every_ms: int = 1_800_000
    warmup_ms: int = 14 * _DAY_MS
    latitude: float | None = None
    longitude: float | None = None
    timezone: str | None = None


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Forecasts from ``N`` origins, with what the forecast and its score need besides."""

    spec: ForecastSpec
    zone: I64  # [N]
    origin_ms: I64  # [N], on the recording's clock
    quantiles: F32  # [N, H, M, Q]
    climatology: F32  # [N, H, M]
    truth: F32  # [N, H, M], NaN where unknown or beyond the recording
    persistence: F32  # [N, H, M]
    naive_24h: F32  # [N, H, M]


def spec_of(table: Table) -> ForecastSpec:
    """What is forecast of a recording: the targets that it has, at the horizons that its step allows."""
    targets = tuple(name for name in TARGETS if name in table.metrics)
    if not targets:
        raise HothouseError(f"the recording has none of the columns that are forecast: {', '.join(TARGETS)}")
    horizons = tuple(h for h in HORIZONS_MIN if h * 60_000 % table.step_ms == 0)
    return ForecastSpec(tuple(VOCABULARY), targets, horizons, step_ms=table.step_ms,
                        lookback_steps=_DAY_MS // table.step_ms)  # fmt: skip


def replay(
    table: Table, options: Options, progress: Callable[[int, int], None] = lambda done, total: None
) -> Forecasts:
    """Run the forecaster along the recording; ``progress(done, total)`` is told after each step."""
    spec = spec_of(table)
    ends, zones = table.end_ms, len(table.names)
    steps = np.array((0, *spec.horizon_steps), dtype=np.int64)
    ahead = np.concatenate([ends, ends[-1] + np.arange(1, steps[-1] + 1) * spec.step_ms])
    sun = sun_sine(ahead, options.timezone, options.latitude, options.longitude)
    day_bin = ends % _DAY_MS // spec.step_ms
    first_step = table.start_ms // spec.step_ms
    forecaster = OnlineForecaster(spec, zones)
    grower = Grower(spec)
    for _ in range(zones):
        forecaster.add_zone()
    issue = [dict(_origins(table, z, options)) for z in range(zones)]
    begins, stops = (np.array([(span[i] - table.start_ms) / spec.step_ms for span in table.spans]) for i in (0, 1))
    origin_ms, zone, quantiles, climatology = [], [], [], []
    for t in range(len(ends)):
        alive = np.flatnonzero((begins <= t) & (t < stops + 1))
        if len(alive):
            here = np.full(len(alive), day_bin[t])
            light = np.broadcast_to(sun[t + steps], (len(alive), len(steps)))
            learned = forecaster.learn(alive, first_step + t, table.values[alive, t], here, light)
            grower.add(learned.example)
            given = forecaster.predict(learned)
            for i, z in enumerate(alive.tolist()):
                if t in issue[z]:
                    zone.append(z)
                    origin_ms.append(issue[z][t])
                    quantiles.append(given[i])
                    climatology.append(learned.baseline[i])
        if (t + 1) % (GROW_DAYS * spec.steps_per_day) == 0:
            forecaster.forest = grower.grow(forecaster.unit) or forecaster.forest
        progress(t + 1, len(ends))
    if not zone:
        raise HothouseError("no zone is longer than the warm-up: nothing to forecast")
    at = np.array(zone, dtype=np.int64)
    when = np.array(origin_ms, dtype=np.int64)
    return Forecasts(spec, at, when, np.stack(quantiles), np.stack(climatology), *_compared(table, spec, at, when))


def _origins(table: Table, zone: int, options: Options) -> Iterator[tuple[int, int]]:
    """Row -> origin: the newest row that ends at the origin or before."""
    first, last = table.spans[zone]
    for origin in range(first + options.warmup_ms, last + 1, options.every_ms):
        yield (origin - table.start_ms) // table.step_ms, origin


def _compared(table: Table, spec: ForecastSpec, zone: I64, origin_ms: I64) -> tuple[F32, F32, F32]:
    """Truth, persistence and the 24-hour naive of each forecast, ``[N, H, M]``."""
    y = targets_of(table.values, spec)
    rows = np.where(np.isfinite(y), np.arange(y.shape[1])[:, None], -1)
    newest = np.maximum.accumulate(rows, axis=1)
    seen = np.where(newest >= 0, np.take_along_axis(y, np.maximum(newest, 0), axis=1), np.float32(np.nan))
    t = ((origin_ms - table.start_ms) // spec.step_ms)[:, None]
    at = t + np.array(spec.horizon_steps)
    z = zone[:, None]
    truth = np.where((at < y.shape[1])[..., None], y[z, np.minimum(at, y.shape[1] - 1)], np.float32(np.nan))
    before = at - spec.steps_per_day
    naive = np.where((before >= 0)[..., None], seen[z, np.maximum(before, 0)], np.float32(np.nan))
    return truth, np.broadcast_to(seen[z, t], truth.shape).copy(), naive
