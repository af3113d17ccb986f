"""Samples become rows, one a zone and step, by the rules by which a running system makes them of its stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import DAY_MS
from models.features.directions import mean_direction
from models.features.weather_metrics import is_weather
from models.frames.frame_samples import MetricMeaning, ZoneSamples, plausible

__all__ = ["GAP_MS", "FrameRows"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

GAP_MS = 3 * DAY_MS
"""A site that is silent for longer has no rows until it says something."""

_NEVER_MS = -(2**62)
_SITE = 0


class FrameRows:
    """The rows of a site's zones. Row ``t`` covers the step that ends at ``start_ms + t * step_ms``.

    A value is the mean of what was said in the step (of directions the vector mean, of counters the increase). What is
    sent on change holds for as long as its metric says. Weather is the site's: at each instant that of the first zone
    that has it.
    """

    def __init__(self, metrics: Mapping[str, MetricMeaning], step_ms: int, start_ms: int) -> None:
        self._metrics, self._step_ms, self._start_ms = metrics, step_ms, start_ms
        self._outside = np.array([is_weather(name) for name in metrics])
        self.zones: list[str] = []
        self.begins: list[int] = []
        """The row from which on each zone takes part."""
        self.closed = 0
        """So many rows are closed."""
        self.newest_ms = _NEVER_MS
        """No sample is later."""
        # By series: the site's weather, then the zones.
        self._heard_ms = np.full((1, len(metrics)), _NEVER_MS)
        self._last = np.full((1, len(metrics)), np.nan)
        self._waiting = [_none(len(metrics))]

    def add(self, zones: Mapping[str, ZoneSamples]) -> None:
        """Take samples that are later than all before; a zone of a new name begins with its first."""
        known = {zone: samples for zone, samples in zones.items() if len(samples.times_ms)}
        times_ms = np.unique(np.concatenate([samples.times_ms for samples in known.values()]))
        station = np.full((len(times_ms), len(self._metrics)), np.nan)
        for zone, samples in known.items():
            if zone not in self.zones:
                self.zones.append(zone)
                self.begins.append(int(self._row(samples.times_ms[:1])[0]))
                self._heard_ms = np.pad(self._heard_ms, ((0, 1), (0, 0)), constant_values=_NEVER_MS)
                self._last = np.pad(self._last, ((0, 1), (0, 0)), constant_values=np.nan)
                self._waiting.append(_none(len(self._metrics)))
            values = np.stack(
                [plausible(c, metric) for c, metric in zip(samples.values.T, self._metrics.values(), strict=True)],
                axis=1,
            )
            at = np.searchsorted(times_ms, samples.times_ms)
            station[at] = np.where(np.isnan(station[at]), values, station[at])
            values[:, self._outside] = np.nan
            self._wait(1 + self.zones.index(zone), ZoneSamples(samples.times_ms, values))
        station[:, ~self._outside] = np.nan
        self._wait(_SITE, ZoneSamples(times_ms, station))
        self.newest_ms = max(self.newest_ms, int(times_ms[-1]))

    def close(self) -> tuple[I64, F32, Bool]:
        """The rows that are complete, and were not yet given: when they end ``[T]``, ``[T, Z, C]``, and which of them
        are in a pause, ``[T]``: later than :data:`GAP_MS` after the last value of any zone.

        What is later than the end of the newest of them waits for its own step to end.
        """
        first, self.closed = self.closed, max((self.newest_ms - self._start_ms) // self._step_ms + 1, self.closed)
        ends = self._start_ms + np.arange(first, self.closed, dtype=np.int64) * self._step_ms
        rows = np.full((len(ends), 1 + len(self.zones), len(self._metrics)), np.nan, dtype=np.float32)
        before_ms = np.maximum(self._heard_ms.max(), self._start_ms)
        heard = np.full(len(ends), self._row(before_ms) - first)  # the newest row so far with a value
        if len(ends):
            for series, waiting in enumerate(self._waiting):
                due = int(np.searchsorted(waiting.times_ms, ends[-1], side="right"))
                row = self._row(waiting.times_ms[:due]) - first
                spoken = row[~np.isnan(waiting.values[:due]).all(axis=1)]
                heard[spoken] = spoken
                for c, metric in enumerate(self._metrics.values()):
                    said = ~np.isnan(waiting.values[:due, c])
                    times_ms, values = waiting.times_ms[:due][said], waiting.values[:due, c][said]
                    if len(values) or self._heard_ms[series, c] != _NEVER_MS:
                        rows[:, series, c] = self._cells(series, c, metric, ends, row[said], times_ms, values)
                self._waiting[series] = ZoneSamples(waiting.times_ms[due:], waiting.values[due:])
        zones = rows[:, 1:].copy()
        zones[:, :, self._outside] = rows[:, :1, self._outside]
        zones[first + np.arange(len(ends))[:, None] < self.begins] = np.nan
        in_pause = np.arange(len(ends)) - np.maximum.accumulate(heard) > GAP_MS // self._step_ms
        return ends, zones, in_pause

    def state_dict(self) -> dict[str, Any]:
        """Everything that later rows depend on; arrays, and the names of zones."""
        series = [np.full(len(waiting.times_ms), number) for number, waiting in enumerate(self._waiting)]
        return {
            "zones": list(self.zones), "begins": np.array(self.begins, np.int64),
            "at": np.array([self.closed, self.newest_ms], np.int64),
            "heard_ms": self._heard_ms.copy(), "last": self._last.copy(), "series": np.concatenate(series),
            "times_ms": np.concatenate([waiting.times_ms for waiting in self._waiting]),
            "values": np.concatenate([waiting.values for waiting in self._waiting]),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave."""
        self.zones, self.begins = list(state["zones"]), state["begins"].tolist()
        self.closed, self.newest_ms = state["at"].tolist()
        self._heard_ms, self._last = state["heard_ms"].copy(), state["last"].copy()
        of = [state["series"] == series for series in range(1 + len(self.zones))]
        self._waiting = [ZoneSamples(state["times_ms"][mine], state["values"][mine]) for mine in of]

    def _row(self, times_ms: I64) -> I64:
        """The row that each time falls into: a row holds its end, not its beginning."""
        return -((self._start_ms - times_ms) // self._step_ms)

    def _wait(self, series: int, more: ZoneSamples) -> None:
        waiting = self._waiting[series]
        self._waiting[series] = ZoneSamples(
            np.concatenate([waiting.times_ms, more.times_ms]), np.concatenate([waiting.values, more.values])
        )

    def _cells(
        self, series: int, c: int, metric: MetricMeaning, ends: I64, row: I64, times_ms: I64, values: F64
    ) -> F64:
        """A channel's values ``[T]``, from all its samples in these rows; remembers the last."""
        heard_ms, last = self._heard_ms[series, c], self._last[series, c]
        size = len(ends)
        count = np.bincount(row, minlength=size)
        if metric.kind == "angle":
            mean = mean_direction(row, values, size)
        elif metric.kind == "counter":
            before = np.concatenate([values[:1] if heard_ms == _NEVER_MS else [last], values[:-1]])[: len(values)]
            gained: F64 = np.where(values >= before, values - before, values)
            mean = np.asarray(np.bincount(row, gained, size), np.float64)
        else:
            mean = np.bincount(row, values, size) / np.maximum(count, 1)
        known = count > 0
        if metric.hold_s is None:
            cells = np.where(known, mean, np.nan)
        else:
            newest = np.searchsorted(times_ms, ends, side="right")
            since_ms = np.concatenate([[heard_ms], times_ms])[newest]
            held = np.concatenate([[last], values])[newest]
            cells = np.where(known, mean, np.where(ends - since_ms <= metric.hold_s * 1000, held, np.nan))
        if len(values):
            self._heard_ms[series, c], self._last[series, c] = times_ms[-1], values[-1]
        return np.asarray(cells)


def _none(channels: int) -> ZoneSamples:
    return ZoneSamples(np.empty(0, np.int64), np.empty((0, channels)))
