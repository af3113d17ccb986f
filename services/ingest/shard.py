"""Step 4 of the way of a reading: a shard reads its partitions and drives steps 5 to 10 for them.

:class:`Shard` knows neither Ray nor threads of its own but one: what it needs is handed in, and ``step()`` is one
round. The order of durable writes makes a crash at any moment harmless: history first, then dead letters, then the
snapshot that names the offset; what a replay writes again is the same. An issued forecast is durable before it is
published. Questions from other threads never wait for a disk or for the log. ``services.ingest.shard_actor`` wraps it
for Ray.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypedDict

import numpy as np

from edge.log import Log, LogError
from services.config import Settings
from services.errors import SnapshotError
from services.forecast_spec import forecast_spec
from services.ingest.figures import Failures, Rate, ShardFigures, figures
from services.ingest.forecasting import ForecastOrigin, zone_forecasts
from services.ingest.partition import PAST_HOURS, Partition
from services.ingest.queue import ForecastQueue
from services.ingest.retention import Retention
from services.ingest.snapshots.parts import LEARNED
from services.ingest.snapshots.regrow import Regrowth
from services.ingest.snapshots.restore import issued_lately, restore, snapshot_state
from services.ingest.snapshots.snapshot import Saved, Snapshots
from services.ingest.trees import TreesInUse
from services.messages import F32, ONLINE_VERSION, ForecastReply, ForecastRequest, ZoneForecast, ZoneMixture
from services.store.deadletters import DeadLetters
from services.store.forecasts import IssuedForecast, IssuedForecasts
from services.store.history import History
from services.store.series import SeriesWriter

__all__ = ["IssuedWindow", "LiveStateSink", "Shard", "SilentZone"]

READ_RECORDS = 500
READ_BYTES = 64 * 1024
"""About how much one round reads of a partition: little enough for other threads to get their turn."""
SNAPSHOT_RECORDS = 20_000
PAUSES_BEHIND = 4
"""While it is behind a shard saves this many times less often: what a crash costs then is little beside what waits."""
FORECASTS_FIRST_S = 5.0
"""So long a snapshot waits for forecasts of rows that have just closed: they are what people wait for."""
SNAPSHOT_BYTES_PER_S = 10_000_000
"""On average a shard writes no more than this into snapshots: a large one saves less often, not all the time."""
LOOKED_AT_BYTES_PER_S = 100_000_000
"""Nor does it look for what has changed in more than this."""
MAX_UNFLUSHED_STEPS = 20_000
"""Steps kept in memory while the history cannot be written; then the shard stops reading."""
DAY_MS = 86_400_000


class LiveStateSink(Protocol):
    """Where forecasts and figures are shown; calls return at once and never raise."""

    def publish(self, forecasts: Sequence[ZoneForecast]) -> None:
        """Show forecasts, replacing older ones of the same zones; each adds its ``now`` to the zone's past."""

    def put_past(self, site: str, zone: str, end_ms: list[int], values: dict[str, list[float | None]]) -> None:
        """Replace a zone's past, because steps were left out."""

    def put_stats(self, stats: ShardFigures) -> None:
        """Show the shard's figures."""


class IssuedWindow(TypedDict):
    """A zone's newest issued forecast and the rows that it was made from."""

    values: F32  # [L, C], newest row last
    origin_ms: int
    quantiles: F32  # [H, M, Q], the forecast that was issued


class SilentZone(TypedDict):
    """A zone, or a site as its ``_site``, that is to leave; ``until_ms`` as in ``edge.wire.events.Retirement``."""

    site: str
    zone: str
    until_ms: int


class _Saving(NamedTuple):
    offset: int
    revision: int
    future: Future[Saved]


class Shard:
    """Owns ``partitions`` of the log; one thread calls :meth:`step`, any thread the other methods.

    ``forecast`` computes a reply and may block or raise; it runs on ``executor``. Files are merged on ``merger``, one
    merge at a time: it may take long, and no forecast waits for it. Snapshots are written on ``saver``, one at a time:
    samples are taken meanwhile, and only rows that close wait for it. ``clock_s`` is monotonic, for intervals only: no
    row or forecast depends on it. ``failpoint`` is called with the name of each durable moment;
    tests raise from it.
    """

    def __init__(
        self, settings: Settings, partitions: Sequence[int], log: Log, series: SeriesWriter,
        forecast: Callable[[ForecastRequest], ForecastReply], live_state: LiveStateSink, executor: Executor, merger:
        Executor, saver: Executor, clock_s: Callable[[], float], failpoint: Callable[[str], None] = lambda name: None,
    ) -> None:  # fmt: skip
        self.spec = forecast_spec(settings)
        self._settings, self._log, self._series, self._live_state = settings, log, series, live_state
        self._merger, self._saver = merger, saver
        self._clock_s, self._failpoint = clock_s, failpoint
        self._round = threading.Lock()  # held for a whole round or flush: all that follows is its holder's alone
        self._changing = threading.Lock()  # held, inside of it, while partitions change: never over I/O
        self._history = History(settings.storage, self.spec.channels, settings.stream.step_s)
        self._issued = IssuedForecasts(settings.storage, min(partitions, default=0))
        self._snapshots = {number: Snapshots(settings.storage / "snapshots", number) for number in partitions}
        self._dead_letters = {number: DeadLetters(settings.storage, number) for number in partitions}
        self._retention = Retention(log, settings.log.keep_days if settings.log.kind == "sqlite" else 0)
        self._failures = Failures()
        ring_steps = settings.stream.ring_hours * 3_600_000 // self.spec.step_ms
        self._queue = ForecastQueue(self.spec, ring_steps, forecast, executor, clock_s, self._failures)
        self._partitions: dict[int, Partition] = {}
        self._growing: dict[int, Regrowth] = {}
        self._waiting: dict[int, Sequence[Mapping[str, Any]]] = {}  # for their forecast, until a partition is grown
        self._unsaved: set[int] = set()  # partitions that were grown since their last snapshot
        self._repaired: list[str] = []  # what was wrong with snapshots, and what became of it
        for number, snapshots in self._snapshots.items():
            partition, waiting, missing, damage = restore(settings, self.spec, log, snapshots, self._issued)
            self._partitions[number] = partition
            self._repaired += damage
            if missing:
                self._growing[number] = self._regrowth(partition, missing)
                self._waiting[number] = waiting
            else:
                self._queue_again(partition, waiting)
        self._saving: dict[int, _Saving] = {}
        self._sizes: dict[int, Saved] = {}  # of each partition's last snapshot
        self._revisions: dict[int, int] = {}  # of what the last snapshot has of what was learned
        self._saved = {number: partition.offset for number, partition in self._partitions.items()}
        self._limits = dict.fromkeys(partitions, 1)  # records to read next
        self._behind = False  # the last round read as much as it may: there is probably more
        self._saved_s = self._stats_s = clock_s()
        self._pause_s = settings.stream.snapshot_s
        self._newest_ms = 0  # newest origin that was issued
        self._merging: Future[None] | None = None
        self._trees = TreesInUse(settings.storage, self.spec, self._failures, clock_s)
        self._rate = Rate(clock_s())

    def step(self) -> bool:
        """One round: read, close, forecast, save. True when records were read, so that more may wait.

        Raises what the log, the history and the snapshots raise; calling it again is safe.
        """
        with self._round:
            self._see_saved()
            busy = self._grow()
            busy |= self._history.pending < MAX_UNFLUSHED_STEPS and self._read()
            self._failures.works("log")
            self._queue.harvest(self._issue)
            self._queue.submit({number: p.rings for number, p in self._partitions.items()}, self._behind)
            self._see_merged()
            now_s = self._clock_s()
            behind = max((p.offset - self._saved[n] for n, p in self._partitions.items()), default=0)
            pause_s = self._pause_s * (PAUSES_BEHIND if self._behind else 1)
            full = self._history.pending >= MAX_UNFLUSHED_STEPS and now_s - self._saved_s >= self._pause_s
            if self._queue.waits and not self._behind:
                pause_s += FORECASTS_FIRST_S
            due = now_s - self._saved_s >= pause_s or full or behind >= SNAPSHOT_RECORDS
            if due and not self._saving:
                self._checkpoint()
            if now_s - self._stats_s >= 1.0:
                self._stats_s = now_s
                self._trees.look(list(self._partitions.values()), self._save_all)
                self._live_state.put_stats(self._stats())
            return busy

    @property
    def is_behind(self) -> bool:
        """Whether the last round left something to read or to grow at once."""
        return self._behind or bool(self._growing)

    @property
    def awaits_forecasts(self) -> bool:
        """Whether rows that have closed wait for their forecasts."""
        return self._queue.waits

    def flush(self) -> dict[int, int]:
        """Make the history complete up to what was read; the offset reached in each partition."""
        with self._round:
            self._checkpoint()
            return {number: partition.offset for number, partition in self._partitions.items()}

    def refresh(self) -> None:
        """Compute the last step's forecasts again, as after a swap to another model."""
        self._queue.refresh()

    def stats(self) -> ShardFigures:
        """The shard's figures; counts are since the beginning of the log."""
        with self._round:
            return self._stats()

    def window(self, site: str, zone: str) -> IssuedWindow | None:
        """A zone's newest forecast and its rows; None for a zone that is not ours or has none yet."""
        with self._changing:
            partition = self._owner(site, zone)
            found = None if partition is None else partition.window(site, zone)
            return None if found is None else IssuedWindow(values=found[0], origin_ms=found[1], quantiles=found[2])

    def baseline(self, site: str, zone: str, origin_ms: int, now: F32) -> F32 | None:
        """The climatology's forecasts [N, H, M, Q] for targets ``now [N, M]``; None for a zone that is not ours."""
        with self._changing:
            partition = self._owner(site, zone)
            return None if partition is None else partition.baseline(site, zone, origin_ms, now)

    def past(self, site: str, zone: str, hours: int) -> tuple[list[int], dict[str, list[float | None]]] | None:
        """Ends and targets of a zone's newest rows; None for a zone that is not ours."""
        with self._changing:
            partition = self._owner(site, zone)
            return None if partition is None else partition.past(site, zone, hours)

    def mixtures(self) -> list[ZoneMixture]:
        """What the newest forecast of each zone was mixed from, and which models took part."""
        with self._changing:
            found = [one for partition in self._partitions.values() for one in partition.mixtures()]
        for one in found:
            one["serving"]["trees"] = self._trees.version
        return found

    def silent(self) -> list[SilentZone]:
        """The zones, and sites as their ``_site``, that no sample came of for ``stream.retire_days`` of the stream's
        time; none while the log holds more than was read.
        """
        days = self._settings.stream.retire_days
        with self._changing:
            found = [one for p in self._partitions.values() for one in p.silent(round(days * DAY_MS))]
        if not days or self.is_behind:
            return []
        return [SilentZone(site=site, zone=one.zone, until_ms=one.until_ms) for site, one in found]

    def failed(self, what: str, error: BaseException) -> None:
        """Count a failure of something that is tried again, and show it until it works."""
        self._failures.failed(what, error)

    def close(self) -> None:
        """Save and release files."""
        with self._round:
            try:
                self._wait_saved()
                with suppress(OSError, SnapshotError):  # told in the failures; the next one has it all
                    self._see_saved()
                self._checkpoint()
                self._wait_saved()
                self._see_saved()
            finally:
                for dead_letters in self._dead_letters.values():
                    dead_letters.close()

    def _read(self) -> bool:
        busy = self._behind = False
        for number, partition in self._partitions.items():
            if number in self._growing:
                continue
            limit = self._limits[number]
            records = self._log.read(number, partition.offset, limit)
            if not records:
                continue
            busy = True
            full = len(records) == limit
            self._behind |= full
            size = sum(len(record.payload) for record in records) // len(records)
            self._limits[number] = max(1, min(READ_RECORDS, READ_BYTES // max(size, 1)))
            before = partition.counts["accepted"]
            with self._changing:
                steps = partition.feed(records)
            if steps:
                self._wait_saved(number)
            if number not in self._saving:
                partition.prepare()
            with self._changing:
                steps, origins = partition.learn(steps, 1 if full else self._queue.max_origins)
            self._failpoint("taken")
            self._rate.add(partition.counts["accepted"] - before)
            new = [step for step in steps if step.end_ms > partition.kept_ms.get(step.site, 0)]
            self._history.add(new)
            self._series.rows(new)
            self._queue.past_due.update({step.site for step in steps} if len(origins) < len(steps) else ())
            self._queue.add(origins)
        return busy

    def _issue(self, origins: Sequence[ForecastOrigin], reply: ForecastReply) -> None:
        """Mix the network's answers with those of the learners, keep the forecasts of all origins durably, then publish
        them. Raises ``HistoryError`` with none published.
        """
        version, ends = reply["version"], np.cumsum([len(origin.zones) for origin in origins])
        medians = np.split(np.asarray(reply["quantiles"][: ends[-1], ..., 1], np.float32), ends[:-1])
        for number in {origin.partition for origin in origins}:
            self._wait_saved(number)
        with self._changing:
            forecasts = [
                self._partitions[origin.partition].answer(origin, version, None if version == ONLINE_VERSION else said)
                for origin, said in zip(origins, medians, strict=True)
            ]
        self._issued.put(forecasts, self.spec.horizons_min, self.spec.targets, self._still_ours)
        self._failpoint("forecast kept")
        for origin, forecast in zip(origins, forecasts, strict=True):
            self._publish(origin, forecast)
        self._merge_days(max(origin.end_ms for origin in origins))

    def _publish(self, origin: ForecastOrigin, forecast: IssuedForecast) -> None:
        partition = self._partitions[origin.partition]
        with self._changing:
            partition.issued(origin, forecast)
            partition.counts.update(forecasts=len(origin.zones))
        made = zone_forecasts(self.spec, origin.step, forecast.version, forecast.quantiles)
        published = [one for one in made if not partition.has_left(one["site"], one["zone"], origin.end_ms)]
        self._series.forecasts(published)
        if origin.site in self._queue.past_due and not self._behind:
            self._queue.past_due.remove(origin.site)
            for zone in (one["zone"] for one in published):
                self._live_state.put_past(origin.site, zone, *partition.past(origin.site, zone, PAST_HOURS))
        self._live_state.publish(published)

    def _merge_days(self, newest_ms: int) -> None:
        """Once a day is over: make one file of its forecasts, and larger ones of the small ones of its history, where
        it holds nobody up.
        """
        if newest_ms // DAY_MS > self._newest_ms // DAY_MS and self._merging is None:
            self._merging = self._merger.submit(self._merge, newest_ms, list(self._partitions))
            self._newest_ms = newest_ms

    def _merge(self, newest_ms: int, partitions: Sequence[int]) -> None:
        self._issued.merge_days(newest_ms, partitions, self._still_ours)
        # Rows of yesterday may still come: a file that grows is better small.
        self._history.compact(newest_ms - DAY_MS, partitions, self._still_ours)

    def _see_merged(self) -> None:
        if self._merging is None or not self._merging.done():
            return
        error = self._merging.exception()
        self._merging = None
        if error is None:
            self._failures.works("merge of files")
        else:  # the next day's merge takes its files, too
            self._failures.failed("merge of files", error)

    def _save_all(self) -> None:
        """Save every partition, whether it has read on or not, and wait until that is durable."""
        self._wait_saved()
        self._see_saved()
        self._unsaved.update(self._partitions)
        self._checkpoint()
        self._wait_saved()
        self._see_saved()

    def _still_ours(self) -> None:
        for snapshots in self._snapshots.values():
            snapshots.check()

    def _checkpoint(self) -> None:
        self._saved_s = self._clock_s()
        self._failpoint("before flush")
        self._history.flush(lambda partition: self._snapshots[partition].check())
        self._failpoint("flushed")
        for number, partition in self._partitions.items():
            is_saved = partition.offset == self._saved[number] and number not in self._unsaved
            if is_saved or number in self._saving or number in self._growing:
                continue
            self._dead_letters[number].put(partition.dead_letters)
            partition.dead_letters = []
            self._failpoint("letters kept")
            parts = snapshot_state(self._settings, self.spec, partition, self._queue.state(number))
            revision = partition.revision
            same = LEARNED if self._revisions.get(number) == revision else ()
            finish = self._snapshots[number].begin(partition.offset, parts, LEARNED, same)
            self._saving[number] = _Saving(partition.offset, revision, self._saver.submit(finish))
            self._see_saved()
        if not self._saving:
            self._failures.works("storage")

    def _see_saved(self) -> None:
        """Go on behind snapshots that are durable; raises what writing one raised, and it is written again later."""
        for number, saving in list(self._saving.items()):
            if not saving.future.done():
                continue
            del self._saving[number]
            error = saving.future.exception()
            if error is not None:
                self._failures.failed("storage", error)
                raise error
            self._failures.works("storage")
            self._sizes[number] = saving.future.result()
            self._saved[number], self._revisions[number] = saving.offset, saving.revision
            self._unsaved.discard(number)
            self._failpoint("snapshot kept")
            self._commit(number, saving.offset)
            self._let_go(number)
            written = sum(size.written_bytes for size in self._sizes.values())
            looked_at = sum(size.looked_at_bytes for size in self._sizes.values())
            pauses = (written / SNAPSHOT_BYTES_PER_S, looked_at / LOOKED_AT_BYTES_PER_S)
            self._pause_s = max(self._settings.stream.snapshot_s, *pauses)

    def _wait_saved(self, number: int | None = None) -> None:
        """Wait until a partition's snapshot, or every one, is written: what is learned stands still until then.

        Whether it could be written :meth:`_see_saved` says.
        """
        wait([saving.future for n, saving in self._saving.items() if number in (None, n)])

    def _queue_again(self, partition: Partition, waiting: Sequence[Mapping[str, Any]]) -> None:
        """What waited for its forecast, and the newest rows."""
        self._queue.load(waiting)
        waits = {(origin["site"], origin["end_ms"]) for origin in waiting}
        self._queue.add([origin for origin in partition.newest_origins() if (origin.site, origin.end_ms) not in waits])

    def _regrowth(self, partition: Partition, missing: Mapping[str, str]) -> Regrowth:
        shape = len(self.spec.horizons_min), len(self.spec.targets)
        ring_hours = self._settings.stream.ring_hours
        return Regrowth(partition, missing, self._history, self._issued, shape, ring_hours, self._clock_s)

    def _grow(self) -> bool:
        """Grow again what snapshots have lost, for a while; whether there is more of it."""
        for number, growing in list(self._growing.items()):
            if not growing.step():
                continue
            partition = self._partitions[number]
            lately = issued_lately(partition, self.spec, self._issued)
            with self._changing:
                growing.finish()
                for forecasts in lately:
                    partition.expect(forecasts)
            del self._growing[number]
            self._unsaved.add(number)
            self._repaired.append(growing.words)
            self._queue_again(partition, self._waiting.pop(number))
        return bool(self._growing)

    def _commit(self, number: int, offset: int) -> None:
        """Tell lag tools; nothing of ours reads it, so that it may fail."""
        try:
            self._log.commit(number, offset)
            self._failures.works("commit")
        except LogError as error:
            self._failures.failed("commit", error)

    def _let_go(self, number: int) -> None:
        """Old records leave the log; where they cannot, they wait for the next time."""
        try:
            self._retention.apply(number, self._snapshots[number].oldest_offset)
            self._failures.works("retention")
        except LogError as error:
            self._failures.failed("retention", error)

    def _backlog(self) -> int:
        return sum(self._log.end_offset(n) - partition.offset for n, partition in self._partitions.items())

    def _owner(self, site: str, zone: str) -> Partition | None:
        return next((p for p in self._partitions.values() if (site, zone) in p.rings.zones), None)

    def _stats(self) -> ShardFigures:
        return {
            **figures(self._partitions.values()),
            "forecast_failures": self._failures.counts["forecast"], "failures": dict(self._failures.counts),
            "last_error": self._failures.last_error, "backlog": self._backlog(), "behind": self.is_behind,
            "repaired": "; ".join([*self._repaired, *(growing.words for growing in self._growing.values())]),
            "samples_per_s": self._rate.value(self._clock_s()), "series": self._series.stats(),
            "trees": self._trees.version,
        }  # fmt: skip
