"""Steps 8 and 9 of the way of a reading: what a partition knows of its zones, for those who ask.

Nothing here changes the partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from edge.wire.plan import PlanMessage
from models.durations import HOUR_MS
from models.features.inputs import day_bins
from services.ingest.forecasting import zone_mixtures
from services.ingest.learned.partition_learner import PartitionLearner
from services.ingest.partition import Partition
from services.ingest.paths.outlook import night_at, zone_outlook
from services.ingest.paths.zone_question import ZoneQuestion, zone_question
from services.ingest.plans.repeated import has_own, is_due, repeated, zones_of
from services.ingest.sinks.live_state_sink import PastRows
from services.messages import ZoneMixture, ZoneOutlook, ZoneQuality

__all__ = ["baseline", "mixtures", "outlook", "past", "quality", "question", "repeated_plans"]

F32 = npt.NDArray[np.float32]


def mixtures(partition: Partition) -> list[ZoneMixture]:
    """What the newest issued forecast of each present zone was mixed from, without the trees' version."""
    found = []
    for origin, forecast in partition.learner.issued.newest():
        there = [zone for zone in origin.zones if not partition.windows.has_left(origin.site, zone, origin.end_ms)]
        forecaster, version, network = partition.learner.forecaster, forecast.version, forecast.network
        found += zone_mixtures(forecaster, partition.spec, origin, version, network, there)
    return found


def quality(partition: Partition, asked: tuple[str, str] | None) -> list[ZoneQuality]:
    """How long each present zone is known; of the one that is asked for also how good what was issued was."""
    found, parts = [], partition.learner.parts
    for site, zone in partition.zones if asked is None else [asked]:
        index = parts.rings.index(site, zone)
        if index < len(parts.scores):  # else its first row is about to be learned
            table = {} if asked is None else parts.scores.table(np.array([index], np.int64))
            days = round(parts.scores.rows(index) / partition.spec.steps_per_day, 3)
            found.append(ZoneQuality(site=site, zone=zone, days=days, scores=table))
    return found


def outlook(learner: PartitionLearner, site: str, zone: str) -> ZoneOutlook | None:
    """Scenarios of a zone's newest issued forecast, and its next night and day."""
    issued = learner.issued.of_zone(site, zone)
    if issued is None:
        return None
    origin, spec = issued.origin, learner.spec
    is_night = night_at(learner.place_of(site), origin.end_ms, spec)
    quantiles = issued.forecast.quantiles
    return zone_outlook(learner.parts.paths, learner.forecaster, spec, origin, quantiles, zone, is_night)


def question(learner: PartitionLearner, site: str, zone: str) -> ZoneQuestion | None:
    """A zone's newest issued forecast, to be asked what a change would make of it."""
    issued = learner.issued.of_zone(site, zone)
    if issued is None:
        return None
    (origin, forecast), spec, parts = issued, learner.spec, learner.parts
    z = origin.zones.index(zone)
    at, step, knots = slice(z, z + 1), origin.end_ms // spec.step_ms, parts.paths.knots
    index = origin.indices[at]
    path = learner.forecaster.path(index, step, origin.day_bin[at], forecast.quantiles[at], knots)[0]
    rows = parts.rings.window(index, np.array([origin.end_ms]), spec.steps_per_day)[0]
    plans = learner.plans.of(site)
    foreseen = None if plans is None else plans.ahead(origin.end_ms, [zone], spec)[0]
    return zone_question(
        spec, learner.place_of(site), origin.end_ms, forecast.version, rows, path, knots.steps, foreseen,
        parts.seen_changes.of_zone(int(index[0])),
    )  # fmt: skip


def baseline(learner: PartitionLearner, site: str, zone: str, origin_ms: int, now: F32) -> F32:
    """The climatology's forecasts [N, H, M, Q] for targets ``now [N, M]`` at any origin, from what it knows."""
    indices = np.full(len(now), learner.parts.rings.index(site, zone), np.int64)
    bins = day_bins(learner.place_of(site), np.array([origin_ms], np.int64), learner.spec)
    return learner.forecaster.climatology.predict(indices, now, np.repeat(bins, len(now)))


def past(learner: PartitionLearner, site: str, zone: str, hours: int) -> PastRows:
    """The ends and targets of a zone's rows of the last ``hours``, for charts; None where missing."""
    rows, spec = learner.parts.past, learner.spec
    ends, values = rows.recent(rows.index(site, zone), hours * HOUR_MS // spec.step_ms)
    return ends.tolist(), {
        name: [None if np.isnan(v) else float(f"{v:.4g}") for v in column]
        for name, column in zip(spec.targets, values.T, strict=True)
    }


def repeated_plans(learner: PartitionLearner, repeats: Mapping[str, Sequence[str]]) -> list[PlanMessage]:
    """For zones without a plan of their own whose site ``repeats`` it: what was set yesterday, once a day."""
    found, spec, rings = [], learner.spec, learner.parts.rings
    for step in learner.latest.values():
        plans, place = learner.plans.of(step.site), learner.place_of(step.site)
        for zone in zones_of(repeats, step.site, step.zones):
            if has_own(plans, zone, step.end_ms) or not is_due(plans, zone, step.end_ms, place.local_ms):
                continue
            index = np.array([rings.index(step.site, zone)], np.int64)
            rows = rings.window(index, np.array([step.end_ms]), spec.steps_per_day)[0]
            plan = repeated(step.site, zone, step.end_ms, spec.step_ms, rows, spec.channels, place.local_ms)
            if plan is not None:
                found.append(plan)
    return found
