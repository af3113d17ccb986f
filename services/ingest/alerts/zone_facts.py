"""Step 9 of the way of a reading: what is wrong with zones now, as rules of a state take it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from edge.wire.plan import METRICS_OF
from edge.wire.topic import SITE_ZONE
from models.alerts.alert_desk import Clock
from models.alerts.alert_rule import AlertRule
from models.alerts.facts import Fact, unplanned
from models.spec import ForecastSpec
from services.ingest.alerts.zone_look import Ground
from services.ingest.plans.repeated import has_own
from services.messages import DRIFTS, F32
from services.store.rows import SiteStep

__all__ = ["OF_PLANS", "OF_ROWS", "facts_of_row", "present", "unplanned_now"]

OF_ROWS = ("sensor_fault", "silent_metric", "stale_zone", "drift")
"""The kinds of rules that every row says something of."""

OF_PLANS = ("plan_not_followed",)
"""Those that are looked at when it is a zone's turn."""

HOUR_MS = 3_600_000
"""A drift is told in the hour after it was found; how long its alert stays says the rule."""


def facts_of_row(step: SiteStep, ground: Ground, heard_ms: Mapping[str, int], clock: Clock) -> dict[str, list[Fact]]:
    """What is wrong in each zone of a site's newest step; zone -> end of its newest row with a sample is ``heard_ms``.

    Nothing is told of zones that are not in the step. A drift of the site as a whole stands under ``_site``.
    """
    named = {SITE_ZONE, *step.zones}
    found = {zone: list(facts) for zone, facts in ground.watch.facts(step.site).items() if zone in named}
    for zone in step.zones:
        since_ms = heard_ms[zone]
        if since_ms < step.end_ms:
            # Nobody needs to be told of each metric of a zone that is silent altogether.
            kept = [fact for fact in found.get(zone, ()) if fact.kind != "silent_metric"]
            found[zone] = [*kept, Fact("stale_zone", since_ms, f"no sample since {clock(since_ms)}")]
    for event in ground.watch.events:
        zone = event.zone or SITE_ZONE
        of_now = event.site == step.site and zone in named and step.end_ms - event.at_ms < HOUR_MS
        if of_now and event.kind in DRIFTS:
            found.setdefault(zone, []).append(Fact("drift", event.at_ms, event.words))
    return found


def present(step: SiteStep, heard_ms: Mapping[str, int]) -> SiteStep:
    """The step without zones that have left since it closed: nothing more is told of them."""
    kept = [z for z, zone in enumerate(step.zones) if zone in heard_ms]
    if len(kept) == len(step.zones):
        return step
    faults = tuple(step.faults[z] for z in kept) if step.faults else step.faults
    zones = tuple(step.zones[z] for z in kept)
    return replace(step, zones=zones, values=step.values[kept], ages_s=step.ages_s[kept], faults=faults)


def unplanned_now(
    rules: Sequence[AlertRule], ground: Ground, spec: ForecastSpec, step: SiteStep, zone: str, rows: F32
) -> list[Fact] | None:
    """Setpoints that are not as they were planned, for the first rule that asks; ``rows [L, C]`` are those of a day.

    None where nobody plans the zone's setpoints: yesterday's, which stand in for a plan, bind nobody.
    """
    plans = ground.plans.of(step.site)
    rule = next((rule for rule in rules if rule.kind in OF_PLANS), None)
    if rule is None or plans is None or not has_own(plans, zone, step.end_ms):
        return None
    metrics = [name for name in METRICS_OF["setpoint"] if name in spec.channels]
    times = step.end_ms + np.arange(1 - len(rows), 1, dtype=np.int64) * spec.step_ms
    planned = plans.foreseen(step.end_ms, [zone], metrics, times)[0]
    realised = {name: rows[:, spec.channels.index(name)] for name in metrics}
    said = {name: planned[:, k] for k, name in enumerate(metrics) if np.isfinite(planned[-1, k])}
    return unplanned(rule, realised, said, step.end_ms, spec.step_ms)
