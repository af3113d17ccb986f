"""How well the night's minimum and the day's maximum are foreseen in a zone's first two weeks, whenever they begin.

    python -m benchmarks.first_nights RECORDING [--every-days 8] [--latitude 51.98 --longitude 4.53 ...]

The recording is cut every few days, and each piece forecast from its first hour on as if nothing were known before, as
``benchmarks.first_starts`` does. Printed for each age of the zones, over all pieces: how far what came lay from the
scenarios' median, in the mean and by its sign, the share between p10 and p90, and the Winkler score. Each night and day
is forecast from three origins before it. The last line is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from benchmarks.first_starts import begun_on, what_is_asked
from benchmarks.paths import NAMES, Case, Watcher
from models.durations import DAY_MS, HOUR_MS
from models.evaluation.path_scores import interval_score
from services.backtest.prequential import BacktestOptions, replay, spec_of
from services.backtest.table import read_table

DAYS = 14
AGES = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 7), (8, 10), (11, 13))
"""Days since a zone's beginning, first and last."""


def judge(cases: Sequence[Case], target: int) -> dict[str, float]:
    """Of one kind, age and target."""
    truth = np.array([case.truth[target] for case in cases])
    low, median, high = np.array([case.limits["scenarios"][:, target] for case in cases]).T
    known = np.isfinite(truth) & np.isfinite(median)
    off, score = (truth - median)[known], interval_score(low[known], high[known], truth[known])
    return {
        "cases": int(known.sum()), "off": float(np.abs(off).mean()), "above": float(off.mean()),
        "holds": score.coverage, "winkler": score.winkler,
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    asked = what_is_asked(__doc__, every_days=8)
    table = read_table(asked.recording)
    options = BacktestOptions(
        warmup_ms=HOUR_MS, latitude=asked.latitude, longitude=asked.longitude, timezone=asked.timezone, trees=False
    )
    aged: list[tuple[int, Case]] = []
    length = table.values.shape[1] * table.step_ms // DAY_MS
    for day in range(0, length - 2 * DAYS // 3, asked.every_days):
        piece = begun_on(table, day, DAYS)
        watcher = Watcher(piece, spec_of(piece), options)
        replay(piece, options, watch=watcher)
        aged += [(case.day - piece.start_ms // DAY_MS, case) for case in watcher.cases]
    found: dict[str, dict[str, float]] = {}
    for m, target in enumerate(spec_of(table).targets):
        for kind, name in NAMES.items():
            print(f"{name}, {target}")
            for first, last in AGES:
                cases = [case for age, case in aged if case.kind == kind and first <= age <= last]
                if not cases:
                    continue
                one = found[f"{name} {target} {first}-{last}"] = judge(cases, m)
                print(
                    f"  day {first + 1:2d} to {last + 1:2d}: {one['cases']:4d} cases, off by {one['off']:7.2f}, what "
                    f"came lay {one['above']:+7.2f} above, holds {one['holds']:.2f}, Winkler {one['winkler']:7.2f}"
                )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
