"""What a zone's first days are forecast from: the table of models/online/prior.py, and how good they are on other
sites.

    python -m benchmarks.first_days [--sites 20] [--first 5000] [--processes 2]
    python -m benchmarks.first_days --table [--sites 16] [--first 1000]

Sites differ in latitude, season, hour of their first row and regime (screens, vents, crop), by their seed; each has
three crops under six recipes. With ``--table`` the mean absolute errors of every answer, and with these of the
forecast, become ``models/online/first_days.csv``: the same sites give the same file. Without, forecasts of days 1 to 3
and 4 to 14 are measured as ``hothouse backtest`` does, on sites that the table has not seen.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from edge.simulator.regimes import REGIMES
from edge.simulator.simulated_site import SimulatedSite
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import VOCABULARY
from models.durations import DAY_MS, HOUR_MS
from models.features.inputs import day_bins, targets_of
from models.online.online_forecaster import OnlineForecaster
from models.online.prior import ANSWERS, PARTS, TABLE, Prior, Sizes
from models.spec import ForecastSpec, Place
from services.backtest.prequential import BacktestOptions, replay
from services.backtest.report import scores
from services.backtest.table import Table

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

SPEC = ForecastSpec(tuple(VOCABULARY))
ZONES = 6
TABLE_DAYS = 3
YEAR_MS = 1_640_995_200_000  # 2022-01-01T00:00Z
STRIDE = 900_000 // SPEC.step_ms
STEPS = np.array(SPEC.horizon_steps)


def simulated(seed: int, days: int) -> tuple[F32, int, Place]:
    """The rows ``[Z, T, C]`` of a site, the end of the first, and where the site is."""
    rng = np.random.default_rng([seed, 99])
    latitude = float(rng.uniform(30, 62))
    start_ms = YEAR_MS + int(rng.integers(365)) * DAY_MS + int(rng.integers(24)) * HOUR_MS
    site = SimulatedSite("site", seed, start_ms, zones=ZONES, latitude=latitude, step_ms=SPEC.step_ms)
    regime = (None, None, *REGIMES)[int(rng.integers(2 + len(REGIMES)))]
    if regime is not None:
        site.change(regime)
    rows = [
        [[readings[zone].get(c, readings[SITE_ZONE].get(c, np.nan)) for c in SPEC.channels] for zone in site.zones]
        for _, readings in site.instants(start_ms + days * DAY_MS)
    ]
    place = Place(site.timezone, "civil", site.latitude, site.longitude)
    return np.array(rows, dtype=np.float32).swapaxes(0, 1), start_ms, place


NOTHING: Sizes = {
    (metric, answer): (np.array(SPEC.horizons_min, dtype=np.float64), np.ones((len(STEPS), PARTS)))
    for metric in SPEC.targets for answer in (*ANSWERS, "first days")
}  # fmt: skip
"""What the table is made with."""


def errors(sizes: Sizes, seed: int) -> tuple[F64, F64]:
    """Sums and counts of absolute errors on one site, ``[PARTS, H, M, K + 1]``: the answers', then the forecast's."""
    values, start_ms, place = simulated(seed, TABLE_DAYS + 1)
    truth = targets_of(values, SPEC)
    forecaster, everyone = OnlineForecaster(SPEC, len(values)), np.arange(len(values))
    for _ in everyone:
        forecaster.add_zones()
    forecaster.first.prior = Prior(SPEC, sizes)
    first = start_ms // SPEC.step_ms
    ends_ms = start_ms + np.arange(values.shape[1] + STEPS[-1]) * SPEC.step_ms
    bins = day_bins(place, ends_ms, SPEC)
    dark = np.full((len(values), 1 + len(STEPS)), np.nan, np.float32)
    sums, counts = np.zeros((2, PARTS, len(STEPS), len(SPEC.targets), len(ANSWERS) + 1))
    for t in range(TABLE_DAYS * SPEC.steps_per_day):
        here = np.full(len(values), bins[t])
        learned = forecaster.learn(everyone, first + t, values[:, t], here, dark)
        given = forecaster.predict(learned)
        if (first + t) % STRIDE:
            continue
        old = forecaster.medians.mixed(everyone, learned.experts)
        said = np.stack([*forecaster.first.answers(everyone, first + t), old, given[..., 1]], axis=-1)
        off = np.abs(said - truth[:, t + STEPS, :, None])
        known = np.isfinite(off)
        known[..., len(ANSWERS) - 1] &= np.isfinite(said[..., 2])  # without a day before, the learners say what is now
        part = bins[t + STEPS] * PARTS // SPEC.steps_per_day
        at = (part, np.arange(len(STEPS)))
        sums[at] += np.where(known, off, 0).sum(axis=0)
        counts[at] += known.sum(axis=0)
    return sums, counts


def sizes_of(found: Iterable[tuple[F64, F64]]) -> Sizes:
    """The table of many sites' errors."""
    sums, counts = (np.sum(parts, axis=0) for parts in zip(*found, strict=True))
    mean = sums / counts
    horizons = np.array(SPEC.horizons_min, dtype=np.float64)
    return {
        (metric, answer): (horizons, mean[:, :, m, k].T)
        for m, metric in enumerate(SPEC.targets) for k, answer in enumerate((*ANSWERS, "first days"))
    }  # fmt: skip


def write(path: Path, sizes: Sizes) -> None:
    """The table as CSV, four digits."""
    with path.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        hours = 24 // PARTS
        out.writerow(["metric", "answer", "horizon_min", *(f"{hours * i}-{hours * (i + 1)} h" for i in range(PARTS))])
        for (metric, answer), (horizons, held) in sizes.items():
            for minutes, row in zip(horizons, held, strict=True):
                out.writerow([metric, answer, f"{minutes:g}", *(f"{value:.4g}" for value in row)])


def judged(days: tuple[int, int], seed: int) -> dict[str, tuple[float, float]]:
    """Of base, and coverage, of each cell of one site as ``hothouse backtest`` measures them."""
    values, start_ms, place = simulated(seed, days[1] + 1)
    names = tuple(map(str, range(len(values))))
    span = start_ms, start_ms + (values.shape[1] - 1) * SPEC.step_ms
    metrics = {name: name for name in SPEC.targets}
    table = Table(names, metrics, start_ms, SPEC.step_ms, values, (span,) * len(names), (), is_utc=True)  # fmt: skip
    options = BacktestOptions(
        warmup_ms=max(days[0] * DAY_MS, HOUR_MS), until_ms=days[1] * DAY_MS, latitude=place.latitude,
        longitude=place.longitude, timezone=place.timezone, trees=False,
    )  # fmt: skip
    found = scores(table, replay(table, options))
    columns = (found[name].tolist() for name in ("metric", "horizon_min", "skill", "coverage"))
    return {f"{metric} {horizon}": (1 - skill, held) for metric, horizon, skill, held in zip(*columns, strict=True)}


def main() -> None:
    """Make the table, or measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help=f"make {TABLE.name} from sites of these seeds")
    parser.add_argument("--sites", type=int, help="how many (default: 16 for the table, else 20)")
    parser.add_argument("--first", type=int, help="the first seed (default: 1000 for the table, else 5000)")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    first = asked.first or (1000 if asked.table else 5000)
    seeds = range(first, first + (asked.sites or (16 if asked.table else 20)))
    with threadpool_limits(1), ProcessPoolExecutor(asked.processes) as pool:
        if asked.table:
            # The answers' errors depend on no table; the forecast's do on the answers'.
            answers = sizes_of(pool.map(partial(errors, NOTHING), seeds))
            write(TABLE, sizes_of(pool.map(partial(errors, answers), seeds)))
            print(f"{TABLE} written from {len(seeds)} sites")
            return
        rows: list[dict[str, Any]] = []
        for days in ((0, 3), (3, 14)):
            found = list(pool.map(partial(judged, days), seeds))
            for cell in found[0]:
                of_base, coverage = np.mean([site[cell] for site in found], axis=0)
                rows.append({"days": days, "cell": cell, "of_base": round(of_base, 3), "coverage": round(coverage, 3)})
                print(f"days {days[0]} to {days[1]}, {cell:18s} of base {of_base:.3f}, coverage {coverage:.3f}")
            print(f"mean {np.mean([row['of_base'] for row in rows if row['days'] == days]):.3f}", flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
