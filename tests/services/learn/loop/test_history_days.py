"""How many days of history a first training waits for."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from services.config import load_settings
from services.errors import TrainingError
from services.forecast_spec import forecast_spec
from services.learn.experts import TREES
from services.learn.loop.cluster import RayCluster
from services.learn.records import TrainingRequest
from services.store.history import History
from services.store.rows import SiteStep

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
BEGIN_MS = 1_767_225_600_000  # 2026-01-01


def test_months_without_rows_are_no_days_of_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After them a first training began with the first rows, and failed: it waits for as many days as on a new site."""
    settings = load_settings(data_dir=tmp_path / "data", learn={"min_days": 2})
    channels = forecast_spec(settings).channels
    values = np.full((1, len(channels)), 20, np.float32)
    history = History(settings.storage_folder, channels)

    def hours(first_ms: int, count: int) -> None:
        ends = range(first_ms, first_ms + count * HOUR_MS, HOUR_MS)
        history.add([SiteStep(0, "demo", end_ms, ("z1",), values, values) for end_ms in ends])
        history.flush()

    cluster, trees = RayCluster(settings), RayCluster(settings, TREES)
    monkeypatch.setattr(cluster, "_behind", lambda: False)
    monkeypatch.setattr(trees, "_shards", list)

    def days() -> float:
        cluster.history_days()
        return cluster.history_days()  # once more: the history does not grow fast any more

    hours(BEGIN_MS, 25)
    assert days() == 1
    hours(BEGIN_MS + 150 * DAY_MS, 25)
    assert days() == 1
    assert trees.news(BEGIN_MS + DAY_MS // 2).days == 1.5
    hours(BEGIN_MS + 151 * DAY_MS + HOUR_MS, 24)
    assert days() == 2


def test_trees_wait_for_more_days_where_there_are_few_zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first training on one zone failed again and again for days, as if something were broken."""
    settings = load_settings(data_dir=tmp_path / "data")
    trees = RayCluster(settings, TREES)
    for zones, days in (([], 9.66), (["demo/a"], 9.66), (["demo/a", "demo/b"], 6.6)):
        monkeypatch.setattr(trees, "_shards", lambda zones=zones: [{"zones": zones}])
        assert trees.least_days() == pytest.approx(days, abs=0.01)
    assert RayCluster(settings).least_days() == 0

    def away() -> NoReturn:
        raise TrainingError("a shard does not answer: it is being restarted")

    monkeypatch.setattr(trees, "_shards", away)
    assert trees.least_days() == pytest.approx(6.6, abs=0.01)  # its zones are there all the same


def test_trees_look_back_as_far_as_they_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where much is held back, one zone with a row an hour waited without end for days that no training read."""
    settings = load_settings(data_dir=tmp_path / "data", stream={"step_s": 3600}, learn={"held_back": 0.4},
                             forecast={"horizons_min": [60, 180], "stale_after_s": 7200})  # fmt: skip
    trees = RayCluster(settings, TREES)
    monkeypatch.setattr(trees, "_shards", lambda: [{"zones": ["demo/a"], "behind": False}])
    history = History(settings.storage_folder, trees._spec.channels, 3600)
    values = np.full((1, len(trees._spec.channels)), 20, np.float32)
    history.add([SiteStep(0, "demo", BEGIN_MS + hour * HOUR_MS, ("a",), values, values) for hour in range(24 * 50)])
    history.flush()
    trees.history_days()
    assert 35 < trees.least_days() < trees.history_days()
    order = TrainingRequest(champion="online", champion_folder="", log_offsets={}, started_ms=0, level=0.1)
    job = trees._job(order)
    assert (job.to_ms - job.after_ms) / DAY_MS > trees.least_days()
