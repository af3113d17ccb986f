"""A prequential replay: every row is forecast from before it is learned from, by the classes that run live."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edge.wire.vocabulary import VOCABULARY
from models.evaluation.drift import Drift
from models.features.inputs import targets_of
from models.features.plans import Plan, Plans
from models.features.sensor_faults import SensorFaults
from models.online.basis import Learned
from models.online.corrections.pretrained_correction import Pretrained
from models.online.online_forecaster import OnlineForecaster
from models.pretraining.shipped_arrays import pretrained
from models.spec import ForecastSpec, Place
from models.trees.forest import GROW_DAYS
from models.trees.tree_grower import GrowerError, TreeGrower
from services.backtest.table import Table, sun_longitude, sun_sine
from services.errors import HothouseError

if TYPE_CHECKING:
    from services.backtest.fine_tuning import Tuner, TuningAlong
    from services.backtest.retraining import Trainer

__all__ = ["MODEL_VERSION", "BacktestOptions", "Forecasts", "replay", "spec_of"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

MODEL_VERSION = "online-1"
TARGETS = ("air_temp_c", "rh_pct", "co2_ppm")
HORIZONS_MIN = (30, 60, 180, 360, 720, 1440)

_DAY_MS = 86_400_000

Watch = Callable[[int, OnlineForecaster, Learned, F32], None]
"""Row, the forecaster, what it learned from the row, and the forecasts ``[Z, H, M, Q]``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BacktestOptions:
    """Everything besides its recordings that a backtest depends on."""

    every_ms: int = 1_800_000
    warmup_ms: int = 14 * _DAY_MS
    until_ms: int | None = None  # no origin after this much of a zone's recording
    latitude: float | None = None
    longitude: float | None = None
    timezone: str | None = None
    network: bool = False
    trees: bool = True
    fine_tune: bool = False  # it to the recording, every few days
    pretrained: Pretrained | None = field(default_factory=pretrained)  # what corrects forecasts: the package's network


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Forecasts from ``N`` origins, with what the forecast and its score need besides."""

    spec: ForecastSpec
    zone: I64  # [N]
    origin_ms: I64  # [N], on the recording's clock
    quantiles: F32  # [N, H, M, Q]
    climatology: F32  # [N, H, M]
    network: F32  # [N, H, M], the champion's median, alone; NaN where there is none
    frozen: F32  # [N, H, M], the same of the network as it was after the warm-up
    truth: F32  # [N, H, M], NaN where unknown or beyond the recording
    persistence: F32  # [N, H, M]
    naive_24h: F32  # [N, H, M]
    version: tuple[str, ...]  # [N], the forecaster's, and that of the network that it asked
    told: Counter[str]  # sensor faults that were found and kept out, and drifts, by kind


def spec_of(table: Table) -> ForecastSpec:
    """The forecasts that a recording allows: the targets that it has, at the horizons that fit its step."""
    targets = tuple(name for name in TARGETS if name in table.metrics)
    if not targets:
        raise HothouseError(f"the recording has none of the columns that are forecast: {', '.join(TARGETS)}")
    horizons = tuple(h for h in HORIZONS_MIN if h * 60_000 % table.step_ms == 0)
    return ForecastSpec(tuple(VOCABULARY), targets, horizons, step_ms=table.step_ms,
                        lookback_steps=_DAY_MS // table.step_ms)  # fmt: skip


def replay(
    table: Table, options: BacktestOptions, progress: Callable[[int, int], None] = lambda done, total: None,
    train: Trainer | None = None, spec: ForecastSpec | None = None, plans: Sequence[Plan] = (),
    watch: Watch | None = None, tuner: Tuner | None = None,
) -> Forecasts:  # fmt: skip
    """Run the forecaster along the recording; ``progress(done, total)`` is called after each step.

    ``train`` trains the network and ``tuner`` fine-tunes that of the package, by default in this process. ``spec`` is
    what is forecast, by default :func:`spec_of` the recording. ``plans`` are those of the recording's site, each known
    from its issue on. ``watch`` is called after each step.
    """
    spec = spec or spec_of(table)
    ends, zones = table.end_ms, len(table.names)
    steps = np.array((0, *spec.horizon_steps), dtype=np.int64)
    ahead = np.concatenate([ends, ends[-1] + np.arange(1, steps[-1] + 1) * spec.step_ms])
    sun = sun_sine(ahead, table.clock(options.timezone), options.latitude, options.longitude)
    day_bin = ends % _DAY_MS // spec.step_ms
    first_step = table.start_ms // spec.step_ms
    forecaster = OnlineForecaster(spec, zones, options.pretrained, fine_tunes=options.fine_tune)
    sensors = SensorFaults(spec.channels, spec.step_ms, zones)
    drift, grower, told = Drift(spec.channels, spec.targets, spec.step_ms, zones), TreeGrower(spec), Counter[str]()
    for part in (forecaster, sensors, drift):
        part.add_zones(zones)
    known, to_come = Plans(), deque(sorted(plans, key=lambda plan: plan.known_ms))
    issue = [dict(_origins(table, z, options)) for z in range(zones)]
    asked = sorted({t for rows in issue for t in rows})
    network = _Network(table, spec, options, asked, train) if options.network else None
    tuning = _tuning(table, forecaster, spec, options, tuner)
    begins, stops = (np.array([(span[i] - table.start_ms) / spec.step_ms for span in table.spans]) for i in (0, 1))
    origin_ms, zone, quantiles, climatology, serving, frozen, version = [], [], [], [], [], [], []
    nothing = np.full((zones, len(spec.horizons_min), len(spec.targets)), np.nan, dtype=np.float32)
    length = asked[-1] + 1 if asked else 0  # nothing is asked of later rows
    for t in range(length):
        alive = np.flatnonzero((begins <= t) & (t < stops + 1))
        if len(alive):
            here = np.full(len(alive), day_bin[t])
            light = np.broadcast_to(sun[t + steps], (len(alive), len(steps)))
            hour = int(day_bin[t]) * 24 // spec.steps_per_day
            rows, faults = sensors.learn(alive, first_step + t, table.values[alive, t], hour)
            origin = (first_step + t) * spec.step_ms
            while to_come and to_come[0].known_ms <= origin:
                known.add(to_come.popleft())
            known.forget(origin)
            foreseen = known.ahead(origin, [table.names[z] for z in alive], spec) if plans else None
            learned = forecaster.learn(alive, first_step + t, rows, here, light, foreseen)
            drifts = drift.update("", alive, first_step + t, rows, learned.errors)
            told.update([fault.kind for fault in faults])
            told.update(["error drift" if drifted.is_error else "input drift" for drifted in drifts])
            grower.add(learned.example)
            champion, old = network.answer(t) if network else (None, None)
            given = forecaster.predict(learned, None if champion is None else champion[alive])
            if watch:
                watch(t, forecaster, learned, given)
            for i, z in enumerate(alive.tolist()):
                if t in issue[z]:
                    zone.append(z)
                    origin_ms.append(issue[z][t])
                    quantiles.append(given[i])
                    climatology.append(learned.baseline[i])
                    serving.append((nothing if champion is None else champion)[z])
                    frozen.append((nothing if old is None else old)[z])
                    version.append("+".join(filter(None, (MODEL_VERSION, network.version if network else ""))))
        if options.trees and (t + 1) % (GROW_DAYS * spec.steps_per_day) == 0:
            try:
                forecaster.forest = grower.grow(forecaster.unit) or forecaster.forest
            except GrowerError as error:
                raise HothouseError(str(error), error.hint) from error
        if network:
            network.after(t)
        if tuning:
            tuning.after(t)
        progress(t + 1, length)
    if not zone:
        days = max(last - first for first, last in table.spans) / _DAY_MS
        raise HothouseError(
            "no zone is longer than the warm-up: nothing to forecast",
            f"The longest has {days:.1f} days, and the warm-up {options.warmup_ms / _DAY_MS:g}: make that shorter.",
        )
    at = np.array(zone, dtype=np.int64)
    when = np.array(origin_ms, dtype=np.int64)
    truth, still, naive = _compared(table, spec, at, when)
    return Forecasts(
        spec, at, when, np.stack(quantiles), np.stack(climatology), np.stack(serving), np.stack(frozen), truth, still,
        naive, tuple(version), told,
    )  # fmt: skip


def _tuning(
    table: Table, forecaster: OnlineForecaster, spec: ForecastSpec, options: BacktestOptions, tuner: Tuner | None
) -> TuningAlong | None:
    if not options.fine_tune or options.pretrained is None:
        return None
    from models.pretraining.fine_tuner import fine_tune  # torch is imported where it is needed only
    from services.backtest.fine_tuning import TuningAlong

    return TuningAlong(table, forecaster, spec, options.pretrained, tuner or fine_tune)


class _Network:
    """The network of a replay: retrained in event time, and asked for many origins at once."""

    def __init__(
        self, table: Table, spec: ForecastSpec, options: BacktestOptions, asked: list[int], train: Trainer | None
    ) -> None:
        from services.backtest.retraining import RETRAIN_DAYS, Networks, train_here

        longitude = sun_longitude(table, table.clock(options.timezone), options.longitude)
        place = Place(latitude=options.latitude, longitude=longitude)
        self._networks = Networks(table, spec, place, train or train_here)
        self._first = options.warmup_ms // spec.step_ms
        self._every = RETRAIN_DAYS * spec.steps_per_day
        self._length, self._stride = len(table.end_ms), spec.example_steps
        self._asked = np.array(asked, dtype=np.int64)
        self._offset = table.start_ms // spec.step_ms
        self._answers: dict[int, tuple[F32 | None, F32 | None]] = {}

    @property
    def version(self) -> str:
        return self._networks.version

    def after(self, t: int) -> None:
        """Train where it is time to, and ask for all origins up to the next time."""
        if t < self._first or (t - self._first) % self._every:
            return
        self._networks.retrain(t)
        steps = np.arange(t + 1, min(t + 1 + self._every, self._length))
        wanted = steps[((self._offset + steps) % self._stride == 0) | np.isin(steps, self._asked)]
        champion, frozen = self._networks.answer(wanted)
        self._answers = {
            int(step): (None if champion is None else champion[i], None if frozen is None else frozen[i])
            for i, step in enumerate(wanted)
        }

    def answer(self, t: int) -> tuple[F32 | None, F32 | None]:
        """Medians of the champion and of the frozen network, ``[Z, H, M]``."""
        return self._answers.get(t, (None, None))


def _origins(table: Table, zone: int, options: BacktestOptions) -> Iterator[tuple[int, int]]:
    """Row -> origin: the newest row that ends at the origin or before; one origin a row, the first."""
    first, last = table.spans[zone]
    if options.until_ms is not None:
        last = min(last, first + options.until_ms)
    newest = -1
    for origin in range(first + options.warmup_ms, last + 1, options.every_ms):
        row = (origin - table.start_ms) // table.step_ms
        if row > newest:
            yield row, origin
        newest = row


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
