"""Step 4 of the way of a reading, for operators: what a shard has done, how fast, and what fails now."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from edge.figure_fields import counter, gauge
from edge.wire.refusal_reasons import PLAN_METRIC_REASONS, PLAN_REASONS, SAMPLE_REASONS, VALUE_REASONS
from models.evaluation.scoring import ScoreTable, ScoreTotals
from models.features.sensor_faults import FAULT_KINDS
from services.errors import words_of
from services.ingest.learned.signal_watch import ShownSignal, SignalEvent
from services.ingest.plans.refused import refused_by_reason
from services.messages import AlertState, FirstRow, LeftZone
from services.store.series import SeriesStats

if TYPE_CHECKING:
    from services.ingest.partition import Partition  # heavy, and who shows figures does not need it

__all__ = ["Failures", "PartitionFigures", "Rate", "ShardFigures", "figures"]

_log = logging.getLogger(__name__)

RATE_WINDOW_S = 5.0
TRIED_AGAIN = ("log", "storage", "forecast", "commit", "retention", "merge of files", "import", "trees", "tuned")
NOT_OVER: tuple[AlertState, ...] = ("pending", "firing", "acknowledged", "muted")
CELL = ("target", "horizon_min")
REJECTED = (*SAMPLE_REASONS, "corrupt_record")
PLANS_REFUSED = (*PLAN_REASONS, "too_many_sources", "too_many_plans")
DEAD_LETTERS = tuple(dict.fromkeys([*REJECTED, "late", "unit", *PLANS_REFUSED, "alert_order"]))
FAULTS = (*FAULT_KINDS, "unit")


class PartitionFigures(TypedDict):
    """What was taken and made in a shard's partitions, since the beginning of the log. Times are event times."""

    samples: Annotated[int, counter("hothouse_samples_total", "Samples that came, whatever became of them.")]
    accepted: Annotated[int, counter("hothouse_samples_accepted_total", "Samples that were taken into rows.")]
    duplicates: Annotated[
        int, counter("hothouse_samples_duplicate_total", "Copies of samples that were there already.")
    ]
    late: Annotated[int, counter("hothouse_samples_late_total", "Samples whose row had closed before they came.")]
    rejected: Annotated[
        dict[str, int],
        counter("hothouse_samples_rejected_total", "Samples that cannot be used.", label="reason", known=REJECTED),
    ]
    values_refused: Annotated[
        dict[str, int],
        counter(
            "hothouse_values_refused_total", "Values of samples taken that cannot be used.", label="reason",
            known=VALUE_REASONS,
        ),
    ]  # fmt: skip
    plan_records: Annotated[int, counter("hothouse_plan_records_total", "Records of plans.")]
    plans: Annotated[int, counter("hothouse_plans_total", "Plans that were taken.")]
    plans_repeated: Annotated[int, counter("hothouse_plans_repeated_total", "Plans that had been taken before.")]
    plans_refused: Annotated[
        dict[str, int],
        counter("hothouse_plans_refused_total", "Plans that cannot be used.", label="reason", known=PLANS_REFUSED),
    ]
    plan_metrics_refused: Annotated[
        dict[str, int],
        counter(
            "hothouse_plan_metrics_refused_total", "Metrics of plans taken that cannot be used.", label="reason",
            known=PLAN_METRIC_REASONS,
        ),
    ]  # fmt: skip
    event_records: Annotated[int, counter("hothouse_event_records_total", "Records of events of the log.")]
    copied_records: Annotated[
        int, counter("hothouse_copied_records_total", "Records that a gateway sent twice, left out.")
    ]
    rows: int  # the same as zone_rows
    zone_rows: Annotated[int, counter("hothouse_zone_rows_total", "Rows of zones that closed.")]
    device_rows: Annotated[int, counter("hothouse_device_rows_total", "Rows of devices that closed.")]
    steps: Annotated[int, counter("hothouse_steps_total", "Steps of sites that closed.")]
    forecasts: Annotated[int, counter("hothouse_forecasts_total", "Forecasts of zones that were issued.")]
    watermark_ms: Annotated[
        dict[str, int],
        gauge(
            "hothouse_watermark_timestamp_seconds", "End of the newest row that closed.",
            label="site", unit="seconds", scale=1e-3, field="Site: end of its newest row that closed, in ms.",
        ),
    ]  # fmt: skip
    origin_ms: int | None  # the newest watermark
    stream_ms: Annotated[
        dict[str, int],
        gauge(
            "hothouse_stream_timestamp_seconds", "How far the stream has got: its newest receive time.",
            label="site", unit="seconds", scale=1e-3, field="Site: how far its stream has got, in ms.",
        ),
    ]  # fmt: skip
    step_s: Annotated[
        dict[str, float],
        gauge(
            "hothouse_step_seconds", "Length of the rows to come.",
            label="site", unit="seconds", field="Site: length of its rows to come, in s.",
        ),
    ]  # fmt: skip
    lateness_s: Annotated[
        dict[str, float],
        gauge(
            "hothouse_lateness_seconds", "How long a row waits for samples that are out of order.",
            label="site", unit="seconds", field="Site: how long its rows wait for samples out of order, in s.",
        ),
    ]  # fmt: skip
    zones: list[str]  # site/zone
    left: list[LeftZone]
    first_rows: list[FirstRow]
    sites: list[str]
    scores: list[ScoreTable]  # live errors, a table a partition
    matured: Annotated[
        dict[str, dict[int, int]],
        counter(
            "hothouse_scored_forecasts_total",
            "Forecasts whose truth came, of the first in each quarter of an hour.",
            label=CELL,
        ),
    ]
    inside: Annotated[
        dict[str, dict[int, int]],
        counter(
            "hothouse_scored_forecasts_inside_total",
            "Forecasts whose truth was within p10 and p90; 80 % should be.",
            label=CELL,
        ),
    ]
    absolute_error: Annotated[
        dict[str, dict[int, float]],
        counter(
            "hothouse_forecast_absolute_error_total", "Sum of absolute errors of medians, in the target's unit.",
            label=CELL,
        ),
    ]  # fmt: skip
    climatology_absolute_error: Annotated[
        dict[str, dict[int, float]],
        counter(
            "hothouse_climatology_absolute_error_total", "The same of the climatology, on the same cases.", label=CELL
        ),
    ]
    forecast_origin_ms: Annotated[
        dict[str, int],
        gauge(
            "hothouse_forecast_origin_timestamp_seconds", "Row from which the newest forecast was made.",
            label="site", unit="seconds", scale=1e-3, field="Site: origin of its newest forecast, in ms.",
        ),
    ]  # fmt: skip
    plan_issued_ms: Annotated[
        dict[str, dict[str, int]],
        gauge(
            "hothouse_plan_issued_timestamp_seconds", "When the newest plan was issued.", label=("site", "kind"),
            unit="seconds", scale=1e-3, field="Site and kind: when the newest plan was issued, in ms.",
        ),
    ]  # fmt: skip
    sensor_faults: Annotated[
        dict[str, int],
        counter("hothouse_sensor_faults_total", "Faults of sensors that began.", label="kind", known=FAULTS),
    ]
    sensor_faults_now: Annotated[int, gauge("hothouse_sensor_faults_now", "Sensors that are faulty now.")]
    drifts: Annotated[dict[str, int], counter("hothouse_drifts_total", "Drifts of inputs or errors.", label="kind")]
    events: list[ShownSignal]  # the newest faults and drifts, the oldest first
    alerts: Annotated[dict[str, int], gauge("hothouse_alerts", "Alerts that are not over.", label="state")]
    alert_changes: Annotated[int, counter("hothouse_alert_changes_total", "Changes of alerts' states.")]
    alert_orders: Annotated[int, counter("hothouse_alert_orders_total", "Orders about alerts and rules.")]
    alert_looks: Annotated[
        int, counter("hothouse_alert_looks_total", "Half hours of zones at which rules of the climate looked.")
    ]
    offsets: Annotated[
        dict[str, int],
        gauge(
            "hothouse_log_offset", "How far the log was read.", label="partition", field="Partition: offset reached."
        ),
    ]


class ShardFigures(PartitionFigures):
    """What a shard tells each second."""

    forecast_failures: Annotated[
        int, counter("hothouse_forecast_failures_total", "Requests to the Forecaster that failed, each made again.")
    ]
    failures: Annotated[
        dict[str, int], counter("hothouse_failures_total", "Failures of what is tried again.", label="what")
    ]
    failing: Annotated[dict[str, bool], gauge("hothouse_failing", "1 while it fails.", label="what")]
    last_error: str  # what fails now; empty when all works
    dead_letters: Annotated[
        dict[str, int],
        counter("hothouse_dead_letters_total", "Dead letters that were kept.", label="reason", known=DEAD_LETTERS),
    ]
    forecasts_queued: Annotated[
        int, gauge("hothouse_forecasts_queued", "Steps of sites that wait for their forecasts.")
    ]
    steps_queued: Annotated[
        int, gauge("hothouse_history_steps_queued", "Steps of sites that wait for the history's next files.")
    ]
    backlog: Annotated[int, gauge("hothouse_backlog_records", "Records of the log that were not read yet.")]
    behind: Annotated[bool, gauge("hothouse_behind", "1 while more is to be read, or grown again, at once.")]
    replays: bool  # reads what the log had when it began: what it counts since the log's beginning is less than before
    repaired: str  # what was wrong with snapshots, and what became of it
    samples_per_s: float  # over the last seconds
    series: SeriesStats
    trees: str  # the version that answers in this shard
    tuned: str  # the version of the network that is fine-tuned
    trace_spans_dropped: Annotated[
        int, counter("hothouse_trace_spans_dropped_total", "Spans that did not get to the collector of traces.")
    ]


class Failures:
    """Counts failures of what is tried again, and shows each until it works."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._now: dict[str, str] = {}

    def failed(self, what: str, error: BaseException) -> None:
        """``what`` failed once more; the first time in a row is logged."""
        if what not in self._now:
            _log.warning("%s failed: %s", what, error)
        self.counts[what] += 1
        self._now[what] = f"{what}: {words_of(error)[:400]}"

    def works(self, what: str) -> None:
        """``what`` works (again)."""
        self._now.pop(what, None)

    @property
    def failing(self) -> dict[str, bool]:
        """Whether it fails now."""
        return {what: what in self._now for what in self.totals}

    @property
    def totals(self) -> dict[str, int]:
        """How often each failed, also those that never did: the first failure is an increase, too."""
        return {**dict.fromkeys(TRIED_AGAIN, 0), **self.counts}

    @property
    def last_error(self) -> str:
        """What fails now; empty when all works."""
        return "; ".join(list(self._now.values()))


class Rate:
    """Samples a second over the last few seconds."""

    def __init__(self, now_s: float) -> None:
        self._since_s, self._count, self._last = now_s, 0, 0.0

    def add(self, samples: int) -> None:
        """Count them."""
        self._count += samples

    def value(self, now_s: float) -> float:
        """The rate; before the first window is over, that of what has passed of it."""
        elapsed_s = now_s - self._since_s
        if elapsed_s >= RATE_WINDOW_S:
            self._last = self._count / elapsed_s
            self._since_s, self._count = now_s, 0
        elif self._last == 0 and elapsed_s > 0:
            return round(self._count / elapsed_s, 1)
        return round(self._last, 1)


def figures(partitions: Collection[Partition]) -> PartitionFigures:
    """Counts of what these partitions took and made since the beginning of the log."""
    learners = [p.learner for p in partitions]
    counts: Counter[str] = sum((p.counts for p in partitions), Counter())
    rejected: Counter[str] = sum((p.rejected for p in partitions), Counter())
    values_refused: Counter[str] = sum((p.values_refused for p in partitions), Counter())
    told: Counter[str] = sum((one.parts.watch.counts for one in learners), Counter())
    samples = counts["accepted"] + counts["duplicates"] + counts["late"] + sum(rejected.values())
    gone = {site for p in partitions for site in p.windows.sites if p.windows.zones(site).gone}
    rules = {site: p.windows.rules(site) for p in partitions for site in p.windows.sites if site not in gone}
    watermarks = {site: step.end_ms for one in learners for site, step in one.latest.items() if site not in gone}
    return {
        "samples": samples, "accepted": counts["accepted"], "duplicates": counts["duplicates"],
        "late": counts["late"], "rejected": dict(rejected), "values_refused": dict(values_refused),
        "plan_records": counts["plan_records"], "event_records": counts["event_records"],
        "plans": counts["plans"], "plans_repeated": counts["plans_repeated"],
        "plans_refused": refused_by_reason(counts, whole=True),
        "plan_metrics_refused": refused_by_reason(counts, whole=False),
        "copied_records": counts["copied_records"],
        "rows": counts["zone_rows"], "zone_rows": counts["zone_rows"], "device_rows": counts["rows"],
        "steps": counts["steps"], "forecasts": counts["forecasts"],
        "watermark_ms": watermarks, "origin_ms": max(watermarks.values(), default=None),
        "stream_ms": {site: at for p in partitions for site, at in p.stream_ms.items() if site not in gone},
        "step_s": {site: one.grid.newest_step_ms / 1000 for site, one in rules.items()},
        "lateness_s": {site: one.lateness_ms / 1000 for site, one in rules.items()},
        "zones": sorted(f"{site}/{zone}" for p in partitions for site, zone in p.zones),
        "left": [LeftZone(site=s, zone=z, left_ms=ms) for p in partitions for (s, z), ms in p.windows.left_ms.items()],
        "first_rows": [row for p in partitions for row in p.first_rows()],
        "sites": sorted(watermarks), "scores": [one.parts.scores.table() for one in learners],
        **_scored([one.parts.scores.totals() for one in learners]),
        "forecast_origin_ms": {
            site: at for one in learners for site, at in one.issued.origins_ms().items() if site not in gone
        },
        "plan_issued_ms": {
            site: kinds for one in learners for site, kinds in one.plans.newest_issued_ms().items() if site not in gone
        },
        "sensor_faults": {kind: n for kind, n in told.items() if not kind.endswith("drift")},
        "sensor_faults_now": sum(p.faults_now() for p in partitions),
        "drifts": {kind: told[kind] for kind in ("input drift", "error drift")},
        "events": [_shown(event) for one in learners for event in one.parts.watch.events],
        "alerts": {state: sum(p.alerts.states()[state] for p in partitions) for state in NOT_OVER},
        "alert_changes": counts["alert_changes"], "alert_orders": counts["alert_orders"],
        "alert_looks": counts["alert_looks"],
        "offsets": {str(p.number): p.offset for p in partitions},
    }  # fmt: skip


def _scored(tables: Sequence[ScoreTotals]) -> ScoreTotals:
    """The sum of several."""

    def added(
        name: Literal["matured", "inside", "absolute_error", "climatology_absolute_error"],
    ) -> dict[str, dict[int, Any]]:
        total: dict[str, Counter[int]] = {}
        for table in tables:
            for target, cells in table[name].items():
                total.setdefault(target, Counter()).update(cells)
        return {target: dict(cells) for target, cells in total.items()}

    return ScoreTotals(
        matured=added("matured"), inside=added("inside"), absolute_error=added("absolute_error"),
        climatology_absolute_error=added("climatology_absolute_error"),
    )  # fmt: skip


def _shown(event: SignalEvent) -> ShownSignal:
    return {
        "at_ms": event.at_ms, "site": event.site, "zone": event.zone, "kind": event.kind, "words": event.words,
    }  # fmt: skip
