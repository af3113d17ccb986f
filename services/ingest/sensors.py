"""Step 5 of the way of a reading: one step's readings of a zone -> its device rows and its row of channels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import add, itemgetter
from statistics import median

import msgspec
import numpy as np
import numpy.typing as npt

from edge.reading import Metric, base_metric
from services.store.rows import DeviceRow

__all__ = ["Readings", "Sensor", "SensorSet"]


class Sensor(msgspec.Struct, array_like=True):
    """The newest reading of one device's metric: what is held between changes and what counters count from."""

    ts_ms: int
    value: float


SensorSet = dict[str, dict[str, Sensor]]
"""device -> metric (with its suffix) -> sensor."""

Series = Sequence[tuple[int, float]]
"""(ts_ms, value), in the order of their sample ids."""


class Readings:
    """Aggregates the readings of a step; channels are the vocabulary's metrics in their order."""

    def __init__(self, vocabulary: Mapping[str, Metric]) -> None:
        self._vocabulary = vocabulary
        self._index = {name: index for index, name in enumerate(vocabulary)}

    def close(
        self, sensors: SensorSet, zone: str, readings: Mapping[tuple[str, str], Series], end_ms: int,
        primary: Mapping[str, str], rows: list[DeviceRow],
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:  # fmt: skip
        """A zone's values [C] and ages in seconds [C] at ``end_ms``; updates ``sensors``, appends device rows.

        A sensor without a reading in this step counts with its last value for as long as its metric holds.
        """
        fresh: dict[tuple[str, str], float] = {}
        for device, name in sorted(readings):
            metric = self._metric(name)
            if metric is not None:
                row = _aggregate(metric, zone, device, name, readings[device, name], sensors)
                fresh[device, name] = row.mean
                rows.append(row)
        values = np.full(len(self._index), np.nan, np.float32)
        ages = np.full(len(self._index), np.nan, np.float32)
        for metric, of in self._by_metric(sensors):
            chosen = [s for s in of if s[0] == primary.get(metric.name)] or of
            newest = max(sensor.ts_ms for _, _, sensor in chosen)
            hold_ms = -1 if metric.hold_s is None else metric.hold_s * 1000
            known = []
            for device, name, sensor in chosen:
                if (device, name) in fresh:
                    known.append(fresh[device, name])
                elif end_ms - sensor.ts_ms <= hold_ms:
                    known.append(sensor.value)
            index = self._index[metric.name]
            ages[index] = (end_ms - newest) / 1000
            if known:
                values[index] = _vector_mean(known) if metric.kind == "angle" else median(known)
        return values, ages

    def _metric(self, name: str) -> Metric | None:
        return self._vocabulary.get(name) or self._vocabulary.get(base_metric(name))

    def _by_metric(self, sensors: SensorSet) -> Iterator[tuple[Metric, list[tuple[str, str, Sensor]]]]:
        grouped: dict[str, list[tuple[str, str, Sensor]]] = {}
        for device in sorted(sensors):
            for name, sensor in sorted(sensors[device].items(), key=itemgetter(0)):
                metric = self._metric(name)
                if metric is not None:
                    grouped.setdefault(metric.name, []).append((device, name, sensor))
        for name, of in grouped.items():
            yield self._vocabulary[name], of


def _aggregate(metric: Metric, zone: str, device: str, name: str, series: Series, sensors: SensorSet) -> DeviceRow:
    values = [value for _, value in series]
    in_time = sorted(series, key=itemgetter(0))  # stable: equal times keep the order of their ids
    before = sensors.setdefault(device, {}).get(name)
    newest_ms, last = in_time[-1]
    sensors[device][name] = Sensor(newest_ms, last)
    if metric.kind == "angle":
        mean = _vector_mean(values)
    elif metric.kind == "counter":
        mean = _increase(before.value if before else in_time[0][1], [value for _, value in in_time])
    else:
        mean = _sum(values) / len(values)
    return DeviceRow(zone, device, name, len(values), mean, min(values), max(values), last)


def _sum(values: Sequence[float]) -> float:
    # The built-in sum() rounds differently from Python 3.12 on; rows must not depend on the interpreter.
    return reduce(add, values, 0.0)


def _vector_mean(degrees: Sequence[float]) -> float:
    east = _sum([math.sin(math.radians(d)) for d in degrees])
    north = _sum([math.cos(math.radians(d)) for d in degrees])
    if math.hypot(east, north) < 1e-9 * len(degrees):
        return math.nan  # opposite directions have no mean
    return math.degrees(math.atan2(east, north)) % 360.0


def _increase(start: float, values: Sequence[float]) -> float:
    """What a counter gained; after a drop it is taken to have started again from zero."""
    gained = 0.0
    for value in values:
        gained += value - start if value >= start else value
        start = value
    return gained
