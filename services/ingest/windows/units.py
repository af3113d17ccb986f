"""Step 5 of the way of a reading: sensors that send another unit than their metric's, found by their first hour.

A share passes as a humidity of under 2 %, and °F pass as °C where they are below 60: both are plausible values, and
the zone's median would be between them and those of the other sensors. Only metrics are checked that cannot be there
in a greenhouse for an hour; vents, lamps and screens are at 0 … 1.5 % by right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.wire.vocabulary import (
    FAHRENHEIT_ABOVE,
    SHARE_LEAST,
    SHARE_MOST,
    SHARES,
    TEMPERATURES,
    VOCABULARY,
    base_metric,
)
from models.durations import HOUR_MS
from services.store.rows import UnitFault

__all__ = ["Units"]

Bools = npt.NDArray[np.bool_]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


CELSIUS_BELOW = 35.0
"""A sensor that seemed to send °F and reads less than this sends °C: 35 °F is frost."""

_UNCHECKED, _FIRST_HOUR, _FINE, _FAULTY = range(4)


class Units:
    """The state of a site's sensors, by their numbers ``0 … S - 1``; :meth:`add` makes room for more."""

    def __init__(self) -> None:
        self.faulty: Bools = np.zeros(0, bool)  # [S]; their values are not the zone's
        self._names: list[tuple[str, str, str]] = []
        self._state = np.zeros(0, np.int8)
        self._share, self._held = np.zeros(0, bool), np.zeros(0, bool)
        self._begin_ms, self._since_ms = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._count = np.zeros(0, np.int64)
        self._low, self._high = np.zeros(0), np.zeros(0)
        self._open: I64 = np.zeros(0, np.int64)  # in their first hour, or faulty
        self._faults: tuple[UnitFault, ...] = ()
        self._ended: tuple[UnitFault, ...] = ()

    def __len__(self) -> int:
        return len(self._names)

    def add(self, names: Sequence[tuple[str, str, str]]) -> None:
        """More sensors: zone, device, metric."""
        metrics = [metric for _, _, metric in names]
        known = {metric: number for number, metric in enumerate(set(metrics))}  # few
        kinds = np.array([_kind(base_metric(metric)) for metric in known], bool).reshape(-1, 3)
        share, warm, held = kinds[[known[metric] for metric in metrics]].T
        checked = share | warm
        more = len(names)
        self._names += names
        self._share, self._held = np.append(self._share, share), np.append(self._held, held)
        self._state = np.append(self._state, np.where(checked, _FIRST_HOUR, _UNCHECKED).astype(np.int8))
        self._begin_ms, self._since_ms = (
            np.append(a, np.zeros(more, np.int64)) for a in (self._begin_ms, self._since_ms)
        )
        self._count = np.append(self._count, np.zeros(more, np.int64))
        self._low, self._high = (
            np.append(self._low, np.full(more, np.inf)),
            np.append(self._high, np.full(more, -np.inf)),
        )
        self._arrange()

    def keep(self, sensors: Sequence[int]) -> None:
        """Forget all sensors but these, which are ``0 … S - 1`` from now on."""
        kept = list(sensors)
        self._names = [self._names[sensor] for sensor in kept]
        self._state, self._count = self._state[kept], self._count[kept]
        self._share, self._held = self._share[kept], self._held[kept]
        self._begin_ms, self._since_ms = self._begin_ms[kept], self._since_ms[kept]
        self._low, self._high = self._low[kept], self._high[kept]
        self._arrange()

    def learn(self, count: I64, low: F64, high: F64, end_ms: int) -> None:
        """Take the number of each sensor's readings in a row, the least and the most of them, all ``[S]``; rows come
        in the order of their ends, also those without readings.
        """
        self._ended = ()
        if not len(self._open):
            return
        at = self._open
        state, share, spoke = self._state[at], self._share[at], count[at] > 0
        first = spoke & (state == _FIRST_HOUR) & (self._count[at] == 0)
        self._begin_ms[at[first]] = end_ms
        young = state == _FIRST_HOUR
        self._count[at] += np.where(young, count[at], 0)
        # Of what is found to be faulty they stay: a fault says the same, whether a restart came between or not.
        self._low[at] = np.where(young & spoke, np.minimum(self._low[at], low[at]), self._low[at])
        self._high[at] = np.where(young & spoke, np.maximum(self._high[at], high[at]), self._high[at])
        # What a share, or a temperature in °F, cannot be settles it at once: nearly all sensors in their first row.
        fits = np.where(
            share, (self._low[at] >= 0) & (self._high[at] <= SHARE_MOST), self._low[at] > FAHRENHEIT_ABOVE
        )  # fmt: skip
        over = (end_ms - self._begin_ms[at] >= HOUR_MS) & (self._count[at] >= np.where(self._held[at], 1, 2))
        found = young & over & fits & (~share | (self._high[at] >= SHARE_LEAST))
        fine = young & (self._count[at] > 0) & ~found & (~fits | over)
        ended = (state == _FAULTY) & spoke & np.where(share, low[at] > SHARE_MOST, high[at] < CELSIUS_BELOW)
        if not (found | fine | ended).any():
            return
        self._ended = tuple(self._fault(n, low[n], high[n], end_ms) for n in at[ended].tolist())
        self._state[at[found]], self._state[at[fine]], self._state[at[ended]] = _FAULTY, _FINE, _FINE
        self._since_ms[at[found]] = end_ms
        self._arrange()

    @property
    def faults(self) -> tuple[UnitFault, ...]:
        """The sensors that send another unit, as it looked in their first hour; in the order of their names."""
        return self._faults

    @property
    def ended(self) -> tuple[UnitFault, ...]:
        """The sensors that no longer do, since the newest row; with their values in it."""
        return self._ended

    def state(self) -> dict[str, Any]:
        """Everything that later rows depend on."""
        return {
            "state": self._state, "begin_ms": self._begin_ms, "since_ms": self._since_ms, "count": self._count,
            "low": self._low, "high": self._high,
        }  # fmt: skip

    def load(self, names: Sequence[tuple[str, str, str]], state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state` of these sensors; on one that is new."""
        self.add(names)
        self._state, self._count = state["state"].copy(), state["count"].copy()
        self._begin_ms, self._since_ms = state["begin_ms"].copy(), state["since_ms"].copy()
        self._low, self._high = state["low"].copy(), state["high"].copy()
        self._arrange()

    def _arrange(self) -> None:
        self.faulty = self._state == _FAULTY
        self._open = np.flatnonzero((self._state == _FIRST_HOUR) | self.faulty)
        found = (
            self._fault(n, self._low[n], self._high[n], int(self._since_ms[n]))
            for n in np.flatnonzero(self.faulty).tolist()
        )
        self._faults = tuple(sorted(found))

    def _fault(self, sensor: int, low: float, high: float, since_ms: int) -> UnitFault:
        return UnitFault(*self._names[sensor], bool(self._share[sensor]), float(low), float(high), since_ms)


def _kind(metric: str) -> tuple[bool, bool, bool]:
    """Whether the metric may come as a share, may come in °F, and holds between changes."""
    return metric in SHARES, metric in TEMPERATURES, metric in VOCABULARY and VOCABULARY[metric].hold_s is not None
