"""Step 7 of the way of a reading: what a pre-trained network is told of each zone's last day.

The network looks at windows of rows (:mod:`models.features.inputs`). To keep a whole window of each zone would take
more room than all that is learned; :class:`HouseMemory` keeps the means and rows that such a window is made of, of the
channels that the network knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from models.durations import HOUR_MS
from models.features.inputs import RECENT_MS, VPD_OF, targets_of
from models.features.plan_differences import foreseen_off
from models.features.plans import PLANNED, add_planned, planned_columns, planned_now
from models.half_precision import cut
from models.masked import masked_mean, newest_known
from models.network.house_features import CONTROLS, TARGETS
from models.psychrometrics import vpd_kpa
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["HouseMemory", "channels_of"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]


def channels_of(spec: ForecastSpec) -> tuple[str, ...]:
    """The last axis of :meth:`HouseMemory.window`: what the rows have of what the network knows.

    >>> channels_of(ForecastSpec(channels=("rh_pct", "rain", "air_temp_c", "lamp_pct")))
    ('air_temp_c', 'rh_pct', 'lamp_pct', 'vpd_kpa')
    """
    measured = tuple(name for name in (*TARGETS, *CONTROLS) if name in spec.channels)
    return measured if "vpd_kpa" in measured else (*measured, "vpd_kpa")


class HouseMemory:
    """Rows of many zones, vectorised over them. Each step :meth:`see`; at examples the other methods answer."""

    def __init__(self, spec: ForecastSpec, stride: int, capacity: int = 16) -> None:
        """``stride`` steps lie between examples."""
        self._spec, self._stride = spec, stride
        self._names = [name for name in channels_of(spec) if name in spec.channels]
        self._columns = [spec.channels.index(name) for name in self._names]
        self._plan_columns = planned_columns(spec)
        an_hour = max(HOUR_MS // spec.step_ms, 1)
        self._hours, self._an_hour = spec.lookback_steps // an_hour, an_hour
        self._recent = min(max(RECENT_MS // spec.step_ms, 1), spec.lookback_steps)
        self._steps = np.array(spec.horizon_steps, dtype=np.int64)
        self._places = max(spec.lookback_steps, spec.steps_per_day) // stride + 2
        wide, targets = len(self._names), len(spec.targets)
        self._zones = ZoneArrays(
            capacity,
            row=((max(self._recent, an_hour, stride), wide), np.float16, np.nan),
            row_at=((max(self._recent, an_hour, stride),), np.int32, -1),
            hour=((self._places, wide), np.float16, np.nan),  # means of the hour that ends at an example
            target=((self._places, targets), np.float16, np.nan),
            at=((self._places,), np.int32, -1),
        )
        self._planned: ZoneArrays | None = None  # from the first plan on

    def add_zones(self, count: int = 1) -> None:
        """Make room for more zones."""
        self._zones.add(count)
        if self._planned:
            self._planned.add(count)

    def prepare(self, zones: int) -> None:
        """Prepare room for this many zones in all. Call it often; see ``ZoneArrays.prepare``."""
        self._zones.prepare(zones)
        if self._planned:
            self._planned.prepare(zones)

    def see(self, indices: I64, step: int, values: F32, foreseen: F32 | None = None) -> None:
        """Take the rows of one step, ``values [Z, C]``; what nobody measures is as it is ``foreseen`` for now."""
        s = self._zones
        kept = values[:, self._columns]
        row = np.where(np.isfinite(kept), cut(kept), np.float32(np.nan))
        ring = s["row"].shape[1]
        s["row"][indices, step % ring], s["row_at"][indices, step % ring] = row, step
        if self._planned:
            row = planned_now(values, self._plan_columns)
            self._see_planned(self._planned, indices, step, row, foreseen)
        if step % self._stride:
            return
        at = step // self._stride % self._places
        s["hour"][indices, at] = masked_mean(self._rows(indices, step, self._an_hour), axis=1)
        s["target"][indices, at] = cut(self._targets(indices, step, values, self._stride))
        s["at"][indices, at] = step

    def _see_planned(self, s: ZoneArrays, indices: I64, step: int, row: F32, foreseen: F32 | None) -> None:
        s["passed"][indices] = add_planned(s["passed"][indices], s["counted"][indices], row, foreseen)
        s["counted"][indices] += np.isfinite(row)
        mean = s["passed"][indices] / np.maximum(s["counted"][indices], 1)
        s["now"][indices] = np.where(np.isnan(row), mean, row)
        if step % self._stride:
            return
        s["mean"][indices, step // self._stride % self._places] = cut(mean)
        s["passed"][indices], s["counted"][indices] = np.nan, 0

    def remember_planned(self) -> None:
        """From now on remember what plans are measured against; before the first plan it is not kept."""
        if self._planned is None:
            self._planned = self._new_planned(len(self._zones))
            self._planned.add(len(self._zones))

    def _new_planned(self, capacity: int) -> ZoneArrays:
        count = len(PLANNED)
        return ZoneArrays(
            capacity,
            mean=((self._places, count), np.float16, np.nan),  # since the example before
            passed=((count,), np.float32, 0.0),  # sums since then
            counted=((count,), np.int32, 0),
            now=((count,), np.float32, np.nan),
        )

    def window(self, zones: I64, step: int) -> F32:
        """Hourly means, then the newest rows, ``[Z, T, C]`` with the channels of :func:`channels_of`. The last one has
        what was read last in the hour.
        """
        ends = step - np.arange(self._hours - 1, -1, -1) * self._an_hour
        hours = self._held(self._zones["hour"], zones, np.rint(ends / self._stride).astype(np.int64))
        rows = self._rows(zones, step, self._recent)
        rows[:, -1], _ = newest_known(rows, self._recent - 1)
        tokens = np.concatenate([hours, rows], axis=1)
        if "vpd_kpa" in self._names:
            return tokens
        unknown = np.full(tokens.shape[:-1], np.nan, tokens.dtype)
        moist = [tokens[..., self._names.index(name)] if name in self._names else unknown
                 for name in VPD_OF]  # fmt: skip
        return np.concatenate([tokens, vpd_kpa(*moist)[..., None]], axis=-1, dtype=np.float32)

    def now(self, zones: I64, step: int, values: F32) -> F32:
        """The targets of the newest rows, ``values [Z, C]``, which were seen already; what these lack is as it was read
        last in the hour, ``[Z, M]``.
        """
        return self._targets(zones, step, values, self._recent)

    def yesterday(self, zones: I64, step: int) -> F32:
        """The targets a whole number of days before each horizon, ``[Z, H, M]``; between examples on a line."""
        back = -self._steps % self._spec.steps_per_day
        before, rest = np.divmod(step - back, self._stride)
        low = self._held(self._zones["target"], zones, before)
        share = (rest / self._stride).astype(np.float32)[:, None]
        if not share.any():
            return low
        high = self._held(self._zones["target"], zones, before + (rest > 0))
        return np.where(share > 0, low + share * (high - low), low)

    def foreseen_off(self, zones: I64, step: int, ahead: F32) -> F32:
        """What was foreseen, ``ahead [Z, T, P]``, off what was, ``[Z, H, 3 * P]``: see
        :func:`~models.features.plan_differences.plan_differences`, of whose means those here end at examples.
        """
        assert self._planned is not None, "remember_planned() comes first"
        day = self._spec.steps_per_day
        then = step + self._steps - day * -(-self._steps // day)
        place = np.rint(then / self._stride).astype(np.int64)
        around = np.stack([self._held(self._planned["mean"], zones, place + n) for n in (0, 1)])
        # A place after the newest is not there: a whole number of days before a whole number of days is now.
        around[1, :, place + 1 > step // self._stride] = np.nan
        here = step // self._stride
        places = here - day // self._stride + 1 + np.arange(day // self._stride)
        held = self._held(self._planned["mean"], zones, places)  # [Z, D, P]
        known = np.isfinite(held)
        total = np.where(known, held, np.float32(0)).cumsum(axis=1)
        count = known.cumsum(axis=1)
        until = np.clip(place - places[0], 0, len(places) - 1)
        way = np.where(count[:, until] > 0, total[:, until] / np.maximum(count[:, until], 1), np.float32(np.nan))
        origins = np.full(len(zones), step * self._spec.step_ms)
        return foreseen_off(ahead, self._planned["now"][zones], masked_mean(around, axis=0), way, origins, self._spec)

    def state_dict(self, copy: bool = True) -> dict[str, dict[str, _Array]]:
        """See :meth:`ZoneArrays.state_dict`."""
        planned = {} if self._planned is None else {"planned": self._planned.state_dict(copy)}
        return {"rows": self._zones.state_dict(copy), **planned}

    def load_state_dict(self, state: Mapping[str, Mapping[str, _Array]]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        self._zones.load_state_dict(state["rows"])
        self._planned = None
        if "planned" in state:
            self._planned = self._new_planned(1)
            self._planned.load_state_dict(state["planned"])

    def _targets(self, zones: I64, step: int, values: F32, count: int) -> F32:
        """The targets of rows ``values [Z, C]``, ``[Z, M]``; what these lack is as in the newest of ``count`` rows."""
        held = values[:, self._columns]
        older, _ = newest_known(self._rows(zones, step, count), count - 1)
        row = values.copy()
        row[:, self._columns] = np.where(np.isnan(held), older, held)
        return targets_of(row, self._spec)

    def _rows(self, zones: I64, step: int, count: int) -> F32:
        """The newest rows up to ``step``, ``[Z, count, C]``; NaN where there is none."""
        steps = step - np.arange(count - 1, -1, -1)
        at = steps % self._zones["row"].shape[1]
        there = self._zones["row_at"][zones[:, None], at] == steps
        held = self._zones["row"][zones[:, None], at]
        return np.where(there[..., None], held, np.float16(np.nan)).astype(np.float32)

    def _held(self, ring: _Array, zones: I64, places: I64) -> F32:
        """Entries of the examples ``places [P]``, ``[Z, P, ...]``; NaN where there is none."""
        at = places % self._places
        there = self._zones["at"][zones[:, None], at] == places * self._stride
        return np.where(there[..., None], ring[zones[:, None], at], np.float16(np.nan)).astype(np.float32)
