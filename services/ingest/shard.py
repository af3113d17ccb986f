"""Step 4 of the way of a reading: a shard reads its partitions and drives steps 5 to 10 for them.

:class:`Shard` knows neither Ray nor threads of its own but one: what it needs is handed in, and ``step()`` is one
round. The order of durable writes makes a crash at any moment harmless: history first, then dead letters, then the
snapshot that names the offset; what a replay writes again is the same. An issued forecast is durable before it is
published. ``services.ingest.actor`` wraps it for Ray.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Protocol, TypedDict

import msgspec
import numpy as np

from edge.log import Log, LogError
from edge.reading import VOCABULARY
from services.config import Settings
from services.errors import ConfigError, HistoryError
from services.forecast_spec import forecast_spec, place_of
from services.ingest.forecasting import Origin, build_request, zone_forecasts
from services.ingest.partition import Partition
from services.ingest.snapshot import SnapshotError, Snapshots
from services.ingest.windows import PartitionWindows
from services.messages import F32, ForecastReply, ForecastRequest, ZoneForecast
from services.store.deadletters import DeadLetters
from services.store.history import History, IssuedForecast
from services.store.series import SeriesWriter

__all__ = ["Board", "Shard", "Window"]

_log = logging.getLogger(__name__)

READ_RECORDS = 200
READ_BYTES = 64 * 1024
"""About how much one round reads of a partition: little enough for other threads to get their turn."""
SNAPSHOT_RECORDS = 20_000
MAX_UNFLUSHED_STEPS = 20_000
"""Steps kept in memory while the history cannot be written; then the shard stops reading."""
MAX_ORIGINS = 12
"""Steps of a site that may wait for their forecast; older ones are left out."""
MAX_EXAMPLES = 2_048
"""Zones times origins of one request."""
CATCH_UP_FORECAST_S = 1.0
"""While there is a backlog only the newest step is forecast, at most this often."""
RETRY_FORECAST_S = 0.5
RATE_WINDOW_S = 5.0
PAST_HOURS = 48


class Board(Protocol):
    """Where forecasts and figures are shown; calls return at once and never raise."""

    def publish(self, forecasts: Sequence[ZoneForecast]) -> None:
        """Show forecasts, replacing older ones of the same zones; each adds its ``now`` to the zone's past."""

    def put_past(self, site: str, zone: str, end_ms: list[int], values: dict[str, list[float | None]]) -> None:
        """Replace a zone's past, because steps were left out."""

    def put_stats(self, stats: dict[str, Any]) -> None:
        """Show the shard's figures."""


class Window(TypedDict):
    """What a forecast of one zone is made from."""

    values: F32  # [L, C], newest row last
    origin_ms: int
    baseline: F32  # [H, M, Q]


@dataclass(slots=True)
class _InFlight:
    origins: list[Origin]
    future: Future[ForecastReply]


class Shard:
    """Owns ``partitions`` of the log; one thread calls :meth:`step`, any thread the other methods.

    ``forecast`` computes a reply and may block or raise; it runs on ``executor``. ``clock_s`` is monotonic, for
    intervals only: no row or forecast depends on it. ``failpoint`` is called with the name of each durable moment;
    tests raise from it.
    """

    def __init__(
        self, settings: Settings, partitions: Sequence[int], log: Log, series: SeriesWriter,
        forecast: Callable[[ForecastRequest], ForecastReply], board: Board, executor: Executor,
        clock_s: Callable[[], float], failpoint: Callable[[str], None] = lambda name: None,
    ) -> None:  # fmt: skip
        self.spec = forecast_spec(settings)
        self._settings, self._log, self._series, self._board = settings, log, series, board
        self._call, self._executor = forecast, executor
        self._clock_s, self._failpoint = clock_s, failpoint
        self._lock = threading.Lock()
        self._history = History(settings.storage, self.spec.channels)
        self._snapshots = {number: Snapshots(settings.storage / "snapshots", number) for number in partitions}
        self._letters = {number: DeadLetters(settings.storage, number) for number in partitions}
        self._partitions = {number: self._restored(number) for number in partitions}
        self._saved = {number: partition.offset for number, partition in self._partitions.items()}
        self._limits = dict.fromkeys(partitions, 1)  # records to read next
        self._behind = False  # the last round read as much as it may: there is probably more
        self._pending: list[Origin] = []
        self._latest: dict[str, Origin] = {}  # of each site, for refresh()
        self._past_due: set[str] = set()  # sites of which steps were left out
        ring_steps = settings.stream.ring_hours * 3_600_000 // self.spec.step_ms
        self._max_origins = min(MAX_ORIGINS, ring_steps - self.spec.lookback_steps + 1)
        self._in_flight: _InFlight | None = None
        self._saved_s = self._stats_s = self._forecast_s = clock_s()
        self._retry_s = 0.0
        self._failures: Counter[str] = Counter()
        self._errors: dict[str, str] = {}  # what fails now; cleared when it works again
        self._rate = _Rate(clock_s())
        for partition in self._partitions.values():
            for step in partition.latest.values():
                if step.zones:
                    self._latest[step.site] = partition.origin(step)
        self._refresh = True  # a restarted system shows the last step's forecast again at once

    def step(self) -> bool:
        """One round: read, close, forecast, save. True when records were read, so that more may wait.

        Raises what the log, the history and the snapshots raise; calling it again is safe.
        """
        with self._lock:
            busy = self._history.pending < MAX_UNFLUSHED_STEPS and self._read()
            self._errors.pop("log", None)
            self._harvest()
            self._submit()
            now_s = self._clock_s()
            behind = max((p.offset - self._saved[n] for n, p in self._partitions.items()), default=0)
            if now_s - self._saved_s >= self._settings.stream.snapshot_s or behind >= SNAPSHOT_RECORDS:
                self._checkpoint()
            if now_s - self._stats_s >= 1.0:
                self._stats_s = now_s
                self._board.put_stats(self._stats())
            return busy

    def flush(self) -> dict[int, int]:
        """Make the history complete up to what was read; the offset reached in each partition."""
        with self._lock:
            self._checkpoint()
            return {number: partition.offset for number, partition in self._partitions.items()}

    def refresh(self) -> None:
        """Compute the last step's forecasts again, as after a swap to another model."""
        self._refresh = True

    def stats(self) -> dict[str, Any]:
        """The shard's figures; counts are since the beginning of the log."""
        with self._lock:
            return self._stats()

    def window(self, site: str, zone: str) -> Window | None:
        """What a forecast of a zone is made from now; None for a zone that is not ours."""
        with self._lock:
            partition = self._owner(site, zone)
            found = None if partition is None else partition.window(site, zone)
            return None if found is None else Window(values=found[0], origin_ms=found[1], baseline=found[2])

    def baseline(self, site: str, zone: str, origin_ms: int, now: F32) -> F32 | None:
        """The climatology's forecast [H, M, Q] for targets ``now`` [M]; None for a zone that is not ours."""
        with self._lock:
            partition = self._owner(site, zone)
            return None if partition is None else partition.baseline(site, zone, origin_ms, now)

    def past(self, site: str, zone: str, hours: int) -> tuple[list[int], dict[str, list[float | None]]] | None:
        """Ends and targets of a zone's newest rows; None for a zone that is not ours."""
        with self._lock:
            partition = self._owner(site, zone)
            return None if partition is None else partition.past(site, zone, hours)

    def failed(self, what: str, error: BaseException) -> None:
        """Count a failure of something that is tried again, and show it until it works."""
        if what not in self._errors:
            _log.warning("%s failed: %s", what, error)
        self._failures[what] += 1
        self._errors[what] = f"{what}: {type(error).__name__}: {str(error)[:300]}"

    def close(self) -> None:
        """Save and release files."""
        with self._lock:
            self._checkpoint()
            for letters in self._letters.values():
                letters.close()

    def _read(self) -> bool:
        busy = self._behind = False
        for number, partition in self._partitions.items():
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
            steps, origins = partition.take(records, 1 if full else self._max_origins)
            self._failpoint("taken")
            self._rate.add(partition.counts["accepted"] - before)
            self._history.add(steps)
            self._series.rows(steps)
            self._past_due.update({step.site for step in steps} if len(origins) < len(steps) else ())
            self._await_forecast(origins)
        return busy

    def _await_forecast(self, origins: Sequence[Origin]) -> None:
        waiting: dict[str, list[Origin]] = {}
        for origin in [*self._pending, *origins]:
            waiting.setdefault(origin.site, []).append(origin)
        self._past_due.update(site for site, of_site in waiting.items() if len(of_site) > self._max_origins)
        self._pending = [origin for of_site in waiting.values() for origin in of_site[-self._max_origins :]]
        self._latest.update({origin.site: origin for origin in origins})

    def _submit(self) -> None:
        """Hand what waits to the Forecaster; the newest steps first in what is kept when there is too much."""
        now_s = self._clock_s()
        if self._in_flight is not None or now_s < self._retry_s:
            return
        if self._refresh:
            self._refresh = False
            waiting = {(origin.site, origin.end_ms) for origin in self._pending}
            self._pending += [o for o in self._latest.values() if (o.site, o.end_ms) not in waiting]
        if not self._pending:
            return
        if self._behind:
            if now_s - self._forecast_s < CATCH_UP_FORECAST_S:
                return
            self._past_due.update(origin.site for origin in self._pending)
            self._pending = list({origin.site: origin for origin in self._pending}.values())
        by_age = sorted(self._pending, key=lambda origin: origin.end_ms, reverse=True)
        chosen: list[Origin] = []
        examples = 0
        for origin in by_age:
            if chosen and examples + len(origin.zones) > MAX_EXAMPLES:
                break
            chosen.append(origin)
            examples += len(origin.zones)
        self._pending = sorted(by_age[len(chosen) :], key=lambda origin: origin.end_ms)
        chosen.reverse()
        rings = [self._partitions[origin.partition].rings for origin in chosen]
        request = build_request(self.spec, chosen, rings)
        self._forecast_s = now_s
        self._in_flight = _InFlight(chosen, self._executor.submit(self._call, request))

    def _harvest(self) -> None:
        if self._in_flight is None or not self._in_flight.future.done():
            return
        origins, future = self._in_flight.origins, self._in_flight.future
        self._in_flight = None
        error = future.exception()
        if error is None:
            error = self._issue_all(origins, future.result())
        if error is None:
            self._errors.pop("forecast", None)
        else:  # nothing more is published; what is left is tried again
            self.failed("forecast", error)
            self._retry_s = self._clock_s() + RETRY_FORECAST_S
            later, self._pending = self._pending, origins
            self._await_forecast(later)

    def _issue_all(self, origins: Sequence[Origin], reply: ForecastReply) -> Exception | None:
        start = 0
        for origin in origins:
            quantiles = np.asarray(reply["quantiles"][start : start + len(origin.zones)], np.float32)
            start += len(origin.zones)
            try:
                self._issue(origin, reply["version"], quantiles)
            except HistoryError as error:
                return error
        return None

    def _issue(self, origin: Origin, version: str, quantiles: Any) -> None:
        issued = IssuedForecast(origin.site, origin.end_ms, version, origin.zones, quantiles)
        self._history.put_forecast(issued, self.spec.horizons_min, self.spec.targets)
        self._failpoint("forecast kept")
        partition = self._partitions[origin.partition]
        partition.issued(origin, quantiles)
        partition.counts.update(forecasts=len(origin.zones))
        published = zone_forecasts(self.spec, origin, version, quantiles)
        self._series.forecasts(published)
        if origin.site in self._past_due and not self._behind:
            self._past_due.remove(origin.site)
            for zone in origin.zones:
                self._board.put_past(origin.site, zone, *partition.past(origin.site, zone, PAST_HOURS))
        self._board.publish(published)

    def _checkpoint(self) -> None:
        self._saved_s = self._clock_s()
        self._failpoint("before flush")
        self._history.flush()
        self._failpoint("flushed")
        for number, partition in self._partitions.items():
            if partition.offset == self._saved[number]:
                continue
            self._letters[number].put(partition.letters)
            partition.letters = []
            self._failpoint("letters kept")
            state = {"settings": self._row_settings(), "learners": self._learners(), **partition.state()}
            self._snapshots[number].save(partition.offset, state)
            self._saved[number] = partition.offset
            self._failpoint("snapshot kept")
            self._commit(number, partition.offset)
        self._errors.pop("storage", None)

    def _commit(self, number: int, offset: int) -> None:
        """Tell lag tools; nothing of ours reads it, so that it may fail."""
        try:
            self._log.commit(number, offset)
            self._errors.pop("commit", None)
        except LogError as error:
            self.failed("commit", error)

    def _restored(self, number: int) -> Partition:
        stream = self._settings.stream
        primary = {site.name: site.primary for site in self._settings.sites if site.primary}
        windows = PartitionWindows(
            self.spec.step_ms, stream.lateness_s * 1000, stream.idle_s * 1000, VOCABULARY, primary
        )
        places = {site.name: place_of(self._settings, site.name) for site in self._settings.sites}
        elsewhere = place_of(self._settings, "")
        partition = Partition(
            number, self.spec, windows, stream.ring_hours * 3_600_000 // self.spec.step_ms,
            lambda site: places.get(site, elsewhere),
        )  # fmt: skip
        found = self._snapshots[number].load()
        if found is None:
            return partition
        offset, state = found
        for name, now in self._row_settings().items():
            if state["settings"].get(name) != now:
                raise ConfigError(
                    f"{name} changed from {state['settings'].get(name)!r} to {now!r}, but rows of one data folder are"
                    " made in one way",
                    "Set it back, or use another data_dir.",
                )
        if state["learners"] != self._learners():
            _log.warning("what is forecast has changed: partition %d is replayed from the log's beginning", number)
            return partition
        partition.load(offset, state)
        if self._log.begin_offset(number) > offset:
            raise SnapshotError(f"the log of partition {number} was truncated behind the snapshot's offset {offset}")
        for site, step in partition.latest.items():
            shape = (len(self.spec.horizons_min), len(self.spec.targets))
            partition.expect(self._history.forecasts(site, step.end_ms, *shape))
        return partition

    def _row_settings(self) -> dict[str, Any]:
        stream = self._settings.stream
        return {
            "stream.step_s": stream.step_s, "stream.lateness_s": stream.lateness_s, "stream.idle_s": stream.idle_s,
            "vocabulary": _vocabulary_hash(),
        }  # fmt: skip

    def _learners(self) -> list[Any]:
        return [self.spec.hash, self._settings.stream.ring_hours]

    def _backlog(self) -> int:
        return sum(self._log.end_offset(n) - partition.offset for n, partition in self._partitions.items())

    def _owner(self, site: str, zone: str) -> Partition | None:
        return next((p for p in self._partitions.values() if (site, zone) in p.rings.zones), None)

    def _stats(self) -> dict[str, Any]:
        partitions = self._partitions.values()
        counts: Counter[str] = sum((p.counts for p in partitions), Counter())
        rejected: Counter[str] = sum((p.rejected for p in partitions), Counter())
        values_refused: Counter[str] = sum((p.values_refused for p in partitions), Counter())
        samples = counts["accepted"] + counts["duplicates"] + counts["late"] + sum(rejected.values())
        watermarks = {site: step.end_ms for p in partitions for site, step in p.latest.items()}
        return {
            "samples": samples, "accepted": counts["accepted"], "duplicates": counts["duplicates"],
            "late": counts["late"], "rejected": dict(rejected), "values_refused": dict(values_refused),
            "rows": counts["zone_rows"], "zone_rows": counts["zone_rows"], "device_rows": counts["rows"],
            "steps": counts["steps"], "forecasts": counts["forecasts"],
            "forecast_failures": self._failures["forecast"], "failures": dict(self._failures),
            "last_error": "; ".join(self._errors.values()),
            "backlog": self._backlog(), "watermark_ms": watermarks, "origin_ms": max(watermarks.values(), default=None),
            "stream_ms": {site: at for p in partitions for site, at in p.stream_ms.items()},
            "zones": sorted(f"{site}/{zone}" for p in partitions for site, zone in p.rings.zones),
            "sites": sorted(watermarks), "samples_per_s": self._rate.value(self._clock_s()),
            "scores": [p.scores.table() for p in partitions], "series": dict(self._series.stats()),
            "offsets": {str(n): p.offset for n, p in self._partitions.items()},
        }  # fmt: skip


@cache
def _vocabulary_hash() -> str:
    table = msgspec.json.encode({name: asdict(metric) for name, metric in VOCABULARY.items()})
    return hashlib.sha256(table).hexdigest()[:16]


class _Rate:
    """Samples a second over the last few seconds."""

    def __init__(self, now_s: float) -> None:
        self._since_s, self._count, self._last = now_s, 0, 0.0

    def add(self, samples: int) -> None:
        self._count += samples

    def value(self, now_s: float) -> float:
        elapsed_s = now_s - self._since_s
        if elapsed_s >= RATE_WINDOW_S:
            self._last = self._count / elapsed_s
            self._since_s, self._count = now_s, 0
        elif self._last == 0 and elapsed_s > 0:
            return round(self._count / elapsed_s, 1)
        return round(self._last, 1)
