"""Sensor faults: how many are found, how soon, and how often a sound sensor is called faulty.

    python -m benchmarks.faults [RECORDING ...] [--days 28] [--seed 1]

Rows of a simulated greenhouse of three zones, and of recordings (folders, as for ``hothouse backtest``), go through the
detector twice: as they are, where every alarm counts as false, and with the simulator's faults in air temperature,
humidity and CO2, from day 8 on: half an hour to a day long, half to twice the usual size of such faults, one at a
time in a zone. A fault is found when the detector names its zone, channel and kind while it lasts (a drift is an
offset by another name); ``called`` counts any kind. ``kept out`` is the share of its values that learners did not see.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from edge.simulator.faults import FAULT_KINDS, Fault, FaultySensors, random_faults
from edge.simulator.simulated_site import SimulatedSite
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import VOCABULARY
from models.durations import DAY_MS, HOUR_MS, MINUTE_MS
from models.features.sensor_faults import SensorFault, SensorFaults
from services.backtest.table import read_table

METRICS = ("air_temp_c", "rh_pct", "co2_ppm")
CHANNELS = tuple(VOCABULARY)
START_MS = 1_646_092_800_000
FIRST_DAY, A_DAY, APART_MS = 8, 0.7, 12 * HOUR_MS
NAMED = {"drift": "offset"}


@dataclass(frozen=True)
class World:
    """Rows of ``Z`` zones, ``[Z, T, C]``."""

    name: str
    start_ms: int
    step_ms: int
    values: npt.NDArray[np.float32]

    @property
    def end_ms(self) -> int:
        """The end of the last row."""
        return self.start_ms + (int(self.values.shape[1]) - 1) * self.step_ms


def main() -> None:
    """Print a table for each world."""
    args = _arguments()
    for world in [simulated(args.days, args.seed), *map(recorded, args.recordings)]:
        zones = [str(z) for z in range(len(world.values))]
        began = time.process_time()
        sound, alarms = watch(world, world.values)
        cost_ms = (time.process_time() - began) / world.values.shape[1] * 1000
        print(f"\n{world.name}: {len(zones)} zones, {(world.end_ms - world.start_ms) / DAY_MS:.0f} days; "
              f"{cost_ms:.2f} ms of CPU a step")  # fmt: skip
        for metric in METRICS:
            kept_out = sound[..., CHANNELS.index(metric)].mean()
            kinds = dict(Counter(alarm.kind for _, alarm in alarms if alarm.channel == metric))
            print(f"  as it is: {metric}: {100 * kept_out:.3f} % of rows kept out, alarms {kinds}")
        faults = _apart(random_faults(args.seed, zones, world.start_ms + FIRST_DAY * DAY_MS, world.end_ms - DAY_MS,
                                      A_DAY, METRICS))  # fmt: skip
        out, alarms = watch(world, spoiled(world, faults, args.seed))
        print(f"  {'fault':<10}{'number':>7}{'found':>7}{'called':>8}{'delay min':>11}{'kept out':>10}")
        for kind in FAULT_KINDS:
            _row(world, [fault for fault in faults if fault.kind == kind], out & ~sound, alarms)


def watch(world: World, values: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.bool_], list[tuple[int, SensorFault]]]:
    """What the detector kept out, ``[Z, T, C]``, and its alarms by step."""
    detector = SensorFaults(CHANNELS, world.step_ms, len(values))
    for _ in values:
        detector.add_zones()
    zones, out, alarms = np.arange(len(values)), np.zeros(values.shape, dtype=bool), []
    for step in range(values.shape[1]):
        hour = (world.start_ms + step * world.step_ms) // HOUR_MS % 24
        clean, found = detector.learn(zones, step, values[:, step], hour)
        out[:, step] = np.isfinite(values[:, step]) & np.isnan(clean)
        alarms += [(step, fault) for fault in found]
    return out, alarms


def spoiled(world: World, faults: list[Fault], seed: int) -> npt.NDArray[np.float32]:
    """The rows as faulty sensors give them; a copy."""
    values, sensors = world.values.copy(), FaultySensors(faults, seed)
    columns = [CHANNELS.index(metric) for metric in METRICS]
    for step in range(values.shape[1]):
        rows = values[:, step, columns].tolist()
        readings = {str(z): {m: v for m, v in zip(METRICS, row, strict=True) if v == v} for z, row in enumerate(rows)}
        faulty = sensors.apply(world.start_ms + step * world.step_ms, readings)
        values[:, step, columns] = [[zone.get(m, np.nan) for m in METRICS] for zone in faulty.values()]
    return values


def simulated(days: int, seed: int) -> World:
    """The simulated greenhouse."""
    site = SimulatedSite("site", seed, START_MS, zones=3, step_ms=300_000)
    rows = [
        [[readings[zone].get(c, readings[SITE_ZONE].get(c, np.nan)) for c in CHANNELS] for zone in site.zones]
        for _, readings in site.instants(START_MS + days * DAY_MS)
    ]
    return World("simulated", START_MS, site.step_ms, np.array(rows, dtype=np.float32).swapaxes(0, 1))


def recorded(folder: Path) -> World:
    """A recording."""
    table = read_table(folder)
    return World(folder.resolve().name, table.start_ms, table.step_ms, table.values)


def _apart(faults: list[Fault]) -> list[Fault]:
    """Without those that begin before the one before them in their zone is long over."""
    free: dict[str, int] = {}
    kept = []
    for fault in faults:
        if fault.start_ms >= free.get(fault.zone, 0):
            kept.append(fault)
            free[fault.zone] = fault.end_ms + APART_MS
    return kept


def _row(world: World, faults: list[Fault], out: npt.NDArray[np.bool_], alarms: list[tuple[int, SensorFault]]) -> None:
    delays, called, kept_out = [], 0, []
    for fault in faults:
        first, last = (-(-(ms - world.start_ms) // world.step_ms) for ms in (fault.start_ms, fault.end_ms))
        mine = [
            (step, alarm) for step, alarm in alarms
            if first <= step < last and (alarm.zone, alarm.channel) == (int(fault.zone), fault.metric)
        ]  # fmt: skip
        named = [step for step, alarm in mine if alarm.kind == NAMED.get(fault.kind, fault.kind)]
        called += bool(mine)
        delays += [(named[0] - first) * world.step_ms / MINUTE_MS] if named else []
        kept_out.append(out[int(fault.zone), first:last, CHANNELS.index(fault.metric)].mean())
    if faults:
        delay = f"{median(delays):.0f}" if delays else "-"
        print(f"  {faults[0].kind:<10}{len(faults):>7}{len(delays):>7}{called:>8}{delay:>11}{np.mean(kept_out):>10.2f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recordings", nargs="*", type=Path)
    parser.add_argument("--days", type=int, default=28)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
