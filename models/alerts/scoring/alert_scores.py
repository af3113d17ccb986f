"""Step 10 of the way of a reading: how good alerts were, when their time has passed.

An event was told if an alert had fired an hour before it began at the latest, and was still there when it began. An
alert is false if no event came from when it fired until it was over, and until the end of what it said, as far as that
is known. If somebody did something about it meanwhile, it is set aside: nobody knows what would have come. Chances are
judged by their Brier score beside the climatology's, of all half hours at which no event went on. A rule has few events
in a recording of weeks; :func:`score_together` says how good all were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from models.alerts.occurrences import spans_of
from models.durations import DAY_MS, HOUR_MS, WEEK_MS
from models.evaluation.path_scores import Reliability, Skill, brier_skill, reliability

__all__ = [
    "ACTIONS",
    "EARLY_MS",
    "FEW",
    "KNOWN",
    "AlertTally",
    "RuleScore",
    "ToldAlert",
    "acted",
    "came_near",
    "day_before",
    "score_rule",
    "score_together",
]

Bool = npt.NDArray[np.bool_]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_Array = npt.NDArray[Any]

EARLY_MS = HOUR_MS
"""An event is told if it was said this long before it began."""

EDGES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Chances are grouped at these, to see whether they come true as often as they say."""

GROUP, GROUP_DAYS = 50, 10
"""A group of fewer cases, or on fewer days, says nothing of reliability: half hours of a night come true together."""

FEW = 10
"""A rule with fewer events is not judged alone: one event is more than a tenth of its hit rate."""

KNOWN = 0.8
"""Of a time with fewer known rows nobody can say that no event came."""


CASE = ("chance", "usual", "came", "day")
"""What a case of a chance consists of."""

ACTIONS: dict[str, dict[str, float]] = {
    "frost": {"sp_heat_c": 1.0},
    "heat": {"sp_vent_c": -1.0},
    "condensation": {"sp_heat_c": 1.0, "sp_pipe_min_c": 5.0, "sp_rh_pct": -3.0, "sp_hd_g_m3": 0.5},
    "vpd_low": {"sp_heat_c": 1.0, "sp_pipe_min_c": 5.0, "sp_rh_pct": -3.0, "sp_hd_g_m3": 0.5},
    "vpd_high": {"sp_vent_c": 1.0, "sp_rh_pct": 3.0, "sp_hd_g_m3": -0.5},
    "co2_low": {"sp_co2_ppm": 50.0},
    "co2_high": {"sp_co2_ppm": -50.0},
    "botrytis": {"sp_heat_c": 1.0, "sp_pipe_min_c": 5.0, "sp_rh_pct": -3.0, "sp_hd_g_m3": 0.5},
    "mean_low": {"sp_heat_c": 1.0},
    "mean_high": {"sp_heat_c": -1.0},
}
"""What counts as doing something about a kind of alert: a setpoint that is this much beside that of a day before."""


@dataclass(frozen=True, slots=True)
class ToldAlert:
    """An alert that fired: at which step of which zone, when it was over, and the end of what it said last.

    ``end`` is None while it is not over.
    """

    zone: int
    told: int
    end: int | None
    until: int
    acted: bool = False
    near: bool = False  # within the rule's hysteresis of the limit, or beyond it but not for long enough


@dataclass(frozen=True, slots=True)
class AlertTally:
    """Events and alerts of a rule. Shares are NaN where there is nothing to divide by."""

    events: int
    told: int  # events, an hour before or earlier
    alerts: int  # that are over
    false: int
    set_aside: int
    zone_weeks: float
    lead_h: float  # median, of events that were told

    @property
    def hit_rate(self) -> float:
        """The share of events that were told."""
        return self.told / self.events if self.events else float("nan")

    @property
    def false_a_week(self) -> float:
        """False alerts a zone and week."""
        return self.false / self.zone_weeks if self.zone_weeks else float("nan")


@dataclass(frozen=True, slots=True)
class RuleScore(AlertTally):
    """How good a rule was, and its chances."""

    alert_share: float  # of time
    brier: float
    usual_brier: float
    skill: Skill
    reliability: Reliability
    worst: float  # distance of a group of GROUP cases on GROUP_DAYS days or more
    worst_least: float  # the same, at the end of its interval that is nearest to what was said
    near: int  # of the false alerts, those that came near


def score_rule(
    on: Bool, known: Bool, alerts: Sequence[ToldAlert], first: int, step_ms: int, cases: Mapping[str, _Array]
) -> RuleScore:
    """Score one rule from step ``first`` on: ``on [Z, N]`` are its events, ``known [Z, N]`` which rows there are.

    ``cases`` are chances from step ``first`` on at which no event went on, and what came: ``chance``, ``usual``,
    ``came`` and ``day``, one of each a case.

    >>> on = np.zeros((1, 400), dtype=bool)
    >>> on[0, 350:360] = True
    >>> none = {name: np.empty(0) for name in ("chance", "usual", "came", "day")}
    >>> alerts = [ToldAlert(0, 330, 362, 358), ToldAlert(0, 5, 20, 25)]
    >>> found = score_rule(on, np.ones_like(on), alerts, 0, 300_000, none)
    >>> found.hit_rate, found.false, round(found.lead_h, 2)
    (1.0, 1, 1.67)
    """
    events, leads_h = _events(on, alerts, first, step_ms)
    length = on.shape[1]
    resolved = [alert for alert in alerts if alert.end is not None and alert.told >= first]
    spans = [slice(alert.told, max(alert.end or 0, min(alert.until, length - 1)) + 1) for alert in resolved]
    without_event = [
        alert for alert, span in zip(resolved, spans, strict=True)
        if not on[alert.zone, span].any() and known[alert.zone, span].mean() >= KNOWN
    ]  # fmt: skip
    false = [alert for alert in without_event if not alert.acted]
    alerted_rows = sum(
        known[alert.zone, max(alert.told, first) : length if alert.end is None else max(alert.end, first)].sum()
        for alert in alerts
    )
    rows = int(known[:, first:].sum())
    tally = AlertTally(
        events=events, told=len(leads_h), alerts=len(resolved), false=len(false),
        set_aside=len(without_event) - len(false), zone_weeks=rows * step_ms / WEEK_MS,
        lead_h=float(np.median(leads_h)) if leads_h else float("nan"),
    )  # fmt: skip
    return _scored(tally, float(alerted_rows / max(rows, 1)), sum(alert.near for alert in false), cases)


def _events(on: Bool, alerts: Sequence[ToldAlert], first: int, step_ms: int) -> tuple[int, list[float]]:
    """How many events there were from a day after step ``first`` on, as an alert needs time to be told; and how many
    hours before them those were told that were told early enough.
    """
    early, events = EARLY_MS // step_ms, 0
    leads_h: list[float] = []
    for zone, course in enumerate(on):
        mine = [alert for alert in alerts if alert.zone == zone]
        for start, _ in spans_of(course):
            if start < first + DAY_MS // step_ms:
                continue
            events += 1
            told = [alert.told for alert in mine if alert.told <= start and (alert.end is None or start < alert.end)]
            if told and start - min(told) >= early:
                leads_h.append((start - min(told)) * step_ms / HOUR_MS)
    return events, leads_h


def score_together(scores: Sequence[RuleScore], cases: Sequence[Mapping[str, _Array]]) -> RuleScore:
    """The score of all rules of a recording: their events and alerts added up, their cases in one list, the median of
    their medians. ``zone_weeks`` are those of each rule, so false alerts are those of a zone, a week and a rule.
    """
    leads = [score.lead_h for score in scores if score.told]
    sums = {name: sum(getattr(score, name) for score in scores) for name in ("events", "told", "alerts", "false")}
    weeks = sum(score.zone_weeks for score in scores)
    tally = AlertTally(
        **sums, set_aside=sum(score.set_aside for score in scores), zone_weeks=weeks,
        lead_h=float(np.median(leads)) if leads else float("nan"),
    )  # fmt: skip
    under = sum(score.alert_share * score.zone_weeks for score in scores) / weeks if weeks else 0.0
    near = sum(score.near for score in scores)
    return _scored(tally, under, near, {name: np.concatenate([each[name] for each in cases]) for name in CASE})


def _scored(tally: AlertTally, alert_share: float, near: int, cases: Mapping[str, _Array]) -> RuleScore:
    """The tally with the score of chances."""
    chance, usual, came = (cases[name].astype(np.float64) for name in ("chance", "usual", "came"))
    groups = reliability(chance, came, cases["day"], EDGES)
    enough = [g for g, n in enumerate(groups.cases) if n >= GROUP and groups.days[g] >= GROUP_DAYS]
    worst = max(enough, key=lambda g: abs(groups.chance[g] - groups.came[g]), default=None)
    none = Skill(float("nan"), float("nan"), float("nan"))
    off = least = float("nan")
    if worst is not None:
        said = groups.chance[worst]
        off = abs(said - groups.came[worst])
        least = max(groups.low[worst] - said, said - groups.high[worst], 0.0)
    return RuleScore(
        **{each.name: getattr(tally, each.name) for each in fields(AlertTally)}, alert_share=alert_share,
        brier=_mean_square(chance - came), usual_brier=_mean_square(usual - came),
        skill=brier_skill(chance, came, usual, cases["day"]) if len(came) else none, reliability=groups,
        worst=off, worst_least=least, near=near,
    )  # fmt: skip


def day_before(clock_ms: I64, step_ms: int) -> I64:
    """Which step is a day before each by the site's clock, which shows ``clock_ms [N]`` at the steps; -1 before the
    first. Where the clock changes, that is 23 or 25 hours ago: a program of setpoints goes by the clock.

    >>> hour_ms = 3_600_000
    >>> in_spring = np.array([*range(30), *range(31, 61)]) * hour_ms
    >>> day_before(in_spring, hour_ms)[[5, 24, 29, 30, 52, 53]].tolist()
    [-1, 0, 5, 7, 29, 30]
    """
    steps = np.arange(len(clock_ms))
    offset_ms, before = clock_ms - steps * step_ms, steps - DAY_MS // step_ms
    shift = (offset_ms - offset_ms[np.maximum(before, 0)]) // step_ms
    return np.where(before < 0, -1, np.maximum(before + shift, -1))


def acted(kind: str, setpoints: Mapping[str, _Array], told: int, until: int, before: I64) -> bool:
    """Whether a setpoint that helps against this kind was moved after step ``told``, and before ``until``.

    ``setpoints`` are metric -> ``[N]``, ``before [N]`` is as of :func:`day_before`. It was moved if it is further
    beside that of a day before than :data:`ACTIONS` says, and was not when the alert was told.

    >>> heat, before = np.where(np.arange(100) < 60, 15.0, 18.0), np.maximum(np.arange(100) - 24, -1)
    >>> acted("frost", {"sp_heat_c": heat}, 50, 70, before), acted("frost", {"sp_heat_c": heat}, 65, 70, before)
    (True, False)
    """
    then = before[told : until + 1]
    if not len(then) or (then < 0).any():
        return False
    for metric, least in ACTIONS.get(kind, {}).items():
        held = setpoints.get(metric)
        if held is None:
            continue
        moved = (held[told : until + 1] - held[then]) / least
        if not moved[0] >= 1 and (moved >= 1).any():
            return True
    return False


def came_near(beyond: _Array, hysteresis: float, told: int, until: int) -> bool:
    """Whether a value came within ``hysteresis`` of its limit, or beyond it, between these steps; ``beyond [N]`` is how
    far it is beyond the limit, negative before it, NaN where unknown.

    >>> beyond = np.array([-1.0, -0.4, np.nan, -1.0, 0.2])
    >>> came_near(beyond, 0.5, 1, 3), came_near(beyond, 0.5, 2, 3), came_near(beyond, 0.0, 3, 9)
    (True, False, True)
    """
    return bool((beyond[told : until + 1] >= -hysteresis).any())


def _mean_square(off: F64) -> float:
    return float((off**2).mean()) if len(off) else float("nan")
