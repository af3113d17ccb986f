"""How fast the forecaster recovers when the greenhouse is no longer what it was.

    python -m benchmarks.regimes [--seeds 10] [--first 1] [--processes 2] [--days-before 21] [--days-after 5]

A simulated greenhouse of three zones, in rows of 15 minutes, runs for three weeks; then its screens are removed, its
lee vents stick, or its crop makes room for a young one, in all zones at once. Two forecasters go on in the changed
greenhouse (without network and trees): one learns, one is frozen (its profiles, weights and units stay as they were; it
still sees every row). Two more have the same weather and grower: the *twin* learns in the greenhouse that was not
changed, the *native* in one that was like the changed one from the beginning.

Errors are absolute errors of the median, means over zones of the forecasts whose truth falls into a window. A cell is a
target and a horizon, of one seed or, in the tables, with the errors of all seeds together: one seed's weather of one
day makes a ratio of single days uncertain by far more than the 20 % in question. Its *usual* error in a window is the
larger of the twin's and the native's: what there was before, with the weather taken out, or what there is to be had
where the new regime is harder to forecast in itself. A cell counts where the frozen forecaster's error is 1.5 times the
usual one or more, over all forecasts that were issued after the change. It has recovered at the first hour from which
on the next 24 hours' error is within 20 % of usual; it must do so within the horizon and 24 hours. The totals also say
so of single seeds, and with the plain mean of the seven days before the change for the usual error, weather and all.
The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.simulator.regimes import REGIMES
from edge.simulator.simulated_site import SimulatedSite
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import VOCABULARY
from models.features.inputs import day_bins, sun_elevation_deg, targets_of
from models.online.online_forecaster import OnlineForecaster
from models.spec import ForecastSpec, Place

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

SPEC = ForecastSpec(tuple(VOCABULARY), ("air_temp_c", "rh_pct", "co2_ppm"), (30, 60, 180, 360, 720, 1440), 900_000)
HORIZONS = np.array(SPEC.horizon_steps)
HOUR, DAY = SPEC.steps_per_day // 24, SPEC.steps_per_day
START_MS = 1_646_092_800_000  # 2022-03-01T00:00Z
CHANGE_AT_H = 12.0
"""UTC: the vents of a working day are open, and stay so."""
ZONES = 3
BEFORE_DAYS = 7
MUST_RISE, WITHIN, DEADLINE_H = 1.5, 1.2, 24.0
LEARNED = {
    "climatology": ("profile", "count", "weight", "moment", "product", "slope", "wave_moment", "wave_product", "wave"),
    "features": ("profile", "scale", "seen"),
    "pooled": ("moment", "product", "weights", "step"),
    "mixture": ("moment", "product", "weights", "step"),
    "change": ("excess", "seen", "days"),
}
"""What a frozen forecaster keeps; the rest of its state is what it has seen lately."""


class Run:
    """A forecaster along a greenhouse: errors by the row at which their truth fell, ``[T, H, M]``."""

    def __init__(self, forecaster: OnlineForecaster, place: Place, steps: int, frozen: bool = False) -> None:
        self.forecaster, self._place = forecaster, place
        self.errors = np.full((steps, len(HORIZONS), len(SPEC.targets)), np.nan)
        self._waiting: dict[int, F32] = {}
        state = forecaster.state_dict()
        self._held = {part: {name: state[part][name] for name in names} for part, names in LEARNED.items()}
        self._unit = state["unit"]
        self._frozen = frozen

    def fork(self, frozen: bool) -> Run:
        """The same from here on, apart from this one."""
        other = Run(deepcopy(self.forecaster), self._place, len(self.errors), frozen)
        other.errors[:], other._waiting = self.errors, dict(self._waiting)
        return other

    def take(self, step: int, end_ms: int, values: F32) -> None:
        """One row of every zone."""
        truth = targets_of(values, SPEC)
        for h, ahead in enumerate(HORIZONS.tolist()):
            if step - ahead in self._waiting:
                self.errors[step, h] = np.abs(self._waiting[step - ahead][:, h] - truth).mean(axis=0)
        self._waiting.pop(step - int(HORIZONS.max()), None)
        zones = np.arange(len(values))
        bins = day_bins(self._place, np.full(len(values), end_ms), SPEC)
        times = end_ms + np.array([0, *HORIZONS.tolist()]) * SPEC.step_ms
        latitude, longitude = self._place.latitude, self._place.longitude
        assert latitude is not None
        assert longitude is not None
        light = np.sin(np.deg2rad(sun_elevation_deg(times, latitude, longitude)))
        sun = np.broadcast_to(light.astype(np.float32), (len(values), len(times)))
        learned = self.forecaster.learn(zones, end_ms // SPEC.step_ms, values, bins, sun)
        if step % (HOUR // 2) == 0:
            self._waiting[step] = self.forecaster.predict(learned)[..., 1]
        if self._frozen:
            for name, held in self._held.items():
                part = getattr(self.forecaster, name)
                part.load_state_dict({**part.state_dict(), **held})
            self.forecaster.usual.load_state_dict({**self.forecaster.usual.state_dict(), "unit": self._unit})


@dataclass(frozen=True)
class Cell:
    """One regime, target and horizon; hours are ``None`` where it did not happen."""

    regime: str
    target: str
    horizon_min: int
    frozen_rise: float
    first_day: float  # the learning one's error in the first day after the horizon, in usual ones
    hours: float | None
    frozen_hours: float | None
    frozen_rise_over_before: float
    hours_over_before: float | None


def main() -> None:
    """Run all seeds, print the tables."""
    args = _arguments()
    jobs = [(seed, args.days_before, args.days_after) for seed in range(args.first, args.first + args.seeds)]
    runs: dict[str, list[F64]] = {regime: [] for regime in REGIMES}
    with ProcessPoolExecutor(args.processes) as pool:
        for seed, found in enumerate(pool.map(_seed, jobs), start=args.first):
            for regime, errors in found.items():
                runs[regime].append(errors)
            print(f"seed {seed} done", flush=True)
    print(json.dumps({"regimes": [summary(regime, np.stack(errors)) for regime, errors in runs.items()]}))


def summary(regime: str, runs: F64) -> dict[str, Any]:
    """Print one regime's table of all seeds' ``runs [S, 4, T, H, M]`` together; its totals, also by seed."""
    names = ("target", "horizon", "frozen", "1st day", "hours", "allowed", "frozen h")
    print(f"\n{regime}\n{names[0]:<12}" + "".join(f"{name:>9}" for name in names[1:]))
    cells = _cells(regime, runs)
    counted = [cell for cell in cells if cell.frozen_rise >= MUST_RISE]
    for cell in counted:
        hours = ["-" if found is None else f"{found:.0f}" for found in (cell.hours, cell.frozen_hours)]
        allowed = cell.horizon_min / 60 + DEADLINE_H
        print(f"{cell.target:<12}{cell.horizon_min:>9}{cell.frozen_rise:>9.2f}{cell.first_day:>9.2f}"
              f"{hours[0]:>9}{allowed:>9.1f}{hours[1]:>9}")  # fmt: skip
    single = [cell for run in runs for cell in _cells(regime, run[None])]
    of_seeds = [cell for cell in single if cell.frozen_rise >= MUST_RISE]
    plain = [cell for cell in single if cell.frozen_rise_over_before >= MUST_RISE]
    return {
        "regime": regime, "cells": len(cells), "counted": len(counted), "in_time": _in_time(counted),
        "frozen_in_time": _in_time(counted, "frozen_hours"), "counted_of_seeds": len(of_seeds),
        "in_time_of_seeds": _in_time(of_seeds), "frozen_in_time_of_seeds": _in_time(of_seeds, "frozen_hours"),
        "counted_over_before": len(plain), "in_time_over_before": _in_time(plain, "hours_over_before"),
    }  # fmt: skip


def _in_time(cells: list[Cell], name: str = "hours") -> int:
    """How many recovered within their horizon and a day."""
    hours = [(getattr(cell, name), cell.horizon_min / 60 + DEADLINE_H) for cell in cells]
    return sum(needed is not None and needed <= deadline for needed, deadline in hours)


def _seed(job: tuple[int, int, int]) -> dict[str, F64]:
    """Errors ``[4, T, H, M]`` of twin, native, online and frozen in each regime, from ``BEFORE_DAYS`` before it on."""
    seed, days_before, days_after = job
    change = days_before * DAY + round(CHANGE_AT_H * HOUR)
    total = change + (days_after + 1) * DAY
    site = _site(seed)
    place = Place(site.timezone, "civil", site.latitude, site.longitude)
    before = Run(_newborn(), place, total)
    _advance(site, 0, change, before)
    twin = before.fork(frozen=False)
    _advance(deepcopy(site), change, total, twin)
    found: dict[str, F64] = {}
    for regime in REGIMES:
        changed, online, frozen = deepcopy(site), before.fork(frozen=False), before.fork(frozen=True)
        changed.change(regime)
        always, native = _site(seed), Run(_newborn(), place, total)
        always.change(regime, like=changed)
        _advance(changed, change, total, online, frozen)
        _advance(always, 0, total, native)
        found[regime] = np.stack([run.errors[change - BEFORE_DAYS * DAY :] for run in (twin, native, online, frozen)])
    return found


def _site(seed: int) -> SimulatedSite:
    return SimulatedSite("site", seed, START_MS, zones=ZONES, step_ms=SPEC.step_ms)


def _newborn() -> OnlineForecaster:
    forecaster = OnlineForecaster(SPEC, ZONES)
    for _ in range(ZONES):
        forecaster.add_zones()
    return forecaster


def _cells(regime: str, runs: F64) -> list[Cell]:
    """The cells of one seed or of several together: ``runs [S, 4, T, H, M]``."""
    change, end = BEFORE_DAYS * DAY, runs.shape[2] - DAY
    days = np.mean([[_next_day(errors) for errors in run] for run in runs], axis=0)
    usual_day = np.maximum(days[0], days[1])
    before = np.nanmean(runs[:, 0, :change], axis=(0, 1))
    cells = []
    for h, ahead in enumerate(HORIZONS.tolist()):
        first = change + ahead
        for m, target in enumerate(SPEC.targets):
            twin, native, _, rose = np.nanmean(runs[:, :, first:end, h, m], axis=2).mean(axis=0)
            usual = max(twin, native)
            levels = [days[run, change:end, h, m] for run in (2, 3)]
            over_usual = [level / usual_day[change:end, h, m] for level in levels]
            cells.append(
                Cell(
                    regime, target, SPEC.horizons_min[h],
                    frozen_rise=float(rose / usual),
                    first_day=float(over_usual[0][ahead]),
                    hours=_first_hour(over_usual[0]),
                    frozen_hours=_first_hour(over_usual[1]),
                    frozen_rise_over_before=float(rose / before[h, m]),
                    hours_over_before=_first_hour(levels[0] / before[h, m]),
                )
            )  # fmt: skip
    return cells


def _next_day(errors: F64) -> F64:
    """The mean of each row and those of the 24 hours from there, ``[T, H, M]``; NaN where they are not all there."""
    known = np.isfinite(errors)
    sums, counts = (
        np.concatenate([np.zeros((1, *errors.shape[1:])), np.cumsum(part, axis=0)])
        for part in (np.where(known, errors, 0), known)
    )
    means = np.full(errors.shape, np.nan)
    means[: len(errors) - DAY + 1] = (sums[DAY:] - sums[:-DAY]) / np.maximum(counts[DAY:] - counts[:-DAY], 1)
    return means


def _first_hour(ratio: F64) -> float | None:
    at = np.flatnonzero(ratio[::HOUR] <= WITHIN)
    return float(at[0]) if len(at) else None


def _advance(site: SimulatedSite, first: int, last: int, *runs: Run) -> None:
    for step, (end_ms, values) in zip(
        range(first, last), _rows(site, START_MS + (last - 1) * SPEC.step_ms), strict=True
    ):
        for run in runs:
            run.take(step, end_ms, values)


def _rows(site: SimulatedSite, to_ms: int) -> Iterator[tuple[int, F32]]:
    """Each instant as a row of every zone; the site's weather belongs to all."""
    for end_ms, readings in site.instants(to_ms):
        outside = readings[SITE_ZONE]
        yield (
            end_ms,
            np.array(
                [
                    [readings[zone].get(name, outside.get(name, np.nan)) for name in SPEC.channels]
                    for zone in site.zones
                ],
                dtype=np.float32,
            ),
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--days-before", type=int, default=21)
    parser.add_argument("--days-after", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
