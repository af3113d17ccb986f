"""Steps 5, 7, 8 and 10 of the way of a reading for one partition: from records to closed steps, and what is learned.

Windows, rings and counts are a function of the partition's records. What is learned is a function of these and of the
forecasts that were issued (:class:`PartitionLearner`). All of that is kept before a forecast is published, and
:meth:`Partition.state` holds the rest, so that a shard that continues from a snapshot goes on as if it had never
stopped. Steps that were waiting at a crash are forecast after it, and count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edge.log import Record
from models.spec import ForecastSpec, Place
from services.ingest.alerts.partition_alerts import PartitionAlerts
from services.ingest.alerts.zone_look import PartitionView
from services.ingest.forecasting import ForecastOrigin
from services.ingest.learned.learned_parts import loaded
from services.ingest.learned.partition_learner import PartitionLearner
from services.ingest.plans.refused import refused_plans
from services.ingest.windows.partition_windows import PartitionWindows
from services.messages import FirstRow
from services.store.rows import ClosedStep, DeadLetter

__all__ = ["Partition"]


class Partition:
    """State of one partition before the record at ``offset``; starts empty, at offset 0."""

    def __init__(
        self, number: int, spec: ForecastSpec, windows: PartitionWindows, ring_steps: int,
        place_of: Callable[[str], Place], *, fine_tunes: bool = False,
    ) -> None:  # fmt: skip
        self.number, self.offset = number, 0
        self.spec, self.place_of = spec, place_of
        self.windows = windows
        self.learner = PartitionLearner(number, spec, ring_steps, place_of, fine_tunes=fine_tunes)
        self.alerts = self._new_alerts()
        self.counts: Counter[str] = Counter()  # accepted, duplicates, late, rows, zone_rows, forecasts ...
        self.rejected: Counter[str] = Counter()
        self.values_refused: Counter[str] = Counter()
        self.dead_letters: list[DeadLetter] = []  # not yet durable
        self.stream_ms: dict[str, int] = {}  # receive time of the newest record of each site
        self.kept_ms: dict[str, int] = {}  # rows up to here are in the history and better than what is left of the log

    def take(self, records: Sequence[Record], origins_a_site: int) -> list[ForecastOrigin]:
        """:meth:`feed`, :meth:`prepare`, then :meth:`learn`."""
        steps = self.feed(records)
        self.prepare()
        return self.learn(steps, origins_a_site)

    def prepare(self) -> None:
        """Prepare room for the first rows of many zones, which mostly close at once, so that they do not wait for
        memory.
        """
        self.learner.parts.prepare(self.windows.expected_zones)

    def feed(self, records: Sequence[Record]) -> list[ClosedStep]:
        """Put the next records into windows; the steps that they closed, to be given to :meth:`learn` before the next.

        Nothing that is learned changes.
        """
        closed = self.windows.feed(records)
        self.offset = records[-1].offset + 1
        self.stream_ms.update({record.site: record.receive_ms for record in records})
        self.dead_letters += closed.dead_letters
        self.rejected.update(closed.rejected)
        self.values_refused.update(closed.values_refused)
        self.counts.update(accepted=closed.accepted, duplicates=closed.duplicates, late=closed.late)
        self.counts.update({f"{kind}_records": n for kind, n in closed.other_records.items()})
        self.counts.update(refused_plans(closed.plans_refused, closed.plan_metrics_refused))
        self.dead_letters += self.learner.plans.feed(closed.plans)
        self.alerts.feed(closed.marks)
        return closed.steps

    def learn(
        self, steps: Sequence[ClosedStep], origins_a_site: int, pause: Callable[[], None] = lambda: None
    ) -> list[ForecastOrigin]:
        """Take closed steps, with a ``pause`` before each, in which questions may be answered. Returns the origins of
        each site's last ``origins_a_site`` steps.
        """
        learner = self.learner
        left = Counter(step.site for step in steps)
        origins = []
        for number, step in enumerate(steps):
            pause()
            self._take_marks(number)
            self._take_plans(learner.plans.before_row(step.site, step.end_ms))
            self.counts.update(rows=len(step.devices), zone_rows=len(step.zones), steps=1)
            left[step.site] -= 1
            learner.issued.begin_row(step.site, step.end_ms)
            if step.step_ms != self.spec.step_ms:
                continue  # its site's settings were changed: nothing is forecast until ours follow
            learner.learn(step)
            self.alerts.row(learner.latest[step.site], self.offset - 1)
            # What was issued before a crash is not asked for again, but for the newest, which is shown as it was.
            is_issued = left[step.site] and learner.issued.has_before(step.site, step.end_ms)
            if left[step.site] < origins_a_site and step.zones and not is_issued:
                origins.append(learner.origin(step.site))
        self._take_marks(len(steps))
        self._take_plans(learner.plans.take_rest())
        return origins

    def _take_marks(self, steps: int) -> None:
        """Apply the ticks and orders of the read that came before its closed step number ``steps``."""
        self.dead_letters += self.alerts.take(steps, self._view)
        self.counts.update(self.alerts.counts)
        self.alerts.counts.clear()

    @property
    def _view(self) -> PartitionView:
        mine, parts = self.learner, self.learner.parts
        return PartitionView(
            mine.forecaster, parts.paths, parts.rings, mine.plans, parts.watch, mine.latest, mine.bases
        )

    def _take_plans(self, letters: Sequence[DeadLetter]) -> None:
        """Count the plans that were taken, and keep those that were refused."""
        plans = self.learner.plans
        self.dead_letters += letters
        self.learner.revision += bool(plans.counts)
        self.counts.update(plans.counts)
        plans.counts.clear()

    @property
    def zones(self) -> list[tuple[str, str]]:
        """(site, zone) of the zones that are there, in the order in which they first came."""
        left = self.windows.left_ms
        return [zone for zone in self.learner.parts.rings.zones if zone not in left]

    def first_rows(self) -> list[FirstRow]:
        """The first row of each site that has samples of zones and no row of them yet."""
        latest = self.learner.latest
        waiting = [site for site in self.windows.sites if site not in latest or not latest[site].zones]
        rows = {site: row for site in waiting if (row := self.windows.first_row(site)) is not None}
        return [FirstRow(site=site, end_ms=end, closes_ms=closes) for site, (end, closes) in rows.items()]

    def faults_now(self) -> int:
        """How many sensors of the zones that are there are faulty now."""
        zones, parts = self.zones, self.learner.parts
        indices = np.array([parts.rings.index(*zone) for zone in zones], np.int64)
        return parts.watch.faults_now(indices, {site for site, _ in zones})

    def state(self) -> dict[str, Any]:
        """Everything but the dead letters, by parts (``services.ingest.snapshots.parts``). The arrays of those that
        are learned are good until something is learned or issued, the others until the next record.
        """
        return {
            "windows": self.windows.state(),
            "figures": {
                "counts": dict(sorted(self.counts.items())), "rejected": dict(sorted(self.rejected.items())),
                "values_refused": dict(sorted(self.values_refused.items())),
                "stream_ms": dict(self.stream_ms), "kept_ms": dict(self.kept_ms),
            },
            **self.learner.state(),
            "alerts": self.alerts.state(self.offset),
        }  # fmt: skip

    def load(self, offset: int, parts: Mapping[str, Any]) -> dict[str, str]:
        """Continue from a snapshot's parts. Those of ``LEARNED`` may be missing; it gives these, and why others of
        them do not fit: they are as of a new partition, and their zones are those of the snapshot.
        """
        self.offset = offset
        self.windows.load(parts["windows"])
        figures = parts["figures"]
        self.counts, self.rejected = Counter(figures["counts"]), Counter(figures["rejected"])
        self.values_refused = Counter(figures["values_refused"])
        self.stream_ms, self.kept_ms = dict(figures["stream_ms"]), dict(figures["kept_ms"])
        missing: dict[str, str] = {}
        self.learner.load(parts, missing)
        self.alerts = loaded(parts, "alerts", self._new_alerts, PartitionAlerts.load, missing)
        return missing

    def _new_alerts(self) -> PartitionAlerts:
        return PartitionAlerts(self.spec, self.place_of)
