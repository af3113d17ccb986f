"""Step 7 of the way of a reading: the forecasts that every model must beat, and the first that answers.

:func:`persistence` and :func:`naive_24h` are the yardsticks. :class:`Climatology` is the strong one: hour-of-day
profiles that forget at several rates, side by side, each corrected by a regression on how far the climate is off its
profile now, some hours ago and a day before the horizon; the forecast is the mean of the rates. It learns for all zones
at once, in bounded memory: its profiles from every row, the rest from examples, a quarter of an hour apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.day_knots import DayKnots, on_line
from models.half_precision import LARGEST, cut
from models.masked import masked_mean
from models.spec import QUANTILES, ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["PAIRS", "Climatology", "Members", "naive_24h", "persistence"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

RATES_DAYS = (1.0, 3.0, 8.0)
"""How long a profile remembers. Several side by side beat any single one on real greenhouses."""

USUAL = 1
"""Which of these profiles is the shape of a path: it knows what the last days had in common, and is not one of them."""

SMOOTHING_MS = 900_000
"""A profile is smoothed over this much on either side."""

REGRESSION_DAYS = 14.0
"""How long the regression on the deviation remembers."""

SHRINKAGE_DAYS = 1.0
"""The regression takes an example at each knot of the day (:mod:`models.day_knots`): neighbouring rows say nearly the
same. Its prior weighs as much as the examples of this many days."""

DECAY_MS = 6 * 3_600_000
"""The prior: a deviation from the profile dies away with this time constant."""

LAG_MS = 3 * 3_600_000
"""Besides the deviation now, two others are regressed on: the one this long ago (is the climate on its way out or
back?) and the one a day before the horizon (was yesterday unusual at that hour?)."""

REGRESSORS = 3
PAIRS = np.array([(i, j) for i in range(REGRESSORS) for j in range(i, REGRESSORS)])
WAVES = 3

WAVE_DAYS = 1.0
"""How long the wave remembers: what the last day's deviations from the slowest profile have in common, as a level and
one period a day. Three numbers from a whole day are less noisy than that day itself, and less behind than a mean of
days."""

WAVE_PRIOR = 2.0
"""Its prior says that there is no wave, and weighs as much as this many examples."""

YOUNG_DAYS = 6.0
"""A mean of few days misses what a week brings. After this many days at an hour the forecast is half the 24-hour
naive's, before nearly all of it ..."""

YOUNG_POWER = 4
"""... and soon after little is left of it: a ninth after ten days, 3 % after 14."""

YOUNG_MS = 6 * 3_600_000
"""Shorter horizons know the deviation now, and do not need it."""

SPREAD_DAYS = 7.0
"""How long the size of the errors is remembered, by hour of day."""

QUANTILE_STEP = 0.009
"""Step of the stochastic approximation of p10 and p90 after an example, in units of the mean absolute error."""

LAPLACE_P90 = 1.609
"""p90 of a Laplace distribution in units of its mean absolute deviation (ln 5): where p10 and p90 start."""

_HOURS = 24


def persistence(y_now: F32, spec: ForecastSpec) -> F32:
    """What is now stays: ``[..., M] -> [..., H, M]``."""
    return np.repeat(y_now[..., None, :], len(spec.horizons_min), axis=-2)


def naive_24h(recent: F32, spec: ForecastSpec) -> F32:
    """The value a whole number of days before each horizon: ``[..., L, M] -> [..., H, M]``.

    ``recent`` ends at the origin; NaN where it does not reach back far enough.
    """
    at = recent.shape[-2] - 1 - (-np.array(spec.horizon_steps) % spec.steps_per_day)
    picked: F32 = np.take(recent, np.maximum(at, 0), axis=-2)
    picked[..., at < 0, :] = np.nan
    return picked


@dataclass(frozen=True, slots=True)
class Members:
    """What a climatology's forecast is made of; NaN where unknown."""

    profiles: F32  # [Z, R, H, M], the usual value at each horizon, by rate of forgetting
    rates: F32  # [Z, R, H, M], each rate's forecast
    median: F32  # [Z, H, M], their mean: the forecast
    yesterday: F32  # [Z, H, M], the 24-hour naive, moved by how far now is off it: has no memory of older days
    shifted: F32  # [Z, H, M], the slowest profile, shifted as the last day was, and moved by how far now is off that
    young: F32  # [Z, H, M], the share of the 24-hour naive in all of these; 0 with many days, and at short horizons


class Climatology:
    """Recursive hour-of-day climatology with online intervals, vectorised over zones.

    Each step and zone, in this order: :meth:`learn` with the row that closed (NaN where a target is missing, all NaN
    where the zone was silent), then :meth:`predict` as often as wanted; it changes nothing. Where steps were left out,
    :meth:`skip` comes first. The deviations of an example are the regression's truth and, later, its regressors: they
    are kept in one ring. About 20 KB a zone, whatever the step.

    >>> spec = ForecastSpec(channels=("air_temp_c",), targets=("air_temp_c",), horizons_min=(60,), step_ms=3_600_000)
    >>> climatology = Climatology(spec)
    >>> zone = np.array([climatology.add_zones()])
    >>> for hour in range(72):
    ...     bin_ = np.array([hour % 24])
    ...     _ = climatology.learn(zone, np.array([[20.0 + hour % 24]], dtype=np.float32), bin_)
    >>> climatology.predict(zone, np.array([[43.0]], dtype=np.float32), bin_).round(1).astype(float).round(1).tolist()
    [[[[19.7, 20.0, 20.3]]]]
    """

    def __init__(self, spec: ForecastSpec, capacity: int = 16) -> None:
        if any(h < 1 for h in spec.horizon_steps):
            raise ValueError("horizons shorter than a step do not exist")
        self._spec = spec
        self._day = spec.steps_per_day
        self._half = round(SMOOTHING_MS / spec.step_ms)
        self._knots = DayKnots(spec)
        self._lag = max(round(LAG_MS / spec.step_ms), 1)
        self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        self._whole_days = -(-self._steps // self._day) * self._day
        self._stride = self._knots.stride
        self._slots = -(-self._steps // self._stride)
        self._first = np.concatenate([[0], np.cumsum(self._slots)[:-1]])
        self._a_day = self._day // self._stride  # examples
        self._refit_every = max(self._a_day // _HOURS, 1) * self._stride
        self._gains = np.array([1 - np.exp(-1 / days) for days in RATES_DAYS], dtype=np.float32)[:, None]
        self._prior = np.zeros((len(self._steps), REGRESSORS), dtype=np.float32)
        self._prior[:, 0] = np.exp(-self._steps * spec.step_ms / DECAY_MS)
        self._far = (self._steps * spec.step_ms >= YOUNG_MS).astype(np.float32)[:, None]
        turn = np.arange(self._day) * (2 * np.pi / self._day)
        self._tide = np.stack([np.ones(self._day), np.sin(turn), np.cos(turn)], axis=-1).astype(np.float32)
        low, high = zip(*spec.limits, strict=True)
        self._limits: tuple[F32, F32] = (np.array(low, dtype=np.float32), np.array(high, dtype=np.float32))
        horizons, targets, rates = len(self._steps), len(spec.targets), len(RATES_DAYS)
        longest, cells = int(self._steps.max()), (horizons, targets)
        ring = max(longest + self._lag, int(self._whole_days.max())) // self._stride + 2
        missing, fit = np.nan, (rates, *cells)
        self._zones = ZoneArrays(
            capacity,
            rows=((), np.int64, 0),
            last=((targets,), np.float32, missing),
            recent=((2 * self._half + 1, targets), np.float32, missing),
            count=((self._knots.count, targets), np.uint8, 0),
            profile=((self._knots.count, rates, targets), np.float32, missing),
            past=((max(longest, self._day) // self._stride + 2, targets), np.float16, missing),  # at examples
            deviation=((ring, rates, targets), np.float16, missing),  # at examples
            weight=(fit, np.float32, 0),
            moment=((*fit, len(PAIRS)), np.float32, 0),  # sums of x x', of each pair once
            product=((*fit, REGRESSORS), np.float32, 0),  # sums of x y
            slope=((*fit, REGRESSORS), np.float32, self._prior[None, :, None, :]),
            wave_moment=((targets, WAVES, WAVES), np.float32, 0),
            wave_product=((targets, WAVES), np.float32, 0),
            wave=((targets, WAVES), np.float32, 0),
            issued=((int(self._slots.sum()), targets), np.float16, missing),
            error=(cells, np.float32, missing),
            matured=((_HOURS, *cells), np.uint8, 0),
            spread=((_HOURS, *cells), np.float16, missing),
            upper=(cells, np.float32, LAPLACE_P90),
            lower=(cells, np.float32, LAPLACE_P90),
        )

    def __len__(self) -> int:
        return len(self._zones)

    def add_zones(self, count: int = 1) -> int:
        """Make room for more zones and return the index of the first."""
        return self._zones.add(count)

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        self._zones.prepare(zones)

    def learn(self, indices: I64, y: F32, day_bin: I64) -> Members:
        """Take the newest rows of zones ``indices`` (each at most once): ``y [Z, M]``, ``day_bin [Z]``.

        Returns what the forecast from these rows is made of.
        """
        s = self._zones
        rows = self._aligned(indices, day_bin)
        y = np.asarray(y, dtype=np.float32)
        y = np.where(np.isfinite(y), cut(y), np.float32(np.nan))
        deviation = y[:, None] - self._knots.at(s["profile"], indices, day_bin)
        origins = rows[:, None] - self._steps
        due = (origins >= 0) & (origins % self._stride == 0)  # forecasts from examples whose truth these rows are
        h = np.flatnonzero(due.any(axis=0))
        if len(h):
            self._learn_errors(indices, h, origins[:, h], due[:, h], y, day_bin)
            self._learn_slopes(indices, h, origins[:, h], due[:, h], y, deviation)
        example = rows % self._stride == 0
        zones, at = indices[example], rows[example] // self._stride
        if len(zones):
            self._refit(zones[rows[example] % self._refit_every == 0])
            self._learn_wave(zones, day_bin[example], deviation[example, -1])
            s["past"][zones, at % s["past"].shape[1]] = y[example]
            s["deviation"][zones, at % s["deviation"].shape[1]] = cut(deviation[example])
        self._learn_profile(indices, rows, y, day_bin)
        s["last"][indices] = np.where(np.isnan(y), s["last"][indices], y)
        s["rows"][indices] = rows + 1
        members = self._members(indices, y, day_bin)
        s["issued"][zones[:, None], self._first + at[:, None] % self._slots] = np.clip(
            members.median[example], -LARGEST, LARGEST
        )
        return members

    def skip(self, indices: I64, steps: I64) -> None:
        """Zones ``indices`` had no rows for ``steps [Z]`` steps: what was before is so much older now."""
        rows = self._zones["rows"][indices]
        self._leave_out(indices, rows, rows + steps)
        self._zones["rows"][indices] = rows + steps

    def predict(self, indices: I64, y_now: F32, day_bin: I64) -> F32:
        """Forecast from the newest learned rows: ``[Z, H, M, Q]``, p10 <= p50 <= p90.

        ``y_now [Z, M]`` and ``day_bin [Z]`` are normally those just learned; another ``y_now`` asks "what if".
        Finite for every target of which a value was ever seen, NaN for the others.
        """
        members = self._members(indices, np.asarray(y_now, dtype=np.float32), day_bin)
        return self._quantiles(indices, members.median, day_bin)

    def usual(self, indices: I64, day_bin: I64, steps: I64) -> F32:
        """The usual value ``steps [T]`` ahead, ``[Z, T, M]``: the profile of a few days; NaN where none was seen."""
        hour = (day_bin[:, None] + steps) % self._day
        return self._knots.at(self._zones["profile"][:, :, USUAL], indices[:, None], hour)

    def last(self, indices: I64) -> F32:
        """The newest known value of each target, ``[Z, M]``."""
        return np.asarray(self._zones["last"][indices])

    @classmethod
    def run_over(cls, y: F32, day_bin: I64, spec: ForecastSpec) -> F32:
        """Learn and forecast along whole series: ``y [(Z,) T, M]``, ``day_bin [(Z,) T] -> [(Z,) T, H, M, Q]``.

        The forecast at ``t`` uses rows up to ``t`` only; it equals what :meth:`learn` and :meth:`predict` give.
        """
        if y.ndim == 2:
            return np.asarray(cls.run_over(y[None], day_bin[None], spec)[0])
        zones, length = y.shape[:2]
        climatology = cls(spec, capacity=zones)
        indices = np.array([climatology.add_zones() for _ in range(zones)], dtype=np.int64)
        shape = (zones, length, len(spec.horizons_min), len(spec.targets), len(QUANTILES))
        out = np.empty(shape, dtype=np.float32)
        y = np.asarray(y, dtype=np.float32)
        for t in range(length):
            members = climatology.learn(indices, y[:, t], day_bin[:, t])
            out[:, t] = climatology._quantiles(indices, members.median, day_bin[:, t])
        return out

    def state_dict(self, copy: bool = True) -> dict[str, _Array]:
        """Everything that was learned, as arrays of the zones there are (see :meth:`ZoneArrays.state_dict`)."""
        return self._zones.state_dict(copy)

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave, bit for bit; raises ``ValueError`` if it does not fit."""
        self._zones.load_state_dict(state)

    def _aligned(self, indices: I64, day_bin: I64) -> I64:
        """The numbers of the newest rows, ``[Z]``, counted so that examples end whole quarters of an hour, as those of
        others do. Rows that a gap has left out until then were never seen.
        """
        held = self._zones["rows"][indices]
        rows = held + (day_bin - held) % self._stride
        self._leave_out(indices, held, rows)
        return rows

    def _leave_out(self, indices: I64, first: I64, stop: I64) -> None:
        """Let the rows from ``first [Z]`` on, before ``stop [Z]``, be such as were never seen."""
        s = self._zones
        rings = [s["recent"].shape[1]] + [s[name].shape[1] * self._stride for name in ("past", "deviation")]
        first = np.maximum(first, stop - max(rings))  # after as many nothing of before is left
        for back in range(int((stop - first).max(initial=0)), 0, -1):
            mine = stop - first >= back
            zones, row = indices[mine], (stop - back)[mine]
            s["recent"][zones, row % s["recent"].shape[1]] = np.nan
            example = row % self._stride == 0
            zones, at = zones[example], row[example] // self._stride
            s["past"][zones, at % s["past"].shape[1]] = np.nan
            s["deviation"][zones, at % s["deviation"].shape[1]] = np.nan
            s["issued"][zones[:, None], self._first + at[:, None] % self._slots] = np.nan

    def _learn_errors(self, indices: I64, h: I64, origins: I64, due: Bool, y: F32, day_bin: I64) -> None:
        """Take the errors of forecasts of horizons ``h [P]`` from examples ``origins [Z, P]``, where they are due."""
        s, zone = self._zones, indices[:, None]
        error = y[:, None] - s["issued"][zone, self._first[h] + origins // self._stride % self._slots[h]]
        s["error"][zone, h] = np.where(due[..., None], error, s["error"][zone, h])
        self._learn_spread(indices, h, np.where(due[..., None], error, np.float32(np.nan)), day_bin)

    def _learn_profile(self, indices: I64, rows: I64, y: F32, day_bin: I64) -> None:
        """Move the knot ``half`` steps back, where the centred mean is known now; later knots stay yesterday's."""
        s = self._zones
        width = 2 * self._half + 1
        s["recent"][indices, rows % width] = y
        knot, rest = np.divmod((day_bin - self._half) % self._day, self._knots.stride)
        indices, at = indices[rest == 0], knot[rest == 0]
        if not len(indices):
            return
        mean = masked_mean(s["recent"][indices], axis=1)[:, None]  # [Z, 1, M]
        count, held = s["count"][indices, at], s["profile"][indices, at]
        gain = np.maximum(self._gains, 1 / (count[:, None] + np.float32(1)))
        moved = np.where(np.isnan(held), mean, held + gain * (mean - held))
        s["profile"][indices, at] = np.where(np.isnan(mean), held, moved)
        s["count"][indices, at] = np.minimum(count, 254) + ~np.isnan(mean[:, 0])  # eight bits: it stays at 255

    def _learn_slopes(self, indices: I64, h: I64, origins: I64, due: Bool, y: F32, deviation: F32) -> None:
        """Ridge regression with forgetting of the deviation at horizons ``h [P]`` on those up to examples
        ``origins [Z, P]``, where one is due.
        """
        s = self._zones
        x = self._regressors(indices, h, origins)
        z = np.repeat(deviation[:, :, None], len(h), axis=2)
        for p in np.flatnonzero(self._steps[h] % self._day == 0):
            # The profile at this hour has learned from the origin since; the forecast was made before it had.
            origin = self._at(s["past"], indices, origins[:, p], origins[:, p])
            z[:, :, p] = (y - origin)[:, None] + x[:, :, p, :, 0]
        due = due[:, None, :, None]
        known = due & np.isfinite(x[..., 0]) & np.isfinite(z)
        x, z = np.where(known[..., None], x, np.float32(0)), np.where(known, z, np.float32(0))
        keep = np.where(due, np.float32(np.exp(-1 / (REGRESSION_DAYS * self._a_day))), np.float32(1))
        at = np.ix_(indices, np.arange(len(RATES_DAYS)), h)
        s["weight"][at] = s["weight"][at] * keep + known
        keep = keep[..., None]
        s["moment"][at] = s["moment"][at] * keep + x[..., PAIRS[:, 0]] * x[..., PAIRS[:, 1]]
        s["product"][at] = s["product"][at] * keep + x * z[..., None]

    def _refit(self, zones: I64) -> None:
        if len(zones):
            s = self._zones
            s["slope"][zones] = self._solve(s["weight"][zones], s["moment"][zones], s["product"][zones])

    def _regressors(self, indices: I64, h: I64, origins: I64, now: F32 | None = None) -> F32:
        """``[Z, R, P, M, 3]`` for horizons ``h [P]`` from rows ``origins [Z, P]``: the deviation there, some hours
        before it, and whole days before the horizon. ``now [Z, R, M]`` stands in for the first; without it origins are
        examples. Missing hours ago it is taken to be as now.
        """
        held, zone = self._zones["deviation"], indices[:, None]
        x0 = self._at(held, zone, origins, origins) if now is None else np.repeat(now[:, None], len(h), axis=1)
        x1 = self._at(held, zone, origins - self._lag, origins)
        x2 = self._at(held, zone, origins + self._steps[h] - self._whole_days[h], origins)
        # A whole number of days before such a horizon is now: one regressor is enough.
        again = np.isnan(x2) | (self._steps[h] % self._day == 0)[None, :, None, None]
        x = np.stack([x0, np.where(np.isnan(x1), x0, x1), np.where(again, np.float32(0), x2)], axis=-1)
        return np.asarray(np.moveaxis(x, 2, 1))

    def _at(self, held: _Array, zones: I64, rows: I64, origins: I64) -> F32:
        """What ``held`` keeps of examples, at ``rows`` of any kind: between two examples what lies on the line, but
        nothing of an example after the ``origins``.
        """
        before, rest = np.divmod(rows, self._stride)
        size = held.shape[1]
        low: F32 = held[zones, before % size].astype(np.float32)
        if not rest.any():
            return low
        high = held[zones, (before + 1) % size].astype(np.float32)
        high[(before + 1) * self._stride > origins] = np.nan
        return on_line(low, high, rest / self._stride)

    def _learn_wave(self, indices: I64, day_bin: I64, deviation: F32) -> None:
        """Ridge regression with forgetting of the ``deviation [Z, M]`` from the slowest profile on the hour of day."""
        s, x = self._zones, self._tide[day_bin][:, None]
        keep = np.float32(np.exp(-1 / (WAVE_DAYS * self._a_day)))
        known = np.isfinite(deviation)[..., None]
        x = np.where(known, x, np.float32(0))
        moment = s["wave_moment"][indices] * keep + x[..., :, None] * x[..., None, :]
        product = s["wave_product"][indices] * keep + x * np.nan_to_num(deviation)[..., None]
        s["wave_moment"][indices], s["wave_product"][indices] = moment, product
        prior = np.float32(WAVE_PRIOR) * np.eye(WAVES, dtype=np.float32)
        s["wave"][indices] = _solve_symmetric(moment + prior, product)

    def _solve(self, weight: F32, moment: F32, product: F32) -> F32:
        prior = self._prior[:, None, :]
        whole = np.empty((*moment.shape[:-1], REGRESSORS, REGRESSORS), moment.dtype)
        whole[..., PAIRS[:, 0], PAIRS[:, 1]] = whole[..., PAIRS[:, 1], PAIRS[:, 0]] = moment
        scale = moment[..., 0] / np.maximum(weight, 1)
        strength = (np.float32(SHRINKAGE_DAYS * self._a_day) * scale + np.float32(1e-6)).astype(np.float64)[..., None]
        system = whole + strength[..., None] * np.eye(REGRESSORS)
        right = product + strength * prior
        solved = _solve_symmetric(system, right)
        # A deviation does not grow by itself: two days that differ must not be drawn on into a third.
        return np.asarray(np.clip(solved, -1, 1), dtype=np.float32)

    def latest_errors(self, indices: I64) -> F32:
        """Truth less forecast of the newest examples that have matured, ``[Z, H, M]``; NaN where unknown."""
        return np.asarray(self._zones["error"][indices])

    def _members(self, indices: I64, y_now: F32, day_bin: I64) -> Members:
        s = self._zones
        row = np.repeat(s["rows"][indices][:, None] - 1, len(self._steps), axis=1)
        now = y_now[:, None] - self._knots.at(s["profile"], indices, day_bin)  # [Z, R, M]
        x = self._regressors(indices, np.arange(len(self._steps)), row, now)
        x = np.where(np.isnan(now)[:, :, None, :, None], np.float32(0), x)
        zone, hour = indices[:, None], (day_bin[:, None] + self._steps) % self._day
        profiles = self._knots.at(s["profile"], zone, hour).swapaxes(1, 2)
        rates = profiles + (s["slope"][indices] * x).sum(axis=-1)
        known = np.where(np.isnan(y_now), s["last"][indices], y_now)[:, None]
        naive = self._at(s["past"], zone, row + self._steps - self._whole_days, row)
        naive = np.where((self._steps % self._day == 0)[:, None], known, naive)
        young = self._far / (1 + (s["count"][zone, hour // self._knots.stride] / np.float32(YOUNG_DAYS)) ** YOUNG_POWER)
        young = np.where(np.isnan(naive), np.float32(0), young)
        a_day_ago = self._at(s["past"], indices, row[:, 0] - self._day, row[:, 0])
        moved = (known[:, 0] - a_day_ago)[:, None] * self._prior[:, :1]
        yesterday = naive + np.where((self._steps % self._day == 0)[:, None], np.float32(0), moved)
        shifted = self._shifted(indices, profiles[:, -1], now[:, -1], day_bin)
        shifted += young * (np.nan_to_num(naive) - shifted)
        towards, share = np.nan_to_num(naive)[:, None], young[:, None]
        profiles, rates = profiles + share * (towards - profiles), rates + share * (towards - rates)
        median = rates.mean(axis=1)
        median = np.clip(np.where(np.isnan(median), known, median), *self._limits).astype(np.float32, copy=False)
        return Members(profiles, rates, median, yesterday, shifted, young)

    def _shifted(self, indices: I64, profile: F32, now: F32, day_bin: I64) -> F32:
        """See ``Members.shifted``: the slowest ``profile [Z, H, M]``, how far ``now [Z, M]`` is off it."""
        bins = (day_bin[:, None] + np.concatenate([[0], self._steps])) % self._day
        shift = self._tide[bins] @ self._zones["wave"][indices].swapaxes(1, 2)  # [Z, 1 + H, M]
        left = np.nan_to_num(now - shift[:, 0])[:, None]
        return np.asarray(profile + shift[:, 1:] + left * self._prior[:, :1], dtype=np.float32)

    def _learn_spread(self, indices: I64, h: I64, residual: F32, day_bin: I64) -> None:
        """Errors ``residual [Z, P, M]`` at horizons ``h [P]``, NaN where none is due."""
        s, zone = self._zones, indices[:, None]
        hour = (day_bin * _HOURS // self._day)[:, None]
        known = np.isfinite(residual)
        size = self._spread(indices, np.repeat(hour, len(self._steps), axis=1))[:, h]
        for name, beyond in (("upper", residual), ("lower", -residual)):
            held = s[name][zone, h]
            step = np.float32(QUANTILE_STEP) * ((beyond > held * size) - np.float32(QUANTILES[0]))
            s[name][zone, h] = np.where(known & (size > 0), np.maximum(held + step, 0), held)
        count, held = s["matured"][zone, hour, h], s["spread"][zone, hour, h].astype(np.float32)
        slowest = np.float32(_HOURS / (SPREAD_DAYS * self._a_day))
        gain = np.maximum(slowest, 1 / (count + np.float32(1)))
        error = np.minimum(np.abs(residual), np.float32(LARGEST))
        moved = np.where(np.isnan(held), error, held + gain * (error - held))
        s["spread"][zone, hour, h] = np.where(known, moved, held)
        s["matured"][zone, hour, h] = np.minimum(count, 254) + known  # eight bits: it stays at 255

    def _spread(self, indices: I64, hour: I64) -> F32:
        """Mean absolute error around the hours of day ``[Z, H]``; at least that of a shorter horizon where unknown."""
        around = (hour[:, :, None] + np.arange(-1, 2)) % _HOURS
        near = self._zones["spread"][indices[:, None, None], around, np.arange(len(self._steps))[:, None]]
        size = masked_mean(near.astype(np.float32), axis=2)
        shorter = np.nan_to_num(np.fmax.accumulate(size, axis=1))
        return np.where(np.isnan(size), shorter, size)

    def _quantiles(self, indices: I64, median: F32, day_bin: I64) -> F32:
        size = self._spread(indices, (day_bin[:, None] + self._steps) % self._day * _HOURS // self._day)
        below = median - self._zones["lower"][indices] * size
        above = median + self._zones["upper"][indices] * size
        low, high = self._limits
        return np.asarray(np.clip(np.stack([below, median, above], axis=-1), low[:, None], high[:, None]))


def _solve_symmetric(system: _Array, right: _Array) -> _Array:
    """The inverse of symmetric 3 x 3 matrices from the cross products of their rows: hundreds of thousands an hour."""
    first, second, third = (system[..., i, :] for i in range(3))
    columns = np.stack([np.cross(second, third), np.cross(third, first), np.cross(first, second)], axis=-1)
    det = (first * columns[..., 0]).sum(axis=-1, keepdims=True)
    return np.asarray((columns @ right[..., None])[..., 0] / det)
