"""Whether there is evidence of what a change would do: changes like it, in states like the zone's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt

from models.effects.effect_inputs import STATE
from models.effects.effect_network import EffectNetwork
from models.effects.plan_change import CHANGEABLE, GRID_MIN, HOW_OF, PlanChange
from models.effects.situation import EFFECT_TARGETS, SEEN, Situation

__all__ = ["MOST_CHANGES", "NO_EVIDENCE", "SEEN_OFTEN", "WIDEST", "Support", "TimesSeen", "support_of", "vague"]

F32 = npt.NDArray[np.float32]

NO_EVIDENCE = "not enough evidence"

TimesSeen = Callable[[str, float], int]
"""How often the zone has seen a metric moved by as much (``SeenChanges.times``)."""

SEEN_OFTEN = 3
"""A change is known here once the zone has seen so many like it."""

MOST_CHANGES = 3
"""Changes at a time that were tried together."""

SHORTEST_MIN = 30.0

MOST_STRANGE = 0.2
"""Share of the times at which a part of the state may lie outside of what was simulated."""

LEAST_KNOWN = 0.5
"""Share of the last day of which air and weather must be known."""

WIDEST: Mapping[str, tuple[float, str]] = MappingProxyType(
    {"air_temp_c": (8.0, "°C"), "rh_pct": (60.0, "%"), "co2_ppm": (1000.0, "ppm")}
)
"""Metric -> how wide the 80 % interval of an effect may be, and its unit. Within a day the climate itself
moves about as far: a wider interval tells nothing of it."""

_NEEDED = ("air_temp_c", "rh_pct", "out_temp_c")
_SAID = {
    "air": "air_temp_c", "rh": "rh_pct", "co2": "co2_ppm", "sp_heat": "sp_heat_c",
    "air off heat": "air_temp_c beside sp_heat_c", "out": "out_temp_c", "air off out": "air_temp_c beside out_temp_c",
    "radiation": "out_radiation_w_m2", "wind": "wind_m_s",
}  # fmt: skip
"""The parts of the state of which the range is asked, as metrics, which readers have their own words for."""


@dataclass(frozen=True, slots=True)
class Support:
    """``level`` is where such changes were seen: in this zone, too, only in simulated houses, or nowhere; and why."""

    level: Literal["here", "simulated", "none"]
    reasons: tuple[str, ...]

    @property
    def words(self) -> str:
        """One sentence."""
        first = {
            "here": "Such changes were seen in this zone and in simulated houses",
            "simulated": "Such changes were seen in simulated houses only, not in this zone",
            "none": f"There is {NO_EVIDENCE} for a number",
        }[self.level]
        return f"{first}: {'; '.join(self.reasons)}." if self.reasons else f"{first}."


def support_of(
    situation: Situation, changes: Sequence[PlanChange], state: F32, network: EffectNetwork, times_seen: TimesSeen
) -> Support:
    """Of one zone (``situation`` of length 1) with ``state [T, STATE]`` on the way."""
    against = [*_untried(changes), *_unknown(situation)]
    if not against:
        against = [*_strange(state, network), *(words for one in changes for words in _beyond(situation, one))]
    if against:
        return Support("none", tuple(dict.fromkeys(against)))
    seen = []
    for change in changes:
        by = _largest(situation, change)
        times = times_seen(change.metric, by)
        if times < SEEN_OFTEN:
            return Support("simulated", ())
        seen.append(f"{change.metric} was moved so {times} times")
    return Support("here", tuple(seen))


def vague(effect: F32) -> list[str]:
    """Why ``effect [T, EFFECT_TARGETS, Q]`` is no answer: what is too uncertain to be of use. Empty where it is one.

    >>> vague(np.tile(np.float32([-33.0, -4.0, 22.0]), (1, 4, 1)))[0]
    'air_temp_c may change by -33 to +22 °C, too uncertain to be of use; ask for a smaller or a shorter change'
    """
    said = []
    for target, (widest, unit) in WIDEST.items():
        low, high = effect[:, EFFECT_TARGETS.index(target)][:, [0, 2]].T
        wide = high - low
        if np.nanmax(wide, initial=0.0) > widest:
            at = int(np.nanargmax(wide))
            said.append(
                f"{target} may change by {low[at]:+.0f} to {high[at]:+.0f} {unit}, too uncertain to be of use; "
                "ask for a smaller or a shorter change"
            )
    return said


def _untried(changes: Sequence[PlanChange]) -> list[str]:
    said = []
    for change in changes:
        tried = CHANGEABLE.get(change.metric)
        if tried is None:
            said.append(f"no house was tried with {change.metric}; ask for one of {', '.join(CHANGEABLE)}")
        elif change.how not in tried.hows:
            ways = ", ".join(word for word, how in HOW_OF.items() if how in tried.hows)
            said.append(f"houses were tried with {change.metric} only as: {ways}")
        elif min(change.end_min, GRID_MIN[-1]) - max(change.begin_min, 0) < SHORTEST_MIN:
            said.append(f"within the day ahead {change.metric} changes for less than {SHORTEST_MIN:g} minutes")
    if len(changes) > MOST_CHANGES:
        said.append(f"{len(changes)} changes were never tried together, at most {MOST_CHANGES}")
    if len({change.metric for change in changes}) < len(changes):
        said.append("several changes of one metric were never tried together; ask for them one by one")
    return said


def _unknown(situation: Situation) -> list[str]:
    said = []
    for metric in _NEEDED:
        known = np.isfinite(situation.day[0, :, SEEN.index(metric)]).mean()
        if known < LEAST_KNOWN:
            said.append(f"{metric} is known of {24 * known:.0f} of the last 24 hours, {24 * LEAST_KNOWN:g} are needed")
    if not np.isfinite(situation.path[0, :, 0]).all():
        said.append("there is no forecast of air_temp_c")
    return said


def _strange(state: F32, network: EffectNetwork) -> list[str]:
    said = []
    for part, name in _SAID.items():
        k = STATE.index(part)
        values = state[:, k]
        low, high = network.arrays["state_low"][k], network.arrays["state_high"][k]
        outside = np.isfinite(values) & ((values < low) | (values > high))
        if outside.mean() > MOST_STRANGE:
            said.append(f"{name} lies outside of what simulated houses were tried in")
    return said


def _beyond(situation: Situation, change: PlanChange) -> list[str]:
    by = _moves(situation, change)
    if np.isnan(by).any():
        return [f"nobody says what {change.metric} is without the change: send it, or a plan of it"]
    tried = CHANGEABLE[change.metric]
    if by.size and not (tried.low - 0.05 <= by.min() and by.max() <= tried.high + 0.05):
        worst = by.min() if by.min() < tried.low else by.max()
        return [f"{change.metric} would move by {worst:g}, houses were tried with {tried.low:g} to {tried.high:g}"]
    return []


def _moves(situation: Situation, change: PlanChange) -> F32:
    """By how much the metric moves at the times at which the change holds."""
    usual = situation.usual(change.metric, GRID_MIN)[0]
    if change.metric == "vent_lee_pct":
        usual = np.zeros_like(usual)
    return change.moved(usual)[change.active() > 0]


def _largest(situation: Situation, change: PlanChange) -> float:
    by = _moves(situation, change)
    return float(by[np.argmax(np.abs(by))]) if by.size else 0.0
