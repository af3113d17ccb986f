"""Step 7 of the way of a reading: the forecasts of a zone in its first days.


The learners behind :class:`~models.online.online_forecaster.OnlineForecaster` need days. Until then the forecast is a
mean of five plain answers, weighed by a power of how wrong each has been. Before a zone has errors of its own they are
those of simulated zones (:mod:`models.online.prior`), in proportion to what its partition's young zones are wrong by:
so persistence leads at short horizons, and as soon as a day has been seen, yesterday at long ones where days differ
more than hours. The widths of the intervals are the errors' sizes, from the same prior on. Both fade out with the days
that were seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.half_precision import LARGEST, cut
from models.online.prior import ANSWERS, Prior
from models.spec import QUANTILES, ForecastSpec
from models.zone_arrays import ZoneArrays, part_of

__all__ = ["FirstDays"]

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Bool = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

ALONE_DAYS, OLD_DAYS = 3.0, 9.0
"""For this long the forecast is this one alone; then its share goes down to 0."""

DECAY_MS = 8 * 3_600_000
"""A deviation dies away with this time constant."""

SMOOTHING_MS = 3_600_000
"""A value of a day ago is a mean over this long on either side, because its noise does not come again."""

BEFORE = 0.2
"""The share of two days ago in what is expected of the days before. More is no better in the mean, and with a day that
was unlike the others a cell's error is larger."""

LEVEL_DAYS = 0.7
"""How long the usual level remembers."""

POWER = 2.5
"""Answers are weighed by their errors to this negative power: 2 is best for errors that are independent."""

UNTRIED = 2.8
"""Before a day has been seen it may be no guide: until then yesterday's errors count as this many times the prior's.
Simulated houses are more regular than real ones, and a zone's first hours are often not its usual ones."""

OLD = 1.2
"""The errors of the old zones' forecast are multiplied by this: in the first days it says nearly what the others say,
and would count twice. Less is better in the mean over many starts, but not where the first day is an unusual one."""

OWN, POOL = 8.0, 2.0
"""The pool's errors weigh as much as this many examples of a zone's own, and the prior's as this many of the pool's."""

POOL_DAYS = 14.0
"""How long the pool remembers."""

WIDTH = 1.8
"""Half an interval in mean absolute errors; a Laplace distribution has 1.61, and a mean of few is uncertain ..."""

UNSURE, SURE = 1.0, 192.0
"""... without errors it is more so: it is wider by this share, and half of that is left after this many examples."""

WIDTH_DAYS = 0.5
"""How long the size of errors is remembered."""

WIDTH_STEP = 0.04
"""The logarithm of a width moves up by four fifths of this after a miss, and down by a fifth after a hit."""

NEAR = 1.0
"""Errors of horizons within this many octaves tell about each other's size ..."""

WIDTH_OWN, WIDTH_PRIOR, WIDTH_POOL = 4.0, 8.0, 2.0
"""... and weigh as much as this many examples of the horizon itself; so does the pool in them, and the prior in the
pool."""

MOST_ZONES = 128
"""With more zones than this, this many at a time learn from their errors and weigh their answers; all take turns."""

_HOURS = 24


class FirstDays:
    """Forecasts and widths of zones in their first days, vectorised over them.

    Each step, in this order: :meth:`learn` with what matured, :meth:`see` with the new row, then :meth:`forecast`. At
    examples, pass what is issued to :meth:`issue` and :meth:`bind`. Zones whose :meth:`share` is 0 cost nothing.
    """

    def __init__(self, spec: ForecastSpec, stride: int, places: int, capacity: int = 16) -> None:
        """``stride`` steps lie between examples; forecasts wait in ``places`` until their truth comes."""
        self._stride, self._a_day = stride, spec.steps_per_day // stride
        self._around = max(round(SMOOTHING_MS / (stride * spec.step_ms)), 1)  # examples on either side
        self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        self._day = spec.steps_per_day
        self._whole_days = -(-self._steps // self._day) * self._a_day  # in examples
        self._ahead = np.rint(self._steps / stride).astype(np.int64) - self._whole_days
        self._decay = np.exp(-self._steps * spec.step_ms / DECAY_MS).astype(np.float32)[:, None]
        self._whole = (self._steps % self._day == 0)[:, None]
        self._moved = np.where(self._whole, np.float32(0), self._decay)
        self.prior = Prior(spec)
        octaves = np.abs(np.log2(self._steps)[:, None] - np.log2(self._steps))
        self._near = np.exp(-octaves / NEAR).astype(np.float32)
        horizons, targets = len(self._steps), len(spec.targets)
        cells = (horizons, targets)
        self._length, self._trail = 2 * self._a_day + 1, int(self._steps.max()) // stride + 2
        self._zones = ZoneArrays(
            capacity,
            seen=((targets,), np.int32, 0),  # examples
            last=((targets,), np.float32, np.nan),
            level=((targets,), np.float32, np.nan),
            usual=((self._length, targets), np.float16, np.nan),
            usual_at=((self._length,), np.int32, -1),
            origin=((self._trail, 3, targets), np.float16, np.nan),  # value, level, and what was a day before
            origin_at=((self._trail,), np.int32, -1),
            off=((*cells, len(ANSWERS)), np.float32, 0.0),  # sums of errors, and of what the prior says of them
            expected=((*cells, len(ANSWERS)), np.float32, 0.0),
            issued=((places, targets), np.float16, np.nan),
            missed=(cells, np.float32, 0.0),  # the same of what was issued, in the prior's sizes
            counted=(cells, np.float32, 0.0),
            swing=(cells, np.float32, 0.0),  # logarithm of what misses and hits made of the width
            mixed=((), np.int64, -1),  # when the next two were found
            bound=((places, targets), np.float16, np.nan),  # half the interval then, in the same
            weight=((*cells, len(ANSWERS)), np.float32, 0.0),
            half=(cells, np.float32, WIDTH),  # half an interval, in the prior's sizes
            share=(cells, np.float32, 1.0),  # of the value now in the forecast
            rest=(cells, np.float32, 0.0),
        )
        self._off, self._expected = (np.zeros((*cells, len(ANSWERS))) for _ in range(2))
        self._missed, self._counted = np.zeros(cells), np.zeros(cells)

    def add_zones(self, count: int = 1) -> None:
        """Make room for more zones."""
        self._zones.add(count)

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        self._zones.prepare(zones)

    def share(self, indices: I64) -> F32:
        """The weight of the first days' forecast, ``[Z, M]``: 1 at first, then less, soon 0."""
        days = self._zones["seen"][indices] / np.float32(self._a_day)
        return np.asarray(np.clip((OLD_DAYS - days) / (OLD_DAYS - ALONE_DAYS), 0, 1), dtype=np.float32)

    def young(self, indices: I64) -> _Bool:
        """Which zones are in their first days, ``[Z]``. A target that has never been seen makes no zone young but one
        of which nothing has: many have no sensor of CO₂.
        """
        seen = self._zones["seen"][indices]
        return np.asarray(((self.share(indices) > 0) & (seen > 0)).any(axis=1) | (seen == 0).all(axis=1))

    def learn(
        self, indices: I64, step: int, h: I64, at: I64, due: _Bool, y: F32, hour: I64, old: F32, taking_part: _Bool
    ) -> None:
        """Truths ``y [Z, M]`` of horizons ``h [P]``, whose forecasts waited at ``at [P]``, for zones ``due [Z, P]``.

        ``hour [Z]`` is the hour of day, ``old [Z, P, M]`` what the learners had forecast, ``taking_part`` which of all
        zones had rows of late.
        """
        mine = np.flatnonzero(self.young(indices))
        if not len(mine):
            return
        part = part_of(len(mine), taking_part & self.young(np.arange(len(taking_part))))
        turns = -(-len(mine) // MOST_ZONES)
        mine = mine[step // self._stride % turns :: turns]
        s, zones, due, hour = self._zones, indices[mine], due[mine], hour[mine]
        y = np.where(self.share(zones) > 0, y[mine], np.float32(np.nan))  # of old targets the pool learns nothing
        zone = zones[:, None]
        place = (step - self._steps[h]) // self._stride
        due = due & (s["origin_at"][zone, place % self._trail] == place)
        held = s["origin"][zone, place % self._trail].astype(np.float32)  # [Z, P, 3, M]
        now, level, before = held[:, :, 0], held[:, :, 1], held[:, :, 2]
        expected = self._days_before(zones, step // self._stride - self._whole_days[h])
        answers = self._answers(now, level, expected, before, h)
        off = np.abs(y[:, None, :, None] - np.stack([*answers, old[mine]], axis=-1))
        known = np.isfinite(off) & due[..., None, None]
        off = np.where(known, off, np.float32(0))
        size = self.prior.answers[hour[:, None], h] * self._unit(zones)[:, None, :, None]
        size = np.where(known, size, np.float32(0))
        s["off"][zone, h] += off
        s["expected"][zone, h] += size
        keep = np.exp(-1 / (POOL_DAYS * self._a_day))
        self._off[h] = keep**part * self._off[h] + off.sum(axis=0)
        self._expected[h] = keep**part * self._expected[h] + size.sum(axis=0)
        normal = self.prior.issued[hour[:, None], h] * self._unit(zones)[:, None]
        missed = np.abs(y[:, None] - s["issued"][zone, at]) / normal
        known = np.isfinite(missed) & due[..., None]
        missed = np.where(known, missed, np.float32(0))
        beyond = (missed > s["bound"][zone, at]) - np.float32(2 * QUANTILES[0])
        s["swing"][zone, h] += np.float32(WIDTH_STEP) * np.where(known, beyond, np.float32(0))
        keep = np.float32(np.exp(-1 / (WIDTH_DAYS * self._a_day)))
        for name, pool, added in (("missed", self._missed, missed), ("counted", self._counted, known)):
            s[name][zone, h] = keep * s[name][zone, h] + added
            pool[h] = keep**part * pool[h] + added.sum(axis=0)

    def see(self, indices: I64, step: int, y: F32) -> None:
        """Take a row's targets ``[Z, M]``, NaN where unknown."""
        s = self._zones
        known = np.isfinite(y)
        value = cut(y)
        s["last"][indices] = np.where(known, value, s["last"][indices])
        if step % self._stride:
            return
        mine = np.flatnonzero(self.young(indices) | (known & (self.share(indices) > 0)).any(axis=1))
        if not len(mine):
            return
        zones, known, value = indices[mine], known[mine], value[mine]
        seen = s["seen"][zones]
        gain = np.maximum(1 / (seen + np.float32(1)), np.float32(1 / (LEVEL_DAYS * self._a_day)))
        level = s["level"][zones]
        moved = np.where(np.isnan(level), value, level + gain * (value - level))
        s["level"][zones] = np.where(known, moved, level)
        s["seen"][zones] = seen + known
        place = step // self._stride
        at = place % self._trail
        before = self._days_before(zones, np.array([place - self._a_day]))[:, 0]
        s["origin"][zones, at] = np.stack(
            [np.where(known, value, np.float32(np.nan)), s["level"][zones], before], axis=1
        )
        s["origin_at"][zones, at] = place
        back = place - np.arange(2 * self._around + 1)
        there = s["origin_at"][zones[:, None], back % self._trail] == back
        values = s["origin"][zones[:, None], back % self._trail, 0].astype(np.float32)  # [Z, B, M], newest first
        there = there[..., None] & np.isfinite(values)
        total = np.where(there, values, np.float32(0)).cumsum(axis=1)
        count = there.cumsum(axis=1)
        for late in range(self._around + 1):  # a mean around an example is known when the examples after it are
            last = self._around + late
            mean = total[:, last] / np.maximum(count[:, last], 1)
            slot = (place - late) % self._length
            s["usual"][zones, slot] = np.where(count[:, last] > 0, mean, np.float32(np.nan))
            s["usual_at"][zones, slot] = place - late

    def forecast(self, indices: I64, step: int, hour: I64, old: F32 | None) -> F32:
        """The first days' forecasts ``[Z, H, M]``, NaN where :meth:`share` is 0.

        ``hour [Z, H]`` is that of each horizon; ``old`` what the learners forecast, ``None`` between examples: there
        the weights are those of the example before.
        """
        s, share = self._zones, self.share(indices)
        mine = self.young(indices)
        mixed = s["mixed"][indices]
        # At examples, whenever a zone was born (-1: never yet): between them nobody says what the learners forecast.
        stale = np.flatnonzero(mine & (step // self._stride > mixed // self._stride))
        if len(stale):
            turns = -(-len(stale) // MOST_ZONES)
            turn = stale[(step // self._stride) % turns :: turns]
            self._weigh(indices[turn], step, hour[turn])
            new = stale[s["mixed"][indices[stale]] < 0]
            self._weigh(indices[new], step, hour[new])
            self._mix(indices[stale], step, None if old is None else old[stale])
        out = s["share"][indices] * s["last"][indices][:, None] + s["rest"][indices]
        return np.where((share > 0)[:, None], out, np.float32(np.nan))

    def widths(self, indices: I64, hour: I64, horizons: I64) -> F32:
        """How far p10 and p90 are from the median in the first days, ``[Z, H, M]``: never 0.

        ``horizons`` says which horizon each column of ``hour [Z, H]`` belongs to.
        """
        normal = self.prior.issued[hour, horizons] * self._unit(indices)[:, None]
        return np.asarray(self._zones["half"][indices][:, horizons] * normal, dtype=np.float32)

    def issued(self, zones: I64, at: I64) -> F32:
        """What was forecast and waits at ``at [P]`` for its truth, ``[Z, P, M]``."""
        return np.asarray(self._zones["issued"][zones[:, None], at], dtype=np.float32)

    def issue(self, zones: I64, at: I64, median: F32, where: _Bool | None = None) -> None:
        """Keep what was forecast, ``median [Z, ..., M]``, at ``at`` until its truth comes; only ``where``, if given."""
        issued, clipped = self._zones["issued"], cut(median)
        issued[zones, at] = clipped if where is None else np.where(where, clipped, issued[zones, at])

    def bind(self, indices: I64, at: I64) -> None:
        """Keep how wide the intervals are now, of all horizons, at ``at [H]``."""
        self._zones["bound"][indices[:, None], at] = np.minimum(self._zones["half"][indices], np.float32(LARGEST))

    def state_dict(self, copy: bool = True) -> dict[str, _Array]:
        """Everything that was learned (see :meth:`ZoneArrays.state_dict`)."""
        return {**self._zones.state_dict(copy), **{name: held.copy() for name, held in self._pool.items()}}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        self._zones.load_state_dict({name: held for name, held in state.items() if name not in self._pool})
        self._off, self._expected = state["pool_off"].copy(), state["pool_expected"].copy()
        self._missed, self._counted = state["pool_missed"].copy(), state["pool_counted"].copy()

    @property
    def _pool(self) -> dict[str, F64]:
        return {"pool_off": self._off, "pool_expected": self._expected, "pool_missed": self._missed,
                "pool_counted": self._counted}  # fmt: skip

    def answers(self, zones: I64, step: int) -> tuple[F32, F32, F32, F32]:
        """What ``ANSWERS`` say, less the last: each ``[Z, H, M]``, NaN where unknown."""
        s, place = self._zones, step // self._stride
        now, level = (np.repeat(s[name][zones][:, None], len(self._steps), axis=1) for name in ("last", "level"))
        expected = self._days_before(zones, place + self._ahead)
        # A whole number of days ahead the day before is now: two days ago adds what is past.
        expected = np.where(self._whole, self._usual(zones, place + self._ahead), expected)
        before = self._days_before(zones, np.array([place - self._a_day]))
        return self._answers(now, level, expected, np.broadcast_to(before, now.shape), np.arange(len(self._steps)))

    def _answers(self, now: F32, level: F32, expected: F32, before: F32, h: I64) -> tuple[F32, F32, F32, F32]:
        moved = expected + self._moved[h] * (now - before)
        return now, expected, moved, level + self._decay[h] * (now - level)

    def _days_before(self, zones: I64, places: I64) -> F32:
        """What the days before say of examples a day after ``places [P]``: ``[Z, P, M]``, NaN where no day does."""
        one, two = self._usual(zones, places), self._usual(zones, places - self._a_day)
        return np.where(np.isfinite(two), one + np.float32(BEFORE) * (two - one), one)

    def _usual(self, zones: I64, places: I64) -> F32:
        s, zone, at = self._zones, zones[:, None], places % self._length
        there = s["usual_at"][zone, at] == places
        return np.where(there[..., None], s["usual"][zone, at].astype(np.float32), np.float32(np.nan))

    def _weigh(self, zones: I64, step: int, hour: I64) -> None:
        """Find each answer's weight and the width, as errors are known now."""
        s = self._zones
        own, prior = np.float32(OWN) * self.prior.mean, np.float32(POOL) * self.prior.mean
        pool = ((prior + self._off) / (prior + self._expected)).astype(np.float32)
        unit = self._unit(zones)[:, None, :, None]
        factor = (own * unit * pool + s["off"][zones]) / (own * unit + s["expected"][zones])
        size = factor * self.prior.answers[hour, np.arange(hour.shape[1])] * unit
        tried = np.isfinite(self._usual(zones, np.array([step // self._stride - self._a_day])))  # [Z, 1, M]
        size[..., 1] *= np.where(tried, np.float32(1), np.float32(UNTRIED))
        size[..., -1] *= np.float32(OLD)
        s["weight"][zones] = (size / size.min(axis=-1, keepdims=True)) ** np.float32(-POWER)
        s["half"][zones] = self._relative(zones)

    def _mix(self, zones: I64, step: int, old: F32 | None) -> None:
        """Weigh the answers, and keep what of the forecast is not the value now."""
        s = self._zones
        weight = s["weight"][zones]
        now, *others = self.answers(zones, step)
        others.append(np.full_like(now, np.nan) if old is None else old)
        total, rest = weight[..., 0].copy(), np.zeros_like(now)
        for k, answer in enumerate(others, start=1):
            known = np.isfinite(answer)
            part = np.where(known, weight[..., k], np.float32(0))
            total += part
            rest += part * np.where(known, answer, np.float32(0))
        s["share"][zones], s["rest"][zones] = weight[..., 0] / total, rest / total
        s["mixed"][zones] = step

    def _relative(self, zones: I64) -> F32:
        """Half an interval in the prior's sizes as errors are known now, ``[Z, H, M]``."""
        s = self._zones
        missed, counted = s["missed"][zones], s["counted"][zones]
        pool = (WIDTH_POOL + self._missed) / (WIDTH_POOL + self._counted)
        near = [
            (self._near @ part.swapaxes(0, 1).reshape(len(self._near), -1)).reshape(len(self._near), *part[:, 0].shape)
            for part in (missed, counted)
        ]
        around = np.swapaxes((WIDTH_PRIOR * pool[:, None] + near[0]) / (WIDTH_PRIOR + near[1]), 0, 1)
        size = (WIDTH_OWN * around + missed) / (WIDTH_OWN + counted)
        wide = WIDTH * (1 + UNSURE / (1 + counted / SURE)) * np.exp(np.clip(s["swing"][zones], -3, 3))
        return np.asarray(size * wide, dtype=np.float32)

    def _unit(self, zones: I64) -> F32:
        """What the prior's sizes are multiplied by, ``[Z, M]``."""
        if not self.prior.relative.any():
            return np.ones((len(zones), len(self.prior.relative)), dtype=np.float32)
        level = np.nan_to_num(np.abs(self._zones["level"][zones]))
        return np.where(self.prior.relative, np.maximum(level, np.float32(1e-3)), np.float32(1))
