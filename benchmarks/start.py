"""How long the whole system takes to its first forecast, and how much memory it holds when nothing happens.

A system of three simulated zones with some days of history is started; the time runs until every zone can be
predicted over HTTP. Then a network of the default size is put in the model pointer (its weights are untrained: what
they cost does not depend on their values), and once the replica serves it, the proportional set size (PSS) of all
processes is taken a few times while no sample comes. PSS counts a page that processes share once. The last line printed
is JSON.

    python -m benchmarks.start [--days 3] [--looks 5]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from edge.log import Log
from edge.recordings.importing import import_samples
from edge.simulator.simulated_site import SimulatedSite
from edge.simulator.simulator_source import SimulatorSource
from models.durations import DAY_MS
from services.app import System
from services.config import Settings, load_settings
from services.demo.watch import DemoWatch
from services.forecast_spec import forecast_spec
from services.installation import namespace_of
from services.messages import MODEL_POINTER_ACTOR

START_MS = 1_709_251_200_000
BUDGET_S, BUDGET_MB = 60.0, 4000.0
VERSION = "benchmark"
LOOK_EVERY_S = 3.0


def save_model(settings: Settings) -> None:
    """An artefact of a network of the default size; run in a process of its own, whose torch is not to be measured."""
    from models import artefact
    from models.features.inputs import build_inputs
    from models.network.quantile import QuantileNetwork
    from models.spec import Place

    spec = forecast_spec(settings)
    values = np.full((2, spec.lookback_steps, len(spec.channels)), 20, np.float32)
    baseline = np.full((2, len(spec.horizons_min), len(spec.targets), 3), 20, np.float32)
    golden = build_inputs(values, np.full(2, START_MS, np.int64), [Place()] * 2, baseline, spec)
    folder = settings.storage_folder / "models" / VERSION
    artefact.save(folder, QuantileNetwork(spec), golden, trained_on={}, seed=0, metrics={})


def swap_to(settings: Settings, timeout_s: float = 60.0) -> None:
    """Put the artefact in the model pointer, and wait until every replica serves it."""
    import ray

    pointer = ray.get_actor(MODEL_POINTER_ACTOR, namespace_of(settings))
    ray.get(pointer.set.remote(VERSION, str(settings.storage_folder / "models" / VERSION)), timeout=10)
    deadline_s = time.monotonic() + timeout_s
    while True:
        replicas = ray.get(pointer.status.remote(), timeout=10)["replicas"].values()
        if replicas and all(replica["version"] == VERSION for replica in replicas):
            return
        if time.monotonic() > deadline_s:
            raise SystemExit(f"the model was not loaded within {timeout_s:g} s: {list(replicas)}")
        time.sleep(0.1)


def pss_mb() -> dict[str, float]:
    """PSS of this process and every one below it, by name."""
    me = psutil.Process()
    found: dict[str, float] = {}
    for process in [me, *me.children(recursive=True)]:
        try:
            name = process.cmdline()[0].split()[0].rsplit("/", 1)[-1] if process.cmdline() else process.name()
            found[name] = found.get(name, 0.0) + process.memory_full_info().pss / 1e6
        except psutil.Error:
            continue  # it has ended meanwhile
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--days", type=float, default=3.0, help="of history")
    parser.add_argument("--looks", type=int, default=5, help="at the memory")
    options = parser.parse_args()
    source = SimulatorSource(SimulatedSite("bench", 1, START_MS, zones=3))

    def warm_up(log: Log) -> None:
        import_samples(source, log, START_MS + round(options.days * DAY_MS))

    with tempfile.TemporaryDirectory(prefix="hh-bench-") as folder:
        site = {"name": source.site, "timezone": source.timezone}
        settings = load_settings(data_dir=Path(folder), api={"port": 0}, learn={"retrain_every_s": 0}, sites=[site])
        started_s = time.monotonic()
        with System(settings, receive_clock="replayed", warm_up=warm_up) as system:
            watch = DemoWatch(system.url)
            if not watch.wait_until_ready(120):
                raise SystemExit(f"no forecast, and for 120 s nothing came nearer to one: {watch.problem}")
            first_forecast_s = time.monotonic() - started_s
            watch.close()
            model_less_mb = sum(pss_mb().values())
            maker = multiprocessing.get_context("spawn").Process(target=save_model, args=(settings,))
            maker.start()
            maker.join()
            swap_to(settings)
            looks = []
            for _ in range(options.looks):
                time.sleep(LOOK_EVERY_S)
                looks.append(pss_mb())
    total_mb = statistics.median(sum(look.values()) for look in looks)
    for name, used in sorted(looks[-1].items(), key=lambda item: -item[1]):
        print(f"{used:8.0f} MB  {name}")
    print(f"first forecast after {first_forecast_s:.1f} s (budget {BUDGET_S:g}), idle with a model {total_mb:.0f} MB "
          f"(budget {BUDGET_MB:g})")  # fmt: skip
    print(
        json.dumps(
            {
                "first_forecast_s": round(first_forecast_s, 2),
                "idle_without_model_pss_mb": round(model_less_mb),
                "idle_pss_mb": round(total_mb),
                "processes_pss_mb": {name: round(used) for name, used in looks[-1].items()},
                "history_days": options.days,
                "within_budget": first_forecast_s <= BUDGET_S and total_mb <= BUDGET_MB,
            }
        )
    )


if __name__ == "__main__":
    main()
