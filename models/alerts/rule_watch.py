"""Step 9 of the way of a reading: what rules say of the zones of a site, every half hour.

:class:`RuleWatch` composes what rules watch, scenarios, and the calibration of chances. It has no clock and no I/O;
what it learns depends on rows and forecasts alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from models.alerts.alert_rule import AlertRule
from models.alerts.chance_calibration import ChanceCalibration
from models.alerts.foreseen import STEP_MS, ForeseenEvent, foresee, joined, reach_steps, steps_of
from models.alerts.measures import OF_A_DAY, Track, margin
from models.alerts.occurrences import occurring
from models.features.regressors import HOLD_MS
from models.masked import held_along
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["DAY_STEPS", "METRICS", "RuleWatch", "Said", "SiteAhead", "with_held"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

METRICS = ("air_temp_c", "rh_pct", "co2_ppm", "leaf_temp_c", "out_radiation_w_m2")
"""What rules of a course read of rows."""

DAY_STEPS = 48
RING = 2 * DAY_STEPS
"""Half hours that are remembered of a zone."""

COLDEST_C, WARMEST_C = -60.0, 80.0
"""Scenarios of a zone's first hours may go beyond what any air has."""

SEEN_AGAIN = 8
"""Whether an event went on is looked at again for so many half hours: it must last to be one."""


def with_held(rows: F32, spec: ForecastSpec) -> F32:
    """``rows [Z, L, C]`` in which what rules read counts as unchanged for an hour, as it does for forecasts; a copy.

    Else a rule would see a sensor that reports on change, or every quarter of an hour, for single rows only, which are
    no event.

    >>> spec = ForecastSpec(("air_temp_c",), targets=("air_temp_c",), step_ms=1_800_000)
    >>> with_held(np.array([[[np.nan], [3.0], [np.nan], [np.nan], [np.nan]]], dtype=np.float32), spec)[0, :, 0].tolist()
    [nan, 3.0, 3.0, 3.0, nan]
    """
    columns = [spec.channels.index(name) for name in METRICS if name in spec.channels]
    made = rows.copy()
    made[..., columns] = held_along(rows[..., columns], HOLD_MS // spec.step_ms)
    return made


@dataclass(frozen=True, slots=True)
class SiteAhead:
    """What is known of a site's zones at one half hour, besides their rows; ``T`` half hours ahead, 48 at most.

    ``night`` and ``minute`` are those of the rows' ends and of the times ahead, on the site's clock.
    """

    half_hour: int  # counts up
    scenarios: Mapping[str, F32]  # target -> [S, Z, T]
    night: tuple[Bool, Bool]  # [L], [T]
    minute: tuple[I64, I64]  # [L], [T], of the day
    late_ms: int = 0  # how long after its half hour the newest row ends

    @property
    def end_ms(self) -> int:
        """The end of the newest row."""
        return self.half_hour * STEP_MS + self.late_ms

    def of(self, places: I64) -> SiteAhead:
        """The zones at ``places`` alone."""
        return replace(self, scenarios={name: drawn[:, places] for name, drawn in self.scenarios.items()})


@dataclass(frozen=True, slots=True)
class Said:
    """What a rule says of a zone: scenarios, the chance that they make, and the climatology's; ``None`` is unknown."""

    event: ForeseenEvent | None
    chance: float
    usual: float


class RuleWatch:
    """Rules of a course over many zones; each half hour, for the zones of a site: :meth:`see`. A rule looks as far as
    its lead, and no further than forecasts go.
    """

    def __init__(self, rules: Sequence[AlertRule], spec: ForecastSpec, capacity: int = 16) -> None:
        self.rules = tuple(rule for rule in rules if rule.is_course)
        self._spec, self._half = spec, STEP_MS // spec.step_ms
        self._columns = {name: spec.channels.index(name) for name in METRICS if name in spec.channels}
        # In half hours, by rule: how far ahead its chance looks.
        self.leads = [min(steps_of(rule.lead_h * 60), reach_steps(spec)) for rule in self.rules]
        self._chances = [ChanceCalibration(lead, capacity) for lead in self.leads]
        self._zones = ZoneArrays(
            capacity,
            half=((), np.int64, -1),  # of the newest entries, ...
            on=((RING, len(self.rules)), np.int8, -1),  # 1 where an event went on, -1 unknown
            now=((RING, len(self.rules)), np.int8, -1),  # the same at its end
        )
        # Rules of a number of 24 hours: which column is theirs, and their margins when half hours ended.
        of_a_day = [r for r, rule in enumerate(self.rules) if rule.kind in OF_A_DAY]
        self._day_columns = {r: column for column, r in enumerate(of_a_day)}
        self._margins = ZoneArrays(capacity, beyond=((RING, len(of_a_day)), np.float32, np.nan))

    def __len__(self) -> int:
        return len(self._zones)

    def add_zones(self, count: int = 1) -> int:
        """Make room for more zones and return the index of the first."""
        for chances in self._chances:
            chances.add_zones(count)
        self._margins.add(count)
        return self._zones.add(count)

    def newest(self, indices: I64) -> I64:
        """The half hour at which each zone was seen last, -1 for none."""
        return np.asarray(self._zones["half"][indices])

    def take_over(self, other: RuleWatch, own: I64, theirs: I64) -> None:
        """Take what ``other`` has learned of its zones ``theirs``, which are ``own`` here: of each rule that watches
        the same. Of the others nothing is known, also where the zones were here before: nobody looked meanwhile.
        """
        for name in ("on", "now"):
            self._zones[name][own] = -1
        self._margins["beyond"][own] = np.nan
        for r, rule in enumerate(self.rules):
            at = next((n for n, before in enumerate(other.rules) if _watches_the_same(rule, before)), None)
            if at is None:
                continue
            self._chances[r].take_over(other._chances[at], own, theirs)
            for name in ("on", "now"):
                self._zones[name][own, :, r] = other._zones[name][theirs, :, at]
            if r in self._day_columns:
                theirs_then = other._margins["beyond"][theirs, :, other._day_columns[at]]
                self._margins["beyond"][own, :, self._day_columns[r]] = theirs_then
        self._zones["half"][own] = other._zones["half"][theirs]

    def calibration(self, rule: str) -> ChanceCalibration:
        """The chances of a rule."""
        return self._chances[[each.name for each in self.rules].index(rule)]

    def see(self, indices: I64, rows: F32, ahead: SiteAhead) -> list[list[Said]]:
        """What each rule says of each zone; ``rows [Z, L, C]`` are those of a day, the newest last.

        Raises ``ValueError`` where rows do not fill half hours.
        """
        if STEP_MS % self._spec.step_ms:
            raise ValueError(f"rows of {self._spec.step_ms} ms do not fill half hours")
        tracks = [self._past(zone, ahead) for zone in rows]
        for z, track in enumerate(tracks):
            self._mark(int(indices[z]), track, ahead.half_hour)
        futures = [self._future(z, track, ahead) for z, track in enumerate(tracks)]
        coarse = [_every(track, self._half) for track in tracks]
        wholes = [joined(past, future) for past, future in zip(coarse, futures, strict=True)]
        hour = int(ahead.minute[0][-1]) // 60
        found: list[list[Said]] = [[] for _ in tracks]
        now = [self.is_now(int(index), ahead.half_hour) for index in indices]
        for r, rule in enumerate(self.rules):
            events = []
            for z, (past, future) in enumerate(zip(coarse, futures, strict=True)):
                before = self._margins_before(int(indices[z]), ahead.half_hour, r, len(past.minute))
                events.append(foresee(rule, past, future, bool(now[z][r]), wholes[z], before))
            share = np.array([np.nan if event is None else event.chance for event in events], dtype=np.float32)
            came = self._came(indices, r, ahead.half_hour, self.leads[r])
            chance, usual = self._chances[r].step(indices, ahead.half_hour, hour, share, came)
            for z, event in enumerate(events):
                found[z].append(Said(event, float(chance[z]), float(usual[z])))
        return found

    def is_now(self, index: int, half_hour: int) -> Bool:
        """Which rules have an event in a zone that has gone on for long enough, ``[R]``; as :meth:`see` found."""
        return np.asarray(self._zones["now"][index, half_hour % RING] == 1)

    def since(self, index: int, half_hour: int, rule: int) -> int:
        """For how many half hours the rule's event has gone on in a zone; 0 where none does, 48 at most."""
        on, back = self._zones["on"][index, :, rule], 0
        while back < DAY_STEPS and on[(half_hour - back) % RING] == 1:
            back += 1
        return back

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """Everything that was learned, by rule."""
        chances = {rule.name: each.state_dict(copy) for rule, each in zip(self.rules, self._chances, strict=True)}
        return {
            "zones": self._zones.state_dict(copy), "chances": chances, "margins": self._margins.state_dict(copy),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit. A release before kept no
        margins.
        """
        if set(state["chances"]) != {rule.name for rule in self.rules}:
            raise ValueError("this state is one of other rules")
        self._zones.load_state_dict(state["zones"])
        unknown = np.full((len(self._zones), RING, len(self._day_columns)), np.nan, dtype=np.float32)
        self._margins.load_state_dict(state.get("margins", {"beyond": unknown}))
        for rule, each in zip(self.rules, self._chances, strict=True):
            each.load_state_dict(state["chances"][rule.name])

    def _past(self, rows: F32, ahead: SiteAhead) -> Track:
        values = {name: rows[:, column] for name, column in self._columns.items()}
        return Track(values, self._spec.step_ms, ahead.night[0], ahead.minute[0])

    def _future(self, z: int, past: Track, ahead: SiteAhead) -> Track:
        """Scenarios of a zone; where nobody forecasts light or the leaf, the day before says how they go."""
        values: dict[str, _Array] = {name: drawn[:, z] for name, drawn in ahead.scenarios.items()}
        air = values["air_temp_c"] = np.clip(values["air_temp_c"], COLDEST_C, WARMEST_C)
        steps = air.shape[-1]
        before = _every(past, self._half)
        values["out_radiation_w_m2"] = np.broadcast_to(_wrapped(before["out_radiation_w_m2"], steps), air.shape)
        values["leaf_temp_c"] = air + _wrapped(before["leaf_temp_c"] - before["air_temp_c"], steps)
        return Track(values, STEP_MS, ahead.night[1], ahead.minute[1])

    def _mark(self, index: int, track: Track, half_hour: int) -> None:
        """Remember in which half hours events went on; what was not seen is unknown."""
        s = self._zones
        gone = min(half_hour - int(s["half"][index]), RING)
        for back in range(gone):
            at = (half_hour - back) % RING
            s["on"][index, at] = s["now"][index, at] = -1
            self._margins["beyond"][index, at] = np.nan
        s["half"][index] = half_hour
        halves = min(SEEN_AGAIN, len(track.minute) // self._half)
        places = (half_hour - halves + 1 + np.arange(halves)) % RING
        for r, rule in enumerate(self.rules):
            beyond = margin(rule, track)
            if r in self._day_columns:
                self._mark_day(index, r, float(beyond[-1]), half_hour)
                continue
            steps = [steps_of(minutes, track.step_ms) for minutes in (rule.for_min, rule.keep_min)]
            on = occurring(beyond, rule.hysteresis, *steps)[-halves * self._half :].reshape(halves, self._half)
            known = np.isfinite(beyond) | np.isneginf(beyond)
            known = known[-halves * self._half :].reshape(halves, self._half)
            s["on"][index, places, r] = np.where(on.any(axis=1), 1, np.where(known.any(axis=1), 0, -1))
            s["now"][index, places, r] = np.where(on[:, -1], 1, np.where(known[:, -1], 0, -1))

    def _mark_day(self, index: int, r: int, newest: float, half_hour: int) -> None:
        """As :meth:`_mark`, for a rule about 24 hours as a whole: from its margin at the end of each half hour seen."""
        s, rule = self._zones, self.rules[r]
        self._margins["beyond"][index, half_hour % RING, self._day_columns[r]] = newest
        order = (half_hour + 1 + np.arange(RING)) % RING  # oldest first
        beyond = self._margins["beyond"][index, order, self._day_columns[r]]
        steps = [steps_of(minutes) for minutes in (rule.for_min, rule.keep_min)]
        on = occurring(beyond, rule.hysteresis, *steps)[-SEEN_AGAIN:]
        known, places = ~np.isnan(beyond[-SEEN_AGAIN:]), order[-SEEN_AGAIN:]
        for name in ("on", "now"):
            before = s[name][index, places, r]
            s[name][index, places, r] = np.where(on, 1, np.where(known, 0, before))

    def _margins_before(self, index: int, half_hour: int, r: int, steps: int) -> F32 | None:
        """The margins of the newest half hours, oldest first, of a rule of a number of 24 hours."""
        if r not in self._day_columns:
            return None
        order = (half_hour + 1 - steps + np.arange(steps)) % RING
        return np.asarray(self._margins["beyond"][index, order, self._day_columns[r]])

    def _came(self, indices: I64, r: int, half_hour: int, lead: int) -> F32:
        """What came of the chances of a lead ago: NaN where an event went on then, or too little is known."""
        s = self._zones
        window = (half_hour - lead + 1 + np.arange(lead)) % RING
        on = s["on"][indices[:, None], window, r]
        then = s["now"][indices, (half_hour - lead) % RING, r]
        came = (on == 1).any(axis=1)
        known = (then == 0) & (came | ((on >= 0).mean(axis=1) >= 0.8))
        return np.where(known, came, np.nan).astype(np.float32)


def _watches_the_same(rule: AlertRule, before: AlertRule) -> bool:
    """Whether both have the same events, whatever they are called and from whichever chance they warn."""
    return replace(rule, name="", severity="info", chance=0.5) == replace(before, name="", severity="info", chance=0.5)


def _every(track: Track, half: int) -> Track:
    """The rows that end at half hours, as the times ahead do; the newest is the last."""
    pick = slice((len(track.minute) - 1) % half, None, half)
    values = {name: held[pick] for name, held in track.values.items()}
    return Track(values, STEP_MS, track.night[pick], track.minute[pick])


def _wrapped(day: _Array, steps: int) -> _Array:
    """The day before as the day ahead: the value a day before each time; NaN where the past is shorter."""
    full = np.full(DAY_STEPS, np.nan, dtype=np.float32)
    full[DAY_STEPS - min(len(day), DAY_STEPS) :] = day[-DAY_STEPS:]
    return full[:steps]
