"""Other families of networks, a ridge and pre-training, beside the kept network: what each leaves of the climatology.

    python -m benchmarks.families [RECORDING ...] [--latitude 51.98 --longitude 4.53 --timezone Europe/Amsterdam]
                                  [--simulated-days 42] [--seeds 7 8] [--learning-rate 4e-3]
    python -m benchmarks.families --quick
    python -m benchmarks.families data/agc3_lettuce_2022 --latitude 51.98 --longitude 4.53 --timezone Europe/Amsterdam

A recording is cut after three and after five sevenths of its days; every candidate is trained on what is before a cut
and judged on the two sevenths after it, so that no day is judged twice. All have the same windows, loss, optimiser,
epochs, batches and seeds, and the same share of their correction is used. Only the ridge is solved, by least squares;
the pre-trained network begins with weights from simulated sites, trained as long as afterwards on the recording. A
number is the mean over cells (target and horizon) of MAE divided by that of the three-rate climatology or of the kept
network, errors being means over seeds; the interval (95 %) is from the gate's bootstrap over days, all zones together.
One more greenhouse is simulated and judged as the recordings are. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits

from benchmarks._families import Candidate, average, planned_channels
from benchmarks._network_cores import CORES, Kept
from benchmarks._ridge import ridge
from edge.simulator.simulated_site import SimulatedSite
from edge.wire.topic import SITE_ZONE
from models.durations import DAY_MS
from models.evaluation.gate import judge
from models.features.inputs import Inputs
from models.network.quantile import QuantileNetwork
from models.network.training import Errors, TrainingConfig, WindowSet, evaluate, fit, quantile_network
from models.spec import ForecastSpec, Place
from services.backtest.prequential import spec_of
from services.backtest.retraining import EXAMPLE_MS
from services.backtest.table import read_table, sun_longitude

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Predict = Callable[[Inputs], F32]
Make = Callable[[ForecastSpec, TrainingConfig], QuantileNetwork]

CUTS = (3 / 7, 5 / 7)
HELD_BACK = 2 / 7
VALIDATION = 0.25
"""The newest share of the examples decides on the ridge's prior."""
START_MS = 1_643_673_600_000  # 2022-02-01T00:00Z
APART_MS = 60 * DAY_MS
JUDGED_SEED = 100
"""Of the greenhouse that is judged; those of pre-training are 1, 2, ..., two months apart."""
KEPT = "the kept network"
MAKES: dict[str, Make] = {
    KEPT: quantile_network,
    **{name: partial(Candidate, core=core) for name, core in CORES.items()},
    "kept, yesterday's plans ahead": partial(Candidate, core=Kept, plans=True),
}


class Planned(WindowSet):
    """Windows whose ``future`` holds what a climate computer set a day before each horizon, as if it were planned."""

    def inputs(self, origins: I64) -> Inputs:
        """With ``future [N, H, K]``: the columns of :func:`planned_channels`."""
        zone, t = np.divmod(origins, self.length)
        a_day = self.spec.steps_per_day
        at = t[:, None] - (-np.array(self.spec.horizon_steps) % a_day)
        plans = self.rows[..., list(planned_channels(self.spec))][zone[:, None], np.maximum(at, 0)]
        plans[at < 0] = np.nan
        return replace(super().inputs(origins), future=plans)


@dataclass(frozen=True)
class World:
    """A recording, or a simulated greenhouse as if it were one."""

    name: str
    windows: WindowSet

    def parts(self, cut: float) -> tuple[I64, I64, int]:
        """Origins to train on, those to be judged on, and when the former end, ms."""
        windows, spec = self.windows, self.windows.spec
        origins = windows.origins(spec.steps_per_day)
        times = windows.times(origins)
        origins = origins[(times - windows.first_end_ms) % max(EXAMPLE_MS, spec.step_ms) == 0]
        first, length = windows.first_end_ms, int(windows.end_ms[-1]) - windows.first_end_ms
        cut_ms, end_ms = (first + round(share * length / DAY_MS) * DAY_MS for share in (cut, cut + HELD_BACK))
        times = windows.times(origins)
        past = origins[times < cut_ms]
        past = past[np.isfinite(windows.truth(past, cut_ms)).any(axis=(1, 2))]
        return past, origins[(times >= cut_ms) & (times < end_ms)], cut_ms


def recorded(folder: Path, latitude: float | None, longitude: float | None, timezone: str | None) -> World:
    """A recording, with the sun of where it was made."""
    table = read_table(folder)
    place = Place(latitude=latitude, longitude=sun_longitude(table, table.clock(timezone), longitude))
    first_ms = table.start_ms - table.start_ms % table.step_ms
    windows = Planned(table.names, first_ms, table.values, [place] * len(table.names), spec_of(table))
    return World(folder.resolve().name, windows)


def simulated(spec: ForecastSpec, seed: int, start_ms: int, days: int) -> World:
    """A simulated greenhouse of three zones."""
    site = SimulatedSite("site", seed, start_ms, zones=3, step_ms=spec.step_ms)
    rows = [
        [[readings[zone].get(c, readings[SITE_ZONE].get(c, np.nan)) for c in spec.channels] for zone in site.zones]
        for _, readings in site.instants(start_ms + days * DAY_MS)
    ]
    values = np.array(rows, dtype=np.float32).swapaxes(0, 1)
    place = Place(site.timezone, "civil", site.latitude, site.longitude)
    return World("simulated", Planned(site.zones, start_ms, values, [place] * len(site.zones), spec))


class Teacher:
    """Trains candidates on simulated sites, once for each schema and seed, to begin with on a recording."""

    def __init__(self, sites: int, days: int) -> None:
        self._sites, self._days = sites, days
        self._taught: dict[tuple[str, int], Mapping[str, npt.NDArray[Any]]] = {}
        self._windows: dict[str, WindowSet] = {}

    def state(self, spec: ForecastSpec, config: TrainingConfig) -> Mapping[str, npt.NDArray[Any]]:
        """The kept network's weights and scaling after all sites."""
        key = (spec.hash, config.seed)
        if key not in self._taught:
            if spec.hash not in self._windows:
                self._windows[spec.hash] = self._make(spec)
            windows = self._windows[spec.hash]
            origins = windows.origins(spec.steps_per_day)
            apart = (windows.times(origins) - windows.first_end_ms) % max(EXAMPLE_MS, spec.step_ms) == 0
            self._taught[key] = fit(windows, origins[apart], config).state
        return self._taught[key]

    def _make(self, spec: ForecastSpec) -> WindowSet:
        """All sites on one grid: a zone has no rows in the months of the other sites."""
        began_s = time.monotonic()
        sites = [simulated(spec, n + 1, START_MS + n * APART_MS, self._days).windows for n in range(self._sites)]
        parts = [(f"{n}/{zone}", site, z) for n, site in enumerate(sites) for z, zone in enumerate(site.zone_ids)]
        windows = Planned.from_columns(
            np.repeat([name for name, _, _ in parts], [site.length for _, site, _ in parts]),
            np.concatenate([site.end_ms for _, site, _ in parts]),
            np.concatenate([site.rows[z] for _, site, z in parts]),
            {name: site.places[z] for name, site, z in parts}, spec,
        )  # fmt: skip
        print(f"{self._sites} sites of {self._days} days simulated in {time.monotonic() - began_s:.0f} s", flush=True)
        return windows


def candidates(world: World, cut: float, config: TrainingConfig, teacher: Teacher) -> dict[str, tuple[Errors, int]]:
    """Errors after the cut and number of weights of every candidate."""
    windows, (past, later, cut_ms) = world.windows, world.parts(cut)
    inputs, truth = windows.inputs(past), windows.truth(past, cut_ms)
    made, cost_s = {}, {}

    def trained(make: Make, state: Mapping[str, npt.NDArray[Any]] | None = None, times: int = 1) -> QuantileNetwork:
        network, longer = make(windows.spec, config), replace(config, epochs=times * config.epochs)
        network.load_arrays(fit(windows, past, longer, cut_ms=cut_ms, initial_state=state, make=make).state)
        return network.eval()

    for name, make in MAKES.items():
        began_s = time.process_time()
        made[name] = trained(make)
        cost_s[name] = time.process_time() - began_s
    # Pre-training takes as long again: is it more than the time?
    made["kept, twice the epochs"] = trained(quantile_network, times=2)
    taught = teacher.state(windows.spec, config)
    own = {name: made[KEPT].arrays()[name] for name in ("spread", "residual")}
    made["kept, pre-trained on simulated sites"] = trained(quantile_network, {**taught, **own})
    made["the same, not trained further"] = only = quantile_network(windows.spec, config).eval()
    only.load_arrays({**taught, **own, "trust": made[KEPT].arrays()["trust"]})
    times = windows.times(past)
    older = times < np.quantile(times, 1 - VALIDATION)
    made["ridge"] = ridge(windows.spec, config, inputs, truth, older, len(np.unique(times // DAY_MS)))
    found: dict[str, Predict] = {name: network.predict for name, network in made.items()}
    found["kept and ridge, averaged"] = average([made[KEPT].predict, made["ridge"].predict])
    costs = ", ".join(f"{name} {cost:.0f}" for name, cost in cost_s.items())
    day = (cut_ms - windows.first_end_ms) / DAY_MS
    print(f"{world.name}, {len(past)} examples up to day {day:.0f}, seed {config.seed}; CPU s: {costs}", flush=True)
    weights = {name: sum(p.numel() for p in network.parameters()) for name, network in made.items()}
    return {name: (evaluate(predict, windows, later), weights.get(name, 0)) for name, predict in found.items()}


def ratio(mine: Errors, theirs: F32) -> tuple[float, float, float]:
    """Mean over cells of MAE over that of ``theirs [N, H, M]``, and its 95 % interval by the gate's bootstrap."""
    evidence = judge(mine, replace(mine, model=theirs), "other", level=0.025).evidence
    names = ("mae_ratio", "mae_ratio_lower", "mae_ratio_upper")
    point, low, high = (evidence[name]["other"] for name in names)
    return float(point), float(low), float(high)


def together(runs: list[list[Errors]]) -> Errors:
    """One after another cut, ``[cut][seed]``; of each the mean over seeds."""
    cuts = [replace(of_cut[0], model=np.mean([run.model for run in of_cut], axis=0)) for of_cut in runs]
    return Errors(*(np.concatenate([getattr(cut, f.name) for cut in cuts]) for f in fields(Errors)))


def measure(world: World, configs: list[TrainingConfig], teacher: Teacher) -> list[dict[str, Any]]:
    """Train and judge all candidates; print the table."""
    runs = [[candidates(world, cut, config, teacher) for config in configs] for cut in CUTS]
    whole = {name: together([[run[name][0] for run in of_cut] for of_cut in runs]) for name in runs[0][0]}
    days = len(np.unique(whole[KEPT].origin_ms // DAY_MS))
    print(f"\n{world.name}: {len(world.windows.zone_ids)} zones, {len(whole[KEPT].zone)} origins on {days} days")
    heads = ("of the climatology", "of the kept network")
    print(f"{'candidate':38s} weights  {heads[0]:24s} {heads[1]:24s} of the kept network: cuts; seeds")
    rows = []
    for name, errors in whole.items():
        base, kept = ratio(errors, errors.climatology), ratio(errors, whole[KEPT].model)
        each = [[ratio(run[name][0], run[KEPT][0].model)[0] for run in of_cut] for of_cut in runs]
        shown = ["{:.4f} ({:.4f} to {:.4f})".format(*found) for found in (base, kept)]
        print(f"{name:38s} {runs[0][0][name][1]:7d}  {shown[0]:24s} {shown[1]:24s} "
              f"{'; '.join(' '.join(f'{one:.4f}' for one in of_cut) for of_cut in each)}")  # fmt: skip
        rows.append({"recording": world.name, "candidate": name, "of_climatology": base, "of_kept": kept, "each": each})
    print(flush=True)
    return rows


def main() -> None:
    """Train, judge and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, nargs="*")
    parser.add_argument("--latitude", type=float)
    parser.add_argument("--longitude", type=float)
    parser.add_argument("--timezone")
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8])
    parser.add_argument("--epochs", type=int, default=TrainingConfig().epochs)
    parser.add_argument("--learning-rate", type=float, default=TrainingConfig().learning_rate)
    parser.add_argument("--simulated-days", type=int, default=42, help="of the greenhouse that is judged; 0: none")
    parser.add_argument("--sites", type=int, default=4, help="of pre-training, of three zones (default: %(default)s)")
    parser.add_argument("--site-days", type=int, default=28, help="of each of them (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a minute: the tests' recording, one seed, two epochs")
    asked = parser.parse_args()
    if asked.quick:
        asked.seeds, asked.epochs, asked.simulated_days, asked.sites, asked.site_days = asked.seeds[:1], 2, 0, 1, 7
    folders = asked.recordings or [Path("tests/data/lettuce_2022")]
    torch.set_num_threads(1)
    with threadpool_limits(1):
        worlds = [recorded(folder, asked.latitude, asked.longitude, asked.timezone) for folder in folders]
        if asked.simulated_days:
            worlds.append(simulated(worlds[0].windows.spec, JUDGED_SEED, START_MS, asked.simulated_days))
        default = TrainingConfig(epochs=asked.epochs, learning_rate=asked.learning_rate)
        configs = [replace(default, seed=seed) for seed in asked.seeds]
        teacher = Teacher(asked.sites, asked.site_days)
        rows = [row for world in worlds for row in measure(world, configs, teacher)]
    print(json.dumps({"load": round(os.getloadavg()[0], 1), "epochs": asked.epochs, "rows": rows}))


if __name__ == "__main__":
    main()
