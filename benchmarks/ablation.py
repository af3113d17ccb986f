"""What each part of the forecaster adds along a recording, with intervals from the bootstrap.

The recording is replayed four times: with and without trees, with and without the network. Every variant is compared
with the whole forecaster on the same origins: the mean over cells (target and horizon) of MAE divided by the better of
persistence and the 24-hour naive, the latter chosen in hindsight in each zone. The bootstrap draws blocks of days, all
zones together, and the same blocks for every variant. The last line printed is JSON.

    python -m benchmarks.ablation [RECORDING] [--latitude 51.98 --longitude 4.53 --timezone Europe/Amsterdam]
                                            [--warmup-days 14] [--block-days 3] [--draws 1000]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import DAY_MS
from services.backtest.prequential import BacktestOptions, Forecasts, replay
from services.backtest.table import Table, read_table

F64 = npt.NDArray[np.float64]

WHOLE = "+ trees (the default)"
YARDSTICKS = ("persistence", "24-hour naive")


def medians(table: Table, options: dict[str, Any]) -> tuple[Forecasts, dict[str, npt.NDArray[np.float32]]]:
    """A replay's origins and truths, and every variant's medians ``[N, H, M]`` on them."""
    plain = replay(table, BacktestOptions(**options, trees=False))
    learned = replay(table, BacktestOptions(**options, trees=False, network=True))
    whole = replay(table, BacktestOptions(**options))
    both = replay(table, BacktestOptions(**options, network=True))
    return plain, {
        "persistence": plain.persistence,
        "24-hour naive": plain.naive_24h,
        "three-rate climatology": plain.climatology,
        "network alone, frozen after the warm-up": learned.frozen,
        "network alone, retrained every week": learned.network,
        "online layer without trees": plain.quantiles[..., 1],
        "online layer and network": learned.quantiles[..., 1],
        WHOLE: whole.quantiles[..., 1],
        "+ trees and network": both.quantiles[..., 1],
    }


def block_sums(origins: Forecasts, found: dict[str, npt.NDArray[np.float32]], block_ms: int) -> tuple[F64, F64]:
    """Sums of absolute errors ``[V, B, Z, H, M]`` and their counts ``[B, Z, H, M]``, where all variants answer."""
    errors = np.stack([np.abs(median - origins.truth) for median in found.values()]).astype(np.float64)
    known = np.isfinite(errors).all(axis=0)
    block = (origins.origin_ms - origins.origin_ms.min()) // block_ms
    shape = (int(block.max()) + 1, int(origins.zone.max()) + 1, *known.shape[1:])
    sums, counts = np.zeros((len(errors), *shape)), np.zeros(shape)
    np.add.at(counts, (block, origins.zone), known)
    for variant, error in enumerate(np.where(known, errors, 0)):
        np.add.at(sums[variant], (block, origins.zone), error)
    return sums, counts


def of_base(sums: F64, counts: F64, weights: F64, base: list[int]) -> F64:
    """Mean over cells of MAE / base, ``[V]``, with blocks counted ``weights [B]`` times."""
    n = np.tensordot(weights, counts, 1)
    mae = np.where(n > 0, np.tensordot(weights, sums, ([0], [1])) / np.maximum(n, 1), np.nan)  # [V, Z, H, M]
    means = np.nanmean(mae, axis=1)
    return np.asarray(np.nanmean(means / np.nanmean(mae[base].min(axis=0), axis=0), axis=(1, 2)))


def main() -> None:
    """Replay, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path, nargs="?", default=Path("tests/data/lettuce_2022"))
    parser.add_argument("--latitude", type=float)
    parser.add_argument("--longitude", type=float)
    parser.add_argument("--timezone")
    parser.add_argument("--warmup-days", type=float, default=14)
    parser.add_argument("--block-days", type=int, default=3)
    parser.add_argument("--draws", type=int, default=1000)
    given = parser.parse_args()
    options = {name: getattr(given, name) for name in ("latitude", "longitude", "timezone")}
    origins, found = medians(read_table(given.recording), {**options, "warmup_ms": round(given.warmup_days * DAY_MS)})
    names = [name for name in found if np.isfinite(found[name]).any()]
    sums, counts = block_sums(origins, {name: found[name] for name in names}, given.block_days * DAY_MS)
    base, rng = [names.index(name) for name in YARDSTICKS], np.random.default_rng(0)
    seen = of_base(sums, counts, np.ones(len(counts)), base)
    drawn = rng.multinomial(len(counts), np.full(len(counts), 1 / len(counts)), given.draws)
    draws = np.stack([of_base(sums, counts, weights.astype(np.float64), base) for weights in drawn])
    ratios = draws / draws[:, [names.index(WHOLE)]]
    rows = []
    print(f"{'variant':42s} of base   against the default (95 %)")
    for v, name in enumerate(names):
        low, high = np.nanquantile(ratios[:, v], (0.025, 0.975))
        ratio = seen[v] / seen[names.index(WHOLE)]
        print(f"{name:42s} {seen[v]:.4f}    {ratio:.4f} ({low:.4f} to {high:.4f})")
        rows.append({"variant": name, "of_base": seen[v], "ratio": ratio, "low": low, "high": high})
    print(json.dumps([{k: x if isinstance(x, str) else round(float(x), 5) for k, x in row.items()} for row in rows]))


if __name__ == "__main__":
    main()
