"""Step 9 of the way of a reading: which setpoints of zones are not as they were planned, and since when.

A zone is looked at when it is its turn. What a plan says of the time before it was known counts for nothing: nobody
could have followed it. Of plans that were replaced nothing is kept but what was found of them, which is kept here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edge.wire.plan import METRICS_OF
from models.alerts.alert_rule import AlertRule
from models.alerts.facts import Fact, unplanned
from models.spec import ForecastSpec
from services.ingest.alerts.zone_look import PartitionView
from services.ingest.plans.repeated import SOURCE, has_own
from services.messages import F32
from services.store.rows import SiteStep

__all__ = ["OF_PLANS", "PlanWatch"]

OF_PLANS = ("plan_not_followed",)
"""The kinds of rules that are about plans."""

_Since = dict[float, dict[str, int]]  # limit of a rule -> metric -> since when it is further from its plan than that


class PlanWatch:
    """What was off its plan when a zone was looked at last: a function of the looks, in their order."""

    def __init__(self) -> None:
        self._off: dict[tuple[str, str], tuple[int, _Since]] = {}  # of zones with anything: when, and what

    def look(
        self, rules: Sequence[AlertRule], view: PartitionView, spec: ForecastSpec, step: SiteStep, zone: str, rows: F32
    ) -> list[Fact] | None:
        """Setpoints that are not as they were planned, for each limit of a rule; ``rows [L, C]`` are those of a day.

        None where nobody plans the zone's setpoints: yesterday's, which stand in for a plan, bind nobody.
        """
        looked_ms, since = self._off.pop((step.site, zone), (0, {}))
        plans, end_ms = view.plans.of(step.site), step.end_ms
        of_limits = {rule.limit: rule for rule in rules if rule.kind in OF_PLANS}
        if not of_limits or plans is None or not has_own(plans, zone, end_ms, end_ms):
            return None
        metrics = [name for name in METRICS_OF["setpoint"] if name in spec.channels]
        times = end_ms + np.arange(1 - len(rows), 1, dtype=np.int64) * spec.step_ms
        planned = plans.as_issued(zone, metrics, times, without=SOURCE)
        realised = {name: rows[:, spec.channels.index(name)] for name in metrics}
        said = {name: planned[:, k] for k, name in enumerate(metrics) if np.isfinite(planned[-1, k])}
        found = {
            limit: unplanned(rule, realised, said, end_ms, spec.step_ms, looked_ms, since.get(limit, {}))
            for limit, rule in of_limits.items()
        }
        if any(found.values()):
            off = {limit: {metric: fact.since_ms for metric, fact in of.items()} for limit, of in found.items()}
            self._off[step.site, zone] = end_ms, off
        return [fact for of in found.values() for fact in of.values()]

    def forget(self, site: str, zone: str) -> None:
        """The zone has left."""
        self._off.pop((site, zone), None)

    def state(self) -> list[list[Any]]:
        """For a snapshot."""
        return [
            [*zone, looked_ms, [[limit, metric, ms] for limit, of in since.items() for metric, ms in of.items()]]
            for zone, (looked_ms, since) in self._off.items()
        ]

    def load(self, state: Sequence[Sequence[Any]]) -> None:
        """Inverse of :meth:`state`."""
        self._off = {}
        for site, zone, looked_ms, off in state:
            since: _Since = {}
            for limit, metric, ms in off:
                since.setdefault(limit, {})[metric] = ms
            self._off[site, zone] = looked_ms, since
