"""A shard in a process of its own, without Ray: ``python -m tests.chaos.shard_process CONFIG INDEX COUNT``.

With ``--say`` behind that it says when it flushes and when it writes a snapshot (told_child.py).
"""

from __future__ import annotations

import json
import logging
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from edge.log import LogError
from services.config import load_settings
from services.errors import HistoryError
from services.ingest.shard import Executors, Outputs, Shard
from services.ingest.sinks.series_sink import series_writer
from services.log import open_settings_log
from services.messages import ForecastReply, ForecastRequest, ShownAlert, ZoneForecast
from tests.chaos.told_child import say

__all__ = ["NoLiveState", "baseline_forecast"]

POLL_S = 0.05
RETRY_S = 0.5


def baseline_forecast(request: ForecastRequest) -> ForecastReply:
    """Forecasts change no row: answer with the climatology."""
    return ForecastReply(version="online", quantiles=request["baseline"])


class NoLiveState:
    """Shows nothing."""

    def publish(self, forecasts: list[ZoneForecast]) -> None:
        """Nothing."""

    def put_past(self, site: str, zone: str, end_ms: list[int], values: dict[str, list[float | None]]) -> None:
        """Nothing."""

    def put_alerts(self, alerts: list[ShownAlert]) -> None:
        """Nothing."""

    def put_stats(self, stats: dict[str, object]) -> None:
        """Nothing."""


class FiguresInFile(NoLiveState):
    """Writes a shard's figures, as a test may read them at any time."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def put_stats(self, stats: dict[str, object]) -> None:
        """Replace the file."""
        beside = self._file.with_suffix(".new")
        beside.write_text(json.dumps(stats, default=str))
        beside.rename(self._file)


class SnapshotsTold(ThreadPoolExecutor):
    """Runs what writes a snapshot, and says so."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it in the thread."""

        def told() -> Any:
            say("snapshot begins")
            done = work(*args, **kwargs)
            say("snapshot ends")
            return done

        return super().submit(told)


def say_flush(failpoint: str) -> None:
    """What the shard's moments mean to the test."""
    if failpoint in ("before flush", "flushed"):
        say("flush", "begins" if failpoint == "before flush" else "ends")


def main(config: Path, index: int, count: int, says: bool = False) -> None:
    """Run rounds until SIGTERM; an error that is not of log or storage ends the process, as in the actor."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    signals: list[int] = []  # not an event, whose lock the handler could wait for
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    settings = load_settings(config)
    log = open_settings_log(settings)
    partitions = range(settings.log.partitions)[index::count]
    series = series_writer(settings, partitions)
    shard = Shard(
        settings, partitions, log, baseline_forecast,
        Outputs(series, FiguresInFile(settings.data_dir / f"shard-{index}.json")),
        Executors(ThreadPoolExecutor(1), ThreadPoolExecutor(1), (SnapshotsTold if says else ThreadPoolExecutor)(1)),
        time.monotonic, say_flush if says else lambda name: None,
    )  # fmt: skip
    while not signals:
        try:
            if not shard.step():
                time.sleep(POLL_S)
        except (LogError, HistoryError, OSError, sqlite3.Error) as error:
            logging.warning("tried again: %s", error)
            shard.failed("log" if isinstance(error, LogError) else "storage", error)
            time.sleep(RETRY_S)
    shard.close()
    series.close()
    log.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), "--say" in sys.argv)
