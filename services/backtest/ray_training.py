"""The training of a backtest through ``services.learn``: Ray Data streams the rows, Ray Train runs the loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from models.network.training import WindowSet
from models.pretraining.fine_tuner import Arrays, FineTuning, Tuner, TuningExamples
from models.spec import ForecastSpec
from services.backtest.retraining import CONFIG, I64, State, Trainer
from services.config import RaySettings, Settings
from services.learn.training.fine_tuning.site_tuning import fine_tune_on_ray
from services.learn.training.trainer import TrainPlan, train
from services.runtime.ray_runtime import RayRuntime

__all__ = ["OnRay", "training_on_ray"]

SITE = "recording"


class OnRay(NamedTuple):
    """What trains networks along a recording, and what fine-tunes that of the package."""

    train: Trainer
    tune: Tuner


@contextmanager
def training_on_ray() -> Iterator[OnRay]:
    """Both on a Ray runtime of its own, or on that of the settings; all that it wrote goes with it."""
    with TemporaryDirectory(prefix="hothouse-") as folder:
        given = Settings()
        # Not Settings(data_dir=...), over which HOTHOUSE_DATA_DIR wins: a system may run on that folder.
        own = {"data_dir": Path(folder), "ray": RaySettings(address=given.ray.address)}
        settings = given.model_copy(update=own)
        with RayRuntime(settings, beside=True):
            import ray.data

            ray.data.DataContext.get_current().enable_progress_bars = False
            runs = 0

            def on_ray(windows: WindowSet, origins: I64, cut_ms: int, initial_state: State | None) -> State:
                nonlocal runs
                runs += 1
                zones = [f"{SITE}/{zone}" for zone in windows.zone_ids]
                plan = TrainPlan(
                    name=f"backtest-{runs}", folder=str(Path(folder, "train")), spec=windows.spec, config=CONFIG,
                    places=dict(zip(zones, windows.places, strict=True)), cut_ms=cut_ms, shares=[frozenset(zones)],
                    workers=0, use_gpu=False, initial_state=initial_state,
                )  # fmt: skip
                return train(ray.data.from_arrow(_rows(windows, cut_ms)), plan).state

            def tuned_on_ray(start: Arrays, spec: ForecastSpec, examples: TuningExamples, config: FineTuning) -> Arrays:
                nonlocal runs
                runs += 1
                return fine_tune_on_ray(
                    start, spec, examples, config, name=f"tuning-{runs}", folder=str(Path(folder, "train"))
                )

            yield OnRay(on_ray, tuned_on_ray)


def _rows(windows: WindowSet, until_ms: int) -> pa.Table:
    """Rows as the history has them; of those a worker takes origins as the live system does, all rows and not some."""
    steps = int(np.searchsorted(windows.end_ms, until_ms, side="right"))
    zones = len(windows.zone_ids)
    values = windows.rows[:, :steps]
    columns = {
        "site": np.full(zones * steps, SITE),
        "zone": np.repeat(np.array(windows.zone_ids), steps),
        "end_ms": np.tile(windows.end_ms[:steps], zones),
    }
    channels = {name: values[..., c].ravel() for c, name in enumerate(windows.spec.channels)}
    return pa.table(columns | channels)
