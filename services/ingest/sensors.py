"""Step 5 of the way of a reading: one step's samples of a site -> device rows and zone rows, in columns.

A sensor is one device's metric. Each has an index; a step's values become one array with the index of the sensor that
each belongs to, and everything else is arithmetic over arrays. Values are put in the order of their sample ids and
added one after another, so that a row does not depend on the order in which its samples came, nor on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter

import msgspec
import numpy as np
import numpy.typing as npt

from edge.reading import SITE_ZONE, Metric, Sample, base_metric
from services.store.rows import DeviceRows

__all__ = ["Sensors", "SensorsState"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

_NEVER_MS = -(2**62)
_values_of, _ts_of = attrgetter("values"), attrgetter("ts_ms")


class SensorsState(msgspec.Struct):
    """Every zone and every sensor's newest reading: what is held between changes and what counters count from."""

    zones: list[str]
    names: list[tuple[str, str, str]]  # zone, device, metric
    ts_ms: list[int]
    values: list[float]


class Sensors:
    """The sensors of a site. ``primary``: metric -> device whose value is the zone's, where the zone has it."""

    def __init__(self, vocabulary: Mapping[str, Metric], primary: Mapping[str, str]) -> None:
        self._vocabulary, self._primary = vocabulary, primary
        self._zones: dict[str, int] = {}
        self._index: dict[tuple[str, str, str], int] = {}
        self._ts = np.empty(0, np.int64)
        self._value = np.empty(0)
        self._layouts: dict[tuple[str, str, tuple[str, ...]], int] = {}
        self._sensors_of: list[list[int]] = []  # of a layout; -1 for a metric that is not in the vocabulary
        self._table: _Table | None = None

    def close(
        self, row: Mapping[tuple[str, str, str, int], Sample], end_ms: int
    ) -> tuple[tuple[str, ...], F32, F32, DeviceRows]:
        """Zones, their values [Z, C] and ages in seconds [Z, C] at ``end_ms``, and the device rows of a step.

        ``row`` holds its samples by (zone, device, boot, seq). A sensor without a reading in this step counts with
        its last value for as long as its metric holds.
        """
        if not row:
            mean, devices = np.full(len(self._ts), np.nan), DeviceRows.of(())
            return *self._zone_rows(np.zeros(len(self._ts), bool), mean, end_ms), devices
        zones, device_names, boots, seqs = zip(*row, strict=True)
        samples = list(row.values())
        maps = list(map(_values_of, samples))
        # zip makes its tuple once and fills it again and again as long as nobody keeps it.
        keys = zip(zones, device_names, map(tuple, maps), strict=True)
        layouts = np.fromiter(map(self._layouts.get, keys, repeat(-1)), np.int64, len(row))
        if (layouts < 0).any():
            layouts = np.fromiter(map(self._layout, zones, device_names, map(tuple, maps)), np.int64, len(row))
        table = self._arranged()
        ranks = {boot: rank for rank, boot in enumerate(sorted(set(boots)))}
        boot = np.fromiter(map(ranks.__getitem__, boots), np.int64, len(row))
        seq = np.fromiter(seqs, np.int64, len(row))
        order = np.lexsort((seq, boot, table.layout_device[layouts]))
        ts = np.fromiter(map(_ts_of, samples), np.int64, len(samples))
        lengths = table.layout_length[layouts]
        values = np.fromiter(chain.from_iterable(map(dict.values, maps)), np.float64, int(lengths.sum()))
        at = _ranges(table.layout_start[layouts][order], lengths[order])
        sensor = table.layout_sensor[at]
        value = values[_ranges((np.cumsum(lengths) - lengths)[order], lengths[order])]
        ts_each = np.repeat(ts[order], lengths[order])
        if table.has_unknown:
            known = sensor >= 0
            sensor, value, ts_each = sensor[known], value[known], ts_each[known]
        fresh, mean, devices = self._device_rows(table, sensor, value, ts_each)
        return *self._zone_rows(fresh, mean, end_ms), devices

    def _device_rows(
        self, table: _Table, sensor: I64, value: F64, ts: I64
    ) -> tuple[npt.NDArray[np.bool_], F64, DeviceRows]:
        """Which sensors have a reading [S], the mean of those [S], and their rows; the readings stand in id order."""
        size = len(self._ts)
        count = np.bincount(sensor, minlength=size)
        fresh = count > 0
        # bincount adds one after another; reduceat would add pairwise, in an order that NumPy may change.
        mean = np.bincount(sensor, value, size) / np.maximum(count, 1)
        low, high = np.full(size, np.inf), np.full(size, -np.inf)
        np.minimum.at(low, sensor, value)
        np.maximum.at(high, sensor, value)
        in_time = _in_time(ts)
        special = table.special[sensor]
        if special.any():
            self._special_means(table, sensor[special], value[special], ts[special], mean)
        self._ts[sensor[in_time]] = ts[in_time]  # the last of equal indices stays
        self._value[sensor[in_time]] = value[in_time]
        touched = table.order[fresh[table.order]]
        zone, device, metric = (names[touched] for names in table.names)
        rows = DeviceRows(
            zone, device, metric, count[touched], mean[touched], low[touched], high[touched], self._value[touched]
        )
        return fresh, mean, rows

    def _special_means(self, table: _Table, sensor: I64, value: F64, ts: I64, mean: F64) -> None:
        """Angles have a vector mean, counters an increase; few sensors are either."""
        for index in np.unique(sensor).tolist():
            mine = sensor == index
            if table.angle[index]:
                mean[index] = _vector_mean(value[mine].tolist())
            else:
                in_time = value[mine][_in_time(ts[mine])].tolist()
                known = self._ts[index] != _NEVER_MS
                mean[index] = _increase(float(self._value[index]) if known else in_time[0], in_time)

    def _zone_rows(self, fresh: npt.NDArray[np.bool_], mean: F64, end_ms: int) -> tuple[tuple[str, ...], F32, F32]:
        table = self._arranged()
        width = len(self._vocabulary)
        values = np.full(len(table.zones) * width, np.nan, np.float32)
        ages = np.full(len(table.zones) * width, np.nan, np.float32)
        if len(table.chosen):
            chosen, group = table.chosen, table.group
            newest = np.maximum.reduceat(self._ts[chosen], table.group_start)
            ages[table.cell] = (end_ms - newest) / 1000
            known = fresh[chosen] | (end_ms - self._ts[chosen] <= table.hold_ms[chosen])
            now = np.where(fresh[chosen], mean[chosen], self._value[chosen])[known]
            group = group[known]
            if len(table.cell) < len(chosen):
                group, now = _medians(group, now)
            values[table.cell[group]] = now
            for number, members in table.angle_groups:
                of = [s for s in members if fresh[s] or end_ms - self._ts[s] <= table.hold_ms[s]]
                if of:
                    angles = [float(mean[s] if fresh[s] else self._value[s]) for s in of]
                    values[table.cell[number]] = _vector_mean(angles)
        return _join_weather(table.zones, values.reshape(-1, width), ages.reshape(-1, width))

    def _layout(self, zone: str, device: str, metrics: tuple[str, ...]) -> int:
        """What a device sends at once, in its order; devices send the same again and again."""
        key = (zone, device, metrics)
        if key not in self._layouts:
            self._layouts[key] = len(self._sensors_of)
            self._zones.setdefault(zone, len(self._zones))
            self._sensors_of.append([self._sensor(zone, device, metric) for metric in metrics])
            self._table = None
        return self._layouts[key]

    def _sensor(self, zone: str, device: str, name: str) -> int:
        if _metric(self._vocabulary, name) is None:
            return -1
        index = self._index.setdefault((zone, device, name), len(self._index))
        return index

    def _arranged(self) -> _Table:
        if self._table is None:
            new = len(self._index) - len(self._ts)
            self._ts = np.concatenate([self._ts, np.full(new, _NEVER_MS, np.int64)])
            self._value = np.concatenate([self._value, np.full(new, np.nan)])
            self._table = _Table(
                self._vocabulary, self._primary, self._zones, list(self._index), list(self._layouts), self._sensors_of
            )
        return self._table

    def state(self) -> SensorsState:
        """Everything that later rows depend on."""
        self._arranged()
        return SensorsState(list(self._zones), list(self._index), self._ts.tolist(), self._value.tolist())

    def load(self, state: SensorsState) -> None:
        """Continue from :meth:`state`."""
        self._zones = {zone: number for number, zone in enumerate(state.zones)}
        self._index = {name: number for number, name in enumerate(state.names)}
        self._ts, self._value = np.array(state.ts_ms, np.int64), np.array(state.values, np.float64)
        self._layouts, self._sensors_of, self._table = {}, [], None


class _Table:
    """What follows from which sensors there are; made again only when one is new."""

    def __init__(
        self, vocabulary: Mapping[str, Metric], primary: Mapping[str, str], zones: Iterable[str],
        names: Sequence[tuple[str, str, str]], layouts: Sequence[tuple[str, str, tuple[str, ...]]],
        sensors_of: Sequence[Sequence[int]],
    ) -> None:  # fmt: skip
        self.zones = sorted(zones)
        self.names = tuple(np.array([name[part] for name in names] + [""], object)[:-1] for part in range(3))
        self.order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
        metrics = [_metric(vocabulary, name) for _, _, name in names]
        self.angle = np.array([m is not None and m.kind == "angle" for m in metrics], bool)
        self.special = np.array([m is not None and m.kind in ("angle", "counter") for m in metrics], bool)
        hold_s = [-1 if m is None or m.hold_s is None else m.hold_s for m in metrics]
        self.hold_ms = np.array(hold_s, np.int64) * 1000
        self._arrange_layouts(layouts, sensors_of)
        self._arrange_groups(vocabulary, primary, names)

    def _arrange_layouts(
        self, layouts: Sequence[tuple[str, str, tuple[str, ...]]], sensors_of: Sequence[Sequence[int]]
    ) -> None:
        ranks = {pair: rank for rank, pair in enumerate(sorted({(zone, device) for zone, device, _ in layouts}))}
        self.layout_device = np.array([ranks[zone, device] for zone, device, _ in layouts], np.int64)
        self.layout_length = np.array([len(of) for of in sensors_of], np.int64)
        self.layout_start = np.cumsum(self.layout_length) - self.layout_length
        self.layout_sensor = np.array([sensor for of in sensors_of for sensor in of], np.int64)
        self.has_unknown = bool((self.layout_sensor < 0).any())

    def _arrange_groups(
        self, vocabulary: Mapping[str, Metric], primary: Mapping[str, str], names: Sequence[tuple[str, str, str]]
    ) -> None:
        """A group is the sensors that make one cell of the zone rows, in the order of their names."""
        channels = {name: number for number, name in enumerate(vocabulary)}
        zone_at = {zone: number for number, zone in enumerate(self.zones)}
        groups: dict[int, list[int]] = {}
        for sensor in self.order.tolist():
            zone, _, name = names[sensor]
            metric = _metric(vocabulary, name)
            assert metric is not None
            groups.setdefault(zone_at[zone] * len(vocabulary) + channels[metric.name], []).append(sensor)
        wanted = {channels[metric]: device for metric, device in primary.items() if metric in channels}
        chosen: list[int] = []
        starts, numbers, cells = [], [], []
        self.angle_groups: list[tuple[int, list[int]]] = []
        for number, (cell, members) in enumerate(groups.items()):
            device = wanted.get(cell % len(vocabulary))
            of = [s for s in members if names[s][1] == device] or members
            starts.append(len(chosen))
            numbers += [number] * len(of)
            cells.append(cell)
            chosen += of
            if self.angle[of[0]]:
                self.angle_groups.append((number, of))
        self.chosen, self.group = np.array(chosen, np.int64), np.array(numbers, np.int64)
        self.group_start, self.cell = np.array(starts, np.int64), np.array(cells, np.int64)


def _metric(vocabulary: Mapping[str, Metric], name: str) -> Metric | None:
    return vocabulary.get(name) or vocabulary.get(base_metric(name))


def _ranges(starts: I64, lengths: I64) -> I64:
    """``start, start + 1, ... start + length - 1`` of each, one after another."""
    ends = np.cumsum(lengths)
    ranges: I64 = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return ranges


def _in_time(ts: I64) -> I64:
    """The order of their times; equal times keep the order of their ids."""
    order: I64 = np.argsort(ts, kind="stable")
    return order


def _medians(group: I64, values: F64) -> tuple[I64, F64]:
    """The groups that have values, and the median of each."""
    order = np.lexsort((values, group))
    group, values = group[order], values[order]
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    counts = np.diff(starts, append=len(group))
    low, high = values[starts + (counts - 1) // 2], values[starts + counts // 2]
    return group[starts], np.where(counts % 2 == 1, low, (low + high) / 2)


def _join_weather(zones: Sequence[str], values: F32, ages: F32) -> tuple[tuple[str, ...], F32, F32]:
    """Take the site's own row out and give each zone what it never had itself."""
    if SITE_ZONE not in zones:
        return tuple(zones), values, ages
    at = zones.index(SITE_ZONE)
    rest = np.arange(len(zones)) != at
    missing = np.isnan(ages[rest])
    joined = np.where(missing, values[at], values[rest]), np.where(missing, ages[at], ages[rest])
    return tuple(zone for zone in zones if zone != SITE_ZONE), *joined


def _vector_mean(degrees: Sequence[float]) -> float:
    east = north = 0.0
    for d in degrees:  # the built-in sum() rounds differently from Python 3.12 on
        east += math.sin(math.radians(d))
        north += math.cos(math.radians(d))
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
