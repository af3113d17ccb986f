"""A recording's files become tables, one a device; the weather station's is of the whole site."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.recordings.columns import Mapping, convert, find_column
from edge.recordings.findings import Finding, of_guess, of_values
from edge.recordings.sample_source import WEATHER, device_of
from edge.recordings.zone_file import ZoneFile
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import base_metric
from models.durations import DAY_MS

__all__ = ["DeviceTable", "device_tables"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """All that one device said: ``values`` is [N, K] with NaN where it said nothing, ``times_ms`` is [N], rising."""

    zone: str
    device: str
    metrics: tuple[str, ...]
    times_ms: I64
    values: F64


def device_tables(files: Sequence[ZoneFile], said: Mapping) -> tuple[list[DeviceTable], list[Finding]]:
    """The devices' tables of all zones, and what was found in them; a weather column is taken from the first zone that
    has it at an instant.
    """
    extremes: dict[str, Callable[[I64], tuple[F64, F64]]] = {}  # of columns whose coding these tell
    times_ms = np.unique(np.concatenate([file.times_ms for file in files]))
    weather: dict[str, F64] = {}
    tables = []
    found: list[Finding] = []
    for file in files:
        devices: dict[str, dict[str, F64]] = {}
        for name, raw in file.columns.items():
            column = find_column(name, said)
            assert column is not None
            if column.coding == "dosing" and name not in extremes:
                extremes[name] = _extremes(files, name)
            least, most = extremes[name](file.times_ms) if name in extremes else (raw, raw)
            if name in extremes and name.lower() not in said.columns:
                found += of_guess(file.label, name, column, least, most)
            values, said_of_it = of_values(
                file.label, name, column, raw, convert(column, raw, least, most),
                file.times_ms < file.times_ms[0] + DAY_MS,
            )  # fmt: skip
            found += said_of_it
            device = column.device or device_of(column.metric)
            if device == WEATHER:
                metric = column.metric
                known = weather.setdefault(metric, np.full(times_ms.size, np.nan))
                at = np.searchsorted(times_ms, file.times_ms)
                known[at] = np.where(np.isnan(known[at]), values, known[at])
            else:
                metrics = devices.setdefault(device, {})
                metrics[_free_name(column.metric, metrics)] = values
        tables += [_table(file.zone, device, file.times_ms, metrics) for device, metrics in devices.items()]
    station = [_table(SITE_ZONE, WEATHER, times_ms, weather)] if weather else []
    return [table for table in station + tables if table.times_ms.size], found


def _extremes(files: Sequence[ZoneFile], name: str) -> Callable[[I64], tuple[F64, F64]]:
    """For any times: the least and the most of a column, in all zones, up to each; times of the first day use the whole
    of that day.
    """
    having = [file for file in files if name in file.columns]
    times_ms = np.concatenate([file.times_ms for file in having])
    order = np.argsort(times_ms, kind="stable")
    times_ms, values = times_ms[order], np.concatenate([file.columns[name] for file in having])[order]
    values[~np.isfinite(values)] = np.nan
    least, most = np.fmin.accumulate(values), np.fmax.accumulate(values)

    def until(when_ms: I64) -> tuple[F64, F64]:
        at = np.searchsorted(times_ms, np.maximum(when_ms, times_ms[0] + DAY_MS), side="right") - 1
        return least[at], most[at]

    return until


def _free_name(metric: str, taken: dict[str, Any]) -> str:
    """The metric, or ``metric.2``, ``metric.3`` … where the device has one already."""
    name, number = metric, 1
    while name in taken:
        number += 1
        name = f"{base_metric(metric)}.{number}"
    return name


def _table(zone: str, device: str, times_ms: I64, metrics: dict[str, F64]) -> DeviceTable:
    values = np.stack(list(metrics.values()), axis=1)
    said = np.isfinite(values).any(axis=1)
    return DeviceTable(zone, device, tuple(metrics), times_ms[said], values[said])
