"""What a shard forecasts: for which steps, when, and what of it is published and kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.log.memory import MemoryLog
from models.features.inputs import targets_of
from services.config import load_settings
from services.ingest.models_in_use.trees_in_use import TreesInUse
from services.messages import ONLINE_VERSION, ChangeAsked
from tests.patience import patience_s
from tests.services.forests import point_at, save_trees
from tests.services.ingest.rig import (
    MOMENTS,
    ZONES,
    Clock,
    Held,
    Rig,
    day,
    filled,
    issued_by,
)
from tests.services.ingest.samples import STEP, T0, new_records, sample


def test_each_closed_step_is_forecast_published_and_kept(tmp_path: Path) -> None:
    """Live, every step has a forecast of each zone, kept under its version before it is shown."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for record in day(12):
        rig.log.append([record])
        shard.step()
        shard.step()
    published = rig.live_state.published
    assert [f["origin_ms"] for f in published if f["zone"] == "z1"] == [T0 + n * STEP for n in range(11)]
    newest = published[-1]
    assert newest["model_version"] == ONLINE_VERSION
    assert (newest["now"]["co2_ppm"], newest["now"]["out_temp_c"], newest["now"]["rain"]) == (510.0, 4.0, None)
    assert newest["freshness_s"]["air_temp_c"] == 0.0
    assert newest["degraded"] == []
    points = newest["forecasts"]["air_temp_c"]
    assert [p["horizon_min"] for p in points] == list(shard.spec.horizons_min)
    assert all(p["p10"] <= p["p50"] <= p["p90"] for p in points)
    assert points[0]["time"] == "2022-03-01T00:55:00Z"
    kept = issued_by(rig.settings)
    assert [f.origin_ms for f in kept] == [T0 + n * STEP for n in range(11)]


def test_a_slow_forecaster_never_holds_the_stream_up(tmp_path: Path) -> None:
    """Rows go on while a request is in flight; what closed meanwhile goes out in one batch, the newest with it."""
    rig = Rig(tmp_path, MemoryLog(1))
    rig.executor = held = Held()
    shard = rig.shard()
    for record in day(20):
        rig.log.append([record])
        shard.step()
    assert shard.stats()["steps"] == 19
    assert len(held.waiting) == 1
    held.release()
    shard.step()
    held.release()
    shard.step()
    assert len(rig.forecaster.requests) == 2
    batch = sorted(set(rig.forecaster.requests[1]["origin_ms"].tolist()))
    assert batch == [T0 + n * STEP for n in range(7, 19)]
    assert rig.live_state.past == [("demo", "z1"), ("demo", "z2")]  # steps 1 to 6 were left out of what was published


@pytest.mark.thorough
def test_a_forecast_that_comes_after_months_without_rows_ends_no_shard(tmp_path: Path) -> None:
    """The last row before the pause still waited for its forecast, perhaps in a snapshot: all that it could say has
    passed, so nothing is issued of it. What follows is.
    """
    rig = Rig(tmp_path, filled(list(day(10))))
    rig.executor = Held()
    shard = rig.shard()
    rig.drain(shard)
    shard.flush()
    later = T0 + 150 * 288 * STEP
    rig.log.append(list(new_records([[sample(later + n * STEP, 5000 + n)] for n in range(6)])))
    rig.executor = held = Held()
    shard = rig.shard()
    for _ in range(8):
        shard.step()
    assert shard.stats()["watermark_ms"] == {"demo": later + 4 * STEP}
    for _ in range(8):
        held.release()
        rig.clock.now_s += 10
        shard.step()
    origins = {forecast["origin_ms"] for forecast in rig.live_state.published}
    assert min(origins) >= later - 288 * STEP
    assert max(origins) == later + 4 * STEP
    assert shard.stats()["last_error"] == ""


def test_a_forecaster_that_is_away_is_counted_and_tried_again(tmp_path: Path) -> None:
    """Nothing is published for it, rows go on, and the waiting steps are forecast once it is back."""
    rig = Rig(tmp_path, filled(list(day(10))))
    rig.forecaster.away = True
    shard = rig.shard()
    rig.drain(shard)
    assert (shard.stats()["zone_rows"], rig.live_state.published) == (18, [])
    assert shard.stats()["forecast_failures"] == 1
    assert "away" in shard.stats()["last_error"]
    assert (shard.stats()["failing"]["forecast"], shard.stats()["failing"]["storage"]) == (True, False)
    assert (shard.stats()["forecasts_queued"] > 0, shard.stats()["forecast_origin_ms"]) == (True, {})
    rig.forecaster.away = False
    rig.clock.now_s += 1
    rig.drain(shard)
    assert shard.stats()["last_error"] == ""
    assert not any(shard.stats()["failing"].values())
    assert shard.stats()["forecast_origin_ms"] == {"demo": T0 + 8 * STEP}
    assert rig.live_state.published[-1]["origin_ms"] == T0 + 8 * STEP


def test_refresh_computes_the_last_step_again(tmp_path: Path) -> None:
    """After a swap the newest origin is shown under the new version, without waiting for a step."""
    rig = Rig(tmp_path, filled(list(day(10))))
    shard = rig.shard()
    rig.drain(shard)
    before = rig.live_state.published[-1]
    rig.forecaster.version = "v2"
    shard.refresh()
    rig.drain(shard)
    after = rig.live_state.published[-1]
    assert (before["origin_ms"], before["model_version"]) == (after["origin_ms"], ONLINE_VERSION)
    assert after["model_version"] == "v2"


def test_a_restarted_shard_shows_the_last_step_at_once(tmp_path: Path) -> None:
    """Nobody waits a step for a forecast after a restart."""
    rig = Rig(tmp_path, filled(list(day(10))))
    shard = rig.shard()
    rig.drain(shard)
    shard.close()
    rig.live_state.published.clear()
    rig.drain(rig.shard())
    assert {f["origin_ms"] for f in rig.live_state.published} == {T0 + 8 * STEP}


@pytest.mark.thorough
def test_a_backlog_is_forecast_for_its_newest_step_only(tmp_path: Path) -> None:
    """While catching up, rows come first: few requests, each for the newest origin."""
    rig = Rig(tmp_path, filled(list(day(900))))
    shard = rig.shard()
    shard.step()
    for request in rig.forecaster.requests:
        assert len(request["sites"]) == len(ZONES)
    rig.drain(shard)
    assert rig.live_state.published[-1]["origin_ms"] == T0 + 898 * STEP


def test_what_waits_at_a_snapshot_is_forecast_and_scored_after_a_crash(tmp_path: Path) -> None:
    """Steps in flight or in the queue are issued by the next shard, and count as if there had been no crash."""
    hour, scores, origins = 12 * STEP, [], []
    records = new_records([[sample(T0 + n * hour, n, rh_pct=60.0 + n % 9)] for n in range(60)])
    for name, crashes in (("steady", False), ("crashed", True)):
        rig = Rig(tmp_path / name, MemoryLog(1))
        rig.settings = load_settings(
            None,
            data_dir=tmp_path / name,
            stream={"step_s": 3600, "ring_hours": 36},
            forecast={"horizons_min": (60, 120, 360), "stale_after_s": 10_800},
        )
        rig.executor = held = Held()
        shard = rig.shard()
        for n, record in enumerate(records):
            rig.log.append([record])
            shard.step()
            if n == 34:
                shard.flush()
                if crashes:
                    rig.executor = held = Held()
                    shard = rig.shard()
            for _ in range(0 if 30 < n < 34 else 3):
                held.release()
                shard.step()
        scores.append(shard.stats()["scores"])
        origins.append({f["origin_ms"] for f in rig.live_state.published})
    assert origins[0] == origins[1] == {T0 + n * hour for n in range(59)}
    assert scores[0] == scores[1]
    assert scores[0][0]["rh_pct"][360]["n"] == 59 - 24


def test_rows_are_sent_only_to_a_network(tmp_path: Path) -> None:
    """Nearly all of a request are rows, and only a network needs them: one that begins to serve asks for them once."""
    records = list(day(30))
    rig = Rig(tmp_path, filled(records[:10]))
    shard = rig.shard()
    rig.drain(shard)
    assert {request["values"].shape[1] for request in rig.forecaster.requests} == {0}
    rig.forecaster.version = "v3"
    rig.log.append(records[10:20])
    rig.drain(shard)
    assert rig.forecaster.asked_again == 1
    assert rig.forecaster.requests[-1]["values"].shape[1] == shard.spec.lookback_steps
    assert rig.live_state.published[-1]["model_version"] == "v3"
    rig.forecaster.version = ONLINE_VERSION
    for record in records[20:]:
        rig.log.append([record])
        rig.drain(shard)
    assert rig.forecaster.requests[-1]["values"].shape[1] == 0
    assert shard.stats()["forecast_failures"] == 0


def test_a_baseline_is_what_the_forecaster_is_given(tmp_path: Path) -> None:
    """``POST /predict`` with rows asks the network as the shard does."""
    rig = Rig(tmp_path, filled(list(day(30))))
    rig.forecaster.version = "v3"
    shard = rig.shard()
    rig.drain(shard)
    request = rig.forecaster.requests[-1]
    now = targets_of(request["values"][-1:, -1], shard.spec)
    baseline = shard.questions.baseline("demo", "z2", T0 + 28 * STEP, now)
    assert baseline is not None
    np.testing.assert_array_equal(baseline, request["baseline"][-1:])
    assert shard.questions.baseline("demo", "nowhere", T0, now) is None


def test_questions_never_wait_for_a_disk_or_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answered at each moment of a round at which it reads or writes; a what-if has a second in all."""
    rig = Rig(tmp_path, MemoryLog(1), snapshot_s=1.0)
    rig.clock = Clock(tick_s=0.3)
    answered: Counter[str] = Counter()
    change = ChangeAsked(metric="sp_heat_c", how="add", value=-1.0, begin_ms=T0, end_ms=T0 + 90 * STEP)
    with ThreadPoolExecutor(1) as operator:

        def ask(moment: str) -> None:
            targets = np.full((1, len(shard.spec.targets)), 20.0, np.float32)
            for call in (
                operator.submit(shard.questions.what_if, "demo", "z1", [change]),
                operator.submit(shard.questions.baseline, "demo", "z1", T0 + 30 * STEP, targets),
                operator.submit(shard.questions.past, "demo", "z1", 48),
            ):
                answered[moment] += call.result(patience_s(60)) is not None

        def asked_first(moment: str, call: Callable[..., Any]) -> Callable[..., Any]:
            def asking(*arguments: Any) -> Any:
                ask(moment)
                return call(*arguments)

            return asking

        shard = rig.shard(ask)
        monkeypatch.setattr(rig.log, "read", asked_first("log read", rig.log.read))
        monkeypatch.setattr(TreesInUse, "_load", asked_first("trees loaded", TreesInUse._load))
        rig.log.append(list(day(30)))
        rig.drain(shard)
        regressors = shard._partitions[0].learner.forecaster.regressors
        kept = save_trees(rig.settings.storage_folder / "models" / "trees", shard.spec, regressors)
        point_at(rig.settings.storage_folder, "trees-v1", kept)
        rig.log.append(list(day(60))[39:])
        rig.drain(shard)
        shard.close()
    assert {moment for moment, count in answered.items() if count} == {*MOMENTS, "log read", "trees loaded"}
