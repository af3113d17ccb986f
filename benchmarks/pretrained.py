"""What the pre-trained network adds to the forecaster along a recording, by age of the zone, with intervals.

    python -m benchmarks.pretrained RECORDING [--latitude 51.98 --longitude 4.53 --timezone Europe/Amsterdam]
        [--artefact FOLDER] [--until-days 3] [--ahead FILE --ahead-source 'weather degraded' ...] [--fine-tune]

The recording, which the network has never seen, is replayed from a zone's first hour, as by ``hothouse backtest``.
Nothing below the network learns from it, so that the same replay has the forecasts without it. Printed are mean
absolute errors as shares of those: of the forecasts that are issued, of the network alone, and of the mean of both.
Intervals are those of :mod:`models.evaluation.gate`: whole days are drawn again, all zones together. With plans,
learners and network are both told what was known ahead. With ``--fine-tune`` the network is fine-tuned along the
recording, and followed at every age; the network alone is then that of the package in first days only. The last line
printed is JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import DAY_MS, HOUR_MS
from models.evaluation.gate import MIN_BLOCKS, _block_sums, _blocks, _interval, _mean_ratio
from models.features.plans import Plan
from models.masked import masked_mean
from models.online.basis import TUNED, Learned, moves_of
from models.online.online_forecaster import OnlineForecaster
from models.pretraining.shipped_arrays import FOLDER, pretrained
from services.backtest.ahead import read_plans
from services.backtest.prequential import BacktestOptions, Forecasts, _origins, replay
from services.backtest.table import Table, read_table

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

ALWAYS = 1000
AGES = {"days 1 to 3": (0, 3), "day 1": (0, 1), "day 2": (1, 2), "day 3": (2, 3), "week 1": (0, 7),
        "days 2 to 7": (1, 7), "week 2": (7, 14), "week 3": (14, 21), "weeks 4 to 6": (21, 42), "week 7": (42, 49),
        "after day 9": (9, ALWAYS), "all": (0, ALWAYS)}  # fmt: skip
LEVEL = 0.05


def asked_along(table: Table, options: BacktestOptions, plans: Sequence[Plan]) -> tuple[Forecasts, F32, F32]:
    """A replay, what the network added to each forecast, and what it said, both ``[N, H, M]``."""
    added: dict[tuple[int, int], F32] = {}
    said: dict[tuple[int, int], F32] = {}
    asked = {row for zone in range(len(table.names)) for row, _ in _origins(table, zone, options)}

    def watch(row: int, forecaster: OnlineForecaster, learned: Learned, quantiles: F32) -> None:
        network = forecaster.corrections.pretrained
        assert network is not None
        held = network.added(learned.zones), network.said(learned.zones)
        moves = moves_of(learned.experts, TUNED)
        if moves is not None and row in asked:  # one that was fine-tuned is followed
            held = held[0] + moves, held[1]
        for zone, *parts in zip(learned.zones.tolist(), *held, strict=True):
            added[row, zone], said[row, zone] = parts

    found = replay(table, options, plans=plans, watch=watch)
    rows = ((found.origin_ms - table.start_ms) // table.step_ms).tolist()
    keys = list(zip(rows, found.zone.tolist(), strict=True))
    return found, np.stack([added[key] for key in keys]), np.stack([said[key] for key in keys])


def compared(found: Forecasts, without: F32, answers: dict[str, F32], age_ms: I64) -> list[dict[str, Any]]:
    """Of each age and answer: errors as shares of those without, and of the better of the two naive ones."""
    rows = []
    truth = found.truth
    base = [np.abs(x - truth) for x in (found.persistence, found.naive_24h)]
    for age, (first, last) in AGES.items():
        here = (age_ms >= first * DAY_MS) & (age_ms < last * DAY_MS)
        if not here.any() or (last < ALWAYS and age_ms.max() < (last - 1) * DAY_MS):
            continue
        error = np.abs(without - truth)[here]
        has = np.isfinite(error).any(axis=(1, 2))
        blocks, minutes = _blocks(found.origin_ms[here], has, 360, MIN_BLOCKS)
        count = int(blocks.max()) + 1
        for name, median in {"without": without, **answers}.items():
            off = np.abs(median - truth)[here]
            sums = _block_sums(off, error, blocks, count)
            low, high = _interval(sums, LEVEL / 2)
            tops, bottoms = (part.sum(axis=0) for part in sums)
            of_base = _of_base(off, [x[here] for x in base], found.zone[here])
            cells = (tops / np.maximum(bottoms, 1e-12)).reshape(error.shape[1:])
            rows.append({
                "age": age, "answer": name, "ratio": float(_mean_ratio(tops[None], bottoms[None])[0]), "low": low,
                "high": high, "worst": float(cells.max()), "of_base": of_base,
                "cells": cells.round(3).T.tolist(), "blocks": count, "block_h": minutes // 60,
            })  # fmt: skip
    return rows


def _of_base(off: F32, base: list[F32], zone: I64) -> float:
    """Mean over cells of the error by that of the better of the naive ones in each zone, in hindsight, over the cases
    that all answer: as ``hothouse backtest`` has it.
    """
    return float(np.nanmean(cells_of_base(off, base, zone)))


def cells_of_base(off: F32, base: list[F32], zone: I64) -> F32:
    """The same of each cell, ``[H, M]``."""
    known = np.asarray(np.isfinite(np.stack([off, *base])).all(axis=0))
    zones, means = np.unique(zone), []
    count = np.stack([known[zone == z].sum(axis=0) for z in zones])
    for error in (off, *base):
        sums = np.stack([np.where(known, error, 0)[zone == z].sum(axis=0) for z in zones])
        means.append(np.where(count > 0, sums / np.maximum(count, 1), np.nan))
    mine, yardstick = (masked_mean(x, axis=0) for x in (means[0], np.fmin(*means[1:])))
    return np.asarray(mine / yardstick)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path, nargs="?", default=Path("tests/data/lettuce_2022"))
    parser.add_argument("--latitude", type=float)
    parser.add_argument("--longitude", type=float)
    parser.add_argument("--timezone")
    parser.add_argument("--artefact", type=Path, default=FOLDER)
    parser.add_argument("--until-days", type=float, default=3)
    parser.add_argument("--fine-tune", action="store_true")
    parser.add_argument("--ahead", type=Path)
    parser.add_argument("--ahead-source", action="append", default=[])
    asked = parser.parse_args()
    table = read_table(asked.recording)
    options = BacktestOptions(
        warmup_ms=HOUR_MS, until_ms=round(asked.until_days * DAY_MS), latitude=asked.latitude,
        longitude=asked.longitude, timezone=asked.timezone, pretrained=pretrained(asked.artefact),
        fine_tune=asked.fine_tune,
    )  # fmt: skip
    plans = read_plans(asked.ahead, asked.ahead_source, table)[0] if asked.ahead else []
    found, added, said = asked_along(table, options, plans)
    without = found.quantiles[..., 1] - added
    answers = {"with": found.quantiles[..., 1], "network": without + said, "half of each": without + said / 2}
    first = np.array([table.spans[z][0] for z in found.zone.tolist()])
    rows = compared(found, without, answers, found.origin_ms - first)
    for row in rows:
        print(f"{row['age']:12s} {row['answer']:14s} of base {row['of_base']:.3f}   of without {row['ratio']:.3f} "
              f"({row['low']:.3f} to {row['high']:.3f}), worst cell {row['worst']:.3f}")  # fmt: skip
    answers.pop("half of each")
    for row in compared(found, found.climatology, answers, found.origin_ms - first):
        if row["answer"] != "without":
            print(f"{row['age']:12s} {row['answer']:14s} of the climatology {row['ratio']:.3f} "
                  f"({row['low']:.3f} to {row['high']:.3f})")  # fmt: skip
    inside = (found.truth >= found.quantiles[..., 0]) & (found.truth <= found.quantiles[..., 2])
    held = masked_mean(np.where(np.isfinite(found.truth), inside, np.nan), axis=0)
    print(f"p10 to p90 holds {held.min():.3f} to {held.max():.3f} of what came, by cell")
    for row in rows:
        if row["answer"] == "with":
            print(f"{row['age']:12s}", *(f"{t} {' '.join(f'{x:.2f}' for x in cells)}   "
                  for t, cells in zip(found.spec.targets, row["cells"], strict=True)))  # fmt: skip
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
