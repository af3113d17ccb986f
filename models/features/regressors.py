"""Step 7 of the way of a reading: rows become regressors of the climatology's residual.

:class:`Features` turns a row into regressors without a look-back: hour-of-day profiles of each channel, and how far the
zone is off them now, an hour and three hours ago.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.day_knots import DayKnots, on_line
from models.durations import HOUR_MS
from models.features.eight_bits import CLIP
from models.features.inputs import BRIDGE_MS, VPD_OF, targets_of
from models.half_precision import cut
from models.masked import masked_mean
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays, ZoneState, part_of

__all__ = ["Features", "feature_channels"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

CHANNELS = (
    "vent_lee_pct", "vent_wind_pct", "lamp_pct", "screen_energy_pct", "screen_black_pct", "heat_pipe_low_c",
    "par_umol_m2_s", "co2_dosing_pct", "fog_pct", "out_temp_c", "out_rh_pct", "out_radiation_w_m2", "wind_m_s",
    "out_longwave_net_w_m2", "sp_heat_c", "sp_vent_c", "sp_co2_ppm",
)  # fmt: skip
"""Inputs that move a greenhouse's climate, besides the climate itself; those that a schema lacks are left out."""

CLIMATE = ("air_temp_c", "rh_pct", "co2_ppm")

PROFILE_DAYS = 3.0
"""How long a channel's hour-of-day profile remembers."""

SCALE_DAYS = 14.0
"""How long the size of a channel's deviations is remembered; all zones together."""

HOLD_MS = HOUR_MS
"""A channel that stops counts as unchanged for this long, then as unknown."""

LAGS_MS = (HOUR_MS, 3 * HOUR_MS)

SHORT_MS = (300_000, 900_000, 1_800_000)

ERROR_MS = 3 * HOUR_MS
"""The climatology's latest errors enter as they are and as a mean that remembers this long."""


def feature_channels(spec: ForecastSpec) -> tuple[str, ...]:
    """The channels of a row that become regressors, besides the targets."""
    return tuple(name for name in (*CLIMATE, *CHANNELS) if name in spec.channels and name not in spec.targets)


class Features(ZoneState):
    """Regressors of zones' newest rows: ``common [Z, D]`` and, for each horizon, ``ahead [Z, H, E]``.

    :meth:`learn` once a step and zone, with the row that closed; what it returns belongs to that row. Missing values
    become 0, which says "as usual".
    """

    def __init__(self, spec: ForecastSpec, capacity: int = 16) -> None:
        self._spec = spec
        self._columns = [spec.channels.index(name) for name in feature_channels(spec)]
        self._targets = len(spec.targets)
        names = (*spec.targets, *feature_channels(spec))
        self._vpd_of = [names.index(name) for name in VPD_OF if name in spec.channels]
        self._lags = [max(round(lag / spec.step_ms), 1) for lag in LAGS_MS]
        self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        self._day = spec.steps_per_day
        self._short = np.array([max(round(ms / spec.step_ms), 1) for ms in SHORT_MS], dtype=np.int64)
        self._knots = DayKnots(spec)
        newest, knots = max(int(self._short.max()), self._knots.stride - 1) + 1, self._knots.count
        width = self._targets + len(self._columns)
        self._zones = ZoneArrays(
            capacity,
            step=((), np.int64, -1),
            held=((width,), np.float32, np.nan),
            held_step=((width,), np.int64, -1),
            profile=((knots, width), np.float16, np.nan),
            deviation=((self._lags[-1] + 1, width), np.float16, np.nan),
            row=((newest, width), np.float16, np.nan),
            row_known=((newest, width), np.bool_, False),  # and not held from one before
            row_step=((newest,), np.int32, -1),
            past=((knots + 1, width), np.float16, np.nan),  # rows at knots
            past_step=((knots + 1,), np.int32, -1),
            error=((len(self._steps), self._targets), np.float32, 0.0),
        )
        self._scale = np.full(width, np.nan, dtype=np.float64)
        self._seen = np.zeros(width, dtype=np.int64)

    @property
    def width(self) -> tuple[int, int]:
        """``(D, E)``."""
        m = self._targets
        return 1 + 2 * (m + len(self._columns)) + 3 * m + 5, 5 * m + 3

    def missed(self, indices: I64, step: int) -> I64:
        """How many steps before this one each zone had no row for, ``[Z]``; 0 for a new zone."""
        newest = self._zones["step"][indices]
        return np.where(newest >= 0, np.maximum(step - newest - 1, 0), 0)

    def taking_part(self, step: int) -> npt.NDArray[np.bool_]:
        """Which of all zones had a row within a day, ``[zones]``: sites may send late."""
        return np.asarray(self._zones["step"][: len(self._zones)] >= max(step - self._day, 0))

    def held(self, indices: I64, step: int, most: int | None = None) -> F32:
        """The targets of earlier rows that still count as unchanged at ``step``, ``[Z, M]``; NaN where none does. Of
        rows that are ``most`` steps old, or else an hour.
        """
        return self._held(indices, step, most)[:, : self._targets]

    def targets(self, indices: I64, step: int, values: F32) -> F32:
        """The targets of rows that are to be learned, ``[Z, M]``; see :func:`targets_of`."""
        held = None
        if len(self._vpd_of) == len(VPD_OF):
            held = self._held(indices, step, BRIDGE_MS // self._spec.step_ms)[:, self._vpd_of]
        return targets_of(values, self._spec, held)

    def learn(
        self, indices: I64, step: int, values: F32, day_bin: I64, sun: F32, base: F32, profiles: F32, error: F32,
        unit: F64,
    ) -> tuple[F32, F32, F32, F32]:  # fmt: skip
        """Take the rows of one step and return their regressors, and the details that only trees can use.

        Details are in the channels' units, NaN where unknown: ``[Z, 4 C]`` levels and how they changed within three
        short times, ``[Z, H, C]`` how they changed a day ago from this time of day to that of each horizon.

        ``values [Z, C]``; ``sun [Z, 1 + H]`` the sine of the sun's elevation now and at each horizon, NaN where
        unknown; ``base`` and ``error [Z, H, M]`` the climatology's forecast and its newest errors that have matured,
        ``profiles [Z, 2, H, M]`` its fastest and slowest profile, ``unit [H, M]`` its usual error.
        """
        row, known = self._take(indices, step, values)
        deviation, lagged = self._deviate(indices, step, row, known, day_bin)
        scale = np.where(self._scale > 1e-6, self._scale, 1.0).astype(np.float32)
        now, hour, three = (_cut(off / scale) for off in (deviation, *lagged))
        light = np.nan_to_num(np.maximum(sun, 0)).astype(np.float32)
        common = self._common(now, hour, three, day_bin, light)
        back = step + self._steps - self._day * (-(-self._steps // self._day))
        yesterday = self._past(indices, back)
        m = self._targets
        shapes = [_cut((usual - base) / scale[:m]) for usual in (*profiles.swapaxes(0, 1), yesterday[..., :m])]
        errors = self._errors(indices, _cut(error / unit))
        ahead = np.concatenate([*errors, *shapes, light[:, 1:, None], *self._sunlit(now, light)], axis=-1)
        changed = row[:, None] - self._rows(indices, step - self._short)
        a_day_ago = self._past(indices, np.array([step - self._day]))
        planned = np.where((back == step)[:, None], row[:, None], yesterday) - a_day_ago
        self._keep(indices, step, row)
        return common, ahead, np.concatenate([row, changed.reshape(len(indices), -1)], axis=1), planned

    def state_dict(self, copy: bool = True) -> dict[str, _Array]:
        """Everything that was learned (see :meth:`ZoneArrays.state_dict`)."""
        return {**self._zones.state_dict(copy), "scale": self._scale.copy(), "seen": self._seen.copy()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        self._zones.load_state_dict({k: v for k, v in state.items() if k not in ("scale", "seen")})
        self._scale, self._seen = state["scale"].copy(), state["seen"].copy()

    @property
    def detail_width(self) -> tuple[int, int]:
        """How many details there are, of the row and of each horizon."""
        width = self._targets + len(self._columns)
        return (1 + len(SHORT_MS)) * width, width

    def _take(self, indices: I64, step: int, values: F32) -> tuple[F32, npt.NDArray[np.bool_]]:
        """Targets and channels ``[Z, C]``, held from an earlier row for a while; and which of them are this row's."""
        s = self._zones
        row = cut(np.concatenate([self.targets(indices, step, values), values[:, self._columns]], axis=1))
        known = np.isfinite(row)
        row = np.where(known, row, self._held(indices, step))
        s["held"][indices] = row
        s["held_step"][indices] = np.where(known, step, s["held_step"][indices])
        place = step % s["row"].shape[1]
        s["row"][indices, place], s["row_known"][indices, place], s["row_step"][indices, place] = row, known, step
        return row, known

    def _held(self, indices: I64, step: int, most: int | None = None) -> F32:
        """All of a row that still counts, ``[Z, C]``."""
        s = self._zones
        fresh = step - s["held_step"][indices] <= (HOLD_MS // self._spec.step_ms if most is None else most)
        return np.where(fresh, s["held"][indices], np.float32(np.nan))

    def _keep(self, indices: I64, step: int, row: F32) -> None:
        """End the step; rows at knots are kept for a day."""
        s = self._zones
        if step % self._knots.stride == 0:
            place = step // self._knots.stride % s["past"].shape[1]
            s["past"][indices, place], s["past_step"][indices, place] = row, step
        s["step"][indices] = step

    def _common(self, now: F32, hour: F32, three: F32, day_bin: I64, light: F32) -> F32:
        """``[Z, D]``, from how far channels are off their profiles now, an hour and three hours ago."""
        m, ones = self._targets, np.ones((len(now), 1), dtype=np.float32)
        angle = (day_bin * (2 * np.pi / self._day)).astype(np.float32)
        first = np.stack([np.sin(angle), np.cos(angle)], axis=-1)
        second = np.stack([np.sin(2 * angle), np.cos(2 * angle)], axis=-1)
        by_clock = (now[:, :m] * first[:, :1], now[:, :m] * first[:, 1:])
        return np.concatenate(
            [ones, now, _cut(now - hour), three[:, :m], *by_clock, first, second, light[:, :1]], axis=1
        )  # fmt: skip

    def _errors(self, indices: I64, latest: F32) -> tuple[F32, F32]:
        """The climatology's ``latest`` errors ``[Z, H, M]``, and their mean of some hours."""
        gain = np.float32(1 - np.exp(-self._spec.step_ms / ERROR_MS))
        held = self._zones["error"]
        held[indices] += gain * (latest - held[indices])
        return latest, held[indices]

    def _sunlit(self, now: F32, light: F32) -> list[F32]:
        """How unusual radiation and temperature outside are, where the sun shines at a horizon: ``[Z, H, 1]`` each."""
        places = (self._index("out_radiation_w_m2"), self._index("out_temp_c"))
        nothing = np.zeros((len(now), len(self._steps)), np.float32)
        return [(nothing if i is None else now[:, [i]] * light[:, 1:])[..., None] for i in places]

    def _rows(self, indices: I64, steps: I64) -> F32:
        """The newest rows, those at ``steps [P]``, ``[Z, P, C]``; NaN where there was none."""
        return _held(self._zones["row"], self._zones["row_step"], indices, steps, steps)

    def _past(self, indices: I64, steps: I64) -> F32:
        """The rows at ``steps [P]``, at most a day back, ``[Z, P, C]``: between two knots what lies on the line, or the
        one that is known; NaN where there was none.
        """
        s, stride = self._zones, self._knots.stride
        before, rest = np.divmod(steps, stride)
        low = _held(s["past"], s["past_step"], indices, before, before * stride)
        if not rest.any():
            return low
        high = _held(s["past"], s["past_step"], indices, before + 1, (before + 1) * stride)
        return on_line(low, high, np.broadcast_to(rest / stride, low.shape[:2]))

    def _index(self, name: str) -> int | None:
        names = feature_channels(self._spec)
        return self._targets + names.index(name) if name in names else None

    def _deviate(
        self, indices: I64, step: int, row: F32, known: npt.NDArray[np.bool_], day_bin: I64
    ) -> tuple[F32, list[F32]]:
        """How far each channel is off its profile, now and at the lags; the profile then learns."""
        s = self._zones
        usual = self._knots.at(s["profile"], indices, day_bin)
        deviation = cut(row - usual)
        ring = s["deviation"]
        size = ring.shape[1]
        # Slots of steps that were left out (a gap, a restart) hold what is long over.
        missed = np.minimum(step - s["step"][indices], size)
        for back in range(1, size):
            stale = missed > back
            if not stale.any():
                break
            ring[indices[stale], (step - back) % size] = np.nan
        ring[indices, step % size] = deviation
        self._learn_profile(indices, step, day_bin)
        seen = known & np.isfinite(deviation)
        count = seen.sum(axis=0)
        mean = masked_mean(np.where(seen, np.abs(deviation), np.nan), axis=0, dtype=np.float64)
        self._seen += count
        part = part_of(len(indices), self.taking_part(step))
        slowest = part * count / (len(indices) * SCALE_DAYS * self._day)
        share = np.maximum(count / np.maximum(self._seen, 1), slowest)
        held = np.where(np.isnan(self._scale), mean, self._scale)
        self._scale = np.where(count > 0, held + share * (mean - held), self._scale)
        return deviation, [ring[indices, (step - lag) % size].astype(np.float32) for lag in self._lags]

    def _learn_profile(self, indices: I64, step: int, day_bin: I64) -> None:
        """Move the knot around which the newest rows lie by the mean of what was measured in them."""
        s, stride = self._zones, self._knots.stride
        knot, rest = np.divmod((day_bin - stride // 2) % self._day, stride)
        zones, at = indices[rest == 0], knot[rest == 0]
        if not len(zones):
            return
        steps = step - np.arange(stride)
        measured = s["row_known"][zones[:, None], steps % s["row"].shape[1]]
        mean = masked_mean(np.where(measured, self._rows(zones, steps), np.float32(np.nan)), axis=1)
        held = s["profile"][zones, at].astype(np.float32)
        gain = np.float32(1 - np.exp(-1 / PROFILE_DAYS))
        moved = np.where(np.isnan(held), mean, held + gain * (mean - held))
        s["profile"][zones, at] = np.where(np.isnan(mean), held, moved)


def _held(ring: _Array, ring_step: _Array, zones: I64, places: I64, steps: I64) -> F32:
    """What lies at ``places [P]`` of rings and was kept at ``steps [P]``, ``[Z, P, C]``; NaN where another was."""
    at = places % ring.shape[1]
    there = ring_step[zones[:, None], at] == steps
    return np.where(there[..., None], ring[zones[:, None], at], np.float16(np.nan)).astype(np.float32)


def _cut(scaled: _Array) -> F32:
    cut = np.clip(scaled, -CLIP, CLIP).astype(np.float32, copy=False)
    return np.where(np.isnan(cut), np.float32(0), cut)
