"""Step 7 of the way of a reading: fast learners on what the climatology leaves over, fed by matured forecasts.

:class:`Features` turns a row into regressors without a look-back: hour-of-day profiles of each channel, and how far the
zone is off them now, an hour and three hours ago. :class:`PooledRidge` and :class:`ZoneRidge` are recursive ridge
regressions with forgetting in information form; absolute error is their loss, by reweighting every example with the
error that the learner would have made (iteratively reweighted least squares, one pass; Holland and Welsch 1977).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.features import targets_of
from models.growing import Growing
from models.spec import ForecastSpec

__all__ = ["Features", "PooledRidge", "ZoneRidge", "feature_channels", "prior_strength"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

CHANNELS = (
    "vent_lee_pct", "vent_wind_pct", "lamp_pct", "screen_energy_pct", "screen_black_pct", "heat_pipe_low_c",
    "par_umol_m2_s", "co2_dosing_pct", "fog_pct", "out_temp_c", "out_rh_pct", "out_radiation_w_m2", "wind_m_s",
    "out_longwave_net_w_m2", "sp_heat_c", "sp_vent_c", "sp_co2_ppm",
)  # fmt: skip
"""What moves a greenhouse's climate, besides its climate; those that a schema does not have are left out."""

CLIMATE = ("air_temp_c", "rh_pct", "co2_ppm")

PROFILE_DAYS = 3.0
"""How long a channel's hour-of-day profile remembers."""

SCALE_DAYS = 14.0
"""How long the size of a channel's deviations is remembered; all zones together."""

HOLD_MS = 3_600_000
"""A channel that stops counts as unchanged for this long, then as unknown."""

LAGS_MS = (3_600_000, 3 * 3_600_000)

SHORT_MS = (300_000, 900_000, 1_800_000)

ERROR_MS = 3 * 3_600_000
"""The climatology's latest errors enter as they are and as a mean that remembers this long."""

CLIP = 5.0
"""Scaled regressors are cut here: a broken sensor must not carry a forecast away."""

LEAST = 0.2
"""Errors smaller than this share of the climatology's usual error count as this large when examples are weighed."""

RIDGE = 150.0
"""The prior: as strong as this many examples of the usual error, that say zero ..."""

RIDGE_MS = 6 * 3_600_000
"""... and again as many for each of these that a horizon is long: neighbouring examples of a long one share most of
what lies between origin and truth, and the first days would be taken for more than they are."""


def feature_channels(spec: ForecastSpec) -> tuple[str, ...]:
    """The channels of a row that become regressors, besides the targets."""
    return tuple(name for name in (*CLIMATE, *CHANNELS) if name in spec.channels and name not in spec.targets)


def prior_strength(spec: ForecastSpec) -> F64:
    """The ridges' prior for each horizon, in examples: ``[H]``.

    >>> prior_strength(ForecastSpec(channels=(), horizons_min=(30, 360, 1440))).tolist()
    [162.5, 300.0, 750.0]
    """
    return RIDGE * (1 + np.array(spec.horizon_steps) * spec.step_ms / RIDGE_MS)


class Features:
    """Regressors of zones' newest rows: ``common [Z, D]`` and, for each horizon, ``ahead [Z, H, E]``.

    :meth:`learn` once a step and zone, with the row that closed; what it returns belongs to that row. Missing values
    become 0, which says "as usual".
    """

    def __init__(self, spec: ForecastSpec, capacity: int = 16) -> None:
        self._spec = spec
        self._columns = [spec.channels.index(name) for name in feature_channels(spec)]
        self._targets = len(spec.targets)
        self._lags = [max(round(lag / spec.step_ms), 1) for lag in LAGS_MS]
        self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        self._day = spec.steps_per_day
        width = self._targets + len(self._columns)
        self._zones = Growing(
            capacity,
            step=((), np.int64, -1),
            held=((width,), np.float32, np.nan),
            held_step=((width,), np.int64, -1),
            profile=((self._day, width), np.float32, np.nan),
            deviation=((self._lags[-1] + 1, width), np.float32, np.nan),
            past=((self._day, width), np.float32, np.nan),
            past_step=((self._day,), np.int64, -1),
            error=((len(self._steps), self._targets), np.float32, 0.0),
        )
        self._scale = np.full(width, np.nan, dtype=np.float64)
        self._seen = np.zeros(width, dtype=np.int64)

    @property
    def width(self) -> tuple[int, int]:
        """``(D, E)``."""
        m = self._targets
        return 1 + 2 * (m + len(self._columns)) + 3 * m + 5, 5 * m + 3

    @property
    def zone_columns(self) -> tuple[list[int], list[int]]:
        """Those few of ``common`` and ``ahead`` that a single zone has enough examples for."""
        m, (_, ahead) = self._targets, self.width
        calendar = self.width[0] - 5
        return [0, *range(1, 1 + m), *range(calendar, calendar + 4)], list(range(ahead - 3))

    def add_zone(self) -> None:
        """Make room for one more zone."""
        self._zones.add()

    def learn(
        self, indices: I64, step: int, values: F32, day_bin: I64, sun: F32, base: F32, profiles: F32, error: F32,
        unit: F64,
    ) -> tuple[F32, F32, F32, F32]:  # fmt: skip
        """Take the rows of one step and return their regressors, and the details that only trees can use.

        Details are in the channels' units, NaN where unknown: ``[Z, 4 C]`` levels and how they changed within three
        short times, ``[Z, H, C]`` how they changed a day ago from this time of day to that of each horizon.

        ``values [Z, C]``; ``sun [Z, 1 + H]`` the sine of the sun's elevation now and at each horizon, NaN where
        unknown; ``base`` and ``error [Z, H, M]`` the climatology's forecast and its errors that matured in this row,
        ``profiles [Z, 2, H, M]`` its fastest and slowest profile, ``unit [H, M]`` its usual error.
        """
        s, n = self._zones, len(indices)
        targets = targets_of(values, self._spec)
        row = np.concatenate([targets, values[:, self._columns]], axis=1)
        known = np.isfinite(row)
        fresh = step - s["held_step"][indices] <= HOLD_MS // self._spec.step_ms
        row = np.where(known, row, np.where(fresh, s["held"][indices], np.float32(np.nan)))
        s["held"][indices] = row
        s["held_step"][indices] = np.where(known, step, s["held_step"][indices])
        deviation, lagged = self._deviate(indices, step, row, known, day_bin)
        m = self._targets
        scale = np.where(self._scale > 1e-6, self._scale, 1.0).astype(np.float32)
        now = _cut(deviation / scale)
        hour, three = (_cut(lag / scale) for lag in lagged)
        angle = (day_bin * (2 * np.pi / self._day)).astype(np.float32)
        first = np.stack([np.sin(angle), np.cos(angle)], axis=-1)
        second = np.stack([np.sin(2 * angle), np.cos(2 * angle)], axis=-1)
        light = np.nan_to_num(np.maximum(sun, 0)).astype(np.float32)
        common = np.concatenate(
            [
                np.ones((n, 1), dtype=np.float32), now, now - hour, three[:, :m],
                now[:, :m] * first[:, :1], now[:, :m] * first[:, 1:], first, second, light[:, :1],
            ],
            axis=1,
        )  # fmt: skip
        back = step + self._steps - self._day * (-(-self._steps // self._day))
        yesterday = self._past(indices, back)
        latest = _cut(error / unit)
        gain = np.float32(1 - np.exp(-self._spec.step_ms / ERROR_MS))
        s["error"][indices] += gain * (latest - s["error"][indices])
        spread = scale[:m]
        outward = [self._index("out_radiation_w_m2"), self._index("out_temp_c")]
        turn = [
            now[:, [i]] * light[:, 1:] if i is not None else np.zeros((n, len(self._steps)), np.float32)
            for i in outward
        ]
        ahead = np.concatenate(
            [
                latest, s["error"][indices], _cut((profiles[:, 0] - base) / spread),
                _cut((profiles[:, 1] - base) / spread), _cut((yesterday[..., :m] - base) / spread), light[:, 1:, None],
                turn[0][..., None], turn[1][..., None],
            ],
            axis=-1,
        )  # fmt: skip
        short = np.array([max(round(ms / self._spec.step_ms), 1) for ms in SHORT_MS], dtype=np.int64)
        changed = row[:, None] - self._past(indices, step - short)
        a_day_ago = self._past(indices, np.array([step - self._day]))
        planned = np.where((back == step)[:, None], row[:, None], yesterday) - a_day_ago
        s["past"][indices, step % self._day] = row
        s["past_step"][indices, step % self._day] = step
        s["step"][indices] = step
        return common, ahead, np.concatenate([row, changed.reshape(n, -1)], axis=1), planned

    def state_dict(self) -> dict[str, _Array]:
        """Everything that was learned; copies."""
        return {**self._zones.state_dict(), "scale": self._scale.copy(), "seen": self._seen.copy()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` where it does not fit."""
        self._zones.load_state_dict({k: v for k, v in state.items() if k not in ("scale", "seen")})
        self._scale, self._seen = state["scale"].copy(), state["seen"].copy()

    @property
    def detail_width(self) -> tuple[int, int]:
        """How many details there are, of the row and of each horizon."""
        width = self._targets + len(self._columns)
        return (1 + len(SHORT_MS)) * width, width

    def _past(self, indices: I64, steps: I64) -> F32:
        """The rows at ``steps [P]``, at most a day back, ``[Z, P, C]``; NaN where there was none."""
        s, zone, at = self._zones, indices[:, None], steps % self._day
        there = s["past_step"][zone, at] == steps
        return np.asarray(np.where(there[..., None], s["past"][zone, at], np.float32(np.nan)))

    def _index(self, name: str) -> int | None:
        names = feature_channels(self._spec)
        return self._targets + names.index(name) if name in names else None

    def _deviate(
        self, indices: I64, step: int, row: F32, known: npt.NDArray[np.bool_], day_bin: I64
    ) -> tuple[F32, list[F32]]:
        """How far each channel is off its profile, now and at the lags; the profile then learns."""
        s = self._zones
        usual = s["profile"][indices, day_bin]
        deviation = row - usual
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
        gain = np.float32(1 - np.exp(-1 / PROFILE_DAYS))
        moved = np.where(np.isnan(usual), row, usual + gain * deviation)
        s["profile"][indices, day_bin] = np.where(known, moved, usual)
        seen = known & np.isfinite(deviation)
        count = seen.sum(axis=0)
        mean = np.where(seen, np.abs(deviation), 0).sum(axis=0, dtype=np.float64) / np.maximum(count, 1)
        self._seen += count
        slowest = count / (len(indices) * SCALE_DAYS * self._day)
        share = np.maximum(count / np.maximum(self._seen, 1), slowest)
        held = np.where(np.isnan(self._scale), mean, self._scale)
        self._scale = np.where(count > 0, held + share * (mean - held), self._scale)
        return deviation, [ring[indices, (step - lag) % size] for lag in self._lags]


class PooledRidge:
    """One regression a rate of forgetting, horizon and target, for all zones together.

    ``prior [H]`` is its strength (:func:`prior_strength`). The learner's answer to regressors ``x`` is
    ``x @ weights``; :meth:`learn` takes matured examples of one horizon.
    """

    def __init__(
        self, prior: F64, targets: int, width: int, days: tuple[float, ...], steps_per_day: int
    ) -> None:  # fmt: skip
        horizons = len(prior)
        shape = (len(days), horizons, targets)
        self._prior = prior
        self._keep = np.exp(-1 / (np.array(days) * steps_per_day))
        self._moment = np.zeros((*shape, width, width))
        self._product = np.zeros((*shape, width))
        self._weights = np.zeros((*shape, width))
        self._step = np.full(horizons, -1, dtype=np.int64)

    def predict(self, common: F32, ahead: F32) -> F64:
        """``[Z, D]`` and ``[Z, H, E] -> [Z, H, M, R]``, in the climatology's units."""
        d = common.shape[1]
        w = self._weights
        return np.moveaxis(
            np.einsum("zd,rhmd->zhmr", common, w[..., :d], optimize=True)
            + np.einsum("zhe,rhme->zhmr", ahead, w[..., d:], optimize=True),
            0,
            0,
        )

    def learn(self, horizon: int, step: int, x: F32, residual: F32) -> None:
        """Examples ``x [N, D + E]`` and what they should have answered, ``residual [N, M]``, NaN where unknown."""
        elapsed = step - self._step[horizon] if self._step[horizon] >= 0 else 0
        if elapsed > 0:
            keep = (self._keep**elapsed)[:, None, None]
            self._moment[:, horizon] *= keep[..., None]
            self._product[:, horizon] *= keep
        self._step[horizon] = max(step, self._step[horizon])
        x = x.astype(np.float64)
        ok = np.isfinite(residual).T
        r = np.where(ok, residual.T, 0)
        off = np.abs(r - self._weights[:, horizon] @ x.T)  # [R, M, N]
        weighed = (ok / np.maximum(off, LEAST))[..., None] * x  # [R, M, N, D]
        self._moment[:, horizon] += weighed.swapaxes(-1, -2) @ x
        self._product[:, horizon] += (r[:, None] @ weighed)[..., 0, :]

    def refit(self, horizon: int) -> None:
        """Solve one horizon's regressions; a few times a day."""
        ridge = self._prior[horizon] * np.eye(self._moment.shape[-1])
        self._weights[:, horizon] = np.linalg.solve(
            self._moment[:, horizon] + ridge, self._product[:, horizon, ..., None]
        )[..., 0]

    def state_dict(self) -> dict[str, _Array]:
        """Everything that was learned; copies."""
        held = {"moment": self._moment, "product": self._product, "weights": self._weights, "step": self._step}
        return {name: array.copy() for name, array in held.items()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` where it does not fit."""
        if state["moment"].shape != self._moment.shape:
            raise ValueError(f"moment is {state['moment'].shape}, wanted {self._moment.shape}")
        self._moment, self._product = state["moment"].copy(), state["product"].copy()
        self._weights, self._step = state["weights"].copy(), state["step"].copy()


class ZoneRidge:
    """The same for each zone by itself, on few regressors and with one rate of forgetting."""

    def __init__(
        self, prior: F64, targets: int, width: int, days: float, steps_per_day: int, capacity: int = 16
    ) -> None:
        horizons = len(prior)
        self._prior = prior
        self._days, self._day = days, steps_per_day
        cells = (horizons, targets)
        self._zones = Growing(
            capacity,
            step=((horizons,), np.int64, -1),
            moment=((*cells, width, width), np.float32, 0.0),
            product=((*cells, width), np.float32, 0.0),
            weights=((*cells, width), np.float32, 0.0),
        )

    def add_zone(self) -> None:
        """Make room for one more zone."""
        self._zones.add()

    def predict(self, indices: I64, x: F32) -> F32:
        """``[Z, H, D] -> [Z, H, M]``."""
        return np.asarray((self._zones["weights"][indices] @ x[..., None])[..., 0])

    def learn(self, indices: I64, horizon: int, step: int, x: F32, residual: F32) -> None:
        """One example a zone: ``x [Z, D]``, ``residual [Z, M]``, NaN where unknown."""
        s = self._zones
        before = s["step"][indices, horizon]
        keep = np.exp(-np.where(before >= 0, step - before, 0) / (self._days * self._day)).astype(np.float32)
        s["step"][indices, horizon] = step
        ok = np.isfinite(residual)
        r = np.where(ok, residual, 0).astype(np.float32)
        off = np.abs(r - (s["weights"][indices, horizon] @ x[..., None])[..., 0])
        weight = (ok / np.maximum(off, LEAST)).astype(np.float32)
        outer = x[:, None, :, None] * x[:, None, None, :]
        decay = keep[:, None, None]
        moment, product = s["moment"][indices, horizon], s["product"][indices, horizon]
        s["moment"][indices, horizon] = moment * decay[..., None] + weight[..., None, None] * outer
        s["product"][indices, horizon] = product * decay + (weight * r)[..., None] * x[:, None]

    def refit(self, indices: I64, horizon: int) -> None:
        """Solve one horizon's regressions of zones ``indices``."""
        s = self._zones
        system = s["moment"][indices, horizon] + np.float32(self._prior[horizon]) * np.eye(
            s["moment"].shape[-1], dtype=np.float32
        )
        solved = np.linalg.solve(system.astype(np.float64), s["product"][indices, horizon, ..., None])
        s["weights"][indices, horizon] = solved[..., 0]

    def state_dict(self) -> dict[str, _Array]:
        """Everything that was learned; copies."""
        return self._zones.state_dict()

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` where it does not fit."""
        self._zones.load_state_dict(state)


def _cut(scaled: _Array) -> F32:
    cut = np.clip(np.nan_to_num(scaled, posinf=CLIP, neginf=-CLIP), -CLIP, CLIP)
    return np.asarray(cut, dtype=np.float32)
