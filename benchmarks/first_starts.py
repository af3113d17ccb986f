"""How good the first three days of a zone are, whenever they begin.

    python -m benchmarks.first_starts RECORDING [--every-days 6] [--latitude 51.98 --longitude 4.53 ...]

A recording begins once; a zone may begin on any day. So the recording is cut every few days, and forecast from its
first hour on as if nothing were known before, as ``hothouse backtest --warmup 1h --until 3d`` does. Printed for each
start: MAE as a share of that of the better of persistence and the 24-hour naive in hindsight, mean and worst of the
cells, and coverage. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.pretrained import cells_of_base
from models.durations import DAY_MS, HOUR_MS
from services.backtest.prequential import BacktestOptions, Forecasts, replay
from services.backtest.table import Table, read_table

DAYS = 3


def begun_on(table: Table, day: int, days: int = DAYS) -> Table:
    """The recording from a day on, as long as the forecasts of its first ``days`` can be judged."""
    first, last = ((day + more) * DAY_MS // table.step_ms for more in (0, days + 1))
    start_ms, end_ms = (table.start_ms + row * table.step_ms for row in (first, last))
    spans = tuple((max(begin, start_ms), min(end, end_ms - table.step_ms)) for begin, end in table.spans)
    return replace(table, start_ms=start_ms, values=table.values[:, first:last], spans=spans)


def judged(found: Forecasts) -> tuple[float, float, float, float]:
    """Mean and worst cell of base, least and most coverage."""
    off, *base = (np.abs(x - found.truth) for x in (found.quantiles[..., 1], found.persistence, found.naive_24h))
    cells = cells_of_base(off, base, found.zone)
    known = np.isfinite(np.stack([off, *base])).all(axis=0)
    inside = (found.quantiles[..., 0] <= found.truth) & (found.truth <= found.quantiles[..., 2]) & known
    held = inside.sum(axis=0) / known.sum(axis=0)
    return float(cells.mean()), float(cells.max()), float(held.min()), float(held.max())


def what_is_asked(description: str | None, every_days: int) -> argparse.Namespace:
    """A recording, its place and clock, and how often it is begun."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--every-days", type=int, default=every_days)
    parser.add_argument("--latitude", type=float)
    parser.add_argument("--longitude", type=float)
    parser.add_argument("--timezone")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    asked = what_is_asked(__doc__, every_days=6)
    table = read_table(asked.recording)
    options = BacktestOptions(
        warmup_ms=HOUR_MS, until_ms=DAYS * DAY_MS, latitude=asked.latitude, longitude=asked.longitude,
        timezone=asked.timezone, trees=False,
    )  # fmt: skip
    rows, means = [], list[float]()
    length = table.values.shape[1] * table.step_ms // DAY_MS
    for day in range(0, length - DAYS, asked.every_days):
        mean, worst, least, most = judged(replay(begun_on(table, day), options))
        rows.append({"day": day, "of_base": mean, "worst": worst, "coverage": [least, most]})
        means.append(mean)
        print(f"begun on day {day:2d}: of base {mean:.3f}, worst cell {worst:.3f}, coverage {least:.2f} to {most:.2f}")
    print(f"mean {np.mean(means):.3f}, {min(means):.3f} to {max(means):.3f}")
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
