"""What alerts cost: all rules of a crop for many zones, a half hour at a time, and their state.

    python -m benchmarks.alerts [--zones 50]

Rows and scenarios are made up and the same each time; drawing scenarios is not in the figure (``benchmarks.paths`` has
it). The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Collection
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from models.alerts.alert_desk import AlertDesk
from models.alerts.crop_rules import rules_for
from models.alerts.rule_watch import METRICS, SiteAhead
from models.durations import MINUTE_MS
from models.spec import ForecastSpec

SCENARIOS, AHEAD, HALF_HOURS = 100, 48, 9


def cost(zones: int) -> dict[str, float]:
    """CPU milliseconds a zone and half hour, the median; kilobytes of state a zone, and of a partition besides."""
    spec, rng = ForecastSpec(METRICS), np.random.default_rng(0)
    desk = AlertDesk(rules_for("tomato", "fruiting"), spec, zones)
    desk.add_zones(zones)
    usual = {"air_temp_c": (18, 3), "rh_pct": (85, 5), "co2_ppm": (600, 80), "leaf_temp_c": (18, 3),
             "out_radiation_w_m2": (100, 10)}  # fmt: skip
    day = spec.steps_per_day
    rows = np.stack([rng.normal(*usual[name], (zones, day)) for name in METRICS], axis=-1).astype(np.float32)
    drawn = {
        name: rng.normal(*usual[name], (SCENARIOS, zones, AHEAD)).astype(np.float32)
        for name in ("air_temp_c", "rh_pct", "co2_ppm")
    }
    dark = np.zeros(day, dtype=np.bool_), np.zeros(AHEAD, dtype=np.bool_)
    minute = np.arange(day) * spec.step_ms // MINUTE_MS, np.arange(AHEAD) * 30
    names, everyone, spent = [f"zone-{z}" for z in range(zones)], np.arange(zones), []
    for half_hour in range(HALF_HOURS):
        began = time.process_time()
        desk.see("site", names, everyone, rows, SiteAhead(half_hour, drawn, dark, minute), str)
        spent.append(time.process_time() - began)
    state = desk.watch.state_dict(copy=False)
    whole = {"examples", "weights", "counters"}
    a_zone = _size(state["zones"]) + sum(_size(each, without=whole) for each in state["chances"].values())
    shared = sum(_size(each, only=whole) for each in state["chances"].values())
    return {
        "ms_a_zone": 1000 * float(np.median(spent)) / zones, "kb_a_zone": a_zone / zones / 1024,
        "kb_a_partition": shared / 1024,
    }  # fmt: skip


def _size(state: dict[str, Any], without: Collection[str] = (), only: Collection[str] | None = None) -> int:
    return sum(held.nbytes for name, held in state.items() if name not in without and (only is None or name in only))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zones", type=int, default=50)
    asked = parser.parse_args()
    with threadpool_limits(1):
        found = cost(asked.zones)
    print(f"{asked.zones} zones, ten rules: {found['ms_a_zone']:.1f} ms of one core a zone and half hour, "
          f"{found['kb_a_zone']:.1f} KB a zone, {found['kb_a_partition']:.0f} KB a partition")  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
