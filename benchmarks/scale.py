"""What so many zones take of one machine: processors, memory, lag, disk; and the lines through what was measured.

    python -m benchmarks.scale [--zones 1000 5000 20000] [--steps-s 60 300] [--minutes 6] --log kafka://host:port/topic

The system is what ``hothouse up`` starts. Each zone has two devices, which send six values each once a minute, spread
over it, through Mosquitto, gateway and log to shards and API; ``/predict`` is asked meanwhile, 50 times a second with
GET and 5 times with POST. A run begins to count once every zone has a forecast. It prints a table with a line a run,
and for each length of rows the line through them: so much for the system, and so much more for a thousand zones.
Processors and memory are those of our processes, without Kafka's; the load's own are left out. Disk is what the history
has grown by, a day of it at that pace, before the day's small files are merged; state is that of the snapshots. The
last line printed is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from rich.progress import track

from benchmarks._asking import Asking
from benchmarks._load import SITES, Load, zone_of
from benchmarks.live import Live, part_of, started

SAMPLES_A_ZONE_AND_S = 2 / 60
ASKED_HZ = 50.0
ROWS = [{"end_ms": 1_646_092_800_000, "values": {"air_temp_c": 20.0, "vent_lee_pct": 30.0}}]
FIRST_S = 900.0
"""A system has a forecast of every zone after so long at the latest."""
SHOWN = {
    "zones": "{:,}", "step_s": "{}", "cores": "{:.2f}", "memory_mb": "{:,.0f}", "lag_s": "{:.2f}",
    "forecast_lag_s": "{:.1f}", "predict_p99_ms": "{:.0f}", "failed": "{}", "disk_mb_a_day": "{:,.0f}",
    "state_kb_a_zone": "{:.0f}",
}  # fmt: skip


def main() -> None:
    """Run all, print the table and the lines."""
    given = _parser().parse_args()
    runs = [(zones, step_s) for step_s in given.steps_s for zones in given.zones]
    found = []
    print("  ".join(f"{name:>{max(len(name), 8)}}" for name in SHOWN))
    for number, (zones, step_s) in enumerate(track(runs, "runs", disable=not sys.stderr.isatty())):
        log = f"{given.log}-{int(time.time())}-{number}" if given.log else ""
        found.append(run(zones, step_s, given.minutes, log))
        print("  ".join(f"{form.format(found[-1][name]):>{max(len(name), 8)}}" for name, form in SHOWN.items()))
    for step_s in given.steps_s:
        print_line(step_s, [one for one in found if one["step_s"] == step_s])
    print(json.dumps(found))


def run(zones: int, step_s: int, minutes: float, log: str) -> dict[str, Any]:
    """One system under so many zones for so long."""
    rate = zones * SAMPLES_A_ZONE_AND_S
    with (
        tempfile.TemporaryDirectory(prefix="hothouse-scale-") as name,
        started(Path(name), log, step_s) as (broker, system),
        Load(broker, 1, zones) as load,
    ):
        live = Live(load, system, [])
        live.await_gateway()
        load.rate = rate
        _await_forecasts(system.url, zones)
        storage = system.settings.storage_folder
        before, began_s = _bytes(storage / "history"), time.monotonic()
        named = [(SITES[number % len(SITES)], zone_of(number)) for number in range(zones)]
        with Asking(system.url, named, ASKED_HZ, ROWS) as asking:
            asking.begin()
            held = live.hold(rate, minutes * 60)
            asked = asking.end()
        took_s = time.monotonic() - began_s
        grown = _bytes(storage / "history") - before
        cores = {part: used for part, used in held.cores.items() if part not in ("load", "broker")}
        return {
            "zones": zones, "step_s": step_s, "seconds": held.seconds, "cores": round(sum(cores.values()), 2),
            "cores_by_part": cores, "memory_mb": round(sum(_memory_mb().values())), "memory_mb_by_part": _memory_mb(),
            "lag_s": held.lag_s, "forecasts": held.forecasts, "forecast_lag_s": held.forecast_lag_s,
            "predict_p99_ms": round(asked.percentiles_ms[1], 1), "asked": asked.sent,
            "failed": asked.failures.total(), "disk_mb_a_day": round(grown / took_s * 86_400 / 1e6, 1),
            "state_kb_a_zone": round(_bytes(storage / "snapshots") / zones / 1000, 1),
        }  # fmt: skip


def print_line(step_s: int, runs: list[dict[str, Any]]) -> None:
    """The least squares through processors and memory of these runs."""
    if len(runs) < 2:
        return
    thousands = np.array([one["zones"] / 1000 for one in runs])
    for name in ("cores", "memory_mb"):
        slope, base = np.polyfit(thousands, [one[name] for one in runs], 1)
        print(f"rows of {step_s} s: {name} = {base:.2f} + {slope:.3f} a thousand zones")


def _await_forecasts(url: str, zones: int) -> None:
    until_s = time.monotonic() + FIRST_S
    known = 0
    while known < zones:
        assert time.monotonic() < until_s, f"{known} of {zones} zones have a forecast"
        time.sleep(2.0)
        answer = httpx.get(f"{url}/health/ready", timeout=20.0, trust_env=False).json()
        known = int(answer.get("zones_usable", 0)) or known


def _memory_mb() -> dict[str, int]:
    """Memory that each part has for itself, in MB; without the load's and the broker's."""
    found: defaultdict[str, float] = defaultdict(float)
    me = psutil.Process()
    for process in me.children(recursive=True):
        try:
            found[part_of(process.cmdline())] += process.memory_full_info().uss / 1e6
        except psutil.Error:
            continue
    return {part: round(mb) for part, mb in found.items() if part not in ("load", "broker")}


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="What so many zones take of one machine.")
    parser.add_argument("--zones", type=int, nargs="+", default=[1000, 5000, 20_000], help="default: %(default)s")
    parser.add_argument("--steps-s", type=int, nargs="+", default=[60, 300], help="length of rows; %(default)s")
    parser.add_argument("--minutes", type=float, default=6.0, help="of each run; default: %(default)s")
    parser.add_argument("--log", default="", help="kafka://host:port/topic; default: the SQLite log")
    return parser


if __name__ == "__main__":
    main()
