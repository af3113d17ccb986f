"""Files of forecasts and plans that a shard makes larger ones of."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from deltalake import DeltaTable

from edge.log.memory import MemoryLog
from models.features.plans import Plan
from services.ingest.shard import Shard
from services.store.forecasts import IssuedForecasts
from services.store.plan_history import KeptPlan, PlanHistory
from tests.patience import patience_s, until
from tests.services.ingest.rig import (
    Rig,
    issued_by,
)
from tests.services.ingest.samples import STEP, T0, new_records, sample


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
        until(lambda: shard.step() or shard._daily_merge._running is None, "the merge is seen to be over")
        rig.log.append(new_records([[sample(T0 + 26 * 12 * STEP, 26)]]))
        until(partial(forecast, shard, 26), "the next hour is forecast")
        until(lambda: len(merges) == 2, "the days that ended meanwhile are merged")
