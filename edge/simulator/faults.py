"""Sensor faults on request: a sensor that sticks, spikes, is off, drifts or falls silent, on a schedule.

Clock faults and duplicate or malformed messages belong to the publisher; here only values change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from models.durations import DAY_MS

__all__ = ["FAULT_KINDS", "Fault", "FaultySensors", "random_faults"]

FaultKind = Literal["stuck", "spike", "offset", "drift", "drop_out"]
FAULT_KINDS: tuple[FaultKind, ...] = ("stuck", "spike", "offset", "drift", "drop_out")

_SPIKE_SHARE = 0.1

_USUAL_SIZE = {"air_temp_c": 3.0, "rh_pct": 12.0, "co2_ppm": 200.0, "leaf_temp_c": 3.0, "out_temp_c": 3.0}


@dataclass(frozen=True, slots=True)
class Fault:
    """One sensor's fault from ``start_ms`` (inclusive) to ``end_ms`` (exclusive).

    ``size`` is in the metric's unit: the height of spikes, the offset, or the drift a day; the others ignore it.
    """

    kind: FaultKind
    zone: str
    metric: str
    start_ms: int
    end_ms: int
    size: float = 0.0


class FaultySensors:
    """Applies faults to readings that come in the order of time.

    What it gives depends on the faults, the seed and the readings only. It remembers one value for each stuck
    sensor: the first that it saw while the fault lasted.
    """

    def __init__(self, faults: Sequence[Fault], seed: int = 0) -> None:
        for fault in faults:
            if fault.kind not in FAULT_KINDS:
                raise ValueError(f"{fault.kind!r} is not a fault; one of {', '.join(FAULT_KINDS)}")
        self._faults = tuple(faults)
        self._seed = seed
        self._held: dict[Fault, float] = {}

    def apply(self, ts_ms: int, readings: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
        """The readings of one instant, ``{zone: {metric: value}}``, as faulty sensors give them; a copy.

        >>> sensors = FaultySensors([Fault("offset", "z1", "rh_pct", 0, 100, 5.0)])
        >>> sensors.apply(50, {"z1": {"rh_pct": 70.0}}), sensors.apply(100, {"z1": {"rh_pct": 70.0}})
        ({'z1': {'rh_pct': 75.0}}, {'z1': {'rh_pct': 70.0}})
        """
        faulty = {zone: dict(values) for zone, values in readings.items()}
        for index, fault in enumerate(self._faults):
            values = faulty.get(fault.zone, {})
            if not fault.start_ms <= ts_ms < fault.end_ms or fault.metric not in values:
                continue
            value = values[fault.metric]
            if fault.kind == "drop_out":
                del values[fault.metric]
            elif fault.kind == "stuck":
                values[fault.metric] = self._held.setdefault(fault, value)
            elif fault.kind == "offset":
                values[fault.metric] = value + fault.size
            elif fault.kind == "drift":
                values[fault.metric] = value + fault.size * (ts_ms - fault.start_ms) / DAY_MS
            else:
                rng = np.random.default_rng([self._seed, index, ts_ms])
                if rng.random() < _SPIKE_SHARE:
                    values[fault.metric] = value + fault.size * float(rng.choice([-1.0, 1.0]))
        return faulty


def random_faults(
    seed: int, zones: Sequence[str], start_ms: int, end_ms: int, a_day: float, metrics: Sequence[str] | None = None
) -> list[Fault]:
    """A schedule of about ``a_day`` faults a zone and day, each of half an hour to a day, sorted by start.

    ``metrics`` are those that may fail (default: the inside climate sensors).
    """
    names = list(metrics or ("air_temp_c", "rh_pct", "co2_ppm", "leaf_temp_c"))
    rng = np.random.default_rng([seed, 6])
    faults = []
    for zone in zones:
        for _ in range(int(rng.poisson(a_day * (end_ms - start_ms) / DAY_MS))):
            kind = FAULT_KINDS[int(rng.integers(len(FAULT_KINDS)))]
            metric = names[int(rng.integers(len(names)))]
            begin = int(rng.integers(start_ms, end_ms))
            length = int(1_800_000 * float(np.exp(rng.uniform(0.0, np.log(48.0)))))
            size = _USUAL_SIZE.get(metric, 1.0) * float(rng.uniform(0.5, 2.0)) * float(rng.choice([-1.0, 1.0]))
            faults.append(Fault(kind, zone, metric, begin, min(begin + length, end_ms), size))
    return sorted(faults, key=lambda fault: (fault.start_ms, fault.zone, fault.metric))
