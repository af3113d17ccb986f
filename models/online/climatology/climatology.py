"""Step 7 of the way of a reading: the first forecast that answers, and the strong one that every model must beat.

Hour-of-day profiles that forget at several rates stand side by side, each corrected by a regression on how far the
climate is off its profile now, some hours ago and a day before the horizon; the forecast is the mean of the rates. All
zones learn at once, in bounded memory: profiles from every row, the rest from examples, a quarter of an hour apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import HOUR_MS
from models.half_precision import cut
from models.online.climatology.day_profiles import RATES_DAYS, DayProfiles
from models.online.climatology.day_wave import DayWave
from models.online.climatology.deviation_regression import LAG_MS, DeviationRegression
from models.online.climatology.error_sizes import ErrorSizes
from models.online.climatology.past_examples import PastExamples
from models.spec import QUANTILES, ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["Climatology", "Members"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

REFITS_A_DAY = 24

YOUNG_DAYS = 6.0
"""A mean of few days misses what a week brings. After this many days at an hour the forecast is half the 24-hour
naive's, before nearly all of it ..."""

YOUNG_POWER = 4
"""... and soon after little is left of it: a ninth after ten days, 3 % after 14."""

YOUNG_MS = 6 * HOUR_MS
"""Shorter horizons know the deviation now, and do not need it."""


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
    :meth:`skip` comes first. About 20 KB a zone, whatever the step.

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
        self._day, self._stride = spec.steps_per_day, spec.example_steps
        self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        self._whole_days = -(-self._steps // self._day) * self._day
        a_day = self._day // self._stride  # examples
        self._refit_every = max(a_day // REFITS_A_DAY, 1) * self._stride
        self._far = (self._steps * spec.step_ms >= YOUNG_MS).astype(np.float32)[:, None]
        low, high = zip(*spec.limits, strict=True)
        self._limits: tuple[F32, F32] = (np.array(low, dtype=np.float32), np.array(high, dtype=np.float32))
        longest, lag, rates = int(self._steps.max()), max(round(LAG_MS / spec.step_ms), 1), len(RATES_DAYS)
        back = max(longest + lag, int(self._whole_days.max()))
        targets = len(spec.targets)
        self._zones = ZoneArrays(capacity, rows=((), np.int64, 0), last=((targets,), np.float32, np.nan))
        self._profiles = DayProfiles(spec, capacity)
        self._examples = PastExamples(spec, max(longest, self._day), back, rates, capacity)
        self._regression = DeviationRegression(spec, self._examples, rates, capacity)
        self._wave = DayWave(spec, a_day, capacity)
        self._errors = ErrorSizes(spec, self._stride, capacity)
        parts = (self._profiles, self._examples, self._regression, self._wave, self._errors)
        self._held = (self._zones, *(part.zones for part in parts))

    def __len__(self) -> int:
        return len(self._zones)

    def add_zones(self, count: int = 1) -> int:
        """Make room for more zones and return the index of the first."""
        first = len(self)
        for held in self._held:
            held.add(count)
        return first

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        for held in self._held:
            held.prepare(zones)

    def learn(self, indices: I64, y: F32, day_bin: I64, held: F32 | None = None) -> Members:
        """Take the newest rows of zones ``indices`` (each at most once): ``y [Z, M]``, ``day_bin [Z]``.

        Returns what the forecast from these rows is made of. ``held [Z, M]`` are slightly older values: where a target
        is missing the forecast starts from them, but nothing is learned from them.
        """
        s = self._zones
        rows = self._aligned(indices, day_bin)
        y = np.asarray(y, dtype=np.float32)
        y = np.where(np.isfinite(y), cut(y), np.float32(np.nan))
        deviation = y[:, None] - self._profiles.at(indices, day_bin)
        origins = rows[:, None] - self._steps
        due = (origins >= 0) & (origins % self._stride == 0)  # forecasts from examples whose truth these rows are
        h = np.flatnonzero(due.any(axis=0))
        if len(h):
            self._errors.learn(indices, h, origins[:, h], due[:, h], y, day_bin)
            self._regression.learn(indices, h, origins[:, h], due[:, h], y, deviation)
        is_example = rows % self._stride == 0
        zones, example = indices[is_example], rows[is_example] // self._stride
        if len(zones):
            self._regression.refit(zones[rows[is_example] % self._refit_every == 0])
            self._wave.learn(zones, day_bin[is_example], deviation[is_example, -1])
            self._examples.keep(zones, example, y[is_example], deviation[is_example])
        self._profiles.learn(indices, rows, y, day_bin)
        s["last"][indices] = np.where(np.isnan(y), s["last"][indices], y)
        s["rows"][indices] = rows + 1
        members = self._members(indices, y if held is None else np.where(np.isnan(y), held, y), day_bin)
        self._errors.issue(zones, example, members.median[is_example])
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
        return self._profiles.usual(indices[:, None], (day_bin[:, None] + steps) % self._day)

    def last(self, indices: I64) -> F32:
        """The newest known value of each target, ``[Z, M]``."""
        return np.asarray(self._zones["last"][indices])

    def latest_errors(self, indices: I64) -> F32:
        """Truth less forecast of the newest examples that have matured, ``[Z, H, M]``; NaN where unknown."""
        return self._errors.latest(indices)

    @classmethod
    def run_over(cls, y: F32, day_bin: I64, spec: ForecastSpec, held: F32 | None = None) -> F32:
        """Learn and forecast along whole series: ``y [(Z,) T, M]``, ``day_bin [(Z,) T] -> [(Z,) T, H, M, Q]``. Where
        there are zones, ``held`` of :meth:`learn` may be given along them.

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
            members = climatology.learn(indices, y[:, t], day_bin[:, t], None if held is None else held[:, t])
            out[:, t] = climatology._quantiles(indices, members.median, day_bin[:, t])
        return out

    def state_dict(self, copy: bool = True) -> dict[str, _Array]:
        """Everything that was learned, as arrays of the zones there are (see :meth:`ZoneArrays.state_dict`)."""
        return {name: array for held in self._held for name, array in held.state_dict(copy).items()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave, bit for bit; raises ``ValueError`` if it does not fit."""
        ZoneArrays.load_together(self._held, state)

    def _aligned(self, indices: I64, day_bin: I64) -> I64:
        """The numbers of the newest rows, ``[Z]``, counted so that examples end whole quarters of an hour, as those of
        others do. Rows that a gap has left out until then were never seen.
        """
        held = self._zones["rows"][indices]
        rows = held + (day_bin - held) % self._stride
        self._leave_out(indices, held, rows)
        return rows

    def _leave_out(self, indices: I64, first: I64, stop: I64) -> None:
        """Forget the rows from ``first [Z]`` on, before ``stop [Z]``, as if they had never been seen."""
        reach = max(self._profiles.reach, self._examples.reach)
        first = np.maximum(first, stop - reach)  # after as many nothing of before is left
        for back in range(int((stop - first).max(initial=0)), 0, -1):
            mine = stop - first >= back
            zones, row = indices[mine], (stop - back)[mine]
            self._profiles.leave_out(zones, row)
            is_example = row % self._stride == 0
            zones, example = zones[is_example], row[is_example] // self._stride
            self._examples.leave_out(zones, example)
            self._errors.leave_out(zones, example)

    def _members(self, indices: I64, y_now: F32, day_bin: I64) -> Members:
        zone, hour = indices[:, None], (day_bin[:, None] + self._steps) % self._day
        row, whole_days = self._zones["rows"][indices] - 1, self._steps % self._day == 0
        now = y_now[:, None] - self._profiles.at(indices, day_bin)  # [Z, R, M]
        profiles = self._profiles.at(zone, hour).swapaxes(1, 2)
        rates = profiles + self._regression.predict(indices, row, now)
        known = np.where(np.isnan(y_now), self._zones["last"][indices], y_now)[:, None]
        origins = np.repeat(row[:, None], len(self._steps), axis=1)
        naive = self._examples.values(zone, origins + self._steps - self._whole_days, origins)
        naive = np.where(whole_days[:, None], known, naive)
        young = self._far / (1 + (self._profiles.days(zone, hour) / np.float32(YOUNG_DAYS)) ** YOUNG_POWER)
        young = np.where(np.isnan(naive), np.float32(0), young)
        a_day_ago = self._examples.values(indices, row - self._day, row)
        moved = (known[:, 0] - a_day_ago)[:, None] * self._regression.decay
        yesterday = naive + np.where(whole_days[:, None], np.float32(0), moved)
        shifted = self._shifted(indices, profiles[:, -1], now[:, -1], day_bin)
        shifted += young * (np.nan_to_num(naive) - shifted)
        towards, share = np.nan_to_num(naive)[:, None], young[:, None]
        profiles, rates = profiles + share * (towards - profiles), rates + share * (towards - rates)
        median = rates.mean(axis=1)
        median = np.clip(np.where(np.isnan(median), known, median), *self._limits).astype(np.float32, copy=False)
        return Members(profiles, rates, median, yesterday, shifted, young)

    def _shifted(self, indices: I64, profile: F32, now: F32, day_bin: I64) -> F32:
        """See ``Members.shifted``: the slowest ``profile [Z, H, M]``, how far ``now [Z, M]`` is off it."""
        shift = self._wave.at(indices, (day_bin[:, None] + np.concatenate([[0], self._steps])) % self._day)
        left = np.nan_to_num(now - shift[:, 0])[:, None]
        return np.asarray(profile + shift[:, 1:] + left * self._regression.decay, dtype=np.float32)

    def _quantiles(self, indices: I64, median: F32, day_bin: I64) -> F32:
        below, above = self._errors.sides(indices, day_bin)
        low, high = self._limits
        quantiles = np.stack([median - below, median, median + above], axis=-1)
        return np.asarray(np.clip(quantiles, low[:, None], high[:, None]))
