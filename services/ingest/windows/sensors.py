"""Step 5 of the way of a reading: one step's samples of a site -> device rows and zone rows, in columns.

A sensor is one device's metric. Each has an index; a step's values become one array with the index of the sensor that
each belongs to, and everything else is arithmetic over arrays. Values are put in the order of their sample ids and
added one after another, so that a row does not depend on the order in which its samples came, nor on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.wire.payloads import ranges
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import Metric, base_metric
from services.ingest.windows.open_rows import Names, OpenSamples
from services.ingest.windows.site_rules import Curve, SiteRules, calibrated
from services.ingest.windows.units import Units
from services.store.rows import DeviceRows

__all__ = ["Held", "Sensors"]

Bools = npt.NDArray[np.bool_]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

_NEVER_MS = -(2**62)
_MAX_LAYOUTS = 100_000


class Sensors:
    """The sensors of a site. ``primary``: metric -> device whose value is the zone's, where the zone has it."""

    def __init__(self, vocabulary: Mapping[str, Metric], primary: Mapping[str, str], settings: SiteRules) -> None:
        self._vocabulary, self._primary, self._settings = vocabulary, primary, settings
        self._metrics = _Metrics(vocabulary)
        self._zones: dict[str, int] = {}
        self._index: dict[tuple[str, str, str], int] = {}
        self._ts = np.empty(0, np.int64)
        self._value = np.empty(0)
        self._names = Names()
        self._layouts: dict[tuple[int, int], int] = {}  # by the names' numbers of device and metric set
        self._sensors_of: list[list[int]] = []  # of a layout; -1 for a metric that is not in the vocabulary
        # Layout, place in it, how the value there is calibrated, and of what it is.
        self._curves: list[tuple[int, int, Curve, Metric]] = []
        self._table: _Table | None = None
        self._held: Held | None = None
        self.units = Units()

    def close(self, samples: OpenSamples, names: Names, end_ms: int) -> tuple[tuple[str, ...], F32, F32, DeviceRows]:
        """Zones, their values [Z, C] and ages in seconds [Z, C] at ``end_ms``, and the device rows of a step.

        ``samples`` are those of the step, each id once, by the numbers of ``names``. A sensor without a reading in
        this step counts with its last value for as long as its metric holds. One that sends another unit counts
        for nothing but its device row (:class:`~services.ingest.windows.units.Units`).
        """
        order = samples.order(names.ranks)
        layouts = self._layouts_of(samples.device[order], samples.metric_set[order], names)
        table = self._arranged()
        lengths = self._layout_length[layouts]
        at = ranges(self._layout_start[layouts], lengths)
        sensor = self._layout_sensor[at]
        each = names.lengths(samples.metric_set)
        value = samples.values[ranges((np.cumsum(each) - each)[order], lengths)]
        ts_each = np.repeat(samples.ts_ms[order], lengths)
        for layout, place, curve, metric in self._curves:
            mine = at == self._layout_start[layout] + place
            value[mine] = calibrated(curve, value[mine], ts_each[mine], metric)
        if self._has_unknown:
            known = sensor >= 0
            sensor, value, ts_each = sensor[known], value[known], ts_each[known]
        fresh, mean, devices = self._device_rows(table, sensor, value, ts_each, end_ms)
        self._held = None
        held = self._hold()
        return held.zones, *held.rows(end_ms, fresh, mean), devices

    def close_silent(self, end_ms: int) -> Held:
        """What makes the rows of a step without a sample."""
        self._arranged()
        nothing = np.zeros(len(self._ts))
        self.units.learn(nothing.astype(np.int64), nothing, nothing, end_ms)
        return self._hold()

    def _hold(self) -> Held:
        table, faulty = self._arranged(), self.units.faulty if self.units.faults else None
        if self._held is None or self._held.table is not table or self._held.faulty is not faulty:
            self._held = Held(table, self._ts.copy(), self._value.copy(), faulty, len(self._vocabulary))
        return self._held

    def _device_rows(
        self, table: _Table, sensor: I64, value: F64, ts: I64, end_ms: int
    ) -> tuple[Bools, F64, DeviceRows]:
        """Which sensors have a reading [S], the mean of those [S], and their rows; the readings stand in id order."""
        size = len(self._ts)
        count = np.bincount(sensor, minlength=size)
        fresh = count > 0
        # bincount adds one after another; reduceat would add pairwise, in an order that NumPy may change.
        mean = np.bincount(sensor, value, size) / np.maximum(count, 1)
        low, high = np.full(size, np.inf), np.full(size, -np.inf)
        np.minimum.at(low, sensor, value)
        np.maximum.at(high, sensor, value)
        self.units.learn(count, low, high, end_ms)
        special = table.special[sensor]
        if special.any():
            self._special_means(table, sensor[special], value[special], ts[special], mean)
        newest_ms = np.full(size, _NEVER_MS)
        np.maximum.at(newest_ms, sensor, ts)
        self._ts[fresh] = newest_ms[fresh]
        is_newest = ts == newest_ms[sensor]
        self._value[sensor[is_newest]] = value[is_newest]  # the last of equal indices stays
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

    def _layouts_of(self, device: I32, metric_set: I32, names: Names) -> I64:
        """The layout of each sample [n]: what a device sends at once, in its order; it sends the same each time."""
        if names is not self._names or len(self._sensors_of) > _MAX_LAYOUTS:
            self.forget_layouts()
            self._names = names
        starts = _run_starts(device, metric_set)
        pairs = [*zip(device[starts].tolist(), metric_set[starts].tolist(), strict=True)]
        layouts = np.fromiter(map(self._layouts.get, pairs, repeat(-1)), np.int64, len(pairs))
        if (layouts < 0).any():
            layouts = np.array([self._layout(*pair) for pair in pairs], np.int64)
            self._layout_length = np.array([len(of) for of in self._sensors_of], np.int64)
            self._layout_start = np.cumsum(self._layout_length) - self._layout_length
            self._layout_sensor = np.array([sensor for of in self._sensors_of for sensor in of], np.int64)
            self._has_unknown = bool((self._layout_sensor < 0).any())
        return np.repeat(layouts, _run_lengths(starts, len(device)))

    def forget_layouts(self) -> None:
        """To be called when the site's settings have changed."""
        self._layouts, self._sensors_of, self._curves = {}, [], []

    def rename(self, zone: str, before: tuple[str, str], now: tuple[str, str]) -> None:
        """A device, or one of its metrics, has another name ``now`` (device, metric; empty: all of the device's).

        A meter goes on from what it read itself, whatever it is called: what it gained before counted already. The one
        that had the name takes the other's place, for the day on which the names are changed back.
        """
        if before == now:
            return
        for sensor in [*self._index]:
            metric = self._metrics[sensor[2]]
            if sensor[:2] != (zone, before[0]) or before[1] not in ("", sensor[2]) or metric is None:
                continue
            if metric.kind == "counter":
                self._exchange(sensor, (zone, now[0], now[1] or sensor[2]))

    def _exchange(self, one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
        is_new = other not in self._index
        at, of = self._index[one], self._sensor(*other)
        if of < 0:
            return
        self._arranged()
        for newest in (self._ts, self._value):
            newest[of], newest[at] = newest[at], newest[at if is_new else of]
        self._held = None

    def forget(self, zone: str) -> None:
        """The zone has left: no row has it, nor what its sensors said, until it has a sample again."""
        self._arranged()
        kept = [number for number, (of, _, _) in enumerate(self._index) if of != zone]
        names = list(self._index)
        self._index = {names[number]: place for place, number in enumerate(kept)}
        self._ts, self._value = self._ts[kept], self._value[kept]
        self.units.keep(kept)
        self._zones = {name: number for number, name in enumerate(of for of in self._zones if of != zone)}
        self._table = None
        self._held = None
        self.forget_layouts()

    def _layout(self, device: int, metric_set: int) -> int:
        if (device, metric_set) not in self._layouts:
            zone, name, *_ = self._names.devices[device]
            self._zones.setdefault(zone, len(self._zones))
            layout = self._layouts[device, metric_set] = len(self._sensors_of)
            metrics = self._names.metric_sets[metric_set]
            if self._settings.changes_values:
                named = [self._settings.named(zone, name, metric) for metric in metrics]
                self._sensors_of.append([self._sensor(zone, *sensor) for sensor in named])
                for place, (metric, (_, called)) in enumerate(zip(metrics, named, strict=True)):
                    curve, known = self._settings.curve(zone, name, metric), self._metrics[called]
                    if curve and known is not None:
                        self._curves.append((layout, place, curve, known))
            else:
                self._sensors_of.append([self._sensor(zone, name, metric) for metric in metrics])
        return self._layouts[device, metric_set]

    def _sensor(self, zone: str, device: str, name: str) -> int:
        if self._metrics[name] is None:
            return -1
        return self._index.setdefault((zone, device, name), len(self._index))

    def _arranged(self) -> _Table:
        if self._table is None or self._table.size != (len(self._zones), len(self._index)):
            new = len(self._index) - len(self._ts)
            self._ts = np.concatenate([self._ts, np.full(new, _NEVER_MS, np.int64)])
            self._value = np.concatenate([self._value, np.full(new, np.nan)])
            self._table = _Table(self._vocabulary, self._metrics, self._primary, self._zones, list(self._index))
            self.units.add(list(self._index)[len(self.units) :])
        return self._table

    def state(self) -> dict[str, Any]:
        """Everything that later rows depend on: each zone, each sensor's newest reading, which is held between
        changes and which counters count from, and what is known of its unit.
        """
        self._arranged()
        return {
            "zones": list(self._zones), "names": list(self._index), "ts_ms": self._ts, "values": self._value,
            "units": self.units.state(),
        }  # fmt: skip

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`."""
        self._zones = {zone: number for number, zone in enumerate(state["zones"])}
        self._index = {(zone, device, name): number for number, (zone, device, name) in enumerate(state["names"])}
        self._ts, self._value = state["ts_ms"].copy(), state["values"].copy()
        self.units = Units()
        self.units.load(list(self._index), state["units"])
        self._names, self._table, self._held = Names(), None, None
        self.forget_layouts()


class Held:
    """What a site's sensors said last, from which rows follow until one of them says something else."""

    def __init__(self, table: _Table, ts: I64, value: F64, faulty: Bools | None, channels: int) -> None:
        self.table, self.faulty = table, faulty
        self.zones = tuple(zone for zone in table.zones if zone != SITE_ZONE)
        self._ts, self._value, self._channels = ts, value, channels

    def silent_rows(self, end_ms: int) -> tuple[F32, F32]:
        """:meth:`rows` of a step in which no sensor has a reading."""
        return self.rows(end_ms, np.zeros(len(self._ts), bool), np.full(len(self._ts), np.nan))

    def rows(self, end_ms: int, fresh: Bools, mean: F64) -> tuple[F32, F32]:
        """Values and ages of the zones; of sensors that are ``fresh`` [S] the ``mean`` [S] counts."""
        table, width = self.table, self._channels
        values = np.full(len(table.zones) * width, np.nan, np.float32)
        ages = np.full(len(table.zones) * width, np.nan, np.float32)
        if len(table.chosen):
            chosen, group = table.chosen, table.group
            newest = np.maximum.reduceat(self._ts[chosen], table.group_start)
            ages[table.cell] = (end_ms - newest) / 1000
            known = fresh[chosen] | (end_ms - self._ts[chosen] <= table.hold_ms[chosen])
            if self.faulty is not None:
                known &= ~self.faulty[chosen]
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


class _Table:
    """What follows from which sensors there are; made again only when one is new."""

    def __init__(
        self, vocabulary: Mapping[str, Metric], of_name: Mapping[str, Metric | None], primary: Mapping[str, str],
        zones: Collection[str], names: Sequence[tuple[str, str, str]],
    ) -> None:  # fmt: skip
        self.size = (len(zones), len(names))
        self.zones = sorted(zones)
        self.names = tuple(np.array([name[part] for name in names] + [""], object)[:-1] for part in range(3))
        self.order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
        metrics = [of_name[name] for _, _, name in names]
        self.angle = np.array([m is not None and m.kind == "angle" for m in metrics], bool)
        self.special = np.array([m is not None and m.kind in ("angle", "counter") for m in metrics], bool)
        hold_s = [-1 if m is None or m.hold_s is None else m.hold_s for m in metrics]
        self.hold_ms = np.array(hold_s, np.int64) * 1000
        self._arrange_groups(vocabulary, metrics, primary, names)

    def _arrange_groups(
        self, vocabulary: Mapping[str, Metric], metrics: Sequence[Metric | None], primary: Mapping[str, str],
        names: Sequence[tuple[str, str, str]],
    ) -> None:  # fmt: skip
        """A group is the sensors that make one cell of the zone rows, in the order of their names."""
        channels = {name: number for number, name in enumerate(vocabulary)}
        zone_at = {zone: number for number, zone in enumerate(self.zones)}
        groups: dict[int, list[int]] = {}
        for sensor in self.order.tolist():
            metric = metrics[sensor]
            assert metric is not None
            cell = zone_at[names[sensor][0]] * len(vocabulary) + channels[metric.name]
            groups.setdefault(cell, []).append(sensor)
        wanted = {channels[metric]: device for metric, device in primary.items() if metric in channels}
        chosen: list[int] = []
        starts, numbers, cells = [], [], []
        self.angle_groups: list[tuple[int, list[int]]] = []
        for number, (cell, members) in enumerate(groups.items()):
            device = wanted.get(cell % len(vocabulary))
            of = [s for s in members if names[s][1] == device] or members if device else members
            starts.append(len(chosen))
            numbers += [number] * len(of)
            cells.append(cell)
            chosen += of
            if self.angle[of[0]]:
                self.angle_groups.append((number, of))
        self.chosen, self.group = np.array(chosen, np.int64), np.array(numbers, np.int64)
        self.group_start, self.cell = np.array(starts, np.int64), np.array(cells, np.int64)


class _Metrics(dict[str, Metric | None]):
    """The metric of each name, also of a second sensor's; sensors are thousands, names few."""

    def __init__(self, vocabulary: Mapping[str, Metric]) -> None:
        self._vocabulary = vocabulary

    def __missing__(self, name: str) -> Metric | None:
        metric = self._vocabulary.get(name) or self._vocabulary.get(base_metric(name))
        self[name] = metric
        return metric


def _in_time(ts: I64) -> I64:
    """The order of their times; equal times keep the order of their ids."""
    order: I64 = np.argsort(ts, kind="stable")
    return order


def _medians(group: I64, values: F64) -> tuple[I64, F64]:
    """The groups that have values, and the median of each."""
    order = np.lexsort((values, group))
    group, values = group[order], values[order]
    starts = _run_starts(group)
    counts = _run_lengths(starts, len(group))
    low, high = values[starts + (counts - 1) // 2], values[starts + counts // 2]
    return group[starts], np.where(counts % 2 == 1, low, (low + high) / 2)


def _run_starts(*columns: npt.NDArray[np.integer]) -> I64:
    """Where runs begin of rows that are equal in all columns; ``np.diff`` takes four times as long for few rows."""
    begins = np.zeros(len(columns[0]), bool)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    starts: I64 = np.flatnonzero(begins)
    return starts


def _run_lengths(starts: I64, end: int) -> I64:
    lengths = np.empty_like(starts)
    lengths[:-1] = starts[1:] - starts[:-1]
    lengths[-1:] = end - starts[-1:]
    return lengths


def _join_weather(zones: Sequence[str], values: F32, ages: F32) -> tuple[F32, F32]:
    """Take the site's own row out and give each zone what it never had itself."""
    if SITE_ZONE not in zones:
        return values, ages
    at = zones.index(SITE_ZONE)
    rest = np.arange(len(zones)) != at
    missing = np.isnan(ages[rest])
    return np.where(missing, values[at], values[rest]), np.where(missing, ages[at], ages[rest])


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
