"""Step 6 of the way of a reading: rows and forecasts as series for people, in InfluxDB when one is configured.

Nothing waits for InfluxDB: a background thread sends what is queued, tries again with back-off while the server is
away, and beyond a stated number of points the oldest are dropped and counted. A point's measurement, tags and time
name it, so that sending it again changes nothing.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol, TypedDict

from edge.figure_fields import counter, gauge
from edge.timing import Backoff
from services.messages import ZoneForecast
from services.store.rows import SiteStep

__all__ = ["InfluxWriter", "NullSeries", "SeriesStats", "SeriesWriter"]

_log = logging.getLogger(__name__)

BATCH = 5_000
FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 30.0


class SeriesStats(TypedDict):
    """What became of the points, since the start."""

    queued: Annotated[int, gauge("hothouse_series_points_queued", "Points that wait for InfluxDB.")]
    sent: Annotated[int, counter("hothouse_series_points_sent_total", "Points that InfluxDB took.")]
    refused: Annotated[int, counter("hothouse_series_points_refused_total", "Points that InfluxDB refused for good.")]
    dropped: Annotated[
        int, counter("hothouse_series_points_dropped_total", "Points dropped because too many waited; the oldest.")
    ]
    retries: Annotated[int, counter("hothouse_series_retries_total", "Failed attempts, each made again.")]
    last_error: str  # what fails now; empty again once points are taken


class SeriesWriter(Protocol):
    """Takes rows and forecasts for charts; never blocks and never raises."""

    def rows(self, steps: Sequence[SiteStep]) -> None:
        """Queue the zone rows of closed steps."""

    def forecasts(self, forecasts: Sequence[ZoneForecast]) -> None:
        """Queue issued forecasts."""

    def stats(self) -> SeriesStats:
        """What became of the points."""

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what is queued for at most ``timeout_s``, then stop."""


class NullSeries:
    """No series store is configured; the Parquet history alone keeps the rows."""

    def rows(self, steps: Sequence[SiteStep]) -> None:
        """Nothing to do."""

    def forecasts(self, forecasts: Sequence[ZoneForecast]) -> None:
        """Nothing to do."""

    def stats(self) -> SeriesStats:
        """Nothing was ever queued."""
        return SeriesStats(queued=0, sent=0, refused=0, dropped=0, retries=0, last_error="")

    def close(self, timeout_s: float = 5.0) -> None:
        """Nothing to do."""


class InfluxWriter:
    """Series in InfluxDB 1.8 or 2.x through influxdb-client.

    ``zone_climate`` (tags site, zone; a field a channel; time: the row's end) and ``forecast`` (tags site, zone,
    target, horizon_min, model_version; fields p10, p50, p90, origin_ms; time: the forecast moment).
    ``delivered`` is told, from the background thread, up to which row of each site (site -> end_ms) nothing waits any
    more. ``send`` takes line-protocol lines; it is there for tests, as is ``first_backoff_s``.
    """

    def __init__(
        self, url: str, org: str, bucket: str, token: str, channels: Sequence[str], queue_points: int = 200_000,
        send: Callable[[list[str]], None] | None = None, first_backoff_s: float = FIRST_BACKOFF_S,
        delivered: Callable[[Mapping[str, int]], None] = lambda newest: None,
    ) -> None:  # fmt: skip
        self._channels = tuple(channels)
        self._bound = queue_points
        self._queue: deque[str] = deque()
        self._delivered = delivered
        self._put_points = 0  # since the start
        self._marks: deque[tuple[int, str, int]] = deque()  # done once so many points are: site, end_ms
        self._changed = threading.Condition()
        self._stopping = False
        self._stats = SeriesStats(queued=0, sent=0, refused=0, dropped=0, retries=0, last_error="")
        self._first_backoff_s = first_backoff_s
        self._client: Any = None
        self._send = send or self._connect(url, org, bucket, token)
        self._thread = threading.Thread(target=self._run, name="influx-writer", daemon=True)
        self._thread.start()

    def rows(self, steps: Sequence[SiteStep]) -> None:
        """Queue the zone rows of closed steps; a zone without any value in a step has no point."""
        lines = []
        for step in steps:
            for zone, values in zip(step.zones, step.values.tolist(), strict=True):
                fields = _fields(dict(zip(self._channels, values, strict=True)))
                if fields:
                    lines.append(f"zone_climate,site={_tag(step.site)},zone={_tag(zone)} {fields} {step.end_ms}")
        self._put(lines, {step.site: step.end_ms for step in steps})

    def forecasts(self, forecasts: Sequence[ZoneForecast]) -> None:
        """Queue issued forecasts, one point a target and horizon."""
        lines = []
        for forecast in forecasts:
            version = _tag(forecast["model_version"])
            where = f"site={_tag(forecast['site'])},zone={_tag(forecast['zone'])}"
            for target, points in forecast["forecasts"].items():
                for point in points:
                    fields = _fields({q: point[q] for q in ("p10", "p50", "p90")})
                    tags = f"{where},target={_tag(target)},horizon_min={point['horizon_min']},model_version={version}"
                    if fields:
                        origin = f"origin_ms={forecast['origin_ms']}i"
                        lines.append(f"forecast,{tags} {fields},{origin} {point['time_ms']}")
        self._put(lines)

    def stats(self) -> SeriesStats:
        """What became of the points."""
        with self._changed:
            counts = self._stats.copy()
            counts["queued"] += len(self._queue)
            return counts

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what is queued for at most ``timeout_s``, then stop; what is left is dropped (the history has it)."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue and not self._stats["queued"], timeout_s)
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if self._client is not None:
            self._client.close()

    def _connect(self, url: str, org: str, bucket: str, token: str) -> Callable[[list[str]], None]:
        from influxdb_client import InfluxDBClient, WritePrecision
        from influxdb_client.client.write_api import SYNCHRONOUS

        self._client = InfluxDBClient(url=url, org=org, token=token, timeout=5_000)
        api = self._client.write_api(write_options=SYNCHRONOUS)
        return lambda lines: api.write(bucket, org, lines, write_precision=WritePrecision.MS)

    def _put(self, lines: list[str], newest: Mapping[str, int] = {}) -> None:
        with self._changed:
            self._queue.extend(lines)
            self._put_points += len(lines)
            self._marks.extend((self._put_points, site, end_ms) for site, end_ms in newest.items())
            while len(self._queue) > self._bound:
                self._queue.popleft()
                self._stats["dropped"] += 1
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._stopping)
                if self._stopping:
                    return
                lines = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
                self._stats["queued"] = len(lines)  # those in flight; the queue is added in stats()
            outcome = self._deliver(lines)
            if outcome is not None:
                self._tell_delivered()
            with self._changed:
                self._stats["queued"] = 0
                if outcome is not None:
                    self._stats["sent" if outcome else "refused"] += len(lines)
                self._changed.notify_all()

    def _tell_delivered(self) -> None:
        """Tell which rows are done with: taken, refused for good, or dropped beyond the bound."""
        newest: dict[str, int] = {}
        with self._changed:
            done = self._put_points - len(self._queue)
            while self._marks and self._marks[0][0] <= done:
                _, site, end_ms = self._marks.popleft()
                newest[site] = max(end_ms, newest.get(site, 0))
        try:
            self._delivered(newest)
        except OSError as error:  # the note stays behind: a restart sends these points again
            _log.warning("the note of what InfluxDB has taken cannot be written: %s", error)

    def _deliver(self, lines: list[str]) -> bool | None:
        """Send a batch, again and again while the server is away; false when it was refused, None when stopping."""
        backoff = Backoff(self._first_backoff_s, LONGEST_BACKOFF_S, random.SystemRandom().random)
        while not self._stopping:
            try:
                self._send(lines)
                with self._changed:
                    self._stats["last_error"] = ""
                return True
            except Exception as error:  # what a server or a network may answer is not a closed list
                if not self._stats["last_error"]:
                    _log.warning("InfluxDB does not take points: %s", error)
                with self._changed:
                    self._stats["last_error"] = f"{type(error).__name__}: {str(error)[:200]}"
                    if getattr(error, "status", None) in (400, 413, 422):
                        return False  # the batch itself is wrong: sending it again cannot help
                    self._stats["retries"] += 1
                    self._changed.wait_for(lambda: self._stopping, backoff.next_s())
        return None


def _tag(text: str) -> str:
    for character in ("\\", ",", "=", " "):
        text = text.replace(character, "\\" + character)
    return text


def _fields(values: dict[str, float | None]) -> str:
    return ",".join(f"{name}={value!r}" for name, value in values.items() if value is not None and math.isfinite(value))
