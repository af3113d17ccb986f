"""Live error of a demo beside the backtest's over the same hours: python -m benchmarks.agreement DATA_DIR RECORDING.

DATA_DIR is what ``hothouse demo --recording RECORDING --keep --data-dir DATA_DIR`` left: the forecasts that were
issued, and the rows. The backtest replays that recording with the same targets and horizons, and both are scored on
the same zones, origins and truths. Give ``--timezone --latitude --longitude --ahead --ahead-source`` as the demo got
them. The exit code is 1 where the mean ratio of the errors is off by more than 2 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from models.durations import MINUTE_MS
from models.features.inputs import targets_of
from models.features.plans import Plan
from models.spec import ForecastSpec, Place
from services.backtest.ahead import read_plans
from services.backtest.prequential import BacktestOptions, replay
from services.backtest.table import Table, read_table
from services.config import Settings
from services.forecast_spec import forecast_spec
from services.store.forecasts import IssuedForecasts
from services.store.history import History

ALLOWED = 0.02
F32 = npt.NDArray[np.float32]
Cases = dict[tuple[str, int], F32]
"""(zone, origin in UTC) -> median [H, M]."""


def live_medians(settings: Settings, spec: ForecastSpec) -> Cases:
    """The newest forecast that was issued from each origin."""
    found: Cases = {}
    for site in History(settings.storage_folder, spec.channels).sites():
        for issued in IssuedForecasts(settings.storage_folder, 0).read(site, 0, spec.horizons_min, spec.targets):
            found |= {(zone, issued.origin_ms): issued.quantiles[z, ..., 1] for z, zone in enumerate(issued.zones)}
    return found


def live_truth(settings: Settings, spec: ForecastSpec) -> Cases:
    """The targets of each row, (zone, end) -> [M]."""
    rows = History(settings.storage_folder, spec.channels).read()
    values = np.stack([rows[name].to_numpy() for name in spec.channels], axis=-1)
    keys = zip(rows["zone"].to_pylist(), rows["end_ms"].to_pylist(), strict=True)
    return dict(zip(keys, targets_of(values, spec), strict=True))


def backtest_medians(
    table: Table, spec: ForecastSpec, place: Place, first_ms: int, names: dict[str, str], network: bool,
    plans: Sequence[Plan],
) -> Cases:  # fmt: skip
    """The backtest's forecasts from ``first_ms`` (the recording's clock) on, every step."""
    options = BacktestOptions(
        every_ms=spec.step_ms, warmup_ms=first_ms - table.start_ms, latitude=place.latitude, longitude=place.longitude,
        timezone=place.timezone, network=network,
    )  # fmt: skip
    found = replay(table, options, spec=spec, plans=plans)
    origins = [utc_ms(place, int(origin)) for origin in found.origin_ms]
    zones = [names[table.names[z]] for z in found.zone]
    return dict(zip(zip(zones, origins, strict=True), found.quantiles[..., 1], strict=True))


def utc_ms(place: Place, local_ms: int) -> int:
    """The time at which the place's clock shows ``local_ms``."""
    at = local_ms
    for _ in range(2):
        at = local_ms - (place.local_ms(at) - at)
    return at


def until(table: Table, end_ms: int) -> Table:
    """The recording up to a time of its clock."""
    rows = (end_ms - table.start_ms) // table.step_ms + 1
    spans = tuple((first, min(last, end_ms)) for first, last in table.spans)
    return replace(table, values=table.values[:, :rows], spans=spans)


def errors(medians: Cases, truth: Cases, cases: list[tuple[str, int]], spec: ForecastSpec) -> F32:
    """Absolute errors ``[N, H, M]``; NaN where there is no truth."""
    none = np.full(len(spec.targets), np.nan, np.float32)
    wanted = [[truth.get((zone, at + h * MINUTE_MS), none) for h in spec.horizons_min] for zone, at in cases]
    return np.asarray(np.abs(np.stack([medians[case] for case in cases]) - np.array(wanted)))


def main() -> int:
    """Print both errors, a line a target and horizon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--timezone", default="UTC")
    parser.add_argument("--latitude", type=float)
    parser.add_argument("--longitude", type=float)
    parser.add_argument("--ahead", type=Path, help="plans, as of hothouse backtest --ahead")
    parser.add_argument("--ahead-source", action="append", default=[], help="use the plans of this source; repeatable")
    parser.add_argument("--network", action="store_true", help="train a network in the backtest, too")
    asked = parser.parse_args()
    settings = Settings(data_dir=asked.data_dir)
    spec, place = forecast_spec(settings), Place(asked.timezone, "civil", asked.latitude, asked.longitude)
    live, truth = live_medians(settings, spec), live_truth(settings, spec)
    first_ms, last_ms = (place.local_ms(bound(at for _, at in live)) for bound in (min, max))
    table = until(read_table(asked.recording), last_ms)
    zones = sorted({zone for zone, _ in live})
    names = dict(zip(table.names, zones, strict=True))
    plans = read_plans(asked.ahead, asked.ahead_source, table)[0] if asked.ahead else []
    backtest = backtest_medians(table, spec, place, first_ms, names, asked.network, plans)
    cases = sorted(set(live) & set(backtest))
    ours, theirs = (errors(medians, truth, cases, spec) for medians in (live, backtest))
    print(f"{len(live):,} live forecasts of {len(zones)} zones, {len(cases):,} of them from origins of the backtest's")
    print(f"{'target':12s} {'horizon':>8s} {'cases':>7s} {'live':>9s} {'backtest':>9s} {'ratio':>6s}")
    ratios = []
    for m, target in enumerate(spec.targets):
        for h, horizon in enumerate(spec.horizons_min):
            both = np.isfinite(ours[:, h, m] + theirs[:, h, m])
            if not both.any():
                continue
            mae = [float(error[both, h, m].mean(dtype=np.float64)) for error in (ours, theirs)]
            ratios.append(mae[0] / mae[1])
            print(f"{target:12s} {horizon:4d} min {both.sum():7,d} {mae[0]:9.4f} {mae[1]:9.4f} {ratios[-1]:6.3f}")
    mean = float(np.mean(ratios))
    print(f"mean ratio {mean:.4f}, cells from {min(ratios):.3f} to {max(ratios):.3f}")
    return int(abs(mean - 1) > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
