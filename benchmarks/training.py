"""What Ray costs a training, and how long a retraining takes from its trigger to a model that could serve.

    python -m benchmarks.training [--zones 60] [--days 30] [--workers 0] [--rounds 3] [--windows 20000]
    python -m benchmarks.training --retrain [--zones 60] [--days 30] [--workers 0] [--fine-tune]

The first trains the same network on the same made-up history in turns: by the loop of ``models.network.training`` in a
process without Ray, with as many threads as torch takes by itself and with one, which is what Ray gives; and by
``services.learn.training.trainer`` on Ray Train, checkpoints and all. Samples a second are those of the epochs from the
second on; the ratio is that of the medians, against the better of the two. CPU seconds are printed too: on a machine
that does other work they say more.

The second does a whole retraining as the retrainer asks for it (rows read, challenger trained, compared with the
climatology on the held-back tail, judged, kept, registered, promoted, loaded and checked as a replica does) on a Ray
runtime of its own with two logical CPUs. With ``--fine-tune`` it goes on from the weights of the package
(``learn.kind = "pretrained"``). The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from models.durations import HOUR_MS
from models.network.training import TrainingConfig, TrainingProgress, WindowSet, fit
from services.config import Settings, load_settings
from services.forecast_spec import forecast_spec, place_of
from services.learn.training import dataset
from services.learn.training.job import Job
from services.runtime.ray_runtime import RayRuntime
from services.store.history import History
from services.store.rows import SiteStep

START_MS = 1_646_092_800_000
SITE = "bench"
GOAL, GOAL_S = 0.9, 180.0


def write_history(settings: Settings, zones: int, days: int) -> None:
    """Weather with a memory, a sun, and a heating pipe that knows the next hour; all other channels are missing."""
    spec = forecast_spec(settings)
    count, lag, rng = days * spec.steps_per_day, HOUR_MS // spec.step_ms, np.random.default_rng(1)
    outside = np.zeros(count + lag)
    noise = rng.normal(0, 0.5, len(outside))
    for step in range(1, len(outside)):
        outside[step] = 0.99 * outside[step - 1] + noise[step]
    sun = np.maximum(0, np.sin(2 * np.pi * (np.arange(count) / spec.steps_per_day - 0.25)))
    names = ("air_temp_c", "rh_pct", "co2_ppm", "heat_pipe_low_c", "out_radiation_w_m2", "out_temp_c")
    columns = [spec.channels.index(name) for name in names]
    offset = rng.normal(0, 2, zones)
    history = History(settings.storage_folder, spec.channels, settings.stream.step_s)
    ids = tuple(f"z{number}" for number in range(zones))
    for step in range(count):
        values = np.full((zones, len(spec.channels)), np.nan, np.float32)
        air = 18 + offset + 6 * sun[step] + outside[step] + rng.normal(0, 0.1, zones)
        humidity = np.clip(75 - 2 * (air - 20) + rng.normal(0, 0.5, zones), 5, 99)
        pipe, light = 40 + 4 * (outside[step + lag] - outside[step]), 700 * sun[step]
        dioxide = 600 - 150 * sun[step] + rng.normal(0, 10, zones)
        values[:, columns] = np.stack(np.broadcast_arrays(air, humidity, dioxide, pipe, light, outside[step]), axis=1)
        history.add([SiteStep(0, SITE, START_MS + (step + 1) * spec.step_ms, ids, values, np.zeros_like(values))])
        if history.pending >= 2000:
            history.flush()
    history.flush()


def files_of(settings: Settings) -> tuple[str, ...]:
    """The history's."""
    return tuple(History(settings.storage_folder, forecast_spec(settings).channels, settings.stream.step_s).files())


def plain(settings: Settings, config: TrainingConfig, threads: int) -> list[tuple[float, float]]:
    """In a process of its own, without Ray: wall and CPU seconds of each epoch; 0 threads: as torch likes."""
    import torch

    if threads:
        torch.set_num_threads(threads)
    from services.learn.training.trainer import EpochClock

    spec, files = forecast_spec(settings), files_of(settings)
    found = dataset.describe(files, 0, 2**53)
    rows = dataset.gather(files, spec.channels, 0, 2**53, found.rows)
    places = {zone: place_of(settings, SITE) for zone in found.rows}
    windows = WindowSet.from_columns(np.array(rows.zones)[rows.zone_ids], rows.end_ms, rows.values, places, spec)
    clock = EpochClock()

    def tick(_: TrainingProgress) -> None:
        clock.tick()

    fit(windows, windows.origins(spec.steps_per_day), config, cut_ms=found.to_ms, on_epoch=tick)
    return clock.cost_s


def on_ray(settings: Settings, config: TrainingConfig, workers: int, name: str) -> list[tuple[float, float]]:
    """The same through Ray Data and Ray Train, started as a retraining is: in a task of its own."""
    import ray

    from services.learn.training.task import this_runtime

    @ray.remote(num_cpus=0, max_calls=1)
    def task() -> list[tuple[float, float]]:
        from services.learn.training.trainer import TrainPlan, train

        spec, files = forecast_spec(settings), files_of(settings)
        found = dataset.describe(files, 0, 2**53)
        plan = TrainPlan(
            name=name, folder=str(settings.storage_folder / "train"), spec=spec, config=config,
            places={zone: place_of(settings, SITE) for zone in found.rows}, cut_ms=found.to_ms,
            shares=dataset.share_out(found.rows, workers), workers=workers, use_gpu=False,
        )  # fmt: skip
        return train(dataset.read(files, spec.channels, found), plan).cost_s

    costs: list[tuple[float, float]] = ray.get(task.options(runtime_env=this_runtime()).remote())
    return costs


def in_a_process(settings: Settings, config: TrainingConfig, threads: int) -> list[tuple[float, float]]:
    """:func:`plain`, in a fresh process; raises what it raises, also where it is killed."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(plain, settings, config, threads).result()


def compare(settings: Settings, workers: int, rounds: int, windows: int) -> dict[str, Any]:
    """Samples a second of both, from the second epoch on."""
    config = replace(TrainingConfig(), max_windows=windows, epochs=4)
    costs: dict[str, list[tuple[float, float]]] = {"plain": [], "plain, one thread": [], "ray": []}
    with runtime(settings):
        for number in range(rounds):
            costs["plain"] += in_a_process(settings, config, 0)[1:]
            costs["plain, one thread"] += in_a_process(settings, config, 1)[1:]
            costs["ray"] += on_ray(settings, config, workers, f"round-{number}")[1:]
            print(f"round {number + 1} of {rounds}", flush=True)
    rates = {
        kind: {name: windows / statistics.median(cost[at] for cost in found) for name, found in costs.items()}
        for at, kind in enumerate(("wall", "cpu"))
    }
    for name in costs:
        print(f"{name:>18}: {rates['wall'][name]:8,.0f} samples/s, {rates['cpu'][name]:8,.0f} samples a CPU-second")
    ratios = {
        kind: round(rate["ray"] / max(other for name, other in rate.items() if name != "ray"), 3)
        for kind, rate in rates.items()
    }
    print(f"ratio: {ratios['wall']:.2f} by the clock, {ratios['cpu']:.2f} by CPU; wanted are {GOAL:g} or more")
    return {"workers": workers, "rates": rates, "ratio": ratios}


def retrain(settings: Settings, workers: int) -> dict[str, Any]:
    """One retraining, from its trigger to a model that a replica could serve."""
    import ray

    from models import artefact
    from services.learn.promotion.registry import open_registry
    from services.learn.training.task import run_job, this_runtime

    spec = forecast_spec(settings)
    learn = settings.learn.model_copy(update={"force_promote": True})
    registry = open_registry(settings)
    registry.champion()  # MLflow is there before anything is triggered
    with runtime(settings):
        began_s = time.monotonic()
        job = Job(
            name="benchmark", storage=str(settings.storage_folder.resolve()), spec=spec, learn=learn,
            places={SITE: place_of(settings, SITE)}, files=files_of(settings), after_ms=0, to_ms=2**53, log_offsets={},
            champion="online", champion_folder="", use_gpu=False, workers=workers,
            kind=learn.kind,
        )  # fmt: skip
        candidate = ray.get(run_job.options(runtime_env=this_runtime()).remote(job))
        judged_s = time.monotonic() - began_s
        registry.promote(registry.register(candidate, START_MS))
        artefact.load(Path(candidate["folder"]), spec.hash).verify_golden()
        took_s = time.monotonic() - began_s
    print(f"trained and judged after {judged_s:.1f} s: {candidate['reason']}")
    print(f"could serve after {took_s:.1f} s; at most {GOAL_S:g} are allowed on two cores")
    return {"rows": candidate["trained_on"]["rows"], "judged_s": round(judged_s, 1), "served_s": round(took_s, 1)}


@contextmanager
def runtime(settings: Settings) -> Iterator[None]:
    """A Ray runtime of its own, as ``hothouse up`` starts one, with two logical CPUs."""
    with RayRuntime(settings):
        yield


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zones", type=int, default=60)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--windows", type=int, default=20_000)
    parser.add_argument("--retrain", action="store_true")
    parser.add_argument("--fine-tune", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hothouse-training-") as folder:
        learn = {"use_gpu": "no", "kind": "pretrained" if asked.fine_tune else "network"}
        settings = load_settings(data_dir=Path(folder), ray={"num_cpus": 2}, learn=learn)
        began_s = time.monotonic()
        write_history(settings, asked.zones, asked.days)
        print(f"{asked.zones} zones x {asked.days} days written in {time.monotonic() - began_s:.0f} s", flush=True)
        measured = (
            retrain(settings, asked.workers)
            if asked.retrain
            else compare(settings, asked.workers, asked.rounds, asked.windows)
        )
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"zones": asked.zones, "days": asked.days, "cores": os.cpu_count(), "load": load, **measured}))


if __name__ == "__main__":
    main()
