"""Alerts on what a shard reads and writes are caused: the log is damaged, and what stands for InfluxDB refuses."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from edge.log.sqlite import SqliteLog
from services.config import Settings
from tests.prometheus.one_shard import one_shard
from tests.services.alert.receiver import Receiver

pytestmark = [pytest.mark.chaos, pytest.mark.slow]


def test_a_log_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """HothouseLogFailing fires while the table of records is gone, and ends when it is back: nothing was lost."""
    file = tmp_path / "log.sqlite"

    def rename(before: str, after: str) -> None:
        with closing(sqlite3.connect(file, timeout=30)) as db:
            db.execute(f"ALTER TABLE {before} RENAME TO {after}")

    with closing(SqliteLog(file)) as log, one_shard(tmp_path, log) as watched:
        watched.step()
        with watched.causes("HothouseLogFailing", meanwhile=watched.round):
            rename("records", "gone")
        rename("gone", "records")
        watched.ends("HothouseLogFailing")
        assert watched.shard.stats()["accepted"] == 2 * watched.house.steps


def test_points_that_are_refused_for_good_are_told(tmp_path: Path) -> None:
    """HothouseSeriesPointsLost fires while a server answers 422, as InfluxDB does for points beyond its retention."""
    influx = Receiver()
    influx.answers = [422]
    settings = Settings.model_validate({"influx": {"url": f"http://127.0.0.1:{influx.port}", "token": "t"}})
    with one_shard(tmp_path, influx=settings.influx) as watched:
        with watched.causes("HothouseSeriesPointsLost"):
            pass  # every row is refused from the first on
        influx.answers = [204]
        watched.ends("HothouseSeriesPointsLost")
    influx.kill()
