"""Step 7 of the way of a reading: what a network that knows no zone yet looks at, in units that hold in every house.

:class:`HouseFeatures` turns the arrays of :class:`~models.features.inputs.Inputs` into two groups of numbers: those of
the origin, and those of each horizon. Everything is a difference (from now, from an hour or a day ago, from the
setpoint) in fixed units, so that no scale has to be learned at a site; horizons and channels are found by what they
are, so that one network fits every schema. Missing is NaN here, too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from models.features.inputs import RECENT_MS, input_channels, window_tokens
from models.features.plans import PLANNED
from models.spec import ForecastSpec

__all__ = ["CONTROLS", "HORIZONS_MIN", "TARGETS", "USUAL_ERRORS", "HouseFeatures", "usual_errors"]

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


class HouseFeatures(nn.Module):
    """Calling it gives ``origin [N, width]`` and ``ahead [N, H, ahead_width]``. It has nothing to learn.

    ``groups`` name, of each number, the source that it comes from: what fails together is silenced together. 0 never
    fails.
    """

    position: Tensor  # [H, G], of HORIZONS_MIN
    error: Tensor  # [H, 4], usual ones
    groups: Tensor
    ahead_groups: Tensor
    _lags: Tensor
    _newest: Tensor
    _then: Tensor
    _way: Tensor
    _day_ago: Tensor
    _log: Tensor
    _gap: Tensor
    _minutes: Tensor
    _unit: Tensor
    _typical: Tensor
    _control_unit: Tensor
    _plan_unit: Tensor

    def __init__(self, spec: ForecastSpec) -> None:
        super().__init__()
        names = list(input_channels(spec))
        self._columns = [names.index(name) if name in names else -1 for name in (*TARGETS, *CONTROLS)]
        self._known = [spec.targets.index(name) if name in spec.targets else -1 for name in TARGETS]
        self._follows = [list(CONTROLS).index(name) for name in FOLLOWED]
        minutes = torch.tensor(spec.horizons_min, dtype=torch.float64)
        ages = _ages_min(spec)
        hours = len(ages) - _recent(spec)
        lags = torch.stack([_between(ages, lag) for lag in LAGS_MIN])
        newest, last_hour, last_day = (torch.zeros(len(ages)) for _ in range(3))
        newest[-1], last_hour[hours - 1], last_day[:hours] = 1, 1, 1 / max(hours, 1)
        back = minutes - _DAY_MIN * torch.ceil(minutes / _DAY_MIN)  # the same time of the last day
        then = torch.stack([_between(ages, float(-age)) for age in back])
        way = torch.stack([_covered(ages, hours, float(length)) for length in minutes])
        for name, weights in (
            ("_lags", torch.cat([lags, torch.stack([last_hour, last_day])])), ("_newest", newest[None]),
            ("_then", then), ("_way", way), ("_day_ago", _between(ages, float(_DAY_MIN))[None]),
            ("position", _hats(minutes)), ("_log", (torch.log(minutes) / 3).float()[:, None]),
            ("_gap", torch.diff(minutes, prepend=torch.zeros(1, dtype=torch.float64)).float()),
            ("_minutes", minutes.float()), ("_unit", torch.tensor(tuple(TARGETS.values()))),
            ("_typical", torch.tensor(TYPICAL)), ("_control_unit", torch.tensor(tuple(CONTROLS.values()))),
            ("_plan_unit", torch.tensor(PLAN_UNITS * 3)), ("error", usual_errors(spec)),
        ):  # fmt: skip
            self.register_buffer(name, weights, persistent=False)
        self._hours = hours
        origin, ahead = self._sources()
        self.width, self.ahead_width = len(origin), len(ahead)
        sources = sorted({*origin, *ahead})
        self.sources = tuple(sources)
        self.register_buffer("groups", torch.tensor([sources.index(name) for name in origin]), persistent=False)
        self.register_buffer("ahead_groups", torch.tensor([sources.index(name) for name in ahead]), persistent=False)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The arrays of :class:`~models.features.inputs.Inputs` as tensors."""
        origin, ahead = super().__call__(*inputs)
        return origin, ahead

    def forward(
        self, window: Tensor, now: Tensor, calendar: Tensor, sun: Tensor, yesterday: Tensor, future: Tensor,
        baseline: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The arrays of :class:`~models.features.inputs.Inputs` as tensors."""
        climate, control = self._channels(window)
        base = self._targets(baseline)  # [N, H, 4, Q]
        now = self._anchor(self._targets(now), climate, base)
        lags = _weighed(self._lags, climate)
        newest, control_lags = _weighed(self._newest, control), _weighed(self._lags[-2:], control)
        off = torch.zeros_like(newest[:, 0])
        for name, target in OFF.items():
            off[:, list(CONTROLS).index(name)] = now[:, target]
        seen = torch.isfinite(climate[:, : self._hours]).any(-1).float().mean(1, keepdim=True)
        origin = torch.cat([
            ((now[:, None] - lags) / self._unit).flatten(1),
            (now - self._typical) / self._unit / 5,
            (newest[:, 0] - off) / self._control_unit,
            ((newest - control_lags) / self._control_unit).flatten(1),
            torch.log(seen * 24 + 0.1) / 3, (seen >= 0.99).float(),
            sun[:, 0], calendar[:, 0, :2],
        ], dim=-1)  # fmt: skip
        then, day_ago = _weighed(self._then, climate), _weighed(self._day_ago, climate)
        followed = control[..., self._follows]
        here, unit = newest[..., self._follows], self._control_unit[self._follows]
        steps = (sun[:, 1:, 1] + sun[:, :-1, 1]) / 2 * self._gap
        light = torch.cat([sun[:, 1:], (steps.cumsum(1) / self._minutes - sun[:, :1, 1])[..., None],
                           (sun[:, 1:, 1] - sun[:, :1, 1])[..., None]], dim=-1)  # fmt: skip
        below, median, above = base.unbind(-1)
        plans = torch.full((*median.shape[:2], 3 * len(PLANNED)), torch.nan, device=median.device)
        if future.shape[-1]:
            plans = future / self._plan_unit
        ahead = torch.cat([
            (then - now[:, None]) / self._unit, (then - day_ago) / self._unit,
            (self._targets(yesterday) - now[:, None]) / self._unit,
            (_weighed(self._then, followed) - here) / unit, (_weighed(self._way, followed) - here) / unit,
            light, calendar[:, 1:], self._log.expand(len(now), -1, 1),
            (median - now[:, None]) / self._unit, _log_width(median - below, self.error),
            _log_width(above - median, self.error), plans,
        ], dim=-1)  # fmt: skip
        return origin.clamp(-CLIP, CLIP), ahead.clamp(-CLIP, CLIP)

    def targets_known(self) -> list[tuple[int, int]]:
        """Pairs of a target's place in the schema and in ``TARGETS``."""
        return [(place, known) for known, place in enumerate(self._known) if place >= 0]

    def _channels(self, window: Tensor) -> tuple[Tensor, Tensor]:
        picked = window[..., self._columns]
        missing = torch.tensor([column < 0 for column in self._columns], device=window.device)
        picked = picked.masked_fill(missing, torch.nan)
        return picked[..., : len(TARGETS)], picked[..., len(TARGETS) :]

    def _targets(self, x: Tensor) -> Tensor:
        """The columns of ``TARGETS`` of an array by the schema's, the last axis (or that before quantiles)."""
        axis = 2 if x.ndim >= 3 else 1
        picked = x.index_select(axis, torch.tensor([max(place, 0) for place in self._known], device=x.device))
        missing = torch.tensor([place < 0 for place in self._known], device=x.device)
        return picked.masked_fill(missing[:, None] if x.ndim == 4 else missing, torch.nan)

    def _anchor(self, now: Tensor, climate: Tensor, base: Tensor) -> Tensor:
        """The newest row's targets; where it lacks one, the last hour's mean, and else what is forecast next."""
        hour = _weighed(self._lags[-2:-1], climate)[:, 0]
        now = torch.where(torch.isfinite(now), now, hour)
        return torch.where(torch.isfinite(now), now, base[:, 0, :, 1])

    def _sources(self) -> tuple[list[str], list[str]]:
        """The source of each number, in the order of :meth:`forward`."""
        climate, controls, followed = list(TARGETS), list(CONTROLS), list(FOLLOWED)
        origin = climate * (len(LAGS_MIN) + 2) + climate + controls * 3 + ["always"] * 2 + ["sun"] * 2 + ["always"] * 2
        forecast = ["always", "always", "co2_ppm", "vpd forecast"]  # a schema may have no such target
        ahead = climate * 2 + forecast + followed * 2 + ["sun"] * 4 + ["always"] * 5 + forecast * 3
        return _renamed(origin), _renamed(ahead) + ["plans"] * 3 * len(PLANNED)


def usual_errors(spec: ForecastSpec) -> Tensor:
    """``USUAL_ERRORS`` at a schema's horizons, ``[H, 4]``, in the targets' own units."""
    table = torch.tensor(USUAL_ERRORS) * torch.tensor(tuple(TARGETS.values()))
    return _hats(torch.tensor(spec.horizons_min, dtype=torch.float64)) @ table


def _renamed(sources: list[str]) -> list[str]:
    """Air temperature and humidity never fail alone: without them there is no forecast."""
    return ["always" if name in ("air_temp_c", "rh_pct", "vpd_kpa") else name for name in sources]


def _recent(spec: ForecastSpec) -> int:
    return min(max(RECENT_MS // spec.step_ms, 1), spec.lookback_steps)


def _ages_min(spec: ForecastSpec) -> Tensor:
    """How long before the origin each token's middle is: hours, oldest first, then rows, oldest first."""
    recent = _recent(spec)
    hours = window_tokens(spec) - recent
    of_hours = (torch.arange(hours, 0, -1, dtype=torch.float64) - 0.5) * 60
    return torch.cat([of_hours, torch.arange(recent - 1, -1, -1, dtype=torch.float64) * spec.step_ms / 60_000])


def _between(ages: Tensor, age: float) -> Tensor:
    """Weights of tokens, by straight lines between the two nearest: rows in the last hour, hours before."""
    rows = ages < 60
    rows[: int((ages.diff() > 0).nonzero()[0]) + 1 if (ages.diff() > 0).any() else 0] = False
    if age > float(ages[rows].max()):
        rows = ~rows if (~rows).any() else rows
    known = ages[rows]
    weights = torch.zeros(len(ages), dtype=torch.float64)
    share = torch.zeros(len(known), dtype=torch.float64)
    age = min(max(age, float(known.min())), float(known.max()))
    older = int((known >= age).nonzero()[-1])
    newer = min(older + 1, len(known) - 1)
    gap = float(known[older] - known[newer])
    part = 0.0 if gap == 0 else (float(known[older]) - age) / gap
    share[older] += 1 - part
    share[newer] += part
    weights[rows] = share
    return weights.float()


def _covered(ages: Tensor, hours: int, minutes: float) -> Tensor:
    """Weights of the hours from a day ago to ``minutes`` later; of several days, all."""
    old, young = ages[:hours] + 30, ages[:hours] - 30
    until = max(_DAY_MIN - min(minutes, _DAY_MIN), 0)
    share = ((torch.clamp(old, max=_DAY_MIN) - torch.clamp(young, min=until)) / 60).clamp(0, 1)
    weights = torch.zeros(len(ages), dtype=torch.float64)
    weights[:hours] = share / share.sum() if share.sum() > 0 else share
    return weights.float()


def _hats(minutes: Tensor) -> Tensor:
    """Weights ``[H, G]`` of ``HORIZONS_MIN`` that give what lies between two of them on the logarithm's line."""
    grid = torch.log(torch.tensor(HORIZONS_MIN, dtype=torch.float64))
    at = torch.log(minutes).clamp(grid[0], grid[-1])
    before = (torch.searchsorted(grid, at, right=True) - 1).clamp(0, len(grid) - 2)
    share = (at - grid[before]) / (grid[before + 1] - grid[before])
    weights = torch.zeros(len(minutes), len(grid), dtype=torch.float64)
    one = torch.arange(len(minutes))
    weights[one, before] += 1 - share
    weights[one, before + 1] += share
    return weights.float()


def _weighed(weights: Tensor, x: Tensor) -> Tensor:
    """Weighed means over tokens, ``[P, T] x [N, T, C] -> [N, P, C]``; NaN where less than half is known."""
    known = torch.isfinite(x)
    total = torch.einsum("pt,ntc->npc", weights, torch.where(known, x, 0))
    share = torch.einsum("pt,ntc->npc", weights, known.to(x.dtype))
    return torch.where(share >= 0.5 - 1e-4, total / share.clamp(min=1e-3), torch.nan)


def _log_width(width: Tensor, error: Tensor) -> Tensor:
    return torch.log(width.clamp(min=0) / error + math.exp(-4.6))
