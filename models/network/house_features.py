"""Step 7 of the way of a reading: what a network that knows no zone yet looks at, in units that hold in every house.

:class:`HouseFeatures` turns the arrays of :class:`~models.features.inputs.Inputs` into two groups of numbers: those of
the origin, and those of each horizon. Everything is a difference (from now, from an hour or a day ago, from the
setpoint) in fixed units, so that no scale has to be learned at a site; horizons and channels are found by what they
are, so that one network fits every schema. Missing is NaN here, too. It takes NumPy only: who only asks a network needs
no torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from models.durations import MINUTE_MS
from models.features.inputs import RECENT_MS, input_channels, window_tokens
from models.features.plans import PLANNED
from models.spec import ForecastSpec

__all__ = ["CONTROLS", "HORIZONS_MIN", "TARGETS", "USUAL_ERRORS", "HouseFeatures", "hats", "usual_errors"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

TARGETS = {"air_temp_c": 1.0, "rh_pct": 5.0, "co2_ppm": 80.0, "vpd_kpa": 0.15}
"""Targets that it knows, and their units."""

TYPICAL = (20.0, 75.0, 550.0, 0.6)
"""Where a zone's climate usually is: levels enter as a fifth of a unit off this."""

CONTROLS = {
    "lamp_pct": 100.0, "heat_pipe_low_c": 30.0, "vent_lee_pct": 50.0, "vent_wind_pct": 50.0, "screen_energy_pct": 100.0,
    "screen_black_pct": 100.0, "co2_dosing_pct": 100.0, "par_umol_m2_s": 200.0, "sp_heat_c": 3.0, "sp_vent_c": 3.0,
    "sp_rh_pct": 10.0, "sp_co2_ppm": 200.0, "out_temp_c": 5.0, "out_rh_pct": 15.0, "out_radiation_w_m2": 300.0,
    "wind_m_s": 3.0,
}  # fmt: skip
"""What moves a greenhouse's climate, and the units."""

OFF = {
    "sp_heat_c": 0, "sp_vent_c": 0, "out_temp_c": 0, "heat_pipe_low_c": 0, "sp_rh_pct": 1, "out_rh_pct": 1,
    "sp_co2_ppm": 2,
}  # fmt: skip
"""Of these the difference from a target counts."""

FOLLOWED = (
    "sp_heat_c", "sp_vent_c", "sp_co2_ppm", "lamp_pct", "out_radiation_w_m2", "out_temp_c", "vent_lee_pct",
    "heat_pipe_low_c",
)  # fmt: skip
"""Of these yesterday's course is followed to each horizon."""

PLAN_UNITS = (5.0, 300.0, 3.0, 15.0, 3.0, 3.0, 200.0, 2.0, 10.0, 15.0, 100.0, 100.0, 100.0)
"""Of PLANNED, in its order."""

LAGS_MIN = (5, 15, 30, 60, 120, 180, 360, 720)

HORIZONS_MIN = (5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
"""What is learned of a horizon lies between what is learned of these, on a line over the logarithm."""

USUAL_ERRORS = (
    (0.15, 0.11, 0.039, 0.13), (0.24, 0.17, 0.056, 0.22), (0.31, 0.23, 0.071, 0.29), (0.47, 0.36, 0.11, 0.44),
    (0.70, 0.56, 0.17, 0.66), (1.11, 0.84, 0.25, 1.01), (1.44, 1.05, 0.31, 1.30), (2.05, 1.39, 0.38, 1.78),
    (2.18, 1.47, 0.40, 1.86), (1.61, 1.20, 0.29, 1.46),
)  # fmt: skip
"""Mean absolute errors of the online layer in the first eight days of 290 simulated zones: [HORIZONS_MIN, TARGETS], in
TARGETS' units. They are units only: nothing is calibrated by them."""

CLIP = 8.0
"""Everything is cut here: a broken sensor must not carry a forecast away."""

_DAY_MIN = 1440


class HouseFeatures:
    """Calling it gives ``origin [N, width]`` and ``ahead [N, H, ahead_width]``. It has nothing to learn.

    ``channels`` names the last axis of a window, by default all that :func:`input_channels` has. ``groups`` name, of
    each number, the source that it comes from: what fails together is silenced together.
    """

    def __init__(self, spec: ForecastSpec, channels: Sequence[str] | None = None) -> None:
        names = list(input_channels(spec) if channels is None else channels)
        self._columns = [names.index(name) if name in names else -1 for name in (*TARGETS, *CONTROLS)]
        self._known = [spec.targets.index(name) if name in spec.targets else -1 for name in TARGETS]
        self._follows = [list(CONTROLS).index(name) for name in FOLLOWED]
        minutes = np.array(spec.horizons_min, dtype=np.float64)
        ages = _ages_min(spec)
        hours = self._hours = len(ages) - _recent(spec)
        newest, last_hour, last_day = (np.zeros(len(ages), np.float32) for _ in range(3))
        newest[-1], last_hour[hours - 1], last_day[:hours] = 1, 1, 1 / max(hours, 1)
        back = minutes - _DAY_MIN * np.ceil(minutes / _DAY_MIN)  # the same time of the last day
        self._lags = np.stack([*(_between(ages, lag) for lag in LAGS_MIN), last_hour, last_day])
        self._newest, self._day_ago = newest[None], _between(ages, float(_DAY_MIN))[None]
        self._then = np.stack([_between(ages, float(-age)) for age in back])
        self._way = np.stack([_covered(ages, hours, float(length)) for length in minutes])
        self.position = hats(minutes)
        """What is learned of ``HORIZONS_MIN`` weighs in a horizon, ``[H, G]``."""
        self.error = usual_errors(spec)
        """Usual errors, ``[H, 4]``."""
        self._log = (np.log(minutes) / 3).astype(np.float32)[:, None]
        self._gap = np.diff(minutes, prepend=0).astype(np.float32)
        self._minutes = minutes.astype(np.float32)
        units = (TARGETS.values(), TYPICAL, CONTROLS.values(), PLAN_UNITS * 3)
        self._unit, self._typical, self._control_unit, self._plan_unit = (
            np.array([*unit], np.float32) for unit in units
        )
        origin, ahead = self._sources()
        self.width, self.ahead_width = len(origin), len(ahead)
        self.sources = tuple(sorted({*origin, *ahead}))
        self.groups = np.array([self.sources.index(name) for name in origin])
        self.ahead_groups = np.array([self.sources.index(name) for name in ahead])

    def __call__(
        self, window: F32, now: F32, calendar: F32, sun: F32, yesterday: F32, future: F32, baseline: F32
    ) -> tuple[F32, F32]:
        """The arrays of :class:`~models.features.inputs.Inputs`."""
        climate, control = self._channels(window)
        base = self._targets(baseline, 2)  # [N, H, 4, Q]
        now = self._anchor(self._targets(now, 1), climate, base)
        lags = _weighed(self._lags, climate)
        newest, control_lags = _weighed(self._newest, control), _weighed(self._lags[-2:], control)
        off = np.zeros_like(newest[:, 0])
        for name, target in OFF.items():
            off[:, list(CONTROLS).index(name)] = now[:, target]
        seen = np.isfinite(climate[:, : self._hours]).any(axis=-1).mean(axis=1, keepdims=True, dtype=np.float32)
        n = len(now)
        origin = np.concatenate([
            ((now[:, None] - lags) / self._unit).reshape(n, -1),
            (now - self._typical) / self._unit / 5,
            (newest[:, 0] - off) / self._control_unit,
            ((newest - control_lags) / self._control_unit).reshape(n, -1),
            np.log(seen * 24 + np.float32(0.1)) / 3, seen >= 0.99,
            sun[:, 0], calendar[:, 0, :2],
        ], axis=-1, dtype=np.float32)  # fmt: skip
        then, day_ago = _weighed(self._then, climate), _weighed(self._day_ago, climate)
        followed = control[..., self._follows]
        here, unit = newest[..., self._follows], self._control_unit[self._follows]
        steps = (sun[:, 1:, 1] + sun[:, :-1, 1]) / 2 * self._gap
        light = (steps.cumsum(axis=1) / self._minutes - sun[:, :1, 1], sun[:, 1:, 1] - sun[:, :1, 1])
        below, median, above = np.moveaxis(base, -1, 0)
        plans = np.full((*median.shape[:2], 3 * len(PLANNED)), np.nan, np.float32)
        if future.shape[-1]:
            plans = future / self._plan_unit
        ahead = np.concatenate([
            (then - now[:, None]) / self._unit, (then - day_ago) / self._unit,
            (self._targets(yesterday, 2) - now[:, None]) / self._unit,
            (_weighed(self._then, followed) - here) / unit, (_weighed(self._way, followed) - here) / unit,
            sun[:, 1:], np.stack(light, axis=-1), calendar[:, 1:], np.broadcast_to(self._log, (n, *self._log.shape)),
            (median - now[:, None]) / self._unit, _log_width(median - below, self.error),
            _log_width(above - median, self.error), plans,
        ], axis=-1, dtype=np.float32)  # fmt: skip
        return np.clip(origin, -CLIP, CLIP), np.clip(ahead, -CLIP, CLIP)

    def targets_known(self) -> list[tuple[int, int]]:
        """Pairs of a target's place in the schema and in ``TARGETS``."""
        return [(place, known) for known, place in enumerate(self._known) if place >= 0]

    def _channels(self, window: F32) -> tuple[F32, F32]:
        picked = window[..., self._columns]
        picked[..., [column < 0 for column in self._columns]] = np.nan
        return picked[..., : len(TARGETS)], picked[..., len(TARGETS) :]

    def _targets(self, x: F32, axis: int) -> F32:
        """The columns of ``TARGETS`` of an array by the schema's."""
        picked = np.take(x, [max(place, 0) for place in self._known], axis=axis)
        missing = np.array([place < 0 for place in self._known])
        return np.where(missing.reshape(-1, *(1,) * (x.ndim - axis - 1)), np.float32(np.nan), picked)

    def _anchor(self, now: F32, climate: F32, base: F32) -> F32:
        """The newest row's targets; where it lacks one, the last hour's mean, and else what is forecast next."""
        hour = _weighed(self._lags[-2:-1], climate)[:, 0]
        now = np.where(np.isfinite(now), now, hour)
        return np.where(np.isfinite(now), now, base[:, 0, :, 1])

    def _sources(self) -> tuple[list[str], list[str]]:
        """The source of each number, in the order of a call's answer."""
        climate, controls, followed = list(TARGETS), list(CONTROLS), list(FOLLOWED)
        origin = climate * (len(LAGS_MIN) + 2) + climate + controls * 3 + ["always"] * 2 + ["sun"] * 2 + ["always"] * 2
        forecast = ["always", "always", "co2_ppm", "vpd forecast"]  # a schema may have no such target
        ahead = climate * 2 + forecast + followed * 2 + ["sun"] * 4 + ["always"] * 5 + forecast * 3
        return _renamed(origin), _renamed(ahead) + ["plans"] * 3 * len(PLANNED)


def usual_errors(spec: ForecastSpec) -> F32:
    """``USUAL_ERRORS`` at a schema's horizons, ``[H, 4]``, in the targets' own units."""
    table = np.array(USUAL_ERRORS, np.float32) * np.array([*TARGETS.values()], np.float32)
    return hats(np.array(spec.horizons_min, dtype=np.float64)) @ table


def hats(minutes: F64) -> F32:
    """Weights ``[H, G]`` of ``HORIZONS_MIN`` that give what lies between two of them on the logarithm's line."""
    grid = np.log(HORIZONS_MIN)
    at = np.clip(np.log(minutes), grid[0], grid[-1])
    before = np.clip(np.searchsorted(grid, at, side="right") - 1, 0, len(grid) - 2)
    share = (at - grid[before]) / (grid[before + 1] - grid[before])
    weights, one = np.zeros((len(minutes), len(grid))), np.arange(len(minutes))
    weights[one, before] += 1 - share
    weights[one, before + 1] += share
    return weights.astype(np.float32)


def _renamed(sources: list[str]) -> list[str]:
    """Air temperature and humidity never fail alone: without them there is no forecast."""
    return ["always" if name in ("air_temp_c", "rh_pct", "vpd_kpa") else name for name in sources]


def _recent(spec: ForecastSpec) -> int:
    return min(max(RECENT_MS // spec.step_ms, 1), spec.lookback_steps)


def _ages_min(spec: ForecastSpec) -> F64:
    """How long before the origin each token's middle is: hours, oldest first, then rows, oldest first."""
    recent = _recent(spec)
    hours = window_tokens(spec) - recent
    of_hours = (np.arange(hours, 0, -1) - 0.5) * 60
    return np.concatenate([of_hours, np.arange(recent - 1, -1, -1) * spec.step_ms / MINUTE_MS])


def _between(ages: F64, age: float) -> F32:
    """Weights of tokens, by straight lines between the two nearest: rows in the last hour, hours before."""
    rows = ages < 60
    rises = np.flatnonzero(np.diff(ages) > 0)
    rows[: int(rises[0]) + 1 if len(rises) else 0] = False
    if age > float(ages[rows].max()) and (~rows).any():
        rows = ~rows
    known = ages[rows]
    age = min(max(age, float(known.min())), float(known.max()))
    older = int(np.flatnonzero(known >= age)[-1])
    newer = min(older + 1, len(known) - 1)
    gap = float(known[older] - known[newer])
    part = 0.0 if gap == 0 else (float(known[older]) - age) / gap
    weights, share = np.zeros(len(ages)), np.zeros(len(known))
    share[older] += 1 - part
    share[newer] += part
    weights[rows] = share
    return weights.astype(np.float32)


def _covered(ages: F64, hours: int, minutes: float) -> F32:
    """Weights of the hours from a day ago to ``minutes`` later; of several days, all."""
    old, young = ages[:hours] + 30, ages[:hours] - 30
    until = max(_DAY_MIN - min(minutes, _DAY_MIN), 0)
    share = np.clip((np.minimum(old, _DAY_MIN) - np.maximum(young, until)) / 60, 0, 1)
    weights = np.zeros(len(ages))
    weights[:hours] = share / share.sum() if share.sum() > 0 else share
    return weights.astype(np.float32)


def _weighed(weights: F32, x: F32) -> F32:
    """Weighed means over tokens, ``[P, T] x [N, T, C] -> [N, P, C]``; NaN where less than half is known."""
    known = np.isfinite(x)
    total = np.matmul(weights, np.where(known, x, np.float32(0)))
    share = np.matmul(weights, known.astype(np.float32))
    return np.where(share >= np.float32(0.5 - 1e-4), total / np.maximum(share, np.float32(1e-3)), np.float32(np.nan))


def _log_width(width: F32, error: F32) -> F32:
    return np.log(np.maximum(width, np.float32(0)) / error + np.float32(math.exp(-4.6)))
