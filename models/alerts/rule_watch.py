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
from models.alerts.measures import Track, margin
from models.alerts.occurrences import occurring
from models.spec import ForecastSpec
from models.zone_arrays import ZoneArrays

__all__ = ["METRICS", "RuleWatch", "Said", "SiteAhead"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
_Array = npt.NDArray[Any]

METRICS = ("air_temp_c", "rh_pct", "co2_ppm", "leaf_temp_c", "out_radiation_w_m2")
"""What rules of a course read of rows."""

DAY_STEPS = 48

COLDEST_C, WARMEST_C = -60.0, 80.0
"""Scenarios of a zone's first hours may go beyond what any air has."""

SEEN_AGAIN = 8
"""Whether an event went on is looked at again for so many half hours: it must last to be one."""


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
        """The same of some of the zones."""
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
        self._leads = [min(steps_of(rule.lead_h * 60), reach_steps(spec)) for rule in self.rules]
        self._chances = [ChanceCalibration(lead, capacity) for lead in self._leads]
        self._zones = ZoneArrays(
            capacity,
            half=((), np.int64, -1),  # of the newest entries, ...
            on=((2 * DAY_STEPS, len(self.rules)), np.int8, -1),  # 1 where an event went on, -1 unknown
            now=((2 * DAY_STEPS, len(self.rules)), np.int8, -1),  # the same at its end
        )

    def __len__(self) -> int:
        return len(self._zones)

    def add_zones(self, count: int = 1) -> int:
        """Make room for more zones and return the index of the first."""
        for chances in self._chances:
            chances.add_zones(count)
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
        for r, rule in enumerate(self.rules):
            at = next((n for n, before in enumerate(other.rules) if _watches_the_same(rule, before)), None)
            if at is None:
                continue
            self._chances[r].take_over(other._chances[at], own, theirs)
            for name in ("on", "now"):
                self._zones[name][own, :, r] = other._zones[name][theirs, :, at]
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
            events = [
                foresee(rule, past, future, bool(now[z][r]), wholes[z])
                for z, (past, future) in enumerate(zip(coarse, futures, strict=True))
            ]
            share = np.array([np.nan if event is None else event.chance for event in events], dtype=np.float32)
            came = self._came(indices, r, ahead.half_hour, self._leads[r])
            chance, usual = self._chances[r].step(indices, ahead.half_hour, hour, share, came)
            for z, event in enumerate(events):
                found[z].append(Said(event, float(chance[z]), float(usual[z])))
        return found

    def is_now(self, index: int, half_hour: int) -> Bool:
        """Which rules have an event in a zone that has gone on for long enough, ``[R]``; as :meth:`see` found."""
        return np.asarray(self._zones["now"][index, half_hour % (2 * DAY_STEPS)] == 1)

    def since(self, index: int, half_hour: int, rule: int) -> int:
        """For how many half hours the rule's event has gone on in a zone; 0 where none does, 48 at most."""
        on, ring = self._zones["on"][index, :, rule], 2 * DAY_STEPS
        back = 0
        while back < DAY_STEPS and on[(half_hour - back) % ring] == 1:
            back += 1
        return back

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """Everything that was learned, by rule."""
        chances = {rule.name: each.state_dict(copy) for rule, each in zip(self.rules, self._chances, strict=True)}
        return {"zones": self._zones.state_dict(copy), "chances": chances}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; raises ``ValueError`` if it does not fit."""
        if set(state["chances"]) != {rule.name for rule in self.rules}:
            raise ValueError("this state is one of other rules")
        self._zones.load_state_dict(state["zones"])
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
        s, ring = self._zones, 2 * DAY_STEPS
        gone = min(half_hour - int(s["half"][index]), ring)
        for back in range(gone):
            s["on"][index, (half_hour - back) % ring] = s["now"][index, (half_hour - back) % ring] = -1
        s["half"][index] = half_hour
        halves = min(SEEN_AGAIN, len(track.minute) // self._half)
        places = (half_hour - halves + 1 + np.arange(halves)) % ring
        for r, rule in enumerate(self.rules):
            beyond = margin(rule, track)
            steps = [steps_of(minutes, track.step_ms) for minutes in (rule.for_min, rule.keep_min)]
            on = occurring(beyond, rule.hysteresis, *steps)[-halves * self._half :].reshape(halves, self._half)
            known = np.isfinite(beyond) | np.isneginf(beyond)
            known = known[-halves * self._half :].reshape(halves, self._half)
            s["on"][index, places, r] = np.where(on.any(axis=1), 1, np.where(known.any(axis=1), 0, -1))
            s["now"][index, places, r] = np.where(on[:, -1], 1, np.where(known[:, -1], 0, -1))

    def _came(self, indices: I64, r: int, half_hour: int, lead: int) -> F32:
        """What came of the chances of a lead ago: NaN where an event went on then, or too little is known."""
        s, ring = self._zones, 2 * DAY_STEPS
        window = (half_hour - lead + 1 + np.arange(lead)) % ring
        on = s["on"][indices[:, None], window, r]
        then = s["now"][indices, (half_hour - lead) % ring, r]
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
