"""Step 5 of the way of a reading: the settings of a site's rows; only events of the log change them.

A change holds for every row that closes after its event: rows that were closed stay as they are, the samples of rows
that are still open count under the new settings. Another step begins at the first instant from the newest closed row
on at which rows of both steps end; samples of open rows behind it are sorted into rows of the new step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.wire.events import Alias, Calibration, RowChange, SettingsChange
from edge.wire.vocabulary import Metric
from models.durations import MINUTE_MS
from services.ingest.windows.grid import Grid
from services.store.rows import SCHEMA_VERSION

__all__ = ["Curve", "SiteRules", "calibrated"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

Curve = list[tuple[int, float, float]]
"""(from_ms, scale, offset), rising: how a sensor is calibrated from each time on."""

_Name = tuple[str, str, str]  # zone, device, metric as sent; the metric is empty for the device itself


class SiteRules:
    """Starts with the step, lateness and idle time given; :meth:`change` takes a site's changes in log order.

    An idle time of 0 follows the step (:func:`silence_ms`).
    """

    def __init__(self, step_ms: int, lateness_ms: int, idle_ms: int) -> None:
        self.version = SCHEMA_VERSION
        self.lateness_ms, self.own_idle_ms = lateness_ms, idle_ms
        self.grid = Grid(step_ms)
        self._curves: dict[_Name, Curve] = {}
        self._aliases: dict[_Name, str] = {}

    @property
    def idle_ms(self) -> int:
        """A site is silent after this long without new event time."""
        return self.own_idle_ms or silence_ms(self.grid.newest_step_ms)

    def change(self, change: RowChange, zone: str, device: str, closed_ms: int | None) -> bool:
        """Take a change published for a device, rows being closed up to ``closed_ms``. False where it is not newer."""
        if change.version <= self.version:
            return False
        self.version = change.version
        if isinstance(change, SettingsChange):
            self._set(change, closed_ms)
        elif isinstance(change, Calibration):
            curve = self._curves.setdefault((zone, device, change.metric), [])
            curve[:] = [part for part in curve if part[0] < change.from_ms]
            curve.append((change.from_ms, change.scale, change.offset))
        elif isinstance(change, Alias):
            own = change.metric or device
            if change.to == own:
                self._aliases.pop((zone, device, change.metric), None)
            else:
                self._aliases[zone, device, change.metric] = change.to
        return True

    def _set(self, change: SettingsChange, closed_ms: int | None) -> None:
        if change.lateness_s is not None:
            self.lateness_ms = change.lateness_s * 1000
        if change.idle_s is not None:
            self.own_idle_ms = change.idle_s * 1000
        if change.step_s is None or change.step_s * 1000 == self.grid.newest_step_ms:
            return
        if closed_ms is None:
            self.grid = Grid(change.step_s * 1000)
        else:
            self.grid.change(change.step_s * 1000, closed_ms)

    @property
    def changes_values(self) -> bool:
        """Whether any device or metric has another name or is calibrated."""
        return bool(self._aliases or self._curves)

    def named(self, zone: str, device: str, metric: str) -> tuple[str, str]:
        """What a device and its metric are called; an empty metric is none."""
        called = self._aliases.get((zone, device, metric), metric) if metric else ""
        return self._aliases.get((zone, device, ""), device), called

    def curve(self, zone: str, device: str, metric: str) -> Curve:
        """How the metric is calibrated, by its name as sent; empty if it is not."""
        return self._curves.get((zone, device, metric), [])

    def state(self) -> dict[str, Any]:
        """For a snapshot."""
        return {
            "version": self.version, "lateness_ms": self.lateness_ms, "idle_ms": self.own_idle_ms,
            "grid": self.grid.state(), "curves": list(self._curves.items()), "aliases": list(self._aliases.items()),
        }  # fmt: skip

    def load(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        self.version, self.lateness_ms, self.own_idle_ms = state["version"], state["lateness_ms"], state["idle_ms"]
        self.grid.load(state["grid"])
        self._curves = {(z, d, m): [(since, a, b) for since, a, b in curve] for (z, d, m), curve in state["curves"]}
        self._aliases = {(z, d, m): to for (z, d, m), to in state["aliases"]}


def silence_ms(step_ms: int) -> int:
    """The idle time of a site that has none of its own: with a lateness of 30 s its rows close within a step, where
    that is a minute or more.

    >>> silence_ms(60_000), silence_ms(300_000)
    (18000, 60000)
    """
    return max(min(MINUTE_MS, 3 * step_ms // 10), 1000)


def calibrated(curve: Curve, values: F64, ts_ms: I64, metric: Metric) -> F64:
    """The values [n] that a sensor of ``metric`` measured at ``ts_ms`` [n], as its curve corrects them: what is beyond
    the metric's range then is at its end.

    >>> humidity = Metric("rh_pct", "relative humidity", "%", 0, 100)
    >>> calibrated([(10, 1.0, 4.0)], np.array([98.0, 70.0, 98.0]), np.array([9, 10, 10]), humidity)
    array([ 98.,  74., 100.])
    """
    part = np.searchsorted(np.array([since for since, _, _ in curve]), ts_ms, side="right") - 1
    scale, offset = (np.array([curve_part[n] for curve_part in curve])[part] for n in (1, 2))
    with np.errstate(over="ignore"):  # a scale may be any number
        corrected = values * scale + offset
    if metric.kind == "angle":
        return np.where(part >= 0, corrected % 360.0, values)
    return np.where(part >= 0, np.clip(corrected, metric.low, metric.high), values)
