"""What the online layer costs: one step (learn and forecast) of many zones, and its state, beside River.

Rows are made up: a daily course and noise, 40 channels. Trees are random ones of the size that is grown: what they
cost does not depend on their values. The reference learns one linear model a zone and target with River from the same
number of regressors, one horizon only, on a sample of zones; its time is scaled to all zones and horizons, which is
said in the output. CPU time. The last line printed is JSON.

    python -m benchmarks.online [--zones 1000] [--days 1.5] [--reference-zones 10] [--plans]

With ``--plans`` all zones are of one site, which has a weather forecast of two days every six hours, and each zone a
plan of six setpoints every day.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
from river import linear_model
from threadpoolctl import threadpool_limits

from edge.wire.vocabulary import VOCABULARY
from models.durations import HOUR_MS, MINUTE_MS
from models.features.plans import PLANNED, Plan, Plans
from models.online.online_forecaster import OnlineForecaster
from models.pretraining.shipped_arrays import pretrained
from models.spec import ForecastSpec
from models.trees.forest import LEAVES, Forest
from models.trees.tree_grower import LONGEST_MS, OPTIONS

BUDGET_MS, BUDGET_KB = 100.0, 80.0
BUDGET_WITH_PLANS_MS, BUDGET_WITH_PLANS_KB = 200.0, 100.0


def made_up_forest(spec: ForecastSpec, regressors: int, rng: np.random.Generator) -> Forest:
    """Random trees in every cell that trees are grown for."""
    horizons, targets = len(spec.horizons_min), len(spec.targets)
    cells = [(h, m) for h in range(horizons) for m in range(targets) if spec.horizons_min[h] * MINUTE_MS <= LONGEST_MS]
    tests = (len(cells), int(OPTIONS["num_iterations"]), LEAVES - 1)
    arrays = {
        "shape": np.array([horizons, targets]), "cell": np.array(cells),
        "column": rng.integers(0, 2 * regressors, tests, dtype=np.int32),
        "threshold": rng.normal(size=tests).astype(np.float32),
        "taken": rng.integers(0, 1 << LEAVES, tests).astype(np.uint16),
        "value": rng.normal(0, 0.01, (*tests[:2], LEAVES)).astype(np.float32),
        "start": np.zeros(len(cells), np.float32),
    }  # fmt: skip
    return Forest(horizons, targets, arrays)


def issue(plans: Plans, step: int, spec: ForecastSpec, names: list[str], rng: np.random.Generator) -> None:
    """The plans that come at a step, of two days by half-hours."""
    now, ahead = step * spec.step_ms, np.arange(96) * 1_800_000
    hours = now / HOUR_MS

    def made(metrics: tuple[str, ...]) -> dict[str, Any]:
        return {name: (now + ahead, rng.normal(50, 5, len(ahead)).astype(np.float32)) for name in metrics}

    if hours % 6 == 0:
        plans.add(Plan("weather", "weather", now, made(PLANNED[:4])))
    if hours % 24 == 0:
        for name in names:
            plans.add(Plan("grower", "setpoint", now, made(PLANNED[4:10]), name))


def measure(zones: int, days: float, with_plans: bool = False, network: bool = True) -> dict[str, Any]:
    """CPU milliseconds a step over the second half of ``days``, and kilobytes a zone."""
    spec, rng = ForecastSpec(tuple(VOCABULARY)), np.random.default_rng(0)
    forecaster = OnlineForecaster(spec, zones, pretrained() if network else None)
    for _ in range(zones):
        forecaster.add_zones()
    forecaster.forest = made_up_forest(spec, forecaster.regressors, rng)
    usual = rng.normal(50, 5, (zones, len(spec.channels)))
    steps, ahead, everyone = round(days * spec.steps_per_day), np.array((0, *spec.horizon_steps)), np.arange(zones)
    took, plans, names = [], Plans(), [str(z) for z in range(zones)]
    for step in range(steps):
        phase = 2 * np.pi / spec.steps_per_day
        values = (usual + 5 * np.sin(step * phase) + rng.normal(size=usual.shape)).astype(np.float32)
        sun = np.broadcast_to(np.sin((step + ahead) * phase).astype(np.float32), (zones, len(ahead)))
        if with_plans:
            issue(plans, step, spec, names, rng)
        begin = time.process_time()
        plans.forget(step * spec.step_ms)
        foreseen = plans.ahead(step * spec.step_ms, names, spec) if with_plans else None
        learned = forecaster.learn(everyone, step, values, np.full(zones, step % spec.steps_per_day), sun, foreseen)
        forecaster.predict(learned, learned.baseline)
        took.append(1000 * (time.process_time() - begin))
    later = np.array(took[steps // 2 :])
    state = forecaster.state_dict()
    shared = sum(size(state[name]) for name in ("pooled", "mixture", "forest"))
    if with_plans:
        shared += size(state["known"]["pooled"])
    return {
        "zones": zones, "step_ms_mean": later.mean(), "step_ms_p99": np.quantile(later, 0.99),
        "step_ms_max": later.max(), "kb_a_zone": (size(state) - shared) / zones / 1024, "shared_kb": shared / 1024,
        "regressors": forecaster.features.width, "cells": len(spec.horizons_min) * len(spec.targets),
    }  # fmt: skip


def size(state: Any) -> int:
    """Bytes of a nested state."""
    return sum(map(size, state.values())) if isinstance(state, dict) else int(state.nbytes)


def river_step_us(zones: int, targets: int, regressors: int) -> float:
    """CPU microseconds that one River model takes to learn and predict once."""
    steps = 50
    rng = np.random.default_rng(0)
    models = [linear_model.LinearRegression() for _ in range(zones * targets)]
    names = [str(i) for i in range(regressors)]
    rows = [dict(zip(names, row, strict=True)) for row in rng.normal(size=(steps, regressors)).tolist()]
    begin = time.process_time()
    for row in rows:
        for model in models:
            model.predict_one(row)
            model.learn_one(row, row["0"])
    return 1e6 * (time.process_time() - begin) / (steps * len(models))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zones", type=int, default=1000)
    parser.add_argument("--days", type=float, default=1.5, help="a horizon of a day matures after one")
    parser.add_argument("--reference-zones", type=int, default=10)
    parser.add_argument("--plans", action="store_true", help="with a weather forecast, and a plan of each zone")
    parser.add_argument("--no-pretrained", action="store_true", help="without the network of the package")
    given = parser.parse_args()
    with threadpool_limits(1):
        found = measure(given.zones, given.days, given.plans, not given.no_pretrained)
    budgets = (BUDGET_WITH_PLANS_MS, BUDGET_WITH_PLANS_KB) if given.plans else (BUDGET_MS, BUDGET_KB)
    width = sum(found.pop("regressors"))
    us = river_step_us(given.reference_zones, 4, width)
    cells = found.pop("cells")
    found |= {"river_us_a_model": us, "river_step_ms_scaled": us * cells * given.zones / 1000}
    print(f"one step of {given.zones} zones, 10 horizons x 4 targets, trees included:")
    print(f"  mean {found['step_ms_mean']:.0f} ms (budget {budgets[0]:.0f} for 1,000), p99 {found['step_ms_p99']:.0f}, "
          f"longest {found['step_ms_max']:.0f}")  # fmt: skip
    print(f"  state {found['kb_a_zone']:.0f} KB a zone (budget {budgets[1]:.0f}), shared {found['shared_kb']:.0f} KB")
    print(f"  River, one linear model of {width} regressors: {us:.0f} us, seen on {given.reference_zones} zones x 4 "
          f"targets;")  # fmt: skip
    print(f"  scaled to every zone and cell ({cells * given.zones} models): {found['river_step_ms_scaled']:.0f} ms")
    print(json.dumps({name: round(float(value), 2) for name, value in found.items()}))


if __name__ == "__main__":
    main()
