"""Step 7 of the way of a reading: a young zone's last two days, and what they say of the next."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from models.durations import HOUR_MS
from models.half_precision import cut
from models.running_mean import moved_mean
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["DaysBefore"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Bool = npt.NDArray[np.bool_]

DECAY_MS = 8 * HOUR_MS
"""A deviation dies away with this time constant."""

SMOOTHING_MS = HOUR_MS
"""A value of a day ago is a mean over this long on either side, because its noise does not come again."""

BEFORE = 0.2
"""The share of two days ago in what is expected of the days before. More is no better in the mean, and with a day that
was unlike the others a cell's error is larger."""

LEVEL_DAYS = 0.7
"""How long the usual level remembers."""


class DaysBefore:
    """Of many zones, vectorised over them. Answers are in the order of :data:`models.online.prior.ANSWERS`, less the
    last; ``place`` numbers examples, ``stride`` steps apart.
    """

    def __init__(self, spec: ForecastSpec, stride: int, capacity: int) -> None:
        self._a_day, steps = spec.steps_per_day // stride, np.array(spec.horizon_steps, dtype=np.int64)
        self._around = max(round(SMOOTHING_MS / (stride * spec.step_ms)), 1)  # examples on either side
        self._whole_days = -(-steps // spec.steps_per_day) * self._a_day  # in examples
        self._ahead = np.rint(steps / stride).astype(np.int64) - self._whole_days
        self._decay = np.exp(-steps * spec.step_ms / DECAY_MS).astype(np.float32)[:, None]
        self._whole = (steps % spec.steps_per_day == 0)[:, None]
        self._moved = np.where(self._whole, np.float32(0), self._decay)
        self._length, self._trail = 2 * self._a_day + 1, int(steps.max()) // stride + 2
        targets = len(spec.targets)
        self.zones = ZoneArrays(
            capacity,
            seen=((targets,), np.int32, 0),  # examples
            last=((targets,), np.float32, np.nan),
            level=((targets,), np.float32, np.nan),
            usual=((self._length, targets), np.float16, np.nan),
            usual_at=((self._length,), np.int32, -1),
            origin=((self._trail, 3, targets), np.float16, np.nan),  # value, level, and what was a day before
            origin_at=((self._trail,), np.int32, -1),
        )

    def days(self, indices: I64) -> F64:
        """How many days each target was seen, ``[Z, M]``."""
        return np.asarray(self.zones["seen"][indices] / self._a_day, dtype=np.float64)

    def span(self, indices: I64) -> F32:
        """How far what was seen in the last two days lies apart, ``[Z, M]``; 0 where nothing was. As smooth as it is
        kept, a value an hour tells.
        """
        held = self.zones["usual"][indices, :: self._around].astype(np.float32)
        return np.asarray(np.nan_to_num(np.fmax.reduce(held, axis=1) - np.fmin.reduce(held, axis=1)))

    def see(self, indices: I64, y: F32) -> None:
        """Take a row's targets ``[Z, M]``, NaN where unknown."""
        last = self.zones["last"]
        last[indices] = np.where(np.isfinite(y), cut(y), last[indices])

    def keep(self, zones: I64, place: int, y: F32) -> None:
        """Take an example's targets ``[Z, M]``, which were seen already."""
        s, known = self.zones, np.isfinite(y)
        value, seen = np.where(known, cut(y), np.float32(np.nan)), s["seen"][zones]
        slowest = np.float32(1 / (LEVEL_DAYS * self._a_day))
        s["level"][zones] = moved_mean(s["level"][zones], seen, value, slowest)
        s["seen"][zones] = seen + known
        at = place % self._trail
        before = self._days_before(zones, np.array([place - self._a_day]))[:, 0]
        s["origin"][zones, at] = np.stack([value, s["level"][zones], before], axis=1)
        s["origin_at"][zones, at] = place
        self._smooth(zones, place)

    def answers(self, zones: I64, place: int) -> tuple[F32, F32, F32, F32]:
        """What they say from the newest example ``place``, each ``[Z, H, M]``, NaN where unknown."""
        horizons = len(self._ahead)
        now, level = (np.repeat(self.zones[name][zones][:, None], horizons, axis=1) for name in ("last", "level"))
        expected = self._days_before(zones, place + self._ahead)
        # A whole number of days ahead the day before is now: two days ago adds what is past.
        expected = np.where(self._whole, self._usual(zones, place + self._ahead), expected)
        before = self._days_before(zones, np.array([place - self._a_day]))
        return self._answers(now, level, expected, np.broadcast_to(before, now.shape), np.arange(horizons))

    def answers_then(self, zones: I64, place: int, origins: I64, h: I64) -> tuple[tuple[F32, F32, F32, F32], _Bool]:
        """What they had said of ``place`` from ``origins [P]``, so far ahead as horizons ``h [P]``: each ``[Z, P, M]``;
        and which zones had an example there, ``[Z, P]``.
        """
        s, zone = self.zones, zones[:, None]
        held = s["origin"][zone, origins % self._trail].astype(np.float32)  # [Z, P, 3, M]
        now, level, before = held[:, :, 0], held[:, :, 1], held[:, :, 2]
        expected = self._days_before(zones, place - self._whole_days[h])
        there = np.asarray(s["origin_at"][zone, origins % self._trail] == origins)
        return self._answers(now, level, expected, before, h), there

    def knows_yesterday(self, zones: I64, place: int) -> _Bool:
        """Of which targets the same time of the day before was seen, ``[Z, 1, M]``."""
        return np.isfinite(self._usual(zones, np.array([place - self._a_day])))

    def _smooth(self, zones: I64, place: int) -> None:
        """A mean around an example is known when the examples after it are; until then it is of those before."""
        s = self.zones
        back = place - np.arange(2 * self._around + 1)
        there = s["origin_at"][zones[:, None], back % self._trail] == back
        values = s["origin"][zones[:, None], back % self._trail, 0].astype(np.float32)  # [Z, B, M], newest first
        there = there[..., None] & np.isfinite(values)
        total = np.where(there, values, np.float32(0)).cumsum(axis=1)
        count = there.cumsum(axis=1)
        for late in range(self._around + 1):
            last = self._around + late
            mean = total[:, last] / np.maximum(count[:, last], 1)
            slot = (place - late) % self._length
            s["usual"][zones, slot] = np.where(count[:, last] > 0, mean, np.float32(np.nan))
            s["usual_at"][zones, slot] = place - late

    def _answers(self, now: F32, level: F32, expected: F32, before: F32, h: I64) -> tuple[F32, F32, F32, F32]:
        moved = expected + self._moved[h] * (now - before)
        return now, expected, moved, level + self._decay[h] * (now - level)

    def _days_before(self, zones: I64, places: I64) -> F32:
        """What the days before say of examples a day after ``places [P]``: ``[Z, P, M]``, NaN where no day does."""
        one, two = self._usual(zones, places), self._usual(zones, places - self._a_day)
        return np.where(np.isfinite(two), one + np.float32(BEFORE) * (two - one), one)

    def _usual(self, zones: I64, places: I64) -> F32:
        s, zone, at = self.zones, zones[:, None], places % self._length
        there = s["usual_at"][zone, at] == places
        return np.where(there[..., None], s["usual"][zone, at].astype(np.float32), np.float32(np.nan))
