"""Step 7 of the way of a reading: how much is left of a deviation from the profile when a horizon has come."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.durations import HOUR_MS
from models.online.climatology.past_examples import PastExamples
from models.online.climatology.three_by_three import solve_symmetric
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["LAG_MS", "PAIRS", "DeviationRegression"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

MEMORY_DAYS = 14.0
"""How long the regression remembers."""

SHRINKAGE_DAYS = 1.0
"""The regression takes an example at each knot of the day (:mod:`models.day_knots`): neighbouring rows say nearly the
same. Its prior weighs as much as the examples of this many days."""

DECAY_MS = 6 * HOUR_MS
"""The prior: a deviation from the profile dies away with this time constant."""

LAG_MS = 3 * HOUR_MS
"""Besides the deviation now, two others are regressed on: the one this long ago (is the climate on its way out or
back?) and the one a day before the horizon (was yesterday unusual at that hour?)."""

REGRESSORS = 3
PAIRS = np.array([(i, j) for i in range(REGRESSORS) for j in range(i, REGRESSORS)])


class DeviationRegression:
    """Ridge regression with forgetting of a deviation on earlier ones, one a rate of the profiles, horizon and target,
    vectorised over zones. What it looks back on lies in ``examples``.
    """

    def __init__(self, spec: ForecastSpec, examples: PastExamples, rates: int, capacity: int) -> None:
        self._examples, self._day = examples, spec.steps_per_day
        self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        self._whole_days = -(-self._steps // self._day) * self._day
        self._a_day = self._day // examples.stride
        self._lag = max(round(LAG_MS / spec.step_ms), 1)
        self._prior = np.zeros((len(self._steps), REGRESSORS), dtype=np.float32)
        self._prior[:, 0] = np.exp(-self._steps * spec.step_ms / DECAY_MS)
        self._keep = np.float32(np.exp(-1 / (MEMORY_DAYS * self._a_day)))
        fit = (rates, len(self._steps), len(spec.targets))
        self.zones = ZoneArrays(
            capacity,
            weight=(fit, np.float32, 0),
            moment=((*fit, len(PAIRS)), np.float32, 0),  # sums of x x', of each pair once
            product=((*fit, REGRESSORS), np.float32, 0),  # sums of x y
            slope=((*fit, REGRESSORS), np.float32, self._prior[None, :, None, :]),
        )

    @property
    def decay(self) -> F32:
        """What the prior says is left of a deviation at each horizon, ``[H, 1]``."""
        return self._prior[:, :1]

    def learn(self, indices: I64, h: I64, origins: I64, due: Bool, y: F32, deviation: F32) -> None:
        """Regress the ``deviation [Z, R, M]`` of the rows ``y [Z, M]``, which lie at horizons ``h [P]``, on those up to
        examples ``origins [Z, P]``, where one is ``due``.
        """
        s = self.zones
        x = self._regressors(indices, h, origins)
        z = np.repeat(deviation[:, :, None], len(h), axis=2)
        for p in np.flatnonzero(self._steps[h] % self._day == 0):
            # The profile at this hour has learned from the origin since; the forecast was made before it had.
            origin = self._examples.values(indices, origins[:, p], origins[:, p])
            z[:, :, p] = (y - origin)[:, None] + x[:, :, p, :, 0]
        due = due[:, None, :, None]
        known = due & np.isfinite(x[..., 0]) & np.isfinite(z)
        x, z = np.where(known[..., None], x, np.float32(0)), np.where(known, z, np.float32(0))
        keep = np.where(due, self._keep, np.float32(1))
        at = np.ix_(indices, np.arange(deviation.shape[1]), h)
        s["weight"][at] = s["weight"][at] * keep + known
        keep = keep[..., None]
        s["moment"][at] = s["moment"][at] * keep + x[..., PAIRS[:, 0]] * x[..., PAIRS[:, 1]]
        s["product"][at] = s["product"][at] * keep + x * z[..., None]

    def refit(self, indices: I64) -> None:
        """Find the slopes, as examples are known now; a zone needs it once an hour."""
        if not len(indices):
            return
        weight, moment, product = (self.zones[name][indices] for name in ("weight", "moment", "product"))
        whole = np.empty((*moment.shape[:-1], REGRESSORS, REGRESSORS), moment.dtype)
        whole[..., PAIRS[:, 0], PAIRS[:, 1]] = whole[..., PAIRS[:, 1], PAIRS[:, 0]] = moment
        scale = moment[..., 0] / np.maximum(weight, 1)
        strength = (np.float32(SHRINKAGE_DAYS * self._a_day) * scale + np.float32(1e-6)).astype(np.float64)[..., None]
        system = whole + strength[..., None] * np.eye(REGRESSORS)
        solved = solve_symmetric(system, product + strength * self._prior[:, None, :])
        # A deviation does not grow by itself: two days that differ must not be drawn on into a third.
        self.zones["slope"][indices] = np.clip(solved, -1, 1)

    def predict(self, indices: I64, rows: I64, now: F32) -> F32:
        """The deviations at each horizon, ``[Z, R, H, M]``, from those ``now [Z, R, M]``, at the newest ``rows [Z]``; 0
        where now is unknown.
        """
        origins = np.repeat(rows[:, None], len(self._steps), axis=1)
        x = self._regressors(indices, np.arange(len(self._steps)), origins, now)
        x = np.where(np.isnan(now)[:, :, None, :, None], np.float32(0), x)
        return np.asarray((self.zones["slope"][indices] * x).sum(axis=-1))

    def _regressors(self, indices: I64, h: I64, origins: I64, now: F32 | None = None) -> F32:
        """``[Z, R, P, M, 3]`` for horizons ``h [P]`` from rows ``origins [Z, P]``: the deviation there, some hours
        before it, and whole days before the horizon. ``now [Z, R, M]`` stands in for the first; without it origins are
        examples. Missing hours ago it is taken to be as now.
        """
        held, zone = self._examples.deviations, indices[:, None]
        x0 = held(zone, origins, origins) if now is None else np.repeat(now[:, None], len(h), axis=1)
        x1 = held(zone, origins - self._lag, origins)
        x2 = held(zone, origins + self._steps[h] - self._whole_days[h], origins)
        # A whole number of days before such a horizon is now: one regressor is enough.
        again = np.isnan(x2) | (self._steps[h] % self._day == 0)[None, :, None, None]
        x = np.stack([x0, np.where(np.isnan(x1), x0, x1), np.where(again, np.float32(0), x2)], axis=-1)
        return np.asarray(np.moveaxis(x, 2, 1))
