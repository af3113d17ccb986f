"""Step 4 of the way of a reading: a shard reads its partitions and drives steps 5 to 10 for them.

:class:`Shard` knows neither Ray nor threads of its own but one: what it needs is handed in, and ``step()`` is one
round. What is durable when stands in ``services.ingest.snapshots.checkpoint``; an issued forecast is durable before any
sink gets it. ``services.ingest.shard_actor`` wraps it for Ray.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge.log import Log, LogError
from edge.timing import Periodic
from models.durations import HOUR_MS
from services.config import Settings
from services.errors import HistoryError, SnapshotError
from services.forecast_spec import forecast_spec
from services.ingest.alerts.alert_output import AlertOutput
from services.ingest.daily_merge import DailyMerge
from services.ingest.figures import Failures, Rate, ShardFigures, figures
from services.ingest.forecasting import ForecastOrigin, zone_forecasts
from services.ingest.learned.learned_parts import PAST_HOURS
from services.ingest.log_reader import LogReader
from services.ingest.models_in_use.models_in_use import ModelsInUse
from services.ingest.questions import FairLock, Questions
from services.ingest.queue import ForecastQueue
from services.ingest.readings import readings_at
from services.ingest.sinks.live_state_sink import LiveStatePublisher, LiveStateSink
from services.ingest.sinks.sink import Sink
from services.ingest.sinks.step_trace import StepTrace
from services.ingest.snapshots.checkpoint import Checkpoint
from services.ingest.snapshots.history_imports import HistoryImports
from services.ingest.snapshots.later_release import SNAPSHOTS
from services.ingest.snapshots.recovery import Recovery
from services.ingest.snapshots.restore import snapshot_state
from services.ingest.snapshots.snapshot import Snapshots
from services.ingest.snapshots.snapshot_pace import MAX_UNFLUSHED_ROWS
from services.ingest.snapshots.stores import Stores
from services.messages import ONLINE_VERSION, ForecastReply, ForecastRequest
from services.store.forecasts import IssuedForecast
from services.store.series import SeriesWriter
from services.store.storage import storage_of

if TYPE_CHECKING:
    from services.observe.spans import Spans

__all__ = ["Executors", "Outputs", "Shard"]

SECOND_S = 1.0
"""How often figures are shown, and other models are looked for."""
MAX_WAITING = 100_000
"""Dead letters, values of plans, rows with examples and changes of alerts, in all, that may wait for a storage that is
away; nothing more is read then."""


class Executors(NamedTuple):
    """The threads beside the one of the rounds, each with one piece of work at a time."""

    forecast: Executor
    """Waits for the Forecaster."""
    merge: Executor
    """Merges files, which may take long; no forecast waits for it."""
    save: Executor
    """Writes snapshots: samples are taken meanwhile, and only rows that close wait for it."""


class Outputs(NamedTuple):
    """Where closed rows, forecasts and figures go."""

    series: SeriesWriter
    live_state: LiveStatePublisher
    more: tuple[Sink, ...] = ()
    spans: Spans | None = None


class Shard:
    """Owns ``partitions`` of the log; one thread calls :meth:`step`, any thread the other methods and ``questions``.

    ``forecast`` computes a reply and may block or raise. ``clock_s`` is monotonic, for intervals only: no row or
    forecast depends on it. ``failpoint`` is called with the name of each durable moment; tests raise from it.
    """

    def __init__(
        self, settings: Settings, partitions: Sequence[int], log: Log,
        forecast: Callable[[ForecastRequest], ForecastReply], outputs: Outputs, executors: Executors,
        clock_s: Callable[[], float], failpoint: Callable[[str], None] = lambda name: None,
    ) -> None:  # fmt: skip
        spec = self.spec = forecast_spec(settings)
        self._log, self._outputs, self._clock_s, self._failpoint = log, outputs, clock_s, failpoint
        self._round = threading.Lock()  # held for a whole round or flush: all that follows is its holder's alone
        self._changing = FairLock()  # held, inside of it, while partitions change: never over I/O
        storage = storage_of(settings)
        stores = self._stores = Stores.of(storage, spec, settings.stream.step_s, writer=min(partitions, default=0))
        snapshots = {number: Snapshots(storage, number, SNAPSHOTS) for number in partitions}
        self._failures = Failures()
        ring_steps = settings.stream.ring_hours * HOUR_MS // spec.step_ms
        queue = self._queue = ForecastQueue(spec, ring_steps, forecast, executors.forecast, clock_s, self._failures)
        self._recovery = Recovery(settings, spec, log, snapshots, stores, queue, self._changing, clock_s)
        self._partitions = self._recovery.partitions
        self._alerts = AlertOutput(
            storage, self._partitions, outputs.live_state, lambda number: snapshots[number].check()
        )
        began_s = clock_s()
        self._checkpoint = Checkpoint(
            settings, log, stores, self._recovery,
            lambda partition: snapshot_state(settings, spec, log.id, partition, queue.state(partition.number)),
            self._alerts.keep, executors.save, self._failures, began_s, failpoint,
        )  # fmt: skip
        self._daily_merge = DailyMerge(stores, partitions, self._checkpoint.check, executors.merge, self._failures)
        self._imports = HistoryImports(
            storage, log.partitions, stores.history, self._recovery, self._failures,
            lambda number: snapshots[number].check(), self._save_all, clock_s,
        )  # fmt: skip
        self._reader = LogReader(log, clock_s)
        self._reads_more = False  # the last round read as much as it may: there is probably more
        self._models = ModelsInUse(settings, storage, spec, self._failures, clock_s)
        self._each_second, self._rate = Periodic(SECOND_S, began_s), Rate(clock_s())
        self.questions = Questions(
            self._partitions, self._changing, settings.stream.retire_days, lambda: self.is_behind,
            lambda: self._models.versions,
            {site.name: site.repeat_setpoints for site in settings.sites if site.repeat_setpoints},
        )  # fmt: skip
        live_state = LiveStateSink(
            outputs.live_state, queue.past_due, lambda: self._reads_more,
            lambda site, zone: self.questions.past(site, zone, PAST_HOURS),
        )  # fmt: skip
        self._trace = StepTrace(spec.step_ms, outputs.spans)
        self._sinks: tuple[Sink, ...] = (outputs.series, live_state, *outputs.more, self._trace)

    def step(self) -> bool:
        """One round: read, close, forecast, save. True when records were read, so that more may wait.

        Raises what the log, the history and the snapshots raise; calling it again is safe.
        """
        with self._round:
            try:
                return self._work()
            except (LogError, HistoryError, SnapshotError, OSError):
                self._show()  # what fails may fail in each round, and before its end
                raise

    def _work(self) -> bool:
        self._checkpoint.finish()
        for number in self._recovery.grow():
            self._checkpoint.must_save(number)
        busy = not self._recovery.is_over
        busy |= not self._is_full and self._read()
        self._alerts.tell()
        self._failures.works("log")
        self._queue.harvest(self._issue)
        self._queue.submit({number: p.learner.parts.rings for number, p in self._partitions.items()}, self._reads_more)
        self._daily_merge.finish()
        self._imports.work(self._partitions)
        busy |= self._imports.waits
        now_s = self._clock_s()
        if self._checkpoint.is_due(now_s, self._reads_more, self._queue.waits):
            self._checkpoint.begin(self._clock_s())
        if self._each_second.is_due(now_s):
            learners = [partition.learner for partition in self._partitions.values()]
            self._models.look(learners, self._save_all, now_s)
        self._show()
        return busy

    @property
    def _is_full(self) -> bool:
        """Whether too much waits for the storage: nothing more is read then, and the log keeps it."""
        waiting = sum(
            len(p.dead_letters) + len(p.learner.plans.kept) + len(p.learner.examples.kept) + len(p.alerts.told)
            for p in self._partitions.values()
        )
        return self._stores.history.pending_rows >= MAX_UNFLUSHED_ROWS or waiting >= MAX_WAITING

    def _show(self) -> None:
        if self._each_second.due(self._clock_s()):
            self._outputs.live_state.put_stats(self._stats())

    @property
    def is_behind(self) -> bool:
        """Whether the last round left something to read or to grow at once."""
        return self._reads_more or not self._recovery.is_over

    @property
    def awaits_forecasts(self) -> bool:
        """Whether rows that have closed wait for their forecasts."""
        return self._queue.waits

    def flush(self) -> dict[int, int]:
        """Make the history complete up to what was read; the offset reached in each partition."""
        with self._round:
            self._checkpoint.begin(self._clock_s())
            return {number: partition.offset for number, partition in self._partitions.items()}

    def refresh(self) -> None:
        """Compute the last step's forecasts again, as after a swap to another model."""
        self._queue.refresh()

    def stats(self) -> ShardFigures:
        """The shard's figures; counts are since the beginning of the log."""
        with self._round:
            return self._stats()

    def failed(self, what: str, error: BaseException) -> None:
        """Count a failure of something that is tried again, and show it until it works."""
        self._failures.failed(what, error)

    def close(self) -> None:
        """Save."""
        with self._round:
            self._checkpoint.close(self._clock_s())

    def _read(self) -> bool:
        """Read a little of each partition, and learn from the rows that close; whether there was anything."""
        busy = self._reads_more = False
        for number, partition in self._partitions.items():
            if self._recovery.is_growing(number):
                continue
            self._trace.begin()
            records, is_more = self._reader.read(number, partition.offset)
            if not records:
                continue
            self._trace.took(records)
            busy = True
            self._reads_more |= is_more
            before, letters = partition.counts["accepted"], len(partition.dead_letters)
            with self._changing:
                steps = partition.feed(records)
            self._trace.lap()
            if steps or partition.alerts.waits:
                self._checkpoint.wait(number)
            if not self._checkpoint.is_writing(number):
                partition.prepare()
            with self._changing:
                origins_a_site = 1 if is_more else self._queue.max_origins
                origins = partition.learn(steps, origins_a_site, self._changing.let_others)
            self._trace.lap()
            self._trace.letters(partition.dead_letters[letters:])
            self._trace.looked(partition.alerts.take_looked())
            self._failpoint("taken")
            self._rate.add(partition.counts["accepted"] - before)
            new = [step for step in steps if step.end_ms > partition.kept_ms.get(step.site, 0)]
            self._stores.history.add(new)
            for sink in self._sinks:
                sink.rows(new)
            self._queue.past_due.update({step.site for step in steps} if len(origins) < len(steps) else ())
            self._queue.add(origins)
        return busy

    def _issue(self, origins: Sequence[ForecastOrigin], reply: ForecastReply) -> None:
        """Mix the network's answers with those of the learners, keep the forecasts of all origins durably, then publish
        them. Of an origin whose horizons have all passed meanwhile nothing is left to say. Raises ``HistoryError`` with
        none published.
        """
        self._trace.answered()
        version, ends = reply["version"], np.cumsum([len(origin.zones) for origin in origins])
        medians = np.split(np.asarray(reply["quantiles"][: ends[-1], ..., 1], np.float32), ends[:-1])
        answered = []
        for origin, said in zip(origins, medians, strict=True):
            if self._partitions[origin.partition].learner.is_past(origin):
                self._queue.past_due.add(origin.site)
            else:
                answered.append((origin, said))
        if not answered:
            return
        origins = [origin for origin, _ in answered]
        for number in {origin.partition for origin in origins}:
            self._checkpoint.wait(number)
        with self._changing:
            forecasts = [
                self._partitions[origin.partition].learner.answer(
                    origin, version, None if version == ONLINE_VERSION else said
                )
                for origin, said in answered
            ]
        self._stores.issued.put(forecasts, self.spec.horizons_min, self.spec.targets, self._checkpoint.check)
        self._failpoint("forecast kept")
        for origin, forecast in zip(origins, forecasts, strict=True):
            self._publish(origin, forecast)
        for origin in origins:
            self._daily_merge.begin(origin.end_ms)

    def _publish(self, origin: ForecastOrigin, forecast: IssuedForecast) -> None:
        partition = self._partitions[origin.partition]
        learner, windows = partition.learner, partition.windows
        if learner.was_shown(origin, forecast):
            return
        with self._changing:
            learner.put_issued(origin, forecast)
            partition.counts.update(forecasts=len(origin.zones))
            path = learner.path(origin, forecast.quantiles)
        readings = readings_at(self.spec, origin.step, learner.parts.rings, origin.indices)
        made = zone_forecasts(self.spec, origin.step, forecast.version, forecast.quantiles, path, readings)
        published = [one for one in made if not windows.has_left(one["site"], one["zone"], origin.end_ms)]
        for sink in self._sinks:
            sink.forecasts(published)

    def _save_all(self) -> None:
        self._checkpoint.save_all(self._clock_s())

    def _stats(self) -> ShardFigures:
        offsets = {number: partition.offset for number, partition in self._partitions.items()}
        backlog = self._reader.backlog(offsets, is_away=self._failures.failing["log"])
        return {
            **figures(self._partitions.values()),
            "forecast_failures": self._failures.counts["forecast"], "failures": self._failures.totals,
            "failing": self._failures.failing, "dead_letters": dict(self._checkpoint.dead_letters),
            "forecasts_queued": self._queue.length, "steps_queued": self._stores.history.pending,
            "last_error": self._failures.last_error, "backlog": backlog, "behind": self.is_behind,
            "replays": self._reader.replays(offsets), "repaired": self._recovery.repaired,
            "samples_per_s": self._rate.value(self._clock_s()), "series": self._outputs.series.stats(),
            "trees": self._models.versions["trees"], "tuned": self._models.versions["tuned"],
            "trace_spans_dropped": self._trace.dropped,
        }  # fmt: skip
