"""Which changes a zone has seen itself: half-hours in which a setpoint or the weather was not that of the day before.

Setpoints follow the hour of day, and so does the climate. So the effect of a setpoint shows only where it differs from
its value at the same hour of the day before. The day after a change of the clock is left out: its hours do not match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import DAY_MS
from models.effects.plan_change import CHANGEABLE
from models.spec import Place
from models.zone_arrays import ZoneArrays, ZoneState

__all__ = ["SEEN_CHANGES", "SeenChanges", "same_clock", "seen_columns"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]


SEEN_CHANGES = tuple(name for name in CHANGEABLE if name != "vent_lee_pct")
"""The metrics that are compared. Vents are not: they follow the climate, so open vents are no sign of a plan."""

SIZES = (0.15, 0.5, 1.0, 2.0)
"""Lower bounds of the size classes of changes, in units of each metric's usual change."""


class SeenChanges(ZoneState):
    """Counts for many zones how often each metric was changed, by sign and size."""

    def __init__(self, capacity: int = 16) -> None:
        kinds, sizes = len(SEEN_CHANGES), 2 * len(SIZES)
        self._zones = ZoneArrays(capacity, times=((kinds, sizes), np.uint16, 0), level=((kinds,), np.int8, 0))

    def __len__(self) -> int:
        return len(self._zones)

    def learn(self, zones: I64, today: F32, yesterday: F32) -> None:
        """Take the same half-hour of two days: rows ``[Z, n, SEEN_CHANGES]``; call it once for each half-hour that has
        the :func:`same_clock`.

        A change counts once, when it begins or becomes larger, however long it lasts.
        """
        scales = np.array([CHANGEABLE[name].scale for name in SEEN_CHANGES], np.float32)
        off = (_mean(today) - _mean(yesterday)) / scales
        size = np.searchsorted(np.array(SIZES), np.abs(np.nan_to_num(off)), side="right")
        level = (np.sign(np.nan_to_num(off)) * size).astype(np.int8)
        before = self._zones["level"][zones]
        larger = (size > 0) & ((np.sign(level) != np.sign(before)) | (np.abs(level) > np.abs(before)))
        z, k = np.nonzero(larger)
        place = size[z, k] - 1 + np.where(level[z, k] > 0, len(SIZES), 0)
        times = self._zones["times"]
        times[zones[z], k, place] = np.minimum(times[zones[z], k, place] + np.uint16(1), np.uint16(60_000))
        self._zones["level"][zones] = np.where(np.isfinite(off), level, before)

    def of_zone(self, zone: int) -> Callable[[str, float], int]:
        """How often the zone has seen a metric moved by as much: that way, and by at least half of it."""
        counts = self._zones["times"][zone].copy()

        def times(metric: str, moved: float) -> int:
            if metric not in SEEN_CHANGES or not np.isfinite(moved) or moved == 0:
                return 0
            half = abs(moved) / CHANGEABLE[metric].scale / 2
            least = int(np.searchsorted(np.array(SIZES[:-1]), half, side="left"))
            first = len(SIZES) if moved > 0 else 0
            return int(counts[SEEN_CHANGES.index(metric), first + least : first + len(SIZES)].sum())

        return times

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit. An empty state is that of
        zones that have seen nothing yet.
        """
        if state:
            self._zones.load_state_dict(state)


def seen_columns(rows: F32, channels: Sequence[str]) -> F32:
    """The columns of :data:`SEEN_CHANGES` of rows ``[..., C]``; NaN where there is none."""
    found = np.full((*rows.shape[:-1], len(SEEN_CHANGES)), np.nan, np.float32)
    for k, name in enumerate(SEEN_CHANGES):
        if name in channels:
            found[..., k] = rows[..., channels.index(name)]
    return found


def same_clock(place: Place, begin_ms: int, end_ms: int) -> bool:
    """Whether the clock that a place's control follows showed the same a day before, from ``begin_ms`` to ``end_ms``.

    >>> amsterdam = Place("Europe/Amsterdam")
    >>> noon, half = 1648382400000, 1_800_000  # 2022-03-27T12:00Z, hours after the clock was put forward
    >>> [same_clock(amsterdam, noon + days * DAY_MS - half, noon + days * DAY_MS) for days in (-1, 0, 1)]
    [True, False, True]
    """
    return all(place.local_ms(at) - place.local_ms(at - DAY_MS) == DAY_MS for at in (begin_ms, end_ms))


def _mean(rows: F32) -> F32:
    there = np.isfinite(rows)
    count = there.sum(axis=1)
    total = np.where(there, rows, 0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)
