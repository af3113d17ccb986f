"""How long a backtest of so many days takes: a recording, put end to end until it is long enough.

    python -m benchmarks.length RECORDING [--days 115] [--latitude 51.98 --longitude 4.53 --timezone Europe/Amsterdam]

The replay is that of ``hothouse backtest``, its trees and all; only reading the files and writing the forecasts is
left out. The joints are one more odd night each; what it costs does not depend on them. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.progress import Progress

from models.durations import DAY_MS
from services.backtest.prequential import BacktestOptions, replay
from services.backtest.table import Table, read_table


def lengthened(table: Table, days: int) -> Table:
    """The recording again and again, whole days of it, up to ``days``; every zone is there all the time.

    >>> short = Table(("a",), {}, 0, DAY_MS // 4, np.arange(10.0, dtype=np.float32).reshape(1, 10, 1), ((0, 1),), ())
    >>> lengthened(short, 3).values[0, :, 0].tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.0, 1.0, 2.0, 3.0]
    """
    a_day = DAY_MS // table.step_ms
    whole = table.values[:, : table.values.shape[1] // a_day * a_day]
    times = -(-days * a_day // whole.shape[1])
    values = np.tile(whole, (1, times, 1))[:, : days * a_day]
    span = (table.start_ms, table.start_ms + (values.shape[1] - 1) * table.step_ms)
    return replace(table, values=values, spans=(span,) * len(table.names))


def main() -> None:
    """Replay and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--days", type=int, default=115)
    parser.add_argument("--latitude", type=float)
    parser.add_argument("--longitude", type=float)
    parser.add_argument("--timezone")
    asked = parser.parse_args()
    table = lengthened(read_table(asked.recording), asked.days)
    options = BacktestOptions(latitude=asked.latitude, longitude=asked.longitude, timezone=asked.timezone)
    began_s = time.monotonic()
    with Progress(transient=True) as bar:
        task = bar.add_task(f"{len(table.names)} zones x {asked.days} days")
        found = replay(table, options, lambda done, total: bar.update(task, completed=done, total=total))
    wall_s, used = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({
        "zones": len(table.names), "days": asked.days, "forecasts": len(found.zone), "wall_s": round(wall_s, 1),
        "cpu_s": round(used.ru_utime + used.ru_stime, 1), "peak_gb": round(used.ru_maxrss / 1e6, 2),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
