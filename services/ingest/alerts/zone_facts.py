"""Step 9 of the way of a reading: what is wrong with zones now, as rules of a state take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import VOCABULARY, is_weather
from models.alerts.alert_desk import Clock
from models.alerts.facts import Fact
from models.durations import HOUR_MS
from models.features.report_gaps import LOOK_S, MOST_S, report_gaps_s, silent_after_s
from models.spec import ForecastSpec
from services.ingest.alerts.zone_look import PartitionView
from services.messages import DRIFTS
from services.store.rows import SiteStep

__all__ = ["OF_ROWS", "facts_of_row", "present"]

OF_ROWS = ("sensor_fault", "silent_metric", "stale_zone", "drift")
"""The kinds of rules that every row says something of."""


def facts_of_row(
    step: SiteStep, view: PartitionView, spec: ForecastSpec, heard_ms: Mapping[str, int], clock: Clock
) -> dict[str, list[Fact]]:
    """What is wrong in each zone of a site's newest step; zone -> end of its newest row with a sample is ``heard_ms``.

    Nothing is told of zones that are not in the step, nor of a silence of a zone that usually has such gaps, and of its
    metrics with it. A drift of the site as a whole stands under ``_site``.
    """
    named = {SITE_ZONE, *step.zones}
    found = {zone: list(facts) for zone, facts in view.watch.facts(step.site).items() if zone in named}
    for zone in step.zones:
        since_ms = heard_ms[zone]
        if since_ms < step.end_ms:
            is_usual = step.end_ms - since_ms <= _usual_silence_ms(step, view, spec, zone, since_ms)
            # Nobody needs to be told of each metric of a zone that is silent altogether.
            kept = [
                fact for fact in found.get(zone, ())
                if fact.kind != "silent_metric" or (is_usual and fact.since_ms <= since_ms)
            ]  # fmt: skip
            stale = [] if is_usual else [Fact("stale_zone", since_ms, f"no sample since {clock(since_ms)}")]
            found[zone] = [*kept, *stale]
    for event in view.watch.events:
        zone = event.zone or SITE_ZONE
        of_now = event.site == step.site and zone in named and step.end_ms - event.at_ms < HOUR_MS
        if of_now and event.kind in DRIFTS:
            found.setdefault(zone, []).append(Fact("drift", event.at_ms, event.words))
    return found


def _usual_silence_ms(step: SiteStep, view: PartitionView, spec: ForecastSpec, zone: str, since_ms: int) -> float:
    """How long nothing may come of a zone, by the rows before it fell silent; 0 where it reports in each row."""
    index = view.rings.known(step.site, zone)
    if index is None or step.end_ms - since_ms > 1000 * MOST_S:
        return 0.0
    rows = view.rings.window(np.array([index]), np.array([since_ms]), 1000 * LOOK_S // spec.step_ms)[0]
    is_known = np.isfinite(rows[:, [c for c, name in enumerate(spec.channels) if _is_own(name)]]).any(axis=1)
    return 1000 * silent_after_s(int(report_gaps_s(is_known, spec.step_ms // 1000)), 0)


def _is_own(channel: str) -> bool:
    """Whether it is read in the zone, and a row has no value of it unless something came."""
    metric = VOCABULARY.get(channel)
    return not is_weather(channel) and (metric is None or metric.hold_s is None)


def present(step: SiteStep, heard_ms: Mapping[str, int]) -> SiteStep:
    """The step without zones that have left since it closed: nothing more is told of them."""
    kept = [z for z, zone in enumerate(step.zones) if zone in heard_ms]
    if len(kept) == len(step.zones):
        return step
    faults = tuple(step.faults[z] for z in kept) if step.faults else step.faults
    zones = tuple(step.zones[z] for z in kept)
    return replace(step, zones=zones, values=step.values[kept], ages_s=step.ages_s[kept], faults=faults)
