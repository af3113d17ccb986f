"""Step 5 of the way of a reading: sensors that are stuck, spike, are off or fall silent, found while rows come.

Only what changes continuously is checked: actuators and setpoints may stand still or jump as they like. Each zone's
channels are held against how they behaved at this hour of day in the last weeks: how far they moved in a step, how far
they were from the site's other zones, how long they stayed the same, how long they were silent. What goes well beyond
all of that is a fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from models.durations import DAY_MS, HOUR_MS
from models.features.weather_metrics import is_weather
from models.zone_arrays import ZoneArrays, ZoneState

__all__ = ["FAULT_KINDS", "LEAST", "SensorFault", "SensorFaults"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

Kind = Literal["stuck", "spike", "offset", "drop_out"]
FAULT_KINDS: tuple[Kind, ...] = get_args(Kind)
_STUCK, _SPIKE, _OFFSET, _DROP_OUT = range(1, len(FAULT_KINDS) + 1)
"""A cell's fault as a number; 0 is none."""

LEAST = {
    "air_temp_c": 1.0, "rh_pct": 4.0, "co2_ppm": 50.0, "leaf_temp_c": 1.5, "soil_temp_c": 0.7,
    "out_temp_c": 1.5, "out_rh_pct": 6.0,
}  # fmt: skip
"""The channels that are checked, and departures too small to be called a fault, in their units."""

LEARN_MS = 3 * DAY_MS
"""No fault is called in a channel's first days; no offset until twice that."""

MEMORY_DAYS = 14.0
"""How slowly the largest move, the range and the longest stand are forgotten."""

MOVE = 2.0
"""A spike moves this many times further in a step than anything around this hour of day did ..."""

AROUND = 36
"""... in so many rows a day: those of an hour to each side, where rows are of 5 minutes. The longer rows are, the more
hours these are: the largest of few moves is no measure.
"""

SETTLE_STEPS = 3
"""A level that is still there after as many steps was no spike."""

SLOWER = 0.1
"""Readings that come further apart than usual move what is usual by this share of the difference; those that come
closer are usual at once, so that a lost reading of many makes no slow sensor.
"""

RANGE = 1.0
"""An offset lies this share of the usual range beyond it, or half of that where it began with a jump ..."""

OFFSET_MS = HOUR_MS
"""... for this long; for two steps where it began with a jump, and for one that was held back as a spike until then."""

GIVE_UP_MS = 2 * DAY_MS
"""An offset that lasts longer is the new normal: a sensor that was moved, a greenhouse that is run otherwise."""

STUCK = 2.0
"""A stuck channel stands still for this many times longer than it ever did ..."""

STUCK_MS = 5_400_000
"""... and for this long at least."""

FEW = 3.0
"""Where readings come further apart than so many steps, few would be the same by chance in that time: it is as many
times longer.
"""

SATURATED_PCT = 99.0
"""At this humidity and above a sensor may stand still."""

SILENT_MS = 1_800_000
"""A drop-out lasts this long at least, and twice the longest usual gap."""

GONE_MS = DAY_MS
"""A channel that was silent for longer comes back to other conditions; it is first only watched, for as long again."""

_HOURS = 24


@dataclass(frozen=True, slots=True)
class SensorFault:
    """A fault of zone ``zone``'s ``channel`` that lasts; ``size`` is the value it is stuck at, the last departure of a
    spike or an offset, in the channel's unit.
    """

    zone: int
    channel: str
    kind: Kind
    since_step: int
    size: float

    def words(self, since: str, unit: str = "") -> str:
        """One line for people; ``since`` is ``since_step`` as they write times.

        >>> SensorFault(0, "rh_pct", "stuck", 7, 71.3).words("02:10")
        'rh_pct: stuck at 71.3 since 02:10'
        >>> SensorFault(0, "air_temp_c", "offset", 7, -4.21).words("02:10", "degC")
        'air_temp_c: 4.2 degC below its usual range since 02:10'
        """
        unit = f" {unit}" if unit else ""
        side = "above" if self.size > 0 else "below"
        said = {
            "stuck": f"stuck at {self.size:.6g}{unit}",
            "spike": f"spikes, last {abs(self.size):.1f}{unit} {side} its level",
            "offset": f"{abs(self.size):.1f}{unit} {side} its usual range",
            "drop_out": "silent",
        }
        return f"{self.channel}: {said[self.kind]} since {since}"


class SensorFaults(ZoneState):
    """Watches the checked channels of many zones, vectorised over them; about 5 KB a zone, the same work each step.

    Call :meth:`learn` once a step with the rows of one site's zones: three or more are each other's neighbours.
    """

    def __init__(self, channels: Sequence[str], step_ms: int, capacity: int = 16) -> None:
        self.channels = tuple(name for name in LEAST if name in channels)
        self._columns = [channels.index(name) for name in self.channels]
        self._least = np.array([LEAST[name] for name in self.channels], dtype=np.float32)
        self._site_wide = np.array([is_weather(name) for name in self.channels], dtype=bool)
        self._has_ends = np.array([name == "co2_ppm" for name in self.channels], dtype=bool)
        self._top = np.array([SATURATED_PCT if "rh" in name else np.inf for name in self.channels], dtype=np.float32)

        def steps(ms: int) -> int:
            return max(round(ms / step_ms), 2)

        self._learn, self._offset, self._give_up = steps(LEARN_MS), steps(OFFSET_MS), steps(GIVE_UP_MS)
        self._stuck, self._silent, self._gone = steps(STUCK_MS), steps(SILENT_MS), steps(GONE_MS)
        day = DAY_MS / step_ms
        self._a_day = day
        self._forget = np.float32(1 - np.exp(-_HOURS / (MEMORY_DAYS * day)))  # at each step of an hour of day
        self._slow = np.float32(1 - np.exp(-1 / (MEMORY_DAYS * day)))
        k = len(self.channels)
        count, number, when = ((k,), np.int32, 0), ((k,), np.float32, np.nan), ((k,), np.int64, -1)
        by_hour = ((_HOURS, k), np.float32, np.nan)
        self._zones = ZoneArrays(
            capacity,
            seen=count, heard=when, gap=((k,), np.float32, 0.0), every=((k,), np.float32, 1.0),
            value=number, value_since=when, stood=((k,), np.float32, 0.0), low=number, high=number,
            level=number, level_step=when, jumping=count, settled=when, move=by_hour, paced=((k,), np.float32, 1.0),
            beside_above=by_hour, beside_below=by_hour, own_above=by_hour, own_below=by_hour,
            outside=count, inside=count,
            kind=((k,), np.int8, 0), since=when, last=when, size=number,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._zones)

    def learn(self, indices: I64, step: int, values: F32, hour: int) -> tuple[F32, list[SensorFault]]:
        """The rows of one step of a site's zones, ``values [Z, C]``, as a copy with NaN where a sensor is faulty, and
        the faults that were found in this step.

        ``hour`` is the local hour of day, 0 ... 23. ``step`` never goes back.
        """
        x = np.asarray(values[:, self._columns], dtype=np.float32)
        cells = {name: self._zones[name][indices] for name in _CELLS}
        near = (hour + np.arange(-1, 2)) % _HOURS
        stands_in = self._stand_ins(cells, indices, x, near)
        x = np.where(stands_in, np.float32(np.nan), x)
        known = np.isfinite(x)
        before = np.rint(cells["every"])
        every, since = self._pace(cells, step, known)
        stands_for = np.minimum(since, every).astype(np.int32)  # steps, of a reading of now
        cells["seen"] += np.where(known, stands_for, 0)
        gone = known & (cells["heard"] >= 0) & (step - cells["heard"] > self._gone)
        cells["seen"] = np.where(gone, np.minimum(cells["seen"], self._learn - self._gone), cells["seen"])
        ready = cells["seen"] > self._learn
        spoken = cells["heard"]
        silence = self._hear(cells, step, known)
        stuck = self._stand(cells, step, x, known, silence, spoken, every) & ready
        spike = self._move(cells, indices, step, x, known & ~stuck, ready, hour, every, since, np.fmin(before, every))
        offset = self._range(cells, indices, step, x, known & ~stuck & ~spike, hour, near, stands_for)
        started = self._name(cells, step, [stuck, spike, offset, ~known & silence & ready])
        for name, held in cells.items():
            self._zones[name][indices] = held
        clean = values.copy()
        clean[:, self._columns] = np.where(stuck | spike | offset, np.float32(np.nan), x)
        return clean, self._faults(indices, started)

    def load_state_dict(self, state: Mapping[str, _Array]) -> None:
        """Take over what :meth:`state_dict` gave, also in a release that took a reading for each step; raises
        ``ValueError`` if it does not fit.
        """
        if "every" not in state and "gap" in state:
            state = {**state, "every": np.ones_like(state["gap"])}
        if "paced" not in state and "every" in state:  # long enough ago to have shown their moves
            state = {**state, "paced": np.rint(state["every"])}
        super().load_state_dict(state)

    def active(self, indices: I64) -> list[SensorFault]:
        """The faults of these zones that last, a site-wide sensor's in each of them."""
        return self._faults(indices, self._zones["kind"][indices] > 0)

    def _stand_ins(self, cells: dict[str, _Array], indices: I64, x: F32, near: I64) -> Bool:
        """Which values stand for missing ones. Whoever collects readings may write one number, such as 0, for all that
        he does not get: zones that never say the same do so then, far beyond what they ever said at this hour. Not so
        of CO2, whose sensors share their ends: many show no less than 400 ppm, and 0 is not plausible anyway.
        """
        one = _alike(x) & ~_alike(cells["value"]) & ~self._site_wide & ~self._has_ends
        if not one.any():
            return np.zeros(x.shape, dtype=bool)
        # Zones of one sensor also differ in their newest value, where a row of one of them was lost.
        beside = np.stack([self._zones[f"beside_{side}"][indices[:, None], near] for side in ("below", "above")])
        one &= (np.nan_to_num(beside) != 0).any(axis=(0, 1, 2)) | np.isnan(beside).all(axis=(0, 1, 2))
        below, above = self._usual_range(indices, near, np.ones(x.shape, dtype=bool))
        margin = np.maximum(RANGE / 2 * (above - below), self._least)
        far = (np.fmax(x - above, below - x) > margin) & (cells["seen"] > self._learn) & (x < self._top)
        return np.asarray(one & (far.sum(axis=0) > 1) & np.isfinite(x))

    def _pace(self, cells: dict[str, _Array], step: int, known: Bool) -> tuple[F32, F32]:
        """How many steps apart the channels' readings usually are, up to an hour, as a sensor may report less often
        than rows close; and how many steps before this one the last of them was, also up to an hour.
        """
        every = cells["every"]
        since = np.where(cells["heard"] >= 0, np.minimum(step - cells["heard"], self._offset), 1)
        slower = every + np.float32(SLOWER) * (since - every)
        cells["every"] = np.where(known, np.minimum(since, slower), every).astype(np.float32)
        return np.rint(every), since.astype(np.float32)

    def _hear(self, cells: dict[str, _Array], step: int, known: Bool) -> Bool:
        """Which channels are silent for longer than they usually are, or were until now."""
        silence = np.where(cells["heard"] >= 0, step - cells["heard"], 0)
        limit = np.maximum(self._silent, 2 * cells["gap"])
        # A longer silence is learned little by little: one bad night must not hide the next.
        cells["gap"] = np.maximum(cells["gap"] * (1 - self._slow), np.where(known, np.minimum(silence, limit), 0))
        cells["heard"] = np.where(known, step, cells["heard"])
        return np.asarray(silence > limit)

    def _stand(
        self, cells: dict[str, _Array], step: int, x: F32, known: Bool, silence: Bool, spoken: I64, every: F32
    ) -> Bool:
        """Which channels have had one value for longer than they ever had. What was ``spoken`` last, before a
        ``silence``, ended then: nobody knows whether a sensor that comes back with the same value has moved meanwhile.

        At the end of a sensor's scale, or of what it has shown so far, it may stay as long as it likes.
        """
        same = known & (x == cells["value"]) & ~silence
        stood = np.where(cells["value_since"] >= 0, np.where(silence, spoken, step) - cells["value_since"], 0)
        limit = np.maximum(self._stuck * np.maximum(every / FEW, 1), STUCK * cells["stood"])
        moved = known & ~same
        cells["stood"] = np.maximum(cells["stood"] * (1 - self._slow), np.where(moved, np.minimum(stood, limit), 0))
        cells["value"] = np.where(moved, x, cells["value"])
        cells["value_since"] = np.where(moved, step, cells["value_since"])
        # Beyond what it has shown lies what came as a spike and was not trusted.
        at_an_end = (x == cells["high"]) | (x == cells["low"]) | (x >= self._top)
        return np.asarray(same & (stood > limit) & ~at_an_end)

    def _move(
        self, cells: dict[str, _Array], indices: I64, step: int, x: F32, usable: Bool, ready: Bool, hour: int,
        every: F32, since: F32, pace: F32,
    ) -> Bool:  # fmt: skip
        """Which values are further from the newest trusted one than anything moved before, but for all zones. Where
        readings are lost, or come now in this row and now in the next, a move that took longer may be as much larger.
        So it may where readings come at a slower ``pace`` than those whose moves are known, until a day has shown its
        own.
        """
        age = step - cells["level_step"]
        comparable = usable & (cells["level_step"] >= 0) & (age <= (SETTLE_STEPS + 1) * every)
        departure = np.where(comparable, x - cells["level"], np.float32(np.nan))
        moved = np.fmin(np.abs(departure), np.abs(departure - self._neighbours(departure)))
        largest = self._largest_moves(indices, hour, every)
        usual = MOVE * largest * np.maximum(since / every, 1) * np.maximum(pace / cells["paced"], 1)
        jump = comparable & ready & (moved > np.maximum(usual, self._least))
        cells["jumping"] = np.where(jump, cells["jumping"] + 1, np.where(usable, 0, cells["jumping"]))
        settled = cells["jumping"] > SETTLE_STEPS
        spike = jump & ~settled
        cells["settled"] = np.where(settled, step, cells["settled"])
        cells["jumping"] = np.where(settled, 0, cells["jumping"])
        cells["size"] = np.where(spike, departure, cells["size"])
        held = self._zones["move"][indices, hour]
        learned = np.where(settled, np.fmin(moved, MOVE * largest), np.where(spike | (age >= 2 * every), np.nan, moved))
        self._zones["move"][indices, hour] = np.fmax(held * (1 - self._forget), learned)
        share_of_day = np.where(np.isfinite(learned), np.fmin(since, every) / np.float32(self._a_day), np.float32(0))
        cells["paced"] = cells["paced"] + share_of_day * (pace - cells["paced"])
        trusted = usable & ~spike
        cells["level"] = np.where(trusted, x, cells["level"])
        cells["level_step"] = np.where(trusted, step, cells["level_step"])
        extends = trusted & (x != cells["value"]) | trusted & (cells["value_since"] == step)
        cells["high"] = np.where(extends, np.fmax(cells["high"], x), cells["high"])
        cells["low"] = np.where(extends, np.fmin(cells["low"], x), cells["low"])
        return np.asarray(spike)

    def _largest_moves(self, indices: I64, hour: int, every: F32) -> F32:
        """The largest of so many moves a day around an hour, ``[Z, K]``: the rarer readings are, of the more hours."""
        reach = np.clip(np.ceil((AROUND * _HOURS / self._a_day * every - 1) / 2), 1, _HOURS // 2)
        around = np.arange(-int(reach.max(initial=1)), int(reach.max(initial=1)) + 1)
        moves = self._zones["move"][indices[:, None], (hour + around) % _HOURS]
        return _most(np.where(np.abs(around)[:, None] <= reach[:, None], moves, np.float32(np.nan)))

    def _range(
        self, cells: dict[str, _Array], indices: I64, step: int, x: F32, usable: Bool, hour: int, near: I64,
        stands_for: _Array,
    ) -> Bool:  # fmt: skip
        """Which channels are off: beyond their range at this hour of day beside the other zones, or their own range
        where there are no others. The weather is free to be what it never was.
        """
        was_off = cells["kind"] == _OFFSET
        # A zone that is off already must not move the middle that the others are held against.
        centre = self._neighbours(np.where(usable & ~was_off, x, np.float32(np.nan)))
        alone = np.isnan(centre)
        x = np.where(usable, x, np.float32(np.nan))
        measured = {"own": x, "beside": x - centre}
        value = np.where(alone, measured["own"], measured["beside"])
        below, above = self._usual_range(indices, near, alone)
        beyond = np.fmax(value - above, below - value)
        jumped = (cells["settled"] >= 0) & (step - cells["settled"] <= self._offset)
        margin = np.maximum(np.where(jumped, RANGE / 2, RANGE) * (above - below), self._least)
        out = usable & ~self._site_wide & (cells["seen"] > 2 * self._learn) & (beyond > margin)
        cells["outside"] = np.where(out, cells["outside"] + stands_for, np.where(usable, 0, cells["outside"]))
        back = np.where(usable, np.where(beyond <= 0, cells["inside"] + stands_for, 0), cells["inside"])
        cells["inside"] = np.where(was_off, back, 0)
        long_enough = np.where(cells["settled"] == step, 1, np.where(jumped, 2, self._offset))
        begins = ~was_off & (cells["outside"] >= long_enough)
        is_back = was_off & (cells["inside"] >= self._offset // 2)
        is_normal = was_off & (step - cells["since"] > self._give_up)
        offset = (was_off | begins) & ~is_back & ~is_normal & usable
        cells["size"] = np.where(offset, np.where(value > above, value - above, value - below), cells["size"])
        cells["seen"] = np.where(is_normal, self._learn, cells["seen"])
        self._learn_range(indices, hour, measured, usable & ~offset & ~out, is_normal)
        return np.asarray(offset)

    def _usual_range(self, indices: I64, near: I64, alone: Bool) -> tuple[_Array, _Array]:
        """The least and the most that was measured around this hour of day: by itself where a channel is ``alone``,
        beside the other zones where it is not.
        """
        low = {of: -_most(-self._zones[f"{of}_below"][indices[:, None], near]) for of in ("own", "beside")}
        high = {of: _most(self._zones[f"{of}_above"][indices[:, None], near]) for of in ("own", "beside")}
        return np.where(alone, low["own"], low["beside"]), np.where(alone, high["own"], high["beside"])

    def _learn_range(self, indices: I64, hour: int, measured: Mapping[str, F32], fine: Bool, is_normal: Bool) -> None:
        """Widen the ranges of this hour of day to what is ``fine``, and narrow them slowly. Where an offset has become
        the new normal, they begin anew at all hours.
        """
        z, k = np.nonzero(is_normal)
        for name, said in measured.items():
            tops, bottoms = self._zones[f"{name}_above"], self._zones[f"{name}_below"]
            tops[indices[z], :, k] = bottoms[indices[z], :, k] = np.nan
            high, low = tops[indices, hour], bottoms[indices, hour]
            shrink = self._forget * np.nan_to_num(high - low)
            tops[indices, hour] = np.where(fine, np.fmax(high - shrink, said), high)
            bottoms[indices, hour] = np.where(fine, np.fmin(low + shrink, said), low)

    def _neighbours(self, x: F32) -> F32:
        """The median of three zones or more, ``[K]``; NaN for fewer, and for what the site has one sensor of."""
        known = np.isfinite(x)
        count, channel = known.sum(axis=0), np.arange(len(self.channels))
        ordered = np.sort(np.where(known, x, np.float32(np.inf)), axis=0)  # numpy's nanmedian takes 3 ms for this
        low = ordered[np.maximum(count - 1, 0) // 2, channel]
        high = ordered[np.minimum(count // 2, len(x) - 1), channel]
        return np.where((count >= 3) & ~self._site_wide, (low + high) / 2, np.float32(np.nan))

    def _name(self, cells: dict[str, _Array], step: int, found: list[Bool]) -> Bool:
        """Keep each cell's fault for :meth:`active`; which ones are new."""
        before = cells["kind"]
        kind = np.select(found, [*range(1, len(FAULT_KINDS) + 1)], 0).astype(np.int8)
        # Spikes come one at a time: the sensor is called faulty until an hour went by without.
        lingers = (kind == 0) & (before == _SPIKE) & (step - cells["last"] <= self._offset)
        # A missing value between faulty ones ends no fault.
        lasts = (before == _STUCK) | (before == _OFFSET) & (cells["inside"] < self._offset // 2)
        waits = (kind == 0) & lasts & (cells["heard"] < step)
        cells["last"] = np.where(kind > 0, step, cells["last"])
        kind = np.where(lingers | waits, before, kind)
        new = (kind > 0) & (kind != before)
        since = np.select(
            [kind == _STUCK, kind == _OFFSET, kind == _DROP_OUT],
            [cells["value_since"], step - cells["outside"] + 1, cells["heard"] + 1],
            step,
        )
        cells["since"] = np.where(new, since, cells["since"])
        cells["size"] = np.where(kind == _STUCK, cells["value"], cells["size"])
        cells["kind"] = kind
        return np.asarray(new)

    def _faults(self, indices: I64, where: Bool) -> list[SensorFault]:
        found = []
        for z, k in np.argwhere(where).tolist():
            zone = int(indices[z])
            kind, since, size = (self._zones[name][zone, k] for name in ("kind", "since", "size"))
            found.append(SensorFault(zone, self.channels[k], FAULT_KINDS[int(kind) - 1], int(since), float(size)))
        return found


_CELLS = (
    "seen", "heard", "gap", "every", "value", "value_since", "stood", "low", "high", "level", "level_step", "jumping",
    "settled", "paced", "outside", "inside", "kind", "since", "last", "size",
)  # fmt: skip


def _alike(x: F32) -> Bool:
    """In which channels two zones or more say something, and all of them the same, ``[K]``."""
    known = np.isfinite(x)
    low, high = np.where(known, x, np.inf).min(axis=0), np.where(known, x, -np.inf).max(axis=0)
    return np.asarray((known.sum(axis=0) > 1) & (low == high))


def _most(by_hour: F32) -> F32:
    """The largest of some hours, ``[Z, H, K] -> [Z, K]``; NaN where none is known."""
    return np.asarray(np.fmax.reduce(by_hour, axis=1))
