"""Step 7 of the way of a reading: the forecasts of a zone in its first days.

The learners behind :class:`~models.online.online_forecaster.OnlineForecaster` need days. Until then the forecast is a
mean of five plain answers (:mod:`models.online.prior` names them), weighed by how wrong each has been: persistence
leads at short horizons, and as soon as a day has been seen, yesterday at long ones where days differ more than hours.
Forecasts and widths fade out with the days that were seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.online.first_days.answer_weights import AnswerWeights
from models.online.first_days.days_before import DaysBefore
from models.online.first_days.first_widths import UNTOLD, FirstWidths
from models.online.prior import ANSWERS, Prior
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays, part_of, whose_turn

__all__ = ["FirstDays"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Bool = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

ALONE_DAYS, OLD_DAYS = 3.0, 9.0
"""Until the first the forecast is this one alone; then its share goes down to 0 at the second."""

MOST_ZONES = 128
"""With more zones than this, this many at a time learn from their errors and weigh their answers; all take turns."""


class FirstDays:
    """Forecasts and widths of zones in their first days, vectorised over them.

    Each step, in this order: :meth:`learn` with what matured, :meth:`see` with the new row, then :meth:`forecast`. At
    examples, pass what is issued to :meth:`issue` and :meth:`bind`. Zones whose :meth:`share` is 0 cost nothing.
    """

    def __init__(self, spec: ForecastSpec, stride: int, places: int, capacity: int = 16) -> None:
        """``stride`` steps lie between examples; forecasts wait in ``places`` until their truth comes."""
        self._stride, a_day = stride, spec.steps_per_day // stride
        self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        self.prior = Prior(spec)
        cells = (len(self._steps), len(spec.targets))
        self._days = DaysBefore(spec, stride, capacity)
        self._weights = AnswerWeights(spec, len(ANSWERS), a_day, capacity)
        self._widths = FirstWidths(spec, places, a_day, capacity)
        self._zones = ZoneArrays(
            capacity,
            mixed=((), np.int64, -1),  # when the next two were found
            share=(cells, np.float32, 1.0),  # of the value now in the forecast
            rest=(cells, np.float32, 0.0),
        )
        self._held = (self._days.zones, self._weights.zones, self._widths.zones, self._zones)

    def add_zones(self, count: int = 1) -> None:
        """Make room for more zones."""
        for held in self._held:
            held.add(count)

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        for held in self._held:
            held.prepare(zones)

    def share(self, indices: I64) -> F32:
        """The weight of the first days' forecast, ``[Z, M]``: 1 at first, then less, soon 0."""
        days = self._days.days(indices)
        return np.asarray(np.clip((OLD_DAYS - days) / (OLD_DAYS - ALONE_DAYS), 0, 1), dtype=np.float32)

    def young(self, indices: I64) -> _Bool:
        """Which zones are in their first days, ``[Z]``. Targets that were never seen do not count, as many zones have
        no sensor of CO₂; a zone of which nothing was seen is young.
        """
        seen = self._days.days(indices) > 0
        return np.asarray(((self.share(indices) > 0) & seen).any(axis=1) | ~seen.any(axis=1))

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
        mine = self._whose_turn(mine, step)
        zones, unit = indices[mine], self._unit(indices[mine])[:, None]
        origins = (step - self._steps[h]) // self._stride
        answers, there = self._days.answers_then(zones, step // self._stride, origins, h)
        # Of old targets the pool learns nothing.
        y = np.where(self.share(zones) > 0, y[mine], np.float32(np.nan))[:, None]
        y = np.where((due[mine] & there)[..., None], y, np.float32(np.nan))
        off = np.abs(y[..., None] - np.stack([*answers, old[mine]], axis=-1))
        sizes = self.prior.answers[hour[mine][:, None], h] * unit[..., None]
        self._weights.learn(zones, h, off, sizes, part)
        self._widths.learn(zones, h, at, y, self.prior.issued[hour[mine][:, None], h] * unit, part)

    def see(self, indices: I64, step: int, y: F32) -> None:
        """Take a row's targets ``[Z, M]``, NaN where unknown."""
        self._days.see(indices, y)
        if step % self._stride:
            return
        mine = np.flatnonzero(self.young(indices) | (np.isfinite(y) & (self.share(indices) > 0)).any(axis=1))
        if len(mine):
            self._days.keep(indices[mine], step // self._stride, y[mine])

    def forecast(self, indices: I64, step: int, hour: I64, old: F32 | None) -> F32:
        """The first days' forecasts ``[Z, H, M]``, NaN where :meth:`share` is 0.

        ``hour [Z, H]`` is that of each horizon; ``old`` what the learners forecast, ``None`` between examples: there
        the weights are those of the example before.
        """
        s, share = self._zones, self.share(indices)
        mixed = s["mixed"][indices]
        # At examples, whenever a zone was born (-1: never yet): between them nobody says what the learners forecast.
        stale = np.flatnonzero(self.young(indices) & (step // self._stride > mixed // self._stride))
        if len(stale):
            turn = self._whose_turn(stale, step)
            self._weigh(indices[turn], step, hour[turn])
            new = stale[s["mixed"][indices[stale]] < 0]
            self._weigh(indices[new], step, hour[new])
            self._mix(indices[stale], step, None if old is None else old[stale])
        out = s["share"][indices] * self._days.zones["last"][indices][:, None] + s["rest"][indices]
        return np.where((share > 0)[:, None], out, np.float32(np.nan))

    def widths(self, indices: I64, hour: I64, horizons: I64) -> F32:
        """How far p10 and p90 are from the median in the first days, ``[Z, H, M]``: never 0, and no further than what
        the zone has seen lies apart, but where the prior says so.

        ``horizons`` says which horizon each column of ``hour [Z, H]`` belongs to.
        """
        size = self.prior.issued[hour, horizons] * self._unit(indices)[:, None]
        most = np.maximum(self._days.span(indices)[:, None], np.float32(UNTOLD) * size)
        return np.asarray(np.minimum(self._widths.half(indices, horizons) * size, most), dtype=np.float32)

    def issued(self, zones: I64, at: I64) -> F32:
        """What was forecast and waits at ``at [P]`` for its truth, ``[Z, P, M]``."""
        return self._widths.issued(zones, at)

    def issue(self, zones: I64, at: I64, median: F32, where: _Bool | None = None) -> None:
        """Keep what was forecast, ``median [Z, ..., M]``, at ``at`` until its truth comes; only ``where``, if given."""
        self._widths.issue(zones, at, median, where)

    def bind(self, indices: I64, at: I64) -> None:
        """Keep how wide the intervals are now, of all horizons, at ``at [H]``."""
        self._widths.bind(indices, at)

    def answers(self, zones: I64, step: int) -> tuple[F32, F32, F32, F32]:
        """What ``ANSWERS`` say, less the last: each ``[Z, H, M]``, NaN where unknown."""
        return self._days.answers(zones, step // self._stride)

    def state_dict(self, copy: bool = True) -> dict[str, _Array]:
        """Everything that was learned (see :meth:`ZoneArrays.state_dict`)."""
        zones = {name: array for held in self._held for name, array in held.state_dict(copy).items()}
        return {**zones, **self._weights.pool_state(), **self._widths.pool_state()}

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        ZoneArrays.load_together(self._held, {name: state[name] for name in state if not name.startswith("pool_")})
        self._weights.load_pool(state)
        self._widths.load_pool(state)

    def _whose_turn(self, places: I64, step: int) -> I64:
        """Those of the places of zones that learn or are weighed at this example."""
        return places[whose_turn(len(places), MOST_ZONES, step // self._stride)]

    def _weigh(self, zones: I64, step: int, hour: I64) -> None:
        """Find each answer's weight and the width, as errors are known now."""
        prior, tried = self.prior, self._days.knows_yesterday(zones, step // self._stride)
        at_hours = prior.answers[hour, np.arange(hour.shape[1])]
        self._weights.weigh(zones, prior.mean, at_hours, self._unit(zones), tried)
        self._widths.widen(zones)

    def _mix(self, zones: I64, step: int, old: F32 | None) -> None:
        """Weigh the answers, and keep what of the forecast is not the value now."""
        s, weight = self._zones, self._weights.zones["weight"][zones]
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

    def _unit(self, zones: I64) -> F32:
        """What the prior's sizes are multiplied by, ``[Z, M]``."""
        if not self.prior.relative.any():
            return np.ones((len(zones), len(self.prior.relative)), dtype=np.float32)
        level = np.nan_to_num(np.abs(self._days.zones["level"][zones]))
        return np.where(self.prior.relative, np.maximum(level, self.prior.least_level), np.float32(1))
