"""Step 7 of the way of a reading: what was foreseen for a site, as it was issued.

A :class:`Plan` is a weather forecast, planned setpoints or events, as one source issued it. :class:`Plans` keeps those
of a site; :meth:`Plans.as_of` is the one place that says which of them a forecast, a training example or a backtest may
use at an origin. No clock, no I/O.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from models.durations import DAY_MS, HOUR_MS, MINUTE_MS
from models.half_precision import cut
from models.spec import ForecastSpec

__all__ = [
    "BINS_BACK",
    "BIN_MS",
    "KINDS",
    "PLANNED",
    "Plan",
    "PlanKind",
    "Plans",
    "add_planned",
    "bin_of",
    "bins_ahead",
    "planned_columns",
    "planned_now",
]  # fmt: skip

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

PlanKind = Literal["weather", "setpoint", "event"]
KINDS: tuple[PlanKind, ...] = ("weather", "setpoint", "event")

PLANNED = (
    "out_temp_c", "out_radiation_w_m2", "wind_m_s", "out_rh_pct", "sp_heat_c", "sp_vent_c", "sp_co2_ppm", "sp_hd_g_m3",
    "sp_rh_pct", "sp_pipe_min_c", "sp_screen_energy_pct", "sp_screen_black_pct", "sp_lamp_pct",
)  # fmt: skip
"""The metrics of plans that the learners take, in the order of their columns. Plans may say more."""

WIDEST_GAP_MS = 6 * HOUR_MS
"""Between two values of a weather forecast that lie further apart nothing is foreseen."""

HOLD_MS = {"weather": 1_800_000, "setpoint": DAY_MS}
"""How long the last value of a plan holds: an hour's mean stands for half an hour on either side, and a setpoint is
held until the next one, for a day at most. The first value of a weather forecast holds backwards as long."""

FURTHEST_MS = 16 * DAY_MS
"""Learners do not look further than this from when a plan was issued."""

BIN_MS = 1_800_000
"""Learners ask what is foreseen for each half-hour, by the middle of it, ..."""

BINS_BACK = 6
"""... from so many before that of the origin on, to see how right the plan was until now, past the longest horizon."""


def bin_of(time_ms: int) -> int:
    """The number of the half-hour that a row which ends then lies in."""
    return (time_ms - 1) // BIN_MS


def bins_ahead(spec: ForecastSpec) -> int:
    """How many half-hours :meth:`Plans.ahead` gives.

    >>> bins_ahead(ForecastSpec(channels=(), horizons_min=(5, 60)))
    10
    """
    return BINS_BACK + 1 + -(-max(spec.horizons_min) * MINUTE_MS // BIN_MS) + 1


def planned_columns(spec: ForecastSpec) -> list[int]:
    """Where rows have each of :data:`PLANNED`; -1 for what no zone measures."""
    return [spec.channels.index(name) if name in spec.channels else -1 for name in PLANNED]


def planned_now(values: F32, columns: Sequence[int]) -> F32:
    """What rows ``values [..., C]`` say of :data:`PLANNED`, by :func:`planned_columns`, ``-> [..., K]``; else NaN."""
    now = values[..., columns]
    now[..., [column < 0 for column in columns]] = np.nan
    return now


def add_planned(total: F32, count: _Array, row: F32, foreseen: F32 | None) -> F32:
    """The new ``total [Z, K]`` of ``count`` values, with a ``row`` of :func:`planned_now`; NaN counts for nothing.

    As long as nothing was measured it is what is ``foreseen [Z, T, K]`` (:meth:`Plans.ahead`) for now. So without a
    weather station the weather of now, and later that of yesterday, is known from forecasts; and where there is one, no
    mean is partly a forecast.
    """
    measured = np.where(count > 0, total, np.float32(0))
    nowcast = np.float32(np.nan) if foreseen is None else cut(foreseen[:, BINS_BACK])
    unmeasured = np.where(count > 0, total, nowcast)
    return np.asarray(np.where(np.isfinite(row), measured + row, unmeasured))


@dataclass(frozen=True, slots=True)
class Plan:
    """What one source foresaw, at one time.

    ``series`` is metric -> ``(valid_ms [N], value [N])``: times strictly ascending, UTC as all times; values finite, in
    the metric's unit. ``zone`` is empty for what holds for the whole site. ``known_ms`` is when it could first be used,
    by default when it was issued: later for one that arrived late.
    """

    source: str
    kind: PlanKind
    issued_ms: int
    series: Mapping[str, tuple[I64, F32]]
    zone: str = ""
    known_ms: int = -1
    ends_ms: int = field(default=0, init=False, repr=False, compare=False)
    """The last time of which it says something; when it was issued, if it says nothing."""
    _by_bin: list[tuple[int, F32]] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r} is no kind of plan: {', '.join(KINDS)}")
        series = {}
        for metric, (times, values) in sorted(self.series.items()):
            valid_ms, value = np.asarray(times, np.int64), np.asarray(values, np.float32)
            if valid_ms.shape != value.shape or valid_ms.ndim != 1 or not len(valid_ms):
                raise ValueError(f"the plan of {metric} needs as many values as times, and at least one")
            if (np.diff(valid_ms) <= 0).any() or not np.isfinite(value).all():
                raise ValueError(f"the times of the plan of {metric} must ascend, and its values be numbers")
            series[metric] = (valid_ms, value)
        object.__setattr__(self, "series", series)
        object.__setattr__(self, "known_ms", max(self.known_ms, self.issued_ms))
        ends_ms = max((int(times[-1]) for times, _ in series.values()), default=self.issued_ms)
        object.__setattr__(self, "ends_ms", ends_ms)

    def at(self, metric: str, times_ms: I64) -> F32:
        """What it foresees of ``metric`` at these times; NaN where it says nothing.

        A weather forecast is linear between its values; a setpoint holds until the next.

        >>> plan = Plan("grower", "setpoint", 0, {"sp_heat_c": ([0, 7_200_000], [18, 20])})
        >>> plan.at("sp_heat_c", np.array([-1, 0, 7_199_999, 7_200_000])).tolist()
        [nan, 18.0, 18.0, 20.0]
        """
        times = np.asarray(times_ms, np.int64)
        if metric not in self.series or self.kind == "event":
            return np.full(times.shape, np.nan, np.float32)
        valid_ms, value = self.series[metric]
        after = np.searchsorted(valid_ms, times, side="right")
        before = np.maximum(after - 1, 0)
        held = HOLD_MS[self.kind]
        if self.kind == "setpoint":
            known = (after > 0) & (times - valid_ms[before] <= held)
            return np.where(known, value[before], np.float32(np.nan))
        next_ = np.minimum(after, len(value) - 1)
        gap = valid_ms[next_] - valid_ms[before]
        share = (times - valid_ms[before]) / np.maximum(gap, 1)
        level = value[before] + np.clip(share, 0, 1) * (value[next_] - value[before])
        inside = (after > 0) & (after < len(value)) & (gap <= WIDEST_GAP_MS)
        near = np.minimum(abs(times - valid_ms[before]), abs(times - valid_ms[next_])) <= held
        return np.where(inside | near, level, np.nan).astype(np.float32)

    def in_bins(self, first: int, count: int) -> F32:
        """What it foresees of :data:`PLANNED` in ``count`` half-hours from number ``first`` on: ``[count, K]``.

        Worked out once for all that it says something of.
        """
        if not self._by_bin:
            begins_ms = min((int(times[0]) for times, _ in self.series.values()), default=self.issued_ms)
            begin = max(begins_ms, self.issued_ms - FURTHEST_MS) // BIN_MS - 1
            stop = min(self.ends_ms + max(HOLD_MS.values()), self.issued_ms + FURTHEST_MS) // BIN_MS + 2
            middles = np.arange(begin, stop) * BIN_MS + BIN_MS // 2
            self._by_bin.append((begin, np.stack([self.at(metric, middles) for metric in PLANNED], axis=-1)))
        begin, said = self._by_bin[0]
        found = np.full((count, len(PLANNED)), np.nan, np.float32)
        low, high = max(first, begin), min(first + count, begin + len(said))
        if low < high:
            found[low - first : high - first] = said[low - begin : high - begin]
        return found


@dataclass(slots=True)
class _Held:
    """The plans of one source and zone, by when they could be used."""

    plans: list[Plan] = field(default_factory=list)
    known_ms: list[int] = field(default_factory=list)  # of each, ascending

    def newest(self, origin_ms: int) -> Plan | None:
        """The one that was issued last, of those that could be used by then; of equals what came first."""
        until = self.plans[: bisect_right(self.known_ms, origin_ms)]
        return max(until, key=lambda plan: plan.issued_ms, default=None)


class Plans:
    """What was foreseen for one site.

    >>> plans = Plans()
    >>> plans.add(Plan("weather", "weather", 0, {"out_temp_c": ([0, 3_600_000], [4, 6])}))
    True
    >>> plans.add(Plan("weather", "weather", 600_000, {"out_temp_c": ([0, 3_600_000], [5, 7])}))
    True
    >>> [plan.issued_ms for plan in plans.as_of(599_999)]
    [0]
    >>> plans.foreseen(600_000, ["north"], ["out_temp_c"], np.array([1_800_000])).tolist()
    [[[6.0]]]
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], _Held] = {}  # (zone, source)
        self._newest: tuple[Any, tuple[Plan, ...], F32] | None = None  # what ahead() gave last, and of what

    def __len__(self) -> int:
        return sum(len(held.plans) for held in self._held.values())

    def add(self, plan: Plan) -> bool:
        """Keep a plan; ``False`` where this source has issued one for this zone at that time already: the first
        counts.
        """
        held = self._held.setdefault((plan.zone, plan.source), _Held())
        if any(plan.issued_ms == there.issued_ms for there in held.plans):
            return False
        insort(held.plans, plan, key=lambda there: there.known_ms)
        insort(held.known_ms, plan.known_ms)
        return True

    def withdraw(self, zone: str, source: str, after_ms: int) -> None:
        """Drop what a source has issued for a zone after ``after_ms``."""
        held = self._held.get((zone, source))
        if held is not None:
            held.plans = [plan for plan in held.plans if plan.issued_ms <= after_ms]
            held.known_ms = [plan.known_ms for plan in held.plans]

    def as_of(self, origin_ms: int) -> tuple[Plan, ...]:
        """The newest plan of each source, and of each zone that it plans for, of those that could be used by then.

        Ordered by zone, then by when they were issued, then by source. Nothing that was issued or became known later.
        """
        newest = (held.newest(origin_ms) for held in self._held.values())
        return tuple(sorted((p for p in newest if p), key=lambda plan: (plan.zone, plan.issued_ms, plan.source)))

    def foreseen(self, origin_ms: int, zones: Sequence[str], metrics: Sequence[str], times_ms: I64) -> F32:
        """What was foreseen at the origin, ``[Z, T, K]`` for ``times_ms [T]``; NaN where nothing was.

        A zone's own plan goes before one of the whole site, and of several sources the one that was issued last.
        """
        site = np.full((len(times_ms), len(metrics)), np.nan, np.float32)
        own: dict[str, list[Plan]] = {}
        for plan in self.as_of(origin_ms):
            if plan.zone:
                own.setdefault(plan.zone, []).append(plan)
            else:
                _write(site, plan, metrics, times_ms)
        found = np.repeat(site[None], len(zones), axis=0)
        for z, zone in enumerate(zones):
            for plan in own.get(zone, ()):
                _write(found[z], plan, metrics, times_ms)
        return found

    def as_issued(self, zone: str, metrics: Sequence[str], times_ms: I64, without: str = "") -> F32:
        """What was foreseen for a zone at each of these times, by what could be used then: ``[T, K]`` for ascending
        ``times_ms [T]``; NaN where nothing was. So a plan says nothing of what was before it was known. By the same
        rules as :meth:`foreseen`, of what is still kept, and without plans of one source.

        >>> plans = Plans()
        >>> plans.add(Plan("grower", "setpoint", 300_000, {"sp_heat_c": ([0], [18])}))
        True
        >>> plans.as_issued("north", ["sp_heat_c"], np.array([0, 300_000, 600_000])).tolist()
        [[nan], [18.0], [18.0]]
        """
        found = np.full((len(times_ms), len(metrics)), np.nan, np.float32)
        mine = [held for (of, source), held in self._held.items() if of in ("", zone) and source != without]
        known = sorted({ms for held in mine for ms in held.known_ms})
        for begin, end in pairwise([*np.searchsorted(times_ms, known).tolist(), len(times_ms)]):
            if begin == end:
                continue
            used = [plan for held in mine if (plan := held.newest(int(times_ms[begin]))) is not None]
            for plan in sorted(used, key=lambda plan: (plan.zone, plan.issued_ms, plan.source)):
                _write(found[begin:end], plan, metrics, times_ms[begin:end])
        return found

    def ahead(self, origin_ms: int, zones: Sequence[str], spec: ForecastSpec) -> F32:
        """What was foreseen at the origin for learners: ``[Z, T, K]`` of :data:`PLANNED` in :func:`bins_ahead`
        half-hours, of which number ``BINS_BACK`` is the origin's. By the same rules as :meth:`foreseen`; not to be
        changed.
        """
        used, first, count = self.as_of(origin_ms), bin_of(origin_ms) - BINS_BACK, bins_ahead(spec)
        made_of = (first, count, tuple(zones), tuple(map(id, used)))
        if self._newest is not None and self._newest[0] == made_of:
            return self._newest[2]
        place = {zone: z for z, zone in enumerate(zones)}
        found = np.full((len(zones), count, len(PLANNED)), np.nan, np.float32)
        for plan in used:
            if plan.kind == "event" or (plan.zone and plan.zone not in place):
                continue
            said = plan.in_bins(first, count)
            mine = found[place[plan.zone]] if plan.zone else found
            np.copyto(mine, said, where=np.isfinite(said))
        self._newest = made_of, used, found  # kept: another plan cannot have the id of one that is there
        return found

    def forget(self, before_ms: int) -> None:
        """Drop what no origin from ``before_ms`` on can use: superseded, or over for longer than a setpoint holds.

        To be called every step: then one plan of each source and zone is left.
        """
        held_ms = HOLD_MS["setpoint"] + (BINS_BACK + 1) * BIN_MS
        for key, held in list(self._held.items()):
            if len(held.plans) == 1 and held.plans[0].ends_ms + held_ms >= before_ms:
                continue
            newest = held.newest(before_ms)
            kept = [
                plan for plan in held.plans
                if (plan is newest or plan.known_ms > before_ms) and plan.ends_ms + held_ms >= before_ms
            ]  # fmt: skip
            if kept:
                self._held[key] = _Held(kept, [plan.known_ms for plan in kept])
            else:
                del self._held[key]

    def state_dict(self) -> list[dict[str, Any]]:
        """All plans, as maps of numbers and arrays."""
        return [
            {
                "source": plan.source, "kind": plan.kind, "zone": plan.zone, "issued_ms": plan.issued_ms,
                "known_ms": plan.known_ms,
                "series": {metric: {"valid_ms": t, "value": v} for metric, (t, v) in plan.series.items()},
            }
            for _, held in sorted(self._held.items()) for plan in held.plans
        ]  # fmt: skip

    def load_state_dict(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` where it does not fit."""
        self._held = {}
        for said in state:
            series = {metric: (arrays["valid_ms"], arrays["value"]) for metric, arrays in said["series"].items()}
            others = {name: said[name] for name in ("source", "kind", "zone", "issued_ms", "known_ms")}
            self.add(Plan(series=series, **others))


def _write(found: F32, plan: Plan, metrics: Sequence[str], times_ms: I64) -> None:
    """Put what ``plan`` foresees over ``found [T, K]``."""
    for k, metric in enumerate(metrics):
        if metric in plan.series:
            said = plan.at(metric, times_ms)
            found[:, k] = np.where(np.isnan(said), found[:, k], said)
