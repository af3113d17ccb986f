"""A prequential replay: every row is forecast from before it is learned from, by the classes that run live."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from edge.wire.vocabulary import VOCABULARY
from models.durations import DAY_MS, MINUTE_MS
from models.evaluation.drift import Drift
from models.evaluation.truth import Truths
from models.features.inputs import targets_along
from models.features.plans import Plan, Plans
from models.features.sensor_faults import SensorFaults
from models.online.basis import Learned
from models.online.corrections.pretrained_correction import Pretrained
from models.online.online_forecaster import OnlineForecaster
from models.pretraining.shipped_arrays import pretrained
from models.spec import ForecastSpec, Place
from models.trees.forest import GROW_DAYS
from models.trees.tree_grower import GrowerError, TreeGrower
from services.backtest.network_along import NetworkAlong
from services.backtest.table import Table, sun_longitude, sun_sine
from services.errors import HothouseError

if TYPE_CHECKING:
    from models.pretraining.fine_tuner import Tuner
    from services.backtest.fine_tuning import TuningAlong
    from services.backtest.retraining import Trainer

__all__ = ["MODEL_VERSION", "BacktestOptions", "Forecasts", "replay", "spec_of"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

MODEL_VERSION = "online-1"
TARGETS = ("air_temp_c", "rh_pct", "co2_ppm")
HORIZONS_MIN = (30, 60, 180, 360, 720, 1440)


Watch = Callable[[int, OnlineForecaster, Learned, F32], None]
"""Row, the forecaster, what it learned from the row, and the forecasts ``[Z, H, M, Q]``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BacktestOptions:
    """Everything besides its recordings that a backtest depends on."""

    every_ms: int = 1_800_000
    warmup_ms: int = 14 * DAY_MS
    until_ms: int | None = None  # no origin after this much of a zone's recording
    latitude: float | None = None
    longitude: float | None = None
    timezone: str | None = None
    network: bool = False
    trees: bool = True
    fine_tune: bool = False  # ``pretrained`` to the recording, every few days
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
        raise HothouseError(
            f"the recording has none of the columns that are forecast: {', '.join(TARGETS)}",
            "Say under [columns] in recording.toml which column holds each, or name the columns so.",
        )
    horizons = tuple(h for h in HORIZONS_MIN if h * MINUTE_MS % table.step_ms == 0)
    return ForecastSpec(tuple(VOCABULARY), targets, horizons, step_ms=table.step_ms,
                        lookback_steps=DAY_MS // table.step_ms)  # fmt: skip


def replay(
    table: Table, options: BacktestOptions, progress: Callable[[int, int], None] = lambda done, total: None,
    train: Trainer | None = None, spec: ForecastSpec | None = None, plans: Sequence[Plan] = (),
    watch: Watch | None = None, tuner: Tuner | None = None,
) -> Forecasts:  # fmt: skip
    """Run the forecaster along the recording, but for its pauses; ``progress(done, total)`` is called after each step.

    ``train`` trains the network and ``tuner`` fine-tunes that of the package, by default in this process. ``spec`` is
    what is forecast, by default :func:`spec_of` the recording. ``plans`` are those of the recording's site, each known
    from its issue on. ``watch`` is called after each step.
    """
    spec = spec or spec_of(table)
    run = _Replay(table, options, spec, plans)
    network = _network(table, spec, options, run.asked, train)
    tuning = _tuning(table, run.forecaster, spec, options, tuner)
    in_pause = table.in_pause
    for t in range(run.length):
        if not in_pause[t]:
            run.take(t, network, watch)
            if options.trees and (t + 1) % (GROW_DAYS * spec.steps_per_day) == 0:
                run.grow_trees()
            if tuning:
                tuning.after(t)
        if network:
            network.after(t)  # also in a pause: it answers until the next time
        progress(t + 1, run.length)
    return run.forecasts()


class _Replay:
    """A replay between two rows: the classes that run live, and the forecasts from the rows until now."""

    def __init__(self, table: Table, options: BacktestOptions, spec: ForecastSpec, plans: Sequence[Plan]) -> None:
        ends, zones = table.end_ms, len(table.names)
        self._table, self._spec, self._warmup_ms = table, spec, options.warmup_ms
        self._steps = np.array((0, *spec.horizon_steps), dtype=np.int64)
        ahead = np.concatenate([ends, ends[-1] + np.arange(1, self._steps[-1] + 1) * spec.step_ms])
        self._sun = sun_sine(ahead, table.clock(options.timezone), options.latitude, options.longitude)
        self._day_bin = ends % DAY_MS // spec.step_ms
        self.forecaster = OnlineForecaster(spec, zones, options.pretrained, fine_tunes=options.fine_tune)
        self._sensors = SensorFaults(spec.channels, spec.step_ms, zones)
        self._drift, self._grower = Drift(spec.channels, spec.targets, spec.step_ms, zones), TreeGrower(spec)
        for part in (self.forecaster, self._sensors, self._drift):
            part.add_zones(zones)
        self._told = Counter[str]()
        self._plans = Plans() if plans else None
        self._to_come = deque(sorted(plans, key=lambda plan: plan.known_ms))
        self._begins, self._stops = (
            np.array([(span[i] - table.start_ms) / spec.step_ms for span in table.spans]) for i in (0, 1)
        )
        self._origins = [dict(_origins(table, z, options)) for z in range(zones)]
        self.asked = sorted({t for rows in self._origins for t in rows})
        """The rows that some zone is forecast from."""
        self.length = self.asked[-1] + 1 if self.asked else 0  # nothing is asked of later rows
        self._issued: list[_Issued] = []

    def take(self, t: int, network: NetworkAlong | None, watch: Watch | None) -> None:
        """Row ``t`` of every zone that has begun: find faults, learn, forecast."""
        alive = np.flatnonzero((self._begins <= t) & (t < self._stops + 1))
        if not len(alive):
            return
        spec, step = self._spec, self._table.start_ms // self._spec.step_ms + t
        here, hour = np.full(len(alive), self._day_bin[t]), int(self._day_bin[t]) * 24 // spec.steps_per_day
        light = np.broadcast_to(self._sun[t + self._steps], (len(alive), len(self._steps)))
        rows, faults = self._sensors.learn(alive, step, self._table.values[alive, t], hour)
        learned = self.forecaster.learn(alive, step, rows, here, light, self._foreseen(step * spec.step_ms, alive))
        drifts = self._drift.update("", alive, step, rows, learned.errors)
        self._told.update([fault.kind for fault in faults])
        self._told.update(["error drift" if drifted.is_error else "input drift" for drifted in drifts])
        self._grower.add(learned.example)
        champion, frozen = network.answer(t) if network else (None, None)
        given = self.forecaster.predict(learned, None if champion is None else champion[alive])
        if watch:
            watch(t, self.forecaster, learned, given)
        nothing = np.full(given.shape[1:-1], np.nan, dtype=np.float32)
        version = "+".join(filter(None, (MODEL_VERSION, network.version if network else "")))
        for i, z in enumerate(alive.tolist()):
            if t in self._origins[z]:
                serving, first = (nothing if answer is None else answer[z] for answer in (champion, frozen))
                origin_ms = self._origins[z][t]
                self._issued.append(_Issued(z, origin_ms, given[i], learned.baseline[i], serving, first, version))

    def grow_trees(self) -> None:
        """Let the forecaster ask trees of all rows until now."""
        try:
            self.forecaster.forest = self._grower.grow(self.forecaster.unit) or self.forecaster.forest
        except GrowerError as error:
            raise HothouseError(str(error), error.hint) from error

    def forecasts(self) -> Forecasts:
        """All that were issued, with what came. Raises :class:`HothouseError` where there is none."""
        if self.asked and not self._issued:
            raise HothouseError(
                "no zone says anything from the end of the warm-up on: nothing to forecast",
                "Make the warm-up shorter, or let the backtest end later.",
            )
        if not self._issued:
            days = max(last - first for first, last in self._table.spans) / DAY_MS
            raise HothouseError(
                "no zone is longer than the warm-up: nothing to forecast",
                f"The longest has {days:.1f} days, and the warm-up {self._warmup_ms / DAY_MS:.3g}: make that shorter.",
            )
        zone, origin_ms, quantiles, climatology, network, frozen, version = zip(*self._issued, strict=True)
        at, when = np.array(zone, dtype=np.int64), np.array(origin_ms, dtype=np.int64)
        truth, still, naive = _compared(self._table, self._spec, at, when)
        return Forecasts(
            self._spec, at, when, np.stack(quantiles), np.stack(climatology), np.stack(network), np.stack(frozen),
            truth, still, naive, version, self._told,
        )  # fmt: skip

    def _foreseen(self, origin_ms: int, alive: I64) -> F32 | None:
        """What plans say that were known by this origin."""
        if self._plans is None:
            return None
        while self._to_come and self._to_come[0].known_ms <= origin_ms:
            self._plans.add(self._to_come.popleft())
        self._plans.forget(origin_ms)
        return self._plans.ahead(origin_ms, [self._table.names[z] for z in alive], self._spec)


class _Issued(NamedTuple):
    """A zone's forecast from one origin: fields of :class:`Forecasts`."""

    zone: int
    origin_ms: int
    quantiles: F32
    climatology: F32
    network: F32
    frozen: F32
    version: str


def _network(
    table: Table, spec: ForecastSpec, options: BacktestOptions, asked: list[int], train: Trainer | None
) -> NetworkAlong | None:
    if not options.network:
        return None
    longitude = sun_longitude(table, table.clock(options.timezone), options.longitude)
    place = Place(latitude=options.latitude, longitude=longitude)
    return NetworkAlong(table, spec, place, options.warmup_ms // spec.step_ms, asked, train)


def _tuning(
    table: Table, forecaster: OnlineForecaster, spec: ForecastSpec, options: BacktestOptions, tuner: Tuner | None
) -> TuningAlong | None:
    if not options.fine_tune or options.pretrained is None:
        return None
    from models.pretraining.fine_tuner import fine_tune  # torch is imported where it is needed only
    from services.backtest.fine_tuning import TuningAlong

    return TuningAlong(table, forecaster, spec, options.pretrained, tuner or fine_tune)


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
    y = targets_along(table.values, spec)
    rows = np.where(np.isfinite(y), np.arange(y.shape[1])[:, None], -1)
    newest = np.maximum.accumulate(rows, axis=1)
    seen = np.where(newest >= 0, np.take_along_axis(y, np.maximum(newest, 0), axis=1), np.float32(np.nan))
    row = (origin_ms - table.start_ms) // spec.step_ms
    truth, t, z = Truths(y, spec).after(zone, row), row[:, None], zone[:, None]
    before = t + np.array(spec.horizon_steps) - spec.steps_per_day
    naive = np.where((before >= 0)[..., None], seen[z, np.maximum(before, 0)], np.float32(np.nan))
    return truth, np.broadcast_to(seen[z, t], truth.shape).copy(), naive
