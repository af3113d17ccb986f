"""How good paths and scenarios are on a recording, and what they cost.

    python -m benchmarks.paths RECORDING [--latitude 51.98 --longitude 4.53 --timezone Europe/Amsterdam] [--no-rival]

The recording is replayed as ``hothouse backtest`` does it. Between learned horizons, the path is compared with the
forecaster itself, for which those times are learned horizons too (a second replay; ``--no-rival`` leaves it out), and
with a line. Minima of the next night and maxima of the next day are those of all rows; each is forecast from three
origins before it. Intervals from scenarios stand beside those that single quantiles give (the lowest p10 ... of the
night), and those of times drawn independently. The chance of a night below the tenth of the zone's nights so far is
judged beside the share of nights so far. Only whole nights count, and origins after 14 days. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.progress import Progress
from threadpoolctl import threadpool_limits

from benchmarks.online import made_up_forest, size
from edge.wire.vocabulary import VOCABULARY
from models.durations import DAY_MS, HOUR_MS, MINUTE_MS
from models.evaluation.path_scores import IntervalScore, brier_skill, interval_score, reliability
from models.features.inputs import targets_of
from models.online.basis import Learned
from models.online.online_forecaster import OnlineForecaster
from models.paths.past_nights import DAY, NIGHT, pooled_chance
from models.paths.paths import Paths, night_by_clock
from models.paths.scenario_events import quantiles_of
from models.spec import ForecastSpec
from services.backtest.prequential import BacktestOptions, replay, spec_of
from services.backtest.table import Table, read_table, sun_sine

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

BETWEEN_MIN = (120, 240, 300, 480, 540, 600, 900, 1080, 1260)
ORIGINS_H = {NIGHT: (12, 15, 17), DAY: (20, 22, 0)}
"""Hours of the clock from which a night's minimum and a day's maximum are forecast."""
NAMES = {NIGHT: "minimum of the night", DAY: "maximum of the day"}


@dataclass
class Case:
    """What was said of a night or day of a zone, all targets, and what came."""

    kind: int
    zone: int
    day: int
    truth: F64  # [M]
    limits: dict[str, F64]  # way -> [3, M]
    chance: float  # that the first target is below the limit
    share: float  # of nights so far
    came: float


@dataclass
class Watcher:
    """Follows a replay; ``told`` holds the paths' medians at the times between."""

    table: Table
    spec: ForecastSpec
    options: BacktestOptions
    cases: list[Case] = field(default_factory=list)
    told: dict[tuple[int, int], F32] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ends, zones = self.table.end_ms, len(self.table.names)
        self.y = targets_of(self.table.values, self.spec)
        ahead = np.concatenate([ends, ends[-1] + np.arange(1, self.spec.steps_per_day + 1) * self.spec.step_ms])
        place = (self.table.clock(self.options.timezone), self.options.latitude, self.options.longitude)
        sine = sun_sine(ahead, *place)
        bins = ahead % DAY_MS // self.spec.step_ms
        self.night = np.where(np.isnan(sine), night_by_clock(bins, self.spec.steps_per_day), sine < 0)
        self.paths = Paths(self.spec, zones)
        self.paths.add_zones(zones)
        steps = self.paths.knots.steps
        self.between = np.flatnonzero(np.isin(steps * self.spec.step_ms // MINUTE_MS, BETWEEN_MIN))
        self.begins = np.array([(first - self.table.start_ms) / self.spec.step_ms for first, _ in self.table.spans])
        self.stops = np.array([(last - self.table.start_ms) / self.spec.step_ms for _, last in self.table.spans])
        self.minima: list[list[float]] = [[] for _ in range(zones)]
        self.rng = np.random.default_rng(0)

    def __call__(self, t: int, forecaster: OnlineForecaster, learned: Learned, given: F32) -> None:
        """After each step."""
        self.paths.learn(forecaster, learned, lambda ahead: self.night[t + ahead])
        if t and self.night[t - 1] and not self.night[t]:
            self._end_night(t)
        if self.table.end_ms[t] % 1_800_000:
            return
        path = forecaster.path(learned.zones, learned.step, learned.day_bin, given, self.paths.knots)
        warm = t - self.begins >= self.options.warmup_ms / self.spec.step_ms
        for i, z in enumerate(learned.zones.tolist()):
            if warm[z]:
                self.told[t, z] = path[i, self.between, :, 1]
        hour = int(self.table.end_ms[t] % DAY_MS // HOUR_MS)
        if self.table.end_ms[t] % HOUR_MS == 0 or self.table.end_ms[t] % HOUR_MS < 1_800_000:
            for kind, hours in ORIGINS_H.items():
                if hour in hours and self.table.end_ms[t] % HOUR_MS < 1_800_000:
                    self._ask(t, kind, learned, path, warm)

    def _end_night(self, t: int) -> None:
        start = t - 1
        while start and self.night[start - 1]:
            start -= 1
        for z, held in enumerate(self.minima):
            rows = self.y[z, start:t, 0]
            if start >= self.begins[z] and t <= self.stops[z] and np.isfinite(rows).mean() > 0.8:
                held.append(float(np.nanmin(rows)))

    def _ask(self, t: int, kind: int, learned: Learned, path: F32, warm: npt.NDArray[np.bool_]) -> None:
        span = self.paths.span(kind, lambda ahead: self.night[t + ahead])
        if span is None or not span[2]:
            return
        inside = np.flatnonzero(self.night[t + 1 : t + self.spec.steps_per_day + 1] == (kind == NIGHT)) + 1
        rows = inside[: np.flatnonzero(np.append(np.diff(inside) > 1, True))[0] + 1]
        ways = self._ways(kind, learned, path, span)
        for i, z in enumerate(learned.zones.tolist()):
            truth = self.y[z, np.minimum(t + rows, self.y.shape[1] - 1)]
            if not warm[z] or t + rows[-1] > self.stops[z] or np.isfinite(truth).mean() < 0.8:
                continue
            found = np.nanmin(truth, axis=0) if kind == NIGHT else np.nanmax(truth, axis=0)
            limits: dict[str, F64] = {name: quantiles_of(values[:, i]) for name, values in ways.items()}
            single = path[i, span[0] : span[1]]
            limits["single quantiles"] = (single.min(axis=0) if kind == NIGHT else single.max(axis=0)).T.astype(
                np.float64
            )
            past = np.array(self.minima[z])
            limit = float(np.quantile(past, 0.1)) if len(past) else float("nan")
            index = int(learned.zones[i])
            held = self.paths.nights.past(index, kind)[:, 0]
            held = held[np.isfinite(held)]
            chance = pooled_chance(ways["scenarios"][:, i, 0], held, limit, -1)
            share = float((past < limit).mean()) if len(past) else float("nan")
            day = int(self.table.end_ms[t] // DAY_MS)
            self.cases.append(Case(kind, z, day, found, limits, chance, share, float(found[0] < limit)))

    def _ways(self, kind: int, learned: Learned, path: F32, span: tuple[int, int, bool]) -> dict[str, F32]:
        """What each way says of the extreme, ``[S, Z, M]``."""
        bins, zones, names = learned.day_bin, learned.zones, [self.table.names[z] for z in learned.zones]
        drawn = self.paths.scenarios(zones, learned.step, int(bins[0]), path, "benchmark", names)
        ways, times = {}, slice(span[0], span[1])
        ways["scenarios"], _ = self.paths.extremes(zones, bins, drawn[:, :, times], kind, span)
        ways["uncorrected"], _ = self.paths.extremes(zones, bins, drawn[:, :, times], kind, (*span[:2], False))
        stated = scenarios_without(self.paths, path, zones, learned, names, self.spec)
        ways["stated dependence"], _ = self.paths.extremes(zones, bins, stated[:, :, times], kind, (*span[:2], False))
        mixed = self.rng.permuted(drawn[:, :, times], axis=0)
        ways["independent times"], _ = self.paths.extremes(zones, bins, mixed, kind, (*span[:2], False))
        return ways


def scenarios_without(
    paths: Paths, path: F32, zones: Any, learned: Learned, names: list[str], spec: ForecastSpec
) -> F32:
    """Scenarios of the stated dependence alone."""
    from models.paths.scenarios import scenarios

    none = np.empty((0, len(zones), len(paths.errors.steps), path.shape[2]), dtype=np.float32)
    seed = ("benchmark", learned.step)
    return scenarios(path, paths.knots.steps, none, paths.errors.steps, seed, names, spec)


def compare(watcher: Watcher, table: Table, options: BacktestOptions, spec: ForecastSpec, bar: Any) -> dict[str, float]:
    """MAE of paths, between horizons, beside that of the forecaster that learns there; prints a line a time."""
    horizons = sorted({*spec.horizons_min, *BETWEEN_MIN})
    rival = replay(table, options, bar, spec=replace(spec, horizons_min=tuple(horizons)))
    row = (rival.origin_ms - table.start_ms) // spec.step_ms
    at = {(int(t), int(z)): n for n, (t, z) in enumerate(zip(row, rival.zone, strict=True))}
    keys = [key for key in watcher.told if key in at]
    n = np.array([at[key] for key in keys])
    ours = np.stack([watcher.told[key] for key in keys])
    zone = np.array([key[1] for key in keys])
    found = {}
    print("MAE of the path / of a forecaster that has learned there (of a line between horizons)")
    for i, step in enumerate(watcher.paths.knots.steps[watcher.between]):
        minutes = int(step * spec.step_ms // MINUTE_MS)
        h = horizons.index(minutes)
        truth = rival.truth[n, h]
        line = lines(rival.quantiles[n][..., 1], horizons, spec.horizons_min, minutes)
        for m, target in enumerate(spec.targets):
            means = []
            for said in (ours[:, i, m], line[:, m], rival.quantiles[n, h, m, 1]):
                off = np.abs(said - truth[:, m])
                means.append(np.mean([np.nanmean(off[zone == z]) for z in np.unique(zone)]))
            found[f"{target} {minutes // 60} h"] = float(means[0] / means[2])
            print(f"  {target:12s} {minutes // 60:3d} h  {means[0] / means[2]:.3f} ({means[1] / means[2]:.3f})")
    print(f"  mean {np.mean(list(found.values())):.3f}, worst {max(found.values()):.3f}")
    return found


def lines(medians: F32, horizons: list[int], learned: tuple[int, ...], minutes: int) -> F32:
    """Values on a line between the learned horizons around."""
    after = min(h for h in learned if h >= minutes)
    before = max(h for h in learned if h <= minutes)
    share = (minutes - before) / max(after - before, 1)
    first, second = (medians[:, horizons.index(h)] for h in (before, after))
    return np.asarray(first + share * (second - first))


def judge(watcher: Watcher, spec: ForecastSpec) -> dict[str, Any]:
    """Print how good minima, maxima and chances were."""
    found: dict[str, Any] = {}
    for kind, what in NAMES.items():
        cases = [case for case in watcher.cases if case.kind == kind]
        for m, target in enumerate(spec.targets):
            print(f"{what}, {target}: {len(cases)} cases")
            truth = np.array([case.truth[m] for case in cases])
            for way in cases[0].limits:
                low, _, high = np.array([case.limits[way][:, m] for case in cases], dtype=np.float64).T
                score: IntervalScore = interval_score(low, high, truth.astype(np.float64))
                found[f"{what} {target} {way}"] = {"coverage": score.coverage, "width": score.width,
                                                   "winkler": score.winkler}  # fmt: skip
                print(f"  {way:18s} holds {score.coverage:.3f} ({score.below:.3f} below, {score.above:.3f} above)"
                      f"  width {score.width:8.3f}  Winkler {score.winkler:8.3f}")  # fmt: skip
    nights = [case for case in watcher.cases if case.kind == NIGHT and np.isfinite(case.share)]
    chance, share, came = (np.array([getattr(case, name) for case in nights]) for name in ("chance", "share", "came"))
    day = np.array([case.day for case in nights])
    skill, groups = brier_skill(chance, came, share, day), reliability(chance, came, day)
    print(f"chance of a night below the tenth of nights so far, {spec.targets[0]}: {len(nights)} cases, "
          f"{int(came.sum())} came")  # fmt: skip
    print(f"  Brier skill beside the share so far {skill.skill:.3f}, 95 % interval {skill.low:.3f} to {skill.high:.3f}")
    said = ", ".join(
        f"{cases} of {a:.2f}: {b:.2f} ({low:.2f} to {high:.2f})"
        for cases, a, b, low, high in zip(
            groups.cases, groups.chance, groups.came, groups.low, groups.high, strict=True
        )
    )
    print(f"  reliability: {said}; off by {groups.off:.3f} in the mean")
    return found | {"brier_skill": skill.skill, "brier_low": skill.low, "reliability_off": groups.off,
                    "reliability": [groups.cases, groups.chance, groups.came]}  # fmt: skip


def cost(zones: int) -> dict[str, float]:
    """CPU milliseconds a step of many zones: as now, with paths, and scenarios of one zone; state a zone."""
    steps = 24  # after a day, in which everything is filled
    spec, rng = ForecastSpec(tuple(VOCABULARY)), np.random.default_rng(0)
    forecaster, paths = OnlineForecaster(spec, zones), Paths(spec, zones)
    for part in (forecaster, paths):
        part.add_zones(zones)
    forecaster.forest = made_up_forest(spec, forecaster.regressors, rng)
    usual, everyone = rng.normal(50, 5, (zones, len(spec.channels))), np.arange(zones)
    ahead, day = np.array((0, *spec.horizon_steps)), spec.steps_per_day
    took: dict[str, list[float]] = {"step": [], "learning paths": [], "paths": [], "scenarios of a zone": []}
    for step in range(day + steps):
        values = (usual + 5 * np.sin(2 * np.pi * step / day) + rng.normal(size=usual.shape)).astype(np.float32)
        sun = np.broadcast_to(np.sin(2 * np.pi * (step + ahead) / day).astype(np.float32), (zones, len(ahead)))
        bins = np.full(zones, step % day)
        marks = [time.process_time()]
        learned = forecaster.learn(everyone, step, values, bins, sun)
        given = forecaster.predict(learned, learned.baseline)
        marks.append(time.process_time())
        paths.learn(forecaster, learned, partial(_night, step, day))
        marks.append(time.process_time())
        path = forecaster.path(everyone, step, bins, given, paths.knots)
        marks.append(time.process_time())
        paths.scenarios(everyone[:1], step, step % day, path[:1], "site", ["zone"])
        marks.append(time.process_time())
        if step >= day - 1:
            for name, spent in zip(took, np.diff(marks), strict=True):
                took[name].append(1000 * spent)
    found = {name: float(np.mean(each)) for name, each in took.items()}
    found["learning paths, longest"] = max(took["learning paths"])
    found["kb_a_zone"] = size(paths.state_dict()) / zones / 1024
    return found


def _night(step: int, day: int, ahead: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    return night_by_clock(step + ahead, day)


def main() -> None:
    """Replay and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path, nargs="?")
    parser.add_argument("--latitude", type=float)
    parser.add_argument("--longitude", type=float)
    parser.add_argument("--timezone")
    parser.add_argument("--no-rival", action="store_true")
    parser.add_argument("--zones", type=int, default=1000, help="of the measurement of costs; 0 leaves it out")
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    if asked.recording:
        table, options = (
            read_table(asked.recording),
            BacktestOptions(latitude=asked.latitude, longitude=asked.longitude, timezone=asked.timezone),
        )
        spec = spec_of(table)
        watcher = Watcher(table, spec, options)
        with Progress(transient=True) as bar:
            task = bar.add_task(f"{len(table.names)} zones")

            def show(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            replay(table, options, show, watch=watcher)
            found |= judge(watcher, spec)
            if not asked.no_rival:
                found["between"] = compare(watcher, table, options, spec, show)
    if asked.zones:
        with threadpool_limits(1):
            found["cost"] = spent = cost(asked.zones)
        print(f"{asked.zones} zones, CPU time of a step of one core: " + ", ".join(
            f"{name} {value:.1f}" for name, value in spent.items()
        ))  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
