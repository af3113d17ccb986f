"""Step 9 of the way of a reading: rules of a state, which nobody needs to foresee: a sensor fails, a zone is silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from models.alerts.alert_book import RuleFinding
from models.alerts.alert_rule import AlertRule
from models.durations import MINUTE_MS

__all__ = ["TOLERANCES", "Fact", "Tolerance", "finding_of", "unplanned"]

_Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far from its plan a setpoint may be at a limit of 1, and how its values are written."""

    size: float
    unit: str
    decimals: int

    def words(self, value: float) -> str:
        """A value with its unit.

        >>> Tolerance(1.0, "°C", 1).words(29.9062)
        '29.9 °C'
        """
        return f"{value:.{self.decimals}f} {self.unit}"


TOLERANCES = {
    "sp_heat_c": Tolerance(1.0, "°C", 1),
    "sp_vent_c": Tolerance(1.0, "°C", 1),
    "sp_pipe_min_c": Tolerance(5.0, "°C", 0),
    "sp_rh_pct": Tolerance(5.0, "%", 0),
    "sp_hd_g_m3": Tolerance(0.5, "g/m³", 1),
    "sp_co2_ppm": Tolerance(100.0, "ppm", 0),
}

POSITION = Tolerance(30.0, "%", 0)
"""That of screens, lamps and vents."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that is so, of a kind of :data:`~models.alerts.alert_rule.STATES`, since when, in words.

    Where it is so beyond a limit, it is a fact for rules with this ``limit`` alone.
    """

    kind: str
    since_ms: int
    words: str
    limit: float | None = None


def finding_of(rule: AlertRule, facts: Sequence[Fact], at_ms: int) -> RuleFinding:
    """What facts say of a rule: those of its kind, and of its limit where they have one, count once they have lasted
    for ``for_min`` minutes.

    >>> rule = AlertRule(name="faults", kind="sensor_fault", for_min=15)
    >>> facts = [Fact("sensor_fault", 0, "rh_pct: stuck at 71.3 since 02:10")]
    >>> finding_of(rule, facts, 600_000).is_now, finding_of(rule, facts, 900_000).is_now
    (False, True)
    """
    about = [fact for fact in facts if fact.kind == rule.kind and fact.limit in (None, rule.limit)]
    mine = [fact for fact in about if at_ms - fact.since_ms >= rule.for_min * MINUTE_MS]
    if not mine:
        return RuleFinding(0.0)
    return RuleFinding(1.0, True, min(fact.since_ms for fact in mine), at_ms, "; ".join(fact.words for fact in mine))


def unplanned(
    rule: AlertRule, realised: Mapping[str, _Array], planned: Mapping[str, _Array], end_ms: int, step_ms: int,
    looked_ms: int = 0, since: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Fact]:  # fmt: skip
    """Setpoints that are further from what was planned than the rule's limit times their tolerance, since when they
    are, by metric; ``[N]`` each, the newest row last. Where either is unknown, nothing is said.

    ``since`` is what was found so at ``looked_ms``: it goes on unless a later row was as planned. So one that is off
    each plan of a source that issues many is off since the first.

    >>> rule = AlertRule(name="plan", kind="plan_not_followed", limit=0.5)
    >>> realised, planned = {"sp_heat_c": np.array([18.0, 15.0, 15.0])}, {"sp_heat_c": np.full(3, 18.0)}
    >>> fact = unplanned(rule, realised, planned, 900, 300)["sp_heat_c"]
    >>> fact.since_ms, fact.words
    (300, 'sp_heat_c is 15.0 °C, planned 18.0 °C')
    """
    found = {}
    for metric, wanted in planned.items():
        if metric not in realised:
            continue
        distance = np.abs(realised[metric] - wanted)
        tolerance = TOLERANCES.get(metric, POSITION)
        off = distance > rule.limit * tolerance.size
        follows = np.isfinite(distance) & ~off
        run = int(np.argmin(off[::-1])) if not off.all() else len(off)
        if not run:
            continue
        # Where nothing is known of the row before, it may be so since the end of the first row only.
        before = len(off) - run - 1
        since_ms = end_ms - (run if before >= 0 and follows[before] else run - 1) * step_ms
        later = min(max(end_ms - looked_ms, 0) // step_ms, len(off))
        if metric in since and not follows[len(off) - later :].any():
            since_ms = min(since_ms, since[metric])
        words = f"{metric} is {tolerance.words(realised[metric][-1])}, planned {tolerance.words(wanted[-1])}"
        found[metric] = Fact(rule.kind, since_ms, words, rule.limit)
    return found
