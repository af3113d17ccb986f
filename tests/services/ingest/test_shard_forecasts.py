"""What a shard forecasts and learns: issued, kept, mixed with a network, and the same again after a crash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import numpy as np
import pytest
from deltalake import DeltaTable

from edge.log.memory import MemoryLog
from models.features.inputs import day_bins, targets_of
from models.features.plans import Plan
from models.online.online_forecaster import OnlineForecaster
from models.pretraining.shipped_arrays import pretrained
from models.spec import Place
from services.config import load_settings
from services.ingest.models_in_use.trees_in_use import TreesInUse
from services.ingest.shard import Shard
from services.messages import ONLINE_VERSION, ChangeAsked
from services.store.forecasts import IssuedForecasts
from services.store.history import History
from services.store.plan_history import KeptPlan, PlanHistory
from tests.patience import patience_s, until
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


def test_a_restart_continues_the_learners_exactly(tmp_path: Path) -> None:
    """The forecast after a stop and a start equals that of a shard that never stopped."""
    records = list(day(60))
    steady, stopped = Rig(tmp_path / "a", filled(records)), Rig(tmp_path / "b", filled(records[:50]))
    steady.forecaster.version = stopped.forecaster.version = "v3"  # a network is sent rows
    first = stopped.shard()
    stopped.drain(first)
    first.close()
    stopped.log.append(records[50:])
    second = stopped.shard()
    stopped.drain(second)
    steady.drain(steady.shard())
    np.testing.assert_array_equal(
        stopped.forecaster.requests[-1]["baseline"][-2:], steady.forecaster.requests[-1]["baseline"][-2:]
    )
    np.testing.assert_array_equal(
        stopped.forecaster.requests[-1]["values"][-2:], steady.forecaster.requests[-1]["values"][-2:]
    )


def replayed(rig: Rig, shard: Shard, network: float | None) -> dict[int, Any]:
    """What the rows of the history give in a plain loop, origin -> quantiles [Z, H, M, Q]."""
    spec = shard.spec
    forecaster = OnlineForecaster(spec, pretrained=pretrained())
    zones = np.array([forecaster.add_zones() for _ in ZONES])
    table = History(rig.settings.storage_folder, spec.channels).read()
    rows = np.stack([table[name].to_numpy() for name in spec.channels], axis=-1).reshape(
        len(ZONES), -1, len(spec.channels)
    )
    found = {}
    for n in range(rows.shape[1]):
        at = T0 + n * STEP
        bins = day_bins(Place("Europe/Amsterdam"), np.full(len(ZONES), at), spec)
        dark = np.full((len(ZONES), 1 + len(spec.horizons_min)), np.nan, np.float32)
        learned = forecaster.learn(zones, at // STEP, rows[:, n], bins, dark)
        found[at] = forecaster.predict(learned, None if network is None else learned.baseline + np.float32(network))
    return found


@pytest.mark.parametrize("version", [ONLINE_VERSION, "v3"])
@pytest.mark.thorough
def test_live_forecasts_are_those_of_a_plain_replay(tmp_path: Path, version: str) -> None:
    """The shard's forecasts equal those of a loop over its rows, as a backtest runs it, with a network and without."""
    rig = Rig(tmp_path, MemoryLog(1))
    rig.forecaster.version, rig.forecaster.network = version, 1.5
    shard = rig.shard()
    for record in day(330):
        rig.log.append([record])
        for _ in range(3):  # read and ask, ask again with rows, issue
            shard.step()
    shard.flush()
    issued = issued_by(rig.settings)
    expected = replayed(rig, shard, None if version == ONLINE_VERSION else 1.5)
    assert len(issued) == 329
    assert {f.age_steps for f in issued} == {0}
    for forecast in issued:
        np.testing.assert_array_equal(forecast.quantiles, expected[forecast.origin_ms])
        network = np.nan if version == ONLINE_VERSION else forecast.climatology + np.float32(1.5)
        np.testing.assert_array_equal(forecast.network, np.broadcast_to(network, forecast.network.shape))
    other = replayed(rig, shard, 1.5 if version == ONLINE_VERSION else None)
    assert not np.allclose(issued[-1].quantiles, other[issued[-1].origin_ms], equal_nan=True)


@pytest.mark.thorough
def test_a_crash_leaves_the_learners_as_they_would_have_been(tmp_path: Path) -> None:
    """Forecasts that were issued after the snapshot, some of them late, are learned from again in the replay."""
    states = []
    for crashes in (False, True):
        rig = Rig(tmp_path / str(crashes), MemoryLog(1), snapshot_s=3000)
        rig.forecaster.version, rig.forecaster.network = "v3", 1.5
        rig.executor = held = Held()
        shard = rig.shard()
        for n, record in enumerate(day(150)):
            rig.log.append([record])
            shard.step()
            if n % 3 == 2:
                held.release()
                shard.step()
            if n == 40:
                shard.flush()
        rig.drain(shard)
        if crashes:  # all after the flush is lost; what was issued meanwhile is there
            rig.executor = Held()
            shard = rig.shard()
            rig.drain(shard)
        states.append(shard._partitions[0].state())
    issued = issued_by(rig.settings)
    assert len(issued) > 100
    assert {f.age_steps for f in issued} >= {0, 1, 2, 3}
    for part in ("forecaster", "scores", "paths"):
        one, other = (msgspec.msgpack.encode(state[part], enc_hook=np.ndarray.tobytes) for state in states)
        assert one == other, part


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


def test_a_missing_input_degrades_the_forecast_and_says_why(tmp_path: Path) -> None:
    """A sensor that went silent, or never spoke, is named."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for n in range(10):
        values = {"air_temp_c": 20.0, "rh_pct": 70.0} if n < 3 else {"air_temp_c": 20.0}
        rig.log.append(new_records([[sample(T0 + n * STEP, n, **values)]]))
        shard.step()
        shard.step()
    newest = rig.live_state.published[-1]
    assert newest["degraded"] == ["rh_pct: last reading 30 min before the origin", "co2_ppm: no reading yet"]
    assert "co2_ppm" not in newest["forecasts"]


def test_now_has_the_newest_values_of_an_hour_and_says_how_old_they_are(tmp_path: Path) -> None:
    """Humidity comes each 20 minutes, half a minute before its row ends, and not any more after an hour. VPD is as old
    as it; what was irrigated counts in one row only.
    """
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for n in range(24):
        rig.log.append(new_records([[sample(T0 + n * STEP, n, air_temp_c=20.0)]]))
        if n % 4 == 0 and n <= 8:
            said = sample(T0 + n * STEP - 30_000, n, device="slow", rh_pct=60.1 + n, irrigation_l_m2=float(n))
            rig.log.append(new_records([[said]]))
        shard.step()
        shard.step()
    told = {(f["origin_ms"] - T0) // STEP: f for f in rig.live_state.published}
    assert (told[8]["now"]["rh_pct"], told[8]["now_age_s"]) == (68.1, {})
    for n in range(9, 21):
        age_s = 30 + (n - 8) * 300
        assert told[n]["now"]["rh_pct"] == pytest.approx(68.1, abs=0.05)
        assert told[n]["now"]["vpd_kpa"] == pytest.approx(told[8]["now"]["vpd_kpa"], abs=0.01)
        assert told[n]["now_age_s"] == {"rh_pct": age_s, "vpd_kpa": age_s}
        assert told[n]["now"]["irrigation_l_m2"] is None
    assert (told[21]["now"]["rh_pct"], told[21]["now"]["vpd_kpa"], told[21]["now_age_s"]) == (None, None, {})


@pytest.mark.parametrize("restart_at", [None, 50])
def test_a_zone_that_reports_each_hour_is_weak_once_it_missed_that(tmp_path: Path, restart_at: int | None) -> None:
    """How often it reports is learned from its first four readings, and known after a restart."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for n in range(76):
        batch = [sample(T0 + n * STEP, n, "z2", air_temp_c=20.0, rh_pct=70.0, co2_ppm=500.0)]
        if n % 12 == 0 and n <= 48:
            batch.append(sample(T0 + n * STEP, n, air_temp_c=20.0, rh_pct=70.0, co2_ppm=500.0))
        rig.log.append(new_records([batch]))
        shard.step()
        shard.step()
        if n == restart_at:
            shard.close()
            shard = rig.shard()
    told = {((f["origin_ms"] - T0) // STEP, f["zone"]): f for f in rig.live_state.published}
    every_s = {zone: [told[n, zone]["reports_every_s"] for n in range(75)] for zone in ("z1", "z2")}
    assert every_s == {"z1": [3600 if n >= 36 else 0 for n in range(75)], "z2": [0] * 75}
    weak = [n for n in range(75) if told[n, "z1"]["degraded"]]
    assert weak == [*(n for n in range(36) if n % 12 > 3), *range(48 + 14, 75)]
    assert "air_temp_c: last reading 1.2 h before the origin" in told[62, "z1"]["degraded"]
    assert not any(told[n, "z2"]["degraded"] for n in range(75))


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


def test_a_day_that_is_over_keeps_its_forecasts_in_one_file(tmp_path: Path) -> None:
    """The first forecast of the next day makes the shard merge yesterday's."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for n in range(280, 294):
        rig.log.append(new_records([[sample(T0 + n * STEP, n)]]))
        shard.step()
        shard.step()
    folder = rig.settings.storage_folder / "history" / "forecasts"
    assert sorted(p.name for p in folder.iterdir()) == ["2022-03-01-p0.parquet", "2022-03-02"]
    found = issued_by(rig.settings)
    assert [f.origin_ms for f in found] == [T0 + n * STEP for n in range(280, 293)]


def test_small_files_of_plans_become_a_larger_one(tmp_path: Path) -> None:
    """Those of a month that is over, by the merge that the first forecast of a day begins."""
    rig = Rig(tmp_path, MemoryLog(1))
    plans = PlanHistory(rig.settings.storage_folder)
    issued = [T0 - days * 86_400_000 for days in range(40, 31, -1)]
    series = {"out_temp_c": (np.array([T0]), np.array([4.0]))}
    for n, ms in enumerate(issued):
        plans.put(0, [KeptPlan("demo", n, Plan("knmi", "weather", ms, series))])
    shard = rig.shard()
    for n in range(4):
        rig.log.append(new_records([[sample(T0 + n * STEP, n)]]))
        shard.step()
        shard.step()
    files = DeltaTable(rig.settings.storage_folder / "history" / "plan_values").file_uris()
    assert [Path(name).name[:10] for name in files if "2022-01-" in name] == ["2022-01-0s"]
    assert [one.plan.issued_ms for one in plans.read("demo", 0, 2**62)] == issued


@pytest.mark.thorough
def test_a_slow_merge_holds_up_no_forecast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While files are merged, for days if need be, every step is forecast, and no second merge begins."""
    rig = Rig(tmp_path, MemoryLog(1))
    merges, released = [], Event()

    def merge_days(_: IssuedForecasts, newest_ms: int, *__: object) -> None:
        merges.append(newest_ms)
        assert released.wait(patience_s(60))

    monkeypatch.setattr(IssuedForecasts, "merge_days", merge_days)

    def forecast(shard: Shard, hour: int) -> bool:
        shard.step()
        return (
            bool(rig.live_state.published) and rig.live_state.published[-1]["origin_ms"] == T0 + (12 * hour - 1) * STEP
        )

    with ThreadPoolExecutor(1) as rig.executor, ThreadPoolExecutor(1) as rig.merger:
        shard = rig.shard()
        for hour in range(26):
            rig.log.append(new_records([[sample(T0 + hour * 12 * STEP, hour)]]))
            if hour:
                until(partial(forecast, shard, hour), f"the last step of hour {hour} is forecast", 10)
        assert len(merges) == 1
        released.set()
        until(lambda: shard.step() or not shard._daily_merge.is_running, "the merge is seen to be over")
        rig.log.append(new_records([[sample(T0 + 26 * 12 * STEP, 26)]]))
        until(partial(forecast, shard, 26), "the next hour is forecast")
        until(lambda: len(merges) == 2, "the days that ended meanwhile are merged")


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


@pytest.mark.thorough
def test_live_scores_count_every_matured_forecast(tmp_path: Path) -> None:
    """A forecast whose reply came a step late misses the five-minute truth alone."""
    rig = Rig(tmp_path, MemoryLog(1))
    rig.executor = held = Held()
    shard = rig.shard()
    for n, record in enumerate(day(5 * 288 // 4)):
        rig.log.append([record])
        shard.step()
        if n % 2:
            held.release()
            shard.step()
    table = shard.stats()["scores"][0]["air_temp_c"]
    assert 0 < table[5]["n"] < table[10]["n"]
    assert {minutes: cell["n"] for minutes, cell in table.items()} == shard.stats()["matured"]["air_temp_c"]


def test_a_sensor_of_another_unit_degrades_the_forecast_also_after_a_restart(tmp_path: Path) -> None:
    """After its first hour it is named in `degraded`, in the figures and in one dead letter; a restart repeats none."""
    rig = Rig(tmp_path, MemoryLog(1))
    shard = rig.shard()
    for n in range(24):
        rig.log.append(new_records([[sample(T0 + n * STEP, n, rh_pct=0.7, air_temp_c=20.0, co2_ppm=500.0)]]))
        shard.step()
        shard.step()
        if n == 16:
            shard.close()
            shard = rig.shard()
    words = "z1/climate rh_pct looks like a share (0.7 to 0.7): send percent"
    told = {f["origin_ms"]: words in f["degraded"] for f in rig.live_state.published}
    assert [told[T0 + n * STEP] for n in range(23)] == [n >= 12 for n in range(23)]
    assert rig.live_state.published[-1]["now"]["rh_pct"] is None
    stats = shard.stats()
    assert (stats["sensor_faults"], stats["sensor_faults_now"]) == ({"unit": 1}, 1)
    assert [(event["kind"], event["words"]) for event in stats["events"]] == [("unit", words)]
    shard.close()
    assert [(letter.reason, letter.topic) for letter in rig.dead_letters()] == [
        ("unit", "hothouse/v1/demo/z1/climate/sample")
    ]
