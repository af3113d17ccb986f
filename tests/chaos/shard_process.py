"""A shard in a process of its own, without Ray: ``python -m tests.chaos.shard_process CONFIG INDEX COUNT``."""

from __future__ import annotations

import json
import logging
import signal
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edge.log import LogError
from services.config import load_settings
from services.errors import HistoryError
from services.ingest.shard import Executors, Outputs, Shard
from services.ingest.sinks.series_sink import series_writer
from services.log import open_settings_log
from services.messages import ForecastReply, ForecastRequest, ShownAlert, ZoneForecast

__all__ = ["NoBoard", "baseline_forecast"]

POLL_S = 0.05
RETRY_S = 0.5


def baseline_forecast(request: ForecastRequest) -> ForecastReply:
    """Forecasts change no row: answer with the climatology."""
    return ForecastReply(version="online", quantiles=request["baseline"])


class NoBoard:
    """Shows nothing."""

    def publish(self, forecasts: list[ZoneForecast]) -> None:
        """Nothing."""

    def put_past(self, site: str, zone: str, end_ms: list[int], values: dict[str, list[float | None]]) -> None:
        """Nothing."""

    def put_alerts(self, alerts: list[ShownAlert]) -> None:
        """Nothing."""

    def put_stats(self, stats: dict[str, object]) -> None:
        """Nothing."""


class FiguresInFile(NoBoard):
    """Writes a shard's figures, as a test may read them at any time."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def put_stats(self, stats: dict[str, object]) -> None:
        """Replace the file."""
        beside = self._file.with_suffix(".new")
        beside.write_text(json.dumps(stats, default=str))
        beside.rename(self._file)


def main(config: Path, index: int, count: int) -> None:
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
        Executors(*(ThreadPoolExecutor(1, name) for name in Executors._fields)), time.monotonic,
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
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
