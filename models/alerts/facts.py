"""Step 9 of the way of a reading: rules of a state, which nobody needs to foresee: a sensor fails, a zone is silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from models.alerts.alert_book import RuleFinding
from models.alerts.alert_rule import AlertRule

__all__ = ["TOLERANCES", "Fact", "finding_of", "unplanned"]

_Array = npt.NDArray[Any]


TOLERANCES = {
    "sp_heat_c": 1.0, "sp_vent_c": 1.0, "sp_pipe_min_c": 5.0, "sp_rh_pct": 5.0, "sp_hd_g_m3": 0.5, "sp_co2_ppm": 100.0,
}  # fmt: skip
"""So far from its plan a setpoint may be, in its unit, at a limit of 1; ..."""

TOLERANCE_PCT = 30.0
"""... and positions of screens, lamps and vents."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that is so, of a kind of :data:`~models.alerts.alert_rule.STATES`, since when, in words."""

    kind: str
    since_ms: int
    words: str


def finding_of(rule: AlertRule, facts: Sequence[Fact], at_ms: int) -> RuleFinding:
    """What facts say of a rule: those of its kind count once they have lasted for ``for_min`` minutes.

    >>> rule = AlertRule(name="faults", kind="sensor_fault", for_min=15)
    >>> facts = [Fact("sensor_fault", 0, "rh_pct: stuck at 71.3 since 02:10")]
    >>> finding_of(rule, facts, 600_000).is_now, finding_of(rule, facts, 900_000).is_now
    (False, True)
    """
    mine = [f for f in facts if f.kind == rule.kind and at_ms - f.since_ms >= rule.for_min * 60_000]
    if not mine:
        return RuleFinding(0.0)
    return RuleFinding(1.0, True, min(fact.since_ms for fact in mine), at_ms, "; ".join(fact.words for fact in mine))


def unplanned(
    rule: AlertRule, realised: Mapping[str, _Array], planned: Mapping[str, _Array], end_ms: int, step_ms: int
) -> list[Fact]:
    """Setpoints that are further from what was planned than the rule's limit times their tolerance, since when they
    are; ``[N]`` each, the newest row last. Where either is unknown, nothing is said.

    >>> rule = AlertRule(name="plan", kind="plan_not_followed", limit=0.5)
    >>> [fact] = unplanned(rule, {"sp_heat_c": np.array([18.0, 15.0, 15.0])}, {"sp_heat_c": np.full(3, 18.0)}, 900, 300)
    >>> fact.since_ms, fact.words
    (300, 'sp_heat_c is 15, planned 18')
    """
    found = []
    for metric, wanted in planned.items():
        if metric not in realised:
            continue
        off = np.abs(realised[metric] - wanted) > rule.limit * TOLERANCES.get(metric, TOLERANCE_PCT)
        run = int(np.argmin(off[::-1])) if not off.all() else len(off)
        if run:
            words = f"{metric} is {realised[metric][-1]:g}, planned {wanted[-1]:g}"
            found.append(Fact(rule.kind, end_ms - run * step_ms, words))
    return found
