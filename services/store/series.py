"""Step 6 of the way of a reading: rows and forecasts as series for people, in InfluxDB when one is configured.

Nothing waits for InfluxDB: a background thread sends what is queued, and tries again with back-off while the server is
away. Beyond a stated number of points the oldest leave memory; they are sent from the history once the server is back.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Protocol, TypedDict

from edge.figure_fields import counter, gauge
from edge.timing import Backoff
from models.durations import HOUR_MS
from services.errors import ConfigError
from services.messages import ZoneForecast
from services.store.influx.gaps import Gap, Gaps, Stream
from services.store.influx.history_points import Points, PointSource
from services.store.influx.influx_answers import refused_lines, said_words
from services.store.influx.lines import forecast_lines, row_lines
from services.store.rows import ClosedStep

__all__ = ["InfluxWriter", "NullSeries", "SeriesStats", "SeriesWriter"]

_log = logging.getLogger(__name__)

BATCH = 5_000
FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 30.0
REFUSED = (401, 403)
"""What InfluxDB answers where it does not take a token, or for this bucket."""

PIECE_MS = 6 * HOUR_MS
"""How much of a gap is read from the history at a time."""

LOOK_EVERY_S = 1.0
READ_TRIES = 10
"""A piece that cannot be read so often is left out."""


class SeriesStats(TypedDict):
    """What became of the points, since the start."""

    queued: Annotated[int, gauge("hothouse_series_points_queued", "Points that wait for InfluxDB.")]
    sent: Annotated[int, counter("hothouse_series_points_sent_total", "Points that InfluxDB took.")]
    refused: Annotated[int, counter("hothouse_series_points_refused_total", "Points that InfluxDB refused for good.")]
    in_history: Annotated[
        int, gauge("hothouse_series_points_in_history", "Points that left memory and will be sent from the history.")
    ]
    dropped: Annotated[
        int, counter("hothouse_series_points_dropped_total", "Points lost: they left memory, the history lacks them.")
    ]
    retries: Annotated[int, counter("hothouse_series_retries_total", "Failed attempts, each made again.")]
    last_error: Annotated[
        str,
        gauge(
            "hothouse_series_failing", "1 while InfluxDB does not take points.",
            field="What fails now; empty again once points are taken.",
        ),
    ]  # fmt: skip


class SeriesWriter(Protocol):
    """Takes rows and forecasts for charts; never blocks and never raises."""

    def rows(self, steps: Sequence[ClosedStep]) -> None:
        """Queue the zone rows of closed steps."""

    def forecasts(self, forecasts: Sequence[ZoneForecast]) -> None:
        """Queue issued forecasts."""

    def stats(self) -> SeriesStats:
        """What became of the points."""

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what is queued for at most ``timeout_s``, then stop."""


class NullSeries:
    """No series store is configured; the Parquet history alone keeps the rows."""

    def rows(self, steps: Sequence[ClosedStep]) -> None:
        """Nothing to do."""

    def forecasts(self, forecasts: Sequence[ZoneForecast]) -> None:
        """Nothing to do."""

    def stats(self) -> SeriesStats:
        """Nothing was ever queued."""
        return SeriesStats(queued=0, sent=0, refused=0, in_history=0, dropped=0, retries=0, last_error="")

    def close(self, timeout_s: float = 5.0) -> None:
        """Nothing to do."""


class InfluxWriter:
    """Series in InfluxDB 1.8 or 2.x through influxdb-client; :mod:`services.store.influx.lines` says which.

    ``gaps`` are sent besides what comes, and so is what leaves memory: ``source`` has it, without one it is lost.
    ``delivered`` is told, from the background thread, up to which row and forecast of each site nothing waits any more.
    ``token`` is asked again once one was refused. ``send`` takes line-protocol lines; it is there for tests,
    as is ``first_backoff_s``.
    """

    def __init__(
        self, url: str, org: str, bucket: str, token: Callable[[], str], channels: Sequence[str],
        queue_points: int = 200_000, send: Callable[[list[str]], None] | None = None,
        first_backoff_s: float = FIRST_BACKOFF_S,
        delivered: Callable[[Mapping[Stream, int]], None] = lambda newest: None,
        source: PointSource | None = None, gaps: Gaps | None = None,
    ) -> None:  # fmt: skip
        self._channels = tuple(channels)
        self._bound = queue_points
        self._queue: deque[_Put] = deque()
        self._queued = 0  # lines in it
        self._source, self._gaps = source, gaps or Gaps()
        self._delivered = delivered
        self._held: dict[Stream, int] = {}  # sent, but behind a gap
        self._passed: dict[Stream, int] = {}  # gaps that cannot be filled now, and how often their piece was tried
        self._waiting: set[Stream] = set()  # of these, those that wait for the next look
        self._changed = threading.Condition()
        self._stopping = False
        self._most = BATCH  # lines that are sent at once
        self._stats = SeriesStats(queued=0, sent=0, refused=0, in_history=0, dropped=0, retries=0, last_error="")
        self._first_backoff_s = first_backoff_s
        self._client: Any = None
        self._connect = partial(self._log_in, url, org, bucket, token)
        self._send = send or self._connect()
        self._thread = threading.Thread(target=self._run, name="influx-writer", daemon=True)
        self._thread.start()

    def rows(self, steps: Sequence[ClosedStep]) -> None:
        """Queue the zone rows of closed steps; a zone without any value in a step has no point."""
        for site in dict.fromkeys(step.site for step in steps):
            mine = [step for step in steps if step.site == site]
            at_once = max(BATCH // max(1, *(len(step.zones) for step in mine)), 1)
            for begin in range(0, len(mine), at_once):  # after days of silence there are thousands
                some = mine[begin : begin + at_once]
                ends = [step.end_ms for step in some]
                self._put(_Put(Stream("rows", site), min(ends), max(ends), row_lines(self._channels, some)))

    def forecasts(self, forecasts: Sequence[ZoneForecast]) -> None:
        """Queue issued forecasts, one point a target and horizon."""
        for site in dict.fromkeys(forecast["site"] for forecast in forecasts):
            mine = [forecast for forecast in forecasts if forecast["site"] == site]
            origins = [forecast["origin_ms"] for forecast in mine]
            self._put(_Put(Stream("forecasts", site), min(origins), max(origins), forecast_lines(mine)))

    def stats(self) -> SeriesStats:
        """What became of the points."""
        with self._changed:
            counts = self._stats.copy()
            counts["queued"] += self._queued
            counts["in_history"] = self._gaps.points
            return counts

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what is queued for at most ``timeout_s``, then stop; the next start sends what is left."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue and not self._stats["queued"], timeout_s)
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if self._client is not None:
            self._client.close()

    def _log_in(self, url: str, org: str, bucket: str, token: Callable[[], str]) -> Callable[[list[str]], None]:
        from influxdb_client import InfluxDBClient, WritePrecision
        from influxdb_client.client.write_api import SYNCHRONOUS

        secret = token()
        if self._client is not None:
            self._client.close()
        self._client = InfluxDBClient(url=url, org=org, token=secret, timeout=5_000)
        api = self._client.write_api(write_options=SYNCHRONOUS)

        def send(lines: list[str]) -> None:
            if not (secret.isascii() and secret.isprintable()):  # the client's words would hold the token
                raise ConfigError("the token has a line break or a character that is not of ASCII")
            api.write(bucket, org, lines, write_precision=WritePrecision.MS)

        return send

    def _put(self, put: _Put) -> None:
        with self._changed:
            self._queue.append(put)
            self._queued += len(put.lines)
            while self._queued > self._bound:
                oldest = self._queue.popleft()
                self._queued -= len(oldest.lines)
                if self._source is None:
                    self._stats["dropped"] += len(oldest.lines)
                else:
                    self._gaps.add(oldest.stream, Gap(oldest.first_ms - 1, oldest.last_ms, len(oldest.lines)))
            self._changed.notify_all()

    def _run(self) -> None:
        filled = True
        while not self._stopping:
            with self._changed:
                if not (filled and self._gaps):
                    # What a gap needs comes into the history without telling; so it is looked for.
                    wait_s = LOOK_EVERY_S if self._gaps else None
                    self._changed.wait_for(lambda: self._queue or self._stopping, wait_s)
                puts = self._take()
            if puts and self._deliver([line for put in puts for line in put.lines]):
                self._tell({put.stream: put.last_ms for put in puts})
            filled = self._fill_some()
            if not filled:
                self._waiting.clear()

    def _take(self) -> list[_Put]:
        """The oldest of the queue, about a batch."""
        puts: list[_Put] = []
        while self._queue and self._stats["queued"] < BATCH:
            puts.append(self._queue.popleft())
            self._queued -= len(puts[-1].lines)
            self._stats["queued"] += len(puts[-1].lines)  # those in flight; the queue is added in stats()
        return puts

    def _fill_some(self) -> bool:
        """Send a piece of the oldest gap that the history has; whether there may be more to do at once."""
        with self._changed:
            oldest, added = self._gaps.oldest(self._waiting), self._gaps.added
        if oldest is None or self._source is None or self._stopping:
            return False
        stream, gap = oldest
        until_ms = min(gap.until_ms, gap.after_ms + PIECE_MS)
        try:
            points = self._source.read(stream, gap.after_ms, until_ms)
        except Exception as error:  # whatever a damaged file makes of a reader: the other gaps go on
            self._failed("the history cannot be read", error)
            self._passed[stream] = self._passed.get(stream, 0) + 1
            if self._passed[stream] < READ_TRIES:
                self._waiting.add(stream)
                return True
            _log.error("%s of %s up to %d cannot be read and are left out: %s", *stream, until_ms, error)
            points = Points([], 0)
        if points is None:
            self._waiting.add(stream)
            return True
        if not self._deliver(points.lines):
            return False
        self._passed.pop(stream, None)
        with self._changed:
            if self._gaps.added != added:
                return True  # what has left memory meanwhile may not have been read: this piece is sent again
            self._stats["dropped"] += self._gaps.fill(stream, until_ms, len(points.lines))
        self._tell({stream: points.reached_ms}, filled=True)
        return True

    def _tell(self, newest: Mapping[Stream, int], filled: bool = False) -> None:
        """Tell up to where all was taken, or refused for good; what is behind a gap waits until it is filled."""
        told: dict[Stream, int] = {}
        with self._changed:
            for stream, until_ms in newest.items():
                if stream not in self._gaps:
                    told[stream] = max(until_ms, self._held.pop(stream, 0))
                elif filled:
                    told[stream] = until_ms
                else:
                    self._held[stream] = max(until_ms, self._held.get(stream, 0))
        try:
            self._delivered(told)
        except OSError as error:  # the note stays behind: a restart sends these points again
            _log.warning("the note of what InfluxDB has taken cannot be written: %s", error)

    def _deliver(self, lines: list[str]) -> bool:
        """Send lines, in batches, each again and again while the server is away; whether they are done with."""
        done = 0
        while done < len(lines):
            batch = lines[done : done + self._most]
            refused = self._send_batch(batch)
            if refused is None:
                break
            if refused == "too long":
                self._most = len(batch) // 2
                continue
            done += len(batch)
            if refused and len(batch) == 1:
                self._most = BATCH  # that line was too long, which says nothing of the others
            with self._changed:
                self._stats["sent"] += len(batch) - refused
                self._stats["refused"] += refused
        with self._changed:
            if done == len(lines):
                self._stats["queued"] = 0
            self._changed.notify_all()
        return done == len(lines)

    def _send_batch(self, batch: list[str]) -> int | Literal["too long"] | None:
        """How many of its lines were refused for good; ``None`` when stopping."""
        backoff, refused = Backoff(self._first_backoff_s, LONGEST_BACKOFF_S, random.SystemRandom().random), False
        while not self._stopping:
            try:
                if refused:
                    self._send = self._connect()
                self._send(batch)
                with self._changed:
                    self._stats["last_error"] = ""
                return 0
            except Exception as error:  # what a server or a network may answer is not a closed list
                status = getattr(error, "status", None)
                refused = refused or _is_of_token(error)
                if status == 413 and len(batch) > 1:
                    return "too long"  # a proxy before it may take a megabyte at a time
                self._failed("InfluxDB does not take points", error)
                with self._changed:
                    if status in (400, 413, 422):
                        return refused_lines(error, len(batch))  # sending it again cannot help
                    self._stats["retries"] += 1
                    self._changed.wait_for(lambda: self._stopping, backoff.next_s())
        return None

    def _failed(self, what: str, error: Exception) -> None:
        said = said_words(error)
        if _is_of_token(error):
            said += ". influx.token_file is read at each try, HOTHOUSE_INFLUX__TOKEN at the start"
        with self._changed:
            if not self._stats["last_error"]:
                _log.warning("%s: %s", what, said)
            self._stats["last_error"] = said


def _is_of_token(error: Exception) -> bool:
    return isinstance(error, ConfigError) or getattr(error, "status", None) in REFUSED


@dataclass(frozen=True, slots=True)
class _Put:
    """Lines of a stream, of rows that end, or forecasts that were issued, from ``first_ms`` to ``last_ms``."""

    stream: Stream
    first_ms: int
    last_ms: int
    lines: list[str]
