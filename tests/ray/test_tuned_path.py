"""A network that is fine-tuned, from the examples of a shard to its forecasts, and past a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

import models.online.first_days.first_days as first_days
from edge.log.memory import MemoryLog
from models.pretraining.fine_tuner import fine_tune
from services.config import load_settings
from services.ingest.models_in_use.models_in_use import TUNED_LOOKS
from services.ingest.shard import Shard
from services.learn.experts import TUNED, learn_settings
from services.learn.promotion.registry import open_registry
from services.learn.training.fine_tuning.tuned_challenger import learn_tuned
from services.learn.training.job import Job
from services.learn.training.task import run_job, this_runtime
from services.store.forecasts import IssuedForecasts
from services.store.history import History
from services.store.pointer import Pointer
from tests.patience import patience_s
from tests.ray.runtime import local_ray
from tests.services.ingest.rig import Clock, Rig
from tests.services.ingest.samples import T0, new_records, sample

pytestmark = [pytest.mark.ray, pytest.mark.slow]

STEP, DAY = 900_000, 96
ZONES = tuple(f"z{n}" for n in range(6))


def records(first: int, last: int) -> list[Any]:
    """Rows of zones whose heating pipe shows what the next hours bring."""
    made = []
    rng = np.random.default_rng(1)
    outside = np.cumsum(rng.normal(0, 0.4, 6 * DAY))
    outside -= np.convolve(outside, np.ones(DAY) / DAY, "same")
    for n in range(first, last):
        sun = max(0.0, float(np.sin(2 * np.pi * (n / DAY - 0.25))))
        air = [18 + z / 3 + 6 * sun + float(outside[n]) for z in range(len(ZONES))]
        pipe = 40 + 6 * float(outside[n + 4] - outside[n])
        made.append([
            sample(T0 + n * STEP, n, zone, air_temp_c=round(air[z], 3), rh_pct=round(75 - air[z] / 2, 3),
                   heat_pipe_low_c=round(pipe, 2))
            for z, zone in enumerate(ZONES)
        ])  # fmt: skip
    return new_records(made)


def go_on(rig: Rig, shard: Shard, first: int, last: int) -> dict[int, Any]:
    """Rows come one by one; origin -> what was issued."""
    for record in records(first, last):
        rig.log.append([record])
        for _ in range(3):
            shard.step()
    shard.flush()
    storage, spec = rig.settings.storage_folder, shard.spec
    found = IssuedForecasts(storage, 0).read("demo", 0, spec.horizons_min, spec.targets)
    return {one.origin_ms: one.quantiles for one in found}


@pytest.mark.thorough
def test_from_a_shards_examples_to_its_forecasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job trains on Ray to the bytes of the plain loop; promoted, its network is in the forecasts; a shard that is
    killed then and started again issues the same.
    """
    monkeypatch.setattr(first_days, "ALONE_DAYS", 1.0)
    monkeypatch.setattr(first_days, "OLD_DAYS", 2.0)
    found: dict[str, dict[int, Any]] = {}
    for name in ("steady", "killed", "plain"):
        rig = Rig(tmp_path / name, MemoryLog(1))
        rig.settings = load_settings(
            data_dir=tmp_path / name, stream={"step_s": 900, "snapshot_s": 3000},
            forecast={"horizons_min": (30, 60, 120), "targets": ("air_temp_c", "rh_pct")},
        )  # fmt: skip
        rig.clock = Clock()
        shard, storage = rig.shard(), rig.settings.storage_folder
        rig.log.append(records(0, 4 * DAY))
        rig.drain(shard)
        shard.flush()
        history = History(storage, shard.spec.channels, 900)
        to_ms = history.span_ms(now_ms=2**53)[1]
        job = Job(
            name="one", storage=str(storage), spec=shard.spec, learn=learn_settings(rig.settings.learn, TUNED),
            places={}, files=tuple(history.files()), after_ms=0, to_ms=to_ms, log_offsets={"0": 1}, champion="online",
            champion_folder="", use_gpu=False, workers=0, kind="tuned",
        )  # fmt: skip
        if name == "steady":
            with local_ray():
                running = run_job.options(runtime_env=this_runtime()).remote(job)
                candidate = ray.get(running, timeout=patience_s(240))
            registry = open_registry(rig.settings, TUNED)
            version = registry.register(candidate, created_ms=1)
            assert (version, candidate["passed"]) == ("tuned-v1", True), candidate["reason"]
            registry.promote(version)
            weights, folder = candidate["weights_sha256"], registry.servable(version)
        elif name == "killed":
            assert learn_tuned(job, fine_tune)["weights_sha256"] == weights
        if name != "plain":
            Pointer(storage, "tuned").move(version, str(folder))
            rig.clock.now_s += TUNED_LOOKS
            shard.step()
            assert shard.stats()["tuned"] == version
        found[name] = go_on(rig, shard, 4 * DAY, 4 * DAY + 30)
        if name == "killed":
            shard = rig.shard()
        found[name] = go_on(rig, shard, 4 * DAY + 30, 5 * DAY)
    assert found["steady"].keys() == found["killed"].keys() == found["plain"].keys()
    for at, quantiles in found["steady"].items():
        np.testing.assert_array_equal(quantiles, found["killed"][at])
    newest = max(found["plain"])
    assert not np.array_equal(found["steady"][newest], found["plain"][newest], equal_nan=True)
