"""What zones cost in a live state and in an API replica: memory, processor time of a step, one answer of all zones.

    python -m benchmarks.live_state [--zones 1000 5000 20000] [--ray]

Each number of zones is measured in processes of its own: a live state that holds forecasts of the default size and 48 h
of each zone's past, and a replica that has taken all of it. Forecasts pass pickle, as they do between actors. With
``--ray`` also how long a new replica waits for the answer of a live state actor. Memory is USS beyond that of the
process when it was empty.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.predict import full_forecast
from services.config import load_settings
from services.messages import ZoneForecast
from services.serve.live_state import PAST_HOURS, LiveState
from services.serve.view import View

STEP_MS = 300_000
_TITLE = "ray::LiveStateActor"
A_BATCH = 500
"""Zones whose forecasts a shard sends at once."""


def forecasts(zones: int, steps: int = 0) -> Iterator[list[ZoneForecast]]:
    """One of each zone in batches as they come from a shard: no number is the same object as another one."""
    made = full_forecast()
    made["origin_ms"] += steps * STEP_MS
    for begin in range(0, zones, A_BATCH):
        batch = []
        for number in range(begin, min(begin + A_BATCH, zones)):
            made["site"], made["zone"] = f"site-{number // 10}", f"zone-{number % 10}"
            batch.append(_own_numbers(made, 20 + number / zones))
        yield pickle.loads(pickle.dumps(batch, 5))


def _own_numbers(of: Any, level: float) -> Any:
    """A copy of it, with other floats."""
    if isinstance(of, dict):
        return {name: _own_numbers(value, level) for name, value in of.items()}
    if isinstance(of, list):
        return [_own_numbers(value, level) for value in of]
    return round(of / 20 * level, 4) if isinstance(of, float) else of


def _uss_mb() -> float:
    return float(psutil.Process().memory_full_info().uss) / 1e6


def live_state(zones: int, told: Connection) -> None:
    """Fill one and tell what it took; then the pickled answer of all zones."""

    async def measured() -> tuple[dict[str, float], bytes]:
        shown, empty_mb = LiveState(1000, lambda: 0), _uss_mb()
        for batch in forecasts(zones):
            await shown.publish(batch)
        forecasts_mb = _uss_mb() - empty_mb
        times = (full_forecast()["origin_ms"] + np.arange(1 - PAST_HOURS * 12, 1) * STEP_MS).tolist()
        targets = list(full_forecast()["forecasts"])
        for number in range(zones):
            values = {name: (20 + np.arange(len(times)) / (number + 1)).tolist() for name in targets}
            await shown.put_past(f"site-{number // 10}", f"zone-{number % 10}", times, values)
        past_mb = _uss_mb() - empty_mb - forecasts_mb
        step = [pickle.dumps(batch, 5) for batch in forecasts(zones, 1)]
        began_s = time.process_time()
        for pickled in step:
            await shown.publish(pickle.loads(pickled))
        step_s = time.process_time() - began_s
        del step
        began_s = time.process_time()
        answer = pickle.dumps(await shown.wait(0, 0), 5)
        figures = {
            "forecasts MB": forecasts_mb, "past MB": past_mb, "step s": step_s,
            "answer s": time.process_time() - began_s, "answer MB": len(answer) / 1e6,
        }  # fmt: skip
        return figures, answer

    told.send(asyncio.run(measured()))


def replica(answer: bytes, told: Connection) -> None:
    """Take the answer of all zones."""
    view, empty_mb = View(1800, 660, time.monotonic), _uss_mb()
    began_s = time.process_time()
    view.take(pickle.loads(answer))
    told.send({"take s": time.process_time() - began_s, "replica MB": _uss_mb() - empty_mb})


def in_a_process(work: Any, argument: Any) -> Any:
    """What ``work`` tells."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(argument, theirs))
    process.start()
    theirs.close()
    found = ours.recv()
    process.join()
    return found


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def over_ray(zones: list[int]) -> Iterator[dict[str, float]]:
    """Seconds until a process has the answer of all zones of an actor, and until a change of one zone is there; PSS of
    an actor without zones.
    """
    from services.runtime.ray_runtime import RayRuntime

    for count in zones:
        with tempfile.TemporaryDirectory(prefix="hh-bench-") as folder:
            settings = load_settings(data_dir=Path(folder), ray={"object_store_mb": 1000})
            with RayRuntime(settings):
                import ray

                from services.serve.deployment import start_actors

                actor = start_actors(settings).live_states[0]
                (process,) = [one for one in psutil.Process().children(recursive=True) if _TITLE in _command(one)]
                idle_mb = process.memory_full_info().pss / 1e6
                for batch in forecasts(count):
                    ray.get(actor.publish.remote(batch))
                began_s = time.monotonic()
                seen = ray.get(actor.wait.remote(0, 0))["version"]
                all_s = time.monotonic() - began_s
                began_s = time.monotonic()
                ray.get(actor.publish.remote(next(forecasts(1, 1))))
                ray.get(actor.wait.remote(seen, 5.0))
                one_s = time.monotonic() - began_s
                yield {"idle MB": idle_mb, "all s": all_s, "one s": one_s}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--zones", type=int, nargs="+", default=[1000, 5000, 20_000])
    parser.add_argument("--ray", action="store_true", help="also through an actor")
    options = parser.parse_args()
    for zones in options.zones:
        figures, answer = in_a_process(live_state, zones)
        figures |= in_a_process(replica, answer)
        print(f"{zones:6} zones: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()), flush=True)
    if options.ray:
        for zones, figures in zip(options.zones, over_ray(options.zones), strict=True):
            print(
                f"{zones:6} zones through Ray: " + ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
            )


if __name__ == "__main__":
    main()
