"""What alerts cost a shard: rows and ticks of many zones of one site, as a partition takes them.

    python -m benchmarks.alert_turns [--zones 1000] [--steps 36]

Rows are made up: a daily course and noise, 40 channels, a weather forecast, and a plan of each zone. More than half a
day is learned first, as rules of the climate look at no younger zone. A *row* is all that a closed row of the site
costs, a *turn* what a tick does, ten a row. CPU time. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.online import issue
from edge.log import Record
from edge.wire.vocabulary import VOCABULARY
from models.durations import DAY_MS, HOUR_MS, MINUTE_MS
from models.features.plans import Plan, Plans
from services.config import Settings
from services.forecast_spec import forecast_spec, place_of
from services.ingest.partition import Partition
from services.ingest.plans.intake import PartitionPlans
from services.ingest.windows.closed import Mark
from services.ingest.windows.partition_windows import PartitionWindows
from services.store.plan_history import KeptPlan
from services.store.rows import DeviceRow, SiteStep

START_MS, TICKS, WARM_STEPS = 1_646_092_800_000, 10, 150


class IssuedTo(Plans):
    """Hands plans on to a partition."""

    def __init__(self, plans: PartitionPlans) -> None:
        super().__init__()
        self._plans = plans

    def add(self, plan: Plan) -> bool:
        """See :meth:`Plans.add`."""
        self._plans.again([KeptPlan("site", 0, plan)], plan.known_ms)
        return True


def measure(zones: int, steps: int) -> dict[str, float]:
    """CPU milliseconds of rows and turns, and how many looks there were."""
    settings = Settings()
    spec, rng = forecast_spec(settings), np.random.default_rng(0)
    windows = PartitionWindows(spec.step_ms, 30_000, MINUTE_MS, VOCABULARY)
    ring_steps = settings.stream.ring_hours * HOUR_MS // spec.step_ms
    kept = Partition(0, spec, windows, ring_steps, lambda site: place_of(settings, site))
    names, usual = [f"zone-{z}" for z in range(zones)], rng.normal(50, 5, (zones, len(spec.channels)))
    heard = [DeviceRow(name, "climate", "air_temp_c", 5, 50.0, 50.0, 50.0, 50.0) for name in names]
    ages, plans, rows, own, turns = np.zeros_like(usual, np.float32), IssuedTo(kept.learner.plans), [], [], []
    for step in range(WARM_STEPS + steps):
        end_ms = START_MS + (step + 1) * spec.step_ms
        course = 5 * np.sin(2 * np.pi * end_ms / DAY_MS)
        values = (usual + course + rng.normal(size=usual.shape)).astype(np.float32)
        closed = SiteStep(0, "site", end_ms, tuple(names), values, ages, heard, step_ms=spec.step_ms)
        issue(plans, end_ms // spec.step_ms, spec, names, rng)
        kept.offset += 1
        began = time.process_time()
        kept.learn([closed], 1)
        spent = time.process_time() - began
        began = time.process_time()
        kept.alerts.row(kept.learner.latest["site"], kept.offset - 1)
        if step < WARM_STEPS:
            continue
        own.append(time.process_time() - began)
        rows.append(spent)
        for tick in range(TICKS):
            record = Record(0, kept.offset, "site", "tick", end_ms + tick * spec.step_ms // TICKS, b"", "")
            kept.alerts.feed([Mark(record, 0, record.receive_ms)])
            began = time.process_time()
            kept.learn([], 1)
            turns.append(time.process_time() - began)
    looks, changes = kept.counts["alert_looks"], kept.counts["alert_changes"]
    found = {
        "row_ms": np.mean(rows), "row_ms_max": np.max(rows), "own_ms": np.mean(own), "turn_ms": np.mean(turns),
        "turn_ms_max": np.max(turns),
    }  # fmt: skip
    per_look = float(np.sum(turns)) / max(looks, 1) * 1000
    return {name: 1000 * float(value) for name, value in found.items()} | {
        "ms_a_look": per_look, "looks": looks, "changes": changes, "zones": zones,
        "alerts_ms_a_step": found["own_ms"] * 1000 + 1000 * float(np.sum(turns)) / max(steps, 1),
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zones", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=36)
    asked = parser.parse_args()
    with threadpool_limits(1):
        found = measure(asked.zones, asked.steps)
    row, longest, own_ms, turn, longest_turn = (
        found[name] for name in ("row_ms", "row_ms_max", "own_ms", "turn_ms", "turn_ms_max")
    )
    print(f"{asked.zones} zones: a row {row:.0f} ms (longest {longest:.0f}), of which alerts {own_ms:.1f}")
    print(f"  a turn {turn:.0f} ms (longest {longest_turn:.0f}), {found['ms_a_look']:.1f} ms a look;")
    print(f"  {found['looks']:.0f} looks, {found['changes']:.0f} changes of alerts")
    print(json.dumps({name: round(value, 2) for name, value in found.items()}))


if __name__ == "__main__":
    main()
