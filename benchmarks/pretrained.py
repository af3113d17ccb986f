"""What the pre-trained network adds to the forecaster along a recording, by age of the zone, with intervals.

    python -m benchmarks.pretrained RECORDING [--latitude 51.98 --longitude 4.53 --timezone Europe/Amsterdam]
        [--artefact FOLDER] [--until-days 3] [--ahead FILE --ahead-source 'weather degraded' ...]
    python -m benchmarks.pretrained --fleet FOLDER [--sites 40]

The recording is replayed from a zone's first hour. At each origin the network, which has never seen the recording, is
given the last 24 hours of rows and the online layer's forecast. Printed are mean absolute errors as shares of the
online layer's, per cell and in the mean: of the network alone, of the mean of both, and of a mean that is weighed by
the errors so far (:func:`weighed`, as a prototype of what the mixture is to do in a zone's first days). Intervals are
those of :mod:`models.evaluation.gate`: whole days are drawn again, all zones together. With plans, online layer and
network are both told what was known ahead. With ``--fleet`` the constants of the weighing are compared on simulated
sites that the network has not seen. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from models import artefact
from models.evaluation.gate import MIN_BLOCKS, _block_sums, _blocks, _interval, _mean_ratio
from models.features.inputs import Inputs, build_inputs
from models.features.plans import PLANNED, Plan, Plans, bins_ahead
from models.masked import masked_mean
from models.network.house_features import usual_errors
from models.pretraining.fleet_examples import Drawing, draw_examples
from models.pretraining.fleet_folder import FleetFolder
from models.pretraining.from_fleet import fleet_spec
from models.pretraining.shipped import SHIPPED, network_for, shipped
from models.spec import ForecastSpec, Place
from services.backtest.ahead import read_plans
from services.backtest.prequential import BacktestOptions, Forecasts, replay
from services.backtest.table import Table, read_table, sun_longitude

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

DAY_MS = 86_400_000
AGES = {"days 1 to 3": (0, 3), "day 1": (0, 1), "day 2": (1, 2), "day 3": (2, 3), "week 1": (0, 7), "week 3": (14, 21),
        "week 7": (42, 49)}  # fmt: skip
LEVEL = 0.05
SHARES = np.linspace(0, 1, 9)
"""Shares of the network that are tried."""

POWER, OWN, POOL, PRIOR = 20.0, 8.0, 2.0, (0.96, 0.97)
"""Chosen with ``--fleet``: see :func:`weighed`."""


def weighed(
    zone: I64, origin_ms: I64, online: F32, network: F32, truth: F32, spec: ForecastSpec, *, power: float = POWER,
    own: float = OWN, pool: float = POOL, prior: tuple[float, float] = PRIOR,
) -> F32:  # fmt: skip
    """A mean of two answers ``[N, H, M]``, by the errors that were known at each origin.

    Both are nearly the same, so their own errors say little of how to weigh them. What is compared is the errors of
    means with different shares of the network, ``SHARES``: each weighs its error to the power of ``-power``. Errors are
    sums over a zone, horizon and target, begun with those of all zones as ``own`` examples, which begin with the
    prior's as ``pool`` examples: there half of each and the network alone have ``prior`` of the online layer's error,
    and other shares lie on the parabola through both.
    """
    off = np.abs(online + SHARES[:, None, None, None] * (network - online) - truth)  # [S, N, H, M]
    known = np.isfinite(off).all(axis=0)
    off = np.where(known, off, np.float32(0))
    half, alone = prior
    bend = 2 * alone + 2 - 4 * half
    believed = 1 + (alone - 1 - bend) * SHARES + bend * SHARES**2
    usual = usual_errors(spec).numpy()
    out = online.copy()
    for h, steps in enumerate(spec.horizon_steps):
        for m in range(online.shape[2]):
            size = float(usual[h, min(m, usual.shape[1] - 1)])
            at = np.argsort(origin_ms, kind="stable")
            total = np.concatenate([np.zeros((len(SHARES), 1)), off[:, at, h, m].cumsum(axis=1)], axis=1)
            due = np.searchsorted(origin_ms[at], origin_ms - steps * spec.step_ms, side="right")
            base = pool * size * believed[:, None]
            all_ = (base + total[:, due]) / (pool * size + total[:1, due])  # [S, N], shares of the online layer's error
            for z in np.unique(zone):
                mine = np.flatnonzero(zone == z)
                mine = mine[np.argsort(origin_ms[mine], kind="stable")]
                sums = np.concatenate([np.zeros((len(SHARES), 1)), off[:, mine, h, m].cumsum(axis=1)], axis=1)
                here = np.searchsorted(origin_ms[mine], origin_ms[mine] - steps * spec.step_ms, side="right")
                error = own * size * all_[:, mine] + sums[:, here]
                weight = (error / error.min(axis=0)) ** -power
                share = (SHARES[:, None] * weight).sum(axis=0) / weight.sum(axis=0)
                out[mine, h, m] += share.astype(np.float32) * (network[mine, h, m] - online[mine, h, m])
    return np.where(np.isfinite(out), out, online)


def windows(table: Table, found: Forecasts, place: Place, plans: Sequence[Plan]) -> Inputs:
    """The inputs of a replay's origins, with the online layer's forecast as their baseline."""
    spec, known, to_come = found.spec, Plans(), deque(sorted(plans, key=lambda plan: plan.known_ms))
    held = np.pad(table.values, ((0, 0), (spec.lookback_steps - 1, 0), (0, 0)), constant_values=np.nan)
    ahead = np.full((len(found.zone), bins_ahead(spec), len(PLANNED)), np.nan, np.float32)
    rows = (found.origin_ms - table.start_ms) // table.step_ms
    ends = table.end_ms[rows]
    for n in np.argsort(ends, kind="stable").tolist() if plans else ():
        while to_come and to_come[0].known_ms <= ends[n]:
            known.add(to_come.popleft())
        known.forget(int(ends[n]))
        ahead[n] = known.ahead(int(ends[n]), table.names, spec)[found.zone[n]]
    parts = []
    for at in range(0, len(rows), 512):
        here = slice(at, at + 512)
        values = held[found.zone[here][:, None], rows[here][:, None] + np.arange(spec.lookback_steps)]
        given = ahead[here] if plans else None
        parts.append(build_inputs(values, ends[here], [place] * len(values), found.quantiles[here], spec, given))
    return Inputs.concatenate(parts)


def compared(found: Forecasts, answers: dict[str, F32], age_ms: I64) -> list[dict[str, Any]]:
    """Of each age and answer: errors as shares of the online layer's, and of the better of the two naive ones."""
    rows = []
    online, truth = found.quantiles[..., 1], found.truth
    base = [np.abs(x - truth) for x in (found.persistence, found.naive_24h)]
    for age, (first, last) in AGES.items():
        here = (age_ms >= first * DAY_MS) & (age_ms < last * DAY_MS)
        if not here.any() or age_ms.max() < (last - 1) * DAY_MS:
            continue
        error = np.abs(online - truth)[here]
        has = np.isfinite(error).any(axis=(1, 2))
        blocks, minutes = _blocks(found.origin_ms[here], has, 360, MIN_BLOCKS)
        count = int(blocks.max()) + 1
        for name, median in {"online layer": online, **answers}.items():
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
    known = np.asarray(np.isfinite(np.stack([off, *base])).all(axis=0))
    zones, means = np.unique(zone), []
    count = np.stack([known[zone == z].sum(axis=0) for z in zones])
    for error in (off, *base):
        sums = np.stack([np.where(known, error, 0)[zone == z].sum(axis=0) for z in zones])
        means.append(np.where(count > 0, sums / np.maximum(count, 1), np.nan))
    mine, yardstick = (masked_mean(x, axis=0) for x in (means[0], np.fmin(*means[1:])))
    return float(np.nanmean(mine / yardstick))


def on_recording(asked: argparse.Namespace, network_of: artefact.Artefact) -> list[dict[str, Any]]:
    """Replay, ask the network, and compare: without plans, and with plans that both are told of."""
    table = read_table(asked.recording)
    options = BacktestOptions(
        warmup_ms=3_600_000, until_ms=round(asked.until_days * DAY_MS), latitude=asked.latitude,
        longitude=asked.longitude, timezone=asked.timezone,
    )  # fmt: skip
    place = Place(latitude=asked.latitude, longitude=sun_longitude(table, table.clock(asked.timezone), asked.longitude))
    told: dict[str, list[Plan]] = {"": []}
    if asked.ahead:
        told[", with plans"], _ = read_plans(asked.ahead, asked.ahead_source, table)
    rows: list[dict[str, Any]] = []
    for words, plans in told.items():
        found = replay(table, options, plans=plans)
        said = network_for(found.spec, network_of).answer(windows(table, found, place, plans))
        online, network = found.quantiles[..., 1], said[..., 1]
        answers = {
            "network": network, "half of each": np.asarray((network + online) / 2, np.float32),
            "weighed": weighed(found.zone, found.origin_ms, online, network, found.truth, found.spec),
        }  # fmt: skip
        first = np.array([table.spans[z][0] for z in found.zone.tolist()])
        mine = compared(found, answers, found.origin_ms - first)
        cells = [f"{t} {m}" for t in found.spec.targets for m in found.spec.horizons_min]
        for row in mine:
            row["answer"] += words
            print(f"{row['age']:12s} {row['answer']:26s} of base {row['of_base']:.3f}   of the online layer "
                  f"{row['ratio']:.3f} ({row['low']} to {row['high']}), worst cell {row['worst']:.3f}")  # fmt: skip
        for row in mine:
            if row["age"] == "days 1 to 3" and not row["answer"].startswith("online"):
                flat = [value for target in row["cells"] for value in target]
                print(f"{row['answer']:26s}", ", ".join(f"{c} {v:.2f}" for c, v in zip(cells, flat, strict=True)))
        inside = (found.truth >= said[..., 0]) & (found.truth <= said[..., 2])
        known = np.isfinite(found.truth)
        share = (inside & known).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        rows += [*mine, {"coverage": share.round(3).T.tolist(), "answer": f"network{words}"}]
    return rows


def on_fleet(asked: argparse.Namespace, network_of: artefact.Artefact) -> list[dict[str, Any]]:
    """The constants of the weighing, on sites of a fleet that the network has not seen: mean of the cells' ratios."""
    fleet = FleetFolder(asked.fleet)
    spec, rows = fleet_spec(fleet), []
    chunk = fleet.read(len(fleet) - 1)
    sites = np.unique(chunk.arrays["zone_site"])[-asked.sites :]
    drawing = Drawing(seed=3, days=3, zones_each=6, origins_each=400, young=1 / 3)
    examples, _ = draw_examples(chunk, spec, drawing, 99, only=sites)
    model = network_for(spec, network_of)
    origin, ahead, base = (torch.from_numpy(x) for x in (examples.origin, examples.ahead, examples.baseline))
    with torch.inference_mode():
        said = model.eval().corrected(origin.float(), ahead.float(), base)[..., 1].numpy()  # type: ignore[operator]
    online, when = examples.baseline[..., 1], np.rint(examples.day * DAY_MS).astype(np.int64)
    site = chunk.arrays["zone_site"][examples.zone % 1_000_000]

    def ratio(median: F32) -> float:
        known = np.isfinite(examples.truth) & np.isfinite(online)
        error = [np.where(known, np.abs(x - examples.truth), 0).sum(axis=0) for x in (median, online)]
        return float((error[0] / error[1]).mean())

    print(f"{len(examples):,} examples of {len(np.unique(examples.zone))} zones: network {ratio(said):.4f}, "
          f"half of each {ratio((said + online) / 2):.4f}")  # fmt: skip
    for power in (2.5, 10.0, 20.0, 40.0):
        for own in (4.0, 8.0, 24.0):
            for prior in ((0.94, 0.92), (0.96, 0.97)):
                out = online.copy()
                for one in np.unique(site):  # a pool is a site's
                    mine = site == one
                    out[mine] = weighed(
                        examples.zone[mine], when[mine], online[mine], said[mine], examples.truth[mine], spec,
                        power=power, own=own, prior=prior,
                    )  # fmt: skip
                rows.append({"power": power, "own": own, "prior": prior, "ratio": round(ratio(out), 4)})
                print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path, nargs="?", default=Path("tests/data/lettuce_2022"))
    parser.add_argument("--latitude", type=float)
    parser.add_argument("--longitude", type=float)
    parser.add_argument("--timezone")
    parser.add_argument("--artefact", type=Path, default=SHIPPED)
    parser.add_argument("--until-days", type=float, default=3)
    parser.add_argument("--ahead", type=Path)
    parser.add_argument("--ahead-source", action="append", default=[])
    parser.add_argument("--fleet", type=Path)
    parser.add_argument("--sites", type=int, default=40)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    made = shipped(asked.artefact)
    print(json.dumps(on_fleet(asked, made) if asked.fleet else on_recording(asked, made)))


if __name__ == "__main__":
    main()
