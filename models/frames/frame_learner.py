"""What was learned from frames: rows, faulty sensors, the online forecaster and its trees, driven row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import DAY_MS
from models.features.inputs import day_bins, local_ms, sun_sine, targets_of
from models.features.sensor_faults import SensorFaults
from models.frames.frame_options import FrameOptions
from models.frames.frame_rows import FrameRows
from models.frames.frame_samples import ZoneSamples
from models.online.basis import Basis
from models.online.online_forecaster import OnlineForecaster
from models.pretraining.shipped_arrays import pretrained
from models.spec import ForecastSpec
from models.trees.forest import GROW_DAYS
from models.trees.tree_grower import TreeGrower

__all__ = ["SILENT_MS", "FrameLearner"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

SILENT_MS = DAY_MS
"""A target that was not measured for longer is not forecast."""

_NEVER_MS = -(2**62)


class FrameLearner:
    """Learns from samples, in event time; the same parts in the same order as a backtest and a running system.

    Rows count from ``start_ms``, which no sample is before.
    """

    def __init__(self, spec: ForecastSpec, options: FrameOptions, start_ms: int) -> None:
        self.spec, self.start_ms = spec, start_ms
        self.rows = FrameRows(options.metrics, spec.step_ms, start_ms)
        self.origin_ms = _NEVER_MS
        """The end of the newest row that was learned from."""
        self._place = options.place
        # Steps count on the site's clock: what is done once in some hours is then done at the same hours everywhere.
        self._first_step = int(local_ms(self._place, np.array([start_ms]))[0]) // spec.step_ms
        self._forecaster = OnlineForecaster(spec, pretrained=pretrained())
        self._sensors = SensorFaults(spec.channels, spec.step_ms)
        self._grower = TreeGrower(spec)
        self._measured_ms = np.empty((0, len(spec.targets)), np.int64)
        self._newest: Basis | None = None

    def take(self, samples: Mapping[str, ZoneSamples], progress: Callable[[int, int], None]) -> None:
        """Learn from the rows that these samples complete; ``progress(done, total)`` is called after each."""
        rows, spec = self.rows, self.spec
        rows.add(samples)
        new = len(rows.zones) - len(self._forecaster)
        if new:
            self._forecaster.add_zones(new)
            self._sensors.add_zones(new)
            self._measured_ms = np.pad(self._measured_ms, ((0, new), (0, 0)), constant_values=_NEVER_MS)
        first = rows.closed
        ends, values, in_pause = rows.close()
        if not len(ends):
            return
        ahead = np.array((0, *spec.horizon_steps), dtype=np.int64)
        sun = sun_sine(self._place, ends[0] + np.arange(len(ends) + ahead[-1], dtype=np.int64) * spec.step_ms)
        day_bin = day_bins(self._place, ends, spec)
        begins = np.array(rows.begins)
        for t in range(len(ends)):
            if not in_pause[t]:
                zones = np.flatnonzero(begins <= first + t)
                light = np.broadcast_to(sun[t + ahead], (len(zones), len(ahead)))
                self.origin_ms = int(ends[t])
                self._learn(zones, first + t, values[t, zones], int(day_bin[t]), light)
            progress(t + 1, len(ends))

    def quantiles(self) -> tuple[list[str], F32]:
        """The zones ``[Z]`` that are in the newest row, and their forecasts from it, ``[Z, H, M, Q]``; NaN for what was
        not measured for a day.
        """
        assert self._newest is not None, "the first sample closes a row"
        zones = self._newest.zones
        silent = self.origin_ms - self._measured_ms[zones] > SILENT_MS
        quantiles = self._forecaster.predict(self._newest)
        quantiles = np.where(silent[:, None, :, None], np.float32(np.nan), quantiles)
        return [self.rows.zones[zone] for zone in zones.tolist()], quantiles

    def state_dict(self) -> dict[str, Any]:
        """Everything that later forecasts depend on, as nested maps of arrays, and ``rows`` with lists of names."""
        newest = self._newest
        assert newest is not None, "the first sample closes a row"
        return {
            "rows": self.rows.state_dict(), "forecaster": self._forecaster.state_dict(),
            "sensors": self._sensors.state_dict(), "grower": self._grower.state_dict(),
            "newest": {"zones": newest.zones, "day_bin": newest.day_bin, "experts": newest.experts},
            "measured_ms": self._measured_ms, "at": np.array([newest.step, self.origin_ms], np.int64),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` or ``KeyError`` if it does not fit."""
        self.rows.load_state_dict(state["rows"])
        self._forecaster.load_state_dict(state["forecaster"])
        self._sensors.load_state_dict(state["sensors"])
        self._grower.load_state_dict(state["grower"])
        step, self.origin_ms = state["at"].tolist()
        self._newest = Basis(step, **state["newest"])
        self._measured_ms = state["measured_ms"]

    def _learn(self, zones: I64, row: int, values: F32, day_bin: int, light: F32) -> None:
        spec, step = self.spec, self._first_step + row
        clean, _ = self._sensors.learn(zones, step, values, day_bin * 24 // spec.steps_per_day)
        learned = self._forecaster.learn(zones, step, clean, np.full(len(zones), day_bin), light)
        self._newest = Basis(step, learned.zones, learned.day_bin, learned.experts)
        # What was read, also as faulty; what is made of two readings may be made of those of two rows.
        measured = np.isfinite(targets_of(values, spec)) | np.isfinite(learned.targets)
        self._measured_ms[zones] = np.where(measured, self.origin_ms, self._measured_ms[zones])
        self._grower.add(learned.example)
        if (row + 1) % (GROW_DAYS * spec.steps_per_day) == 0:
            self._forecaster.forest = self._grower.grow(self._forecaster.unit) or self._forecaster.forest
