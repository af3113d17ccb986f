"""What is known of a zone when somebody asks what a change would do: its last day, its plan, and its forecast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from models.durations import DAY_MS, MINUTE_MS
from models.effects.plan_change import GRID_MIN, STEP_MIN
from models.features.plans import BIN_MS, BINS_BACK, PLANNED
from models.spec import Place

__all__ = ["EFFECT_TARGETS", "SEEN", "Situation", "clock_moved_min", "half_hours"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

SEEN = (
    "air_temp_c", "rh_pct", "co2_ppm", "vent_lee_pct", "vent_wind_pct", "heat_pipe_low_c", "lamp_pct",
    "screen_energy_pct", "screen_black_pct", "co2_dosing_pct", "sp_heat_c", "sp_vent_c", "sp_rh_pct", "sp_co2_ppm",
    "sp_pipe_min_c", "sp_lamp_pct", "sp_screen_energy_pct", "sp_screen_black_pct", "out_temp_c", "out_rh_pct",
    "out_radiation_w_m2", "wind_m_s",
)  # fmt: skip
"""The metrics of rows that are looked at."""

EFFECT_TARGETS = ("air_temp_c", "rh_pct", "co2_ppm", "vpd_kpa")
"""What effects are known on; the path of the first three is looked at."""

PATH_TARGETS = EFFECT_TARGETS[:3]
HALF_HOURS = 48


@dataclass(frozen=True, slots=True)
class Situation:
    """``N`` zones at their origins; ``G`` are the times of ``GRID_MIN``, NaN is unknown.

    The last day is there as means of the half-hours before the origin, the oldest first.
    """

    day: F32  # [N, 48, SEEN]
    now: F32  # [N, SEEN] the newest row
    foreseen: F32  # [N, bins, PLANNED] as of ``Plans.ahead``
    into_bin_ms: I64  # [N] how far each origin lies in its half-hour, as ``Plans`` count them
    path: F32  # [N, G, PATH_TARGETS] medians of the forecast
    sun: F32  # [N, G] sine of the sun's elevation
    clock_min: I64  # [N, G] as of :func:`clock_moved_min`

    def __len__(self) -> int:
        return len(self.day)

    def take(self, at: I64) -> Situation:
        """The zones at these places."""
        return Situation(*(getattr(self, field.name)[at] for field in fields(self)))

    @staticmethod
    def concatenate(parts: Sequence[Situation]) -> Situation:
        """All zones, in order."""
        return Situation(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Situation)))

    def yesterday(self, metric: str, minutes: I64) -> F32:
        """What was measured a day before times ``minutes [T]`` after the origin: ``[N, T]``."""
        place = np.clip(-(-minutes // 30) - 1, 0, HALF_HOURS - 1)
        return np.asarray(self.day[:, place, SEEN.index(metric)])

    def ahead(self, metric: str, minutes: I64) -> F32:
        """What is foreseen for times ``minutes [T]`` after the origin: ``[N, T]``."""
        place = BINS_BACK + (self.into_bin_ms[:, None] + minutes * MINUTE_MS) // BIN_MS
        place = np.minimum(place, self.foreseen.shape[1] - 1)
        return np.take_along_axis(self.foreseen[:, :, PLANNED.index(metric)], place, axis=1)

    def _set_yesterday(self, metric: str, minutes: I64) -> F32:
        """What a setpoint was a day before by the clock that it follows; where that lies outside of the last day, what
        it was at the nearer end of it.
        """
        minutes = minutes + self.clock_min[:, minutes // STEP_MIN - 1]
        place = np.clip(-(-minutes // 30) - 1, 0, HALF_HOURS - 1)
        return np.asarray(np.take_along_axis(self.day[:, :, SEEN.index(metric)], place, axis=1))

    def usual(self, metric: str, minutes: I64) -> F32:
        """What is to be expected at times ``minutes [T]``, of ``GRID_MIN``, without a change: what is foreseen, else
        what was a day before, else what is now: ``[N, T]``. Setpoints follow the clock, all else the sun.
        """
        before = (self._set_yesterday if metric.startswith("sp_") else self.yesterday)(metric, minutes)
        now = self.now[:, SEEN.index(metric)][:, None]
        before = np.where(np.isfinite(before), before, now)
        if metric not in PLANNED:
            return np.asarray(before, np.float32)
        ahead = self.ahead(metric, minutes)
        return np.asarray(np.where(np.isfinite(ahead), ahead, before), np.float32)


def clock_moved_min(place: Place, origin_ms: int) -> I64:
    """By how many minutes a place's clock was put forward in the day before each time of ``GRID_MIN``: ``[G]``. An hour
    that it left out a day before counts as the one before.

    >>> noon_ms = 1648378800000  # 2022-03-27 11:00 UTC, hours after the clock was put forward
    >>> moved = clock_moved_min(Place("Europe/Amsterdam"), noon_ms)
    >>> sorted(set(moved.tolist())), GRID_MIN[moved == 60].max() // 60
    ([0, 60], np.int64(13))
    """
    return np.array([_moved_ms(place, int(at)) // MINUTE_MS for at in origin_ms + GRID_MIN * MINUTE_MS], np.int64)


def _moved_ms(place: Place, end_ms: int) -> int:
    at, before = end_ms - 1, end_ms - 1 - DAY_MS  # a time stands for the minutes before it
    moved = place.local_ms(at) - place.local_ms(before) - DAY_MS
    return moved if place.local_ms(before + moved) + DAY_MS == place.local_ms(at) else 0


def half_hours(rows: F32, channels: Sequence[str]) -> tuple[F32, F32]:
    """``day [N, 48, SEEN]`` and ``now [N, SEEN]`` of rows ``[N, L, C]`` of whole 24 hours, the newest last."""
    n, length, _ = rows.shape
    place: Mapping[str, int] = {name: at for at, name in enumerate(channels)}
    wanted = np.full((n, length, len(SEEN)), np.nan, np.float32)
    for k, name in enumerate(SEEN):
        if name in place:
            wanted[..., k] = rows[..., place[name]]
    # A half-hour has the rows that lie in it, also in part: rows may be longer, or not divide it.
    first = np.arange(HALF_HOURS) * length // HALF_HOURS
    stop = -(-np.arange(1, HALF_HOURS + 1) * length // HALF_HOURS)
    at = first[:, None] + np.arange((stop - first).max())
    of_bin = (at < stop[:, None])[..., None]
    by_bin = np.ascontiguousarray(np.where(of_bin, wanted[:, np.minimum(at, length - 1)], np.float32(np.nan)))
    count = np.isfinite(by_bin).sum(axis=2)
    total = np.nansum(by_bin, axis=2, dtype=np.float32)
    day = np.where(count > 0, total / np.maximum(count, 1), np.float32(np.nan))
    return day.astype(np.float32), np.where(np.isfinite(wanted[:, -1]), wanted[:, -1], day[:, -1]).astype(np.float32)


assert GRID_MIN[-1] == 30 * HALF_HOURS
