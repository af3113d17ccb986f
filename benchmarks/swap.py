"""A hundred swaps under a steady load, and whether any request notices.

    python -m benchmarks.swap [--windows 5] [--seconds 20] [--rate 200] [--swaps 20] [--replicas 1]

Starts the whole system on three simulated zones and a week of history, registers two networks, and moves MLflow's alias
``champion`` between them, as a promotion does: so each swap goes alias, retrainer, model pointer, replicas, shards.
Windows without swaps and windows with ``--swaps`` of them take turns. Another process asks ``GET /predict`` at
``--rate`` a second all the time and ``POST /predict`` with rows, which runs the network, five times a second, each with
a time-out of 1 s; every answer must name one version. Exit code 1 where a budget is missed:

- no request fails;
- p99 of GET with swaps at most 10 ms above that without (median of the windows);
- from the alias move until every replica serves the new version at most 3 s;
- no replica that loads the models grows by more than 10 MB from the tenth swap to the last.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks._asking import Asked, Asking
from edge.log import Log
from edge.recordings.importing import import_samples
from edge.simulator.simulated_site import SimulatedSite
from edge.simulator.simulator_source import SimulatorSource
from models import artefact
from models.durations import DAY_MS
from models.features.inputs import build_inputs
from models.network.quantile import QuantileNetwork
from models.spec import Place
from services.app import System
from services.config import Settings, load_settings
from services.forecast_spec import forecast_spec
from services.learn.promotion.registry import Registry, open_registry
from services.learn.records import Candidate

START_MS = 1_646_092_800_000
WARM_DAYS = 7
ZONES = 3
ROWS = [{"end_ms": START_MS, "values": {"air_temp_c": 20.0, "vent_lee_pct": 30.0}}]
MOST_SLOWER_MS, MOST_SWAP_S, MOST_GROWN_MB = 10.0, 3.0, 10.0
SETTLED = 10
"""Swaps before memory is first looked at: caches and allocator pools fill."""


def main() -> int:
    """Run it, print a table, compare with the budgets."""
    asked = _arguments()
    with tempfile.TemporaryDirectory(prefix="hh-swap-") as folder:
        settings = load_settings(
            data_dir=Path(folder) / "data", api={"port": 0}, learn={"retrain_every_s": 0, "retrain_on_drift": "never"},
            forecast={"stale_after_s": 10**9}, ray={"forecaster_replicas": asked.replicas},
        )  # fmt: skip
        with (
            System(settings, receive_clock="replayed", warm_up=_warm_up, say=lambda text: print(text, "...")) as system,
            httpx.Client(base_url=system.url, timeout=5, trust_env=False) as client,
        ):
            _until(lambda: client.get("/health/ready").status_code == httpx.codes.OK, 90, "the system is ready")
            zones = [(zone["site"], zone["zone"]) for zone in client.get("/zones").json()["zones"]]
            registry = open_registry(system.settings)
            versions = [_register(registry, system.settings, seed) for seed in (1, 2)]
            return _measure(asked, system.url, zones, registry, versions, client)


def _measure(
    asked: argparse.Namespace, url: str, zones: list[tuple[str, str]], registry: Registry, versions: list[str],
    client: httpx.Client,
) -> int:  # fmt: skip
    swaps_s: list[float] = []
    memory_mb: list[dict[int, float]] = []

    def swap() -> None:
        version = versions[len(swaps_s) % 2]
        began_s = time.monotonic()
        registry.promote(version)
        _until(lambda: _served(client, asked.replicas) == {version}, 10, f"{asked.replicas} replicas serve {version}")
        swaps_s.append(time.monotonic() - began_s)
        memory_mb.append(_forecasters_mb())

    calm: list[Asked] = []
    stirred: list[Asked] = []
    with Asking(url, zones, asked.rate, ROWS) as asking:
        for number in range(asked.windows):
            calm.append(_window(asking, asked.seconds, 0, swap))
            stirred.append(_window(asking, asked.seconds, asked.swaps, swap))
            without_ms, with_ms = (window.percentiles_ms[1] for window in (calm[-1], stirred[-1]))
            print(f"window {number + 1}: p99 {without_ms:.1f} ms without, {with_ms:.1f} ms with swaps")
    windows = calm + stirred
    failures = sum((window.failures for window in windows), Counter[str]())
    sent, posted = sum(window.sent for window in windows), sum(window.posted for window in windows)
    settled_mb = memory_mb[min(SETTLED, len(memory_mb) - 1)]
    grown_mb = max(mb - settled_mb.get(pid, 0.0) for pid, mb in memory_mb[-1].items())
    named = set[str]().union(*(window.versions for window in windows))
    p99_ms = {}
    for name, kind in (("without", calm), ("with swaps", stirred)):
        p50, p99_ms[name] = (median(figures) for figures in zip(*(w.percentiles_ms for w in kind), strict=True))
        print(f"{name:10}  p50 {p50:6.2f} ms   p99 {p99_ms[name]:6.2f} ms   {sum(w.sent for w in kind):,} requests")
    slower_ms = p99_ms["with swaps"] - p99_ms["without"]
    worst_s, later_s = max(swaps_s), max(swaps_s[1:], default=0.0)
    taken = f"{median(swaps_s):.2f} s, at most {worst_s:.2f}; {later_s:.2f} after the first, which imports torch"
    budgets = [
        (not failures, f"{failures.total()} of {sent:,} requests failed, {posted:,} were POST {dict(failures) or ''}"),
        (slower_ms <= MOST_SLOWER_MS, f"p99 {slower_ms:+.1f} ms with swaps, {MOST_SLOWER_MS:g} allowed"),
        (worst_s <= MOST_SWAP_S, f"{len(swaps_s)} swaps, alias to all replicas ({asked.replicas}) {taken}"),
        (grown_mb <= MOST_GROWN_MB, f"{grown_mb:+.1f} MB a replica after the tenth swap, {MOST_GROWN_MB:g} allowed"),
        (named <= {*versions, "online"}, f"versions named: {', '.join(sorted(named))}"),
    ]  # fmt: skip
    for holds, claim in budgets:
        print("ok  " if holds else "MISS", claim)
    return 0 if all(holds for holds, _ in budgets) else 1


def _window(asking: Asking, seconds: float, swaps: int, swap: Callable[[], None]) -> Asked:
    asking.begin()
    began_s = time.monotonic()
    for number in range(swaps):
        swap()
        time.sleep(max(0.0, began_s + (number + 1) * seconds / swaps - time.monotonic()))
    time.sleep(max(0.0, began_s + seconds - time.monotonic()))
    return asking.end()


def _warm_up(log: Log) -> None:
    source = SimulatorSource(SimulatedSite("demo", 1, START_MS, zones=ZONES))
    source.report_every(300_000)
    import_samples(source, log, START_MS + WARM_DAYS * DAY_MS)


def _register(registry: Registry, settings: Settings, seed: int) -> str:
    """A network with random weights that trusts itself little, as any artefact is; its version."""
    import torch

    spec, rng = forecast_spec(settings), np.random.default_rng(seed)
    torch.manual_seed(seed)
    values = rng.normal(20, 2, (2, spec.lookback_steps, len(spec.channels))).astype(np.float32)
    baseline = np.full((2, len(spec.horizons_min), len(spec.targets), 3), 20, np.float32)
    golden = build_inputs(values, np.full(2, START_MS, np.int64), [Place()] * 2, baseline, spec)
    folder = settings.storage_folder / "models" / f"random-{seed}"
    manifest = artefact.save(folder, QuantileNetwork(spec), golden, trained_on={}, seed=seed, metrics={})
    candidate = Candidate(
        folder=str(folder), kind="network", weights_sha256=manifest["weights_sha256"], trained_on={}, log_offsets={},
        params={}, held_back_mae={}, curves={}, recipe={}, evidence={}, shadow=False, passed=True, forced=False,
        reason="random weights",
    )  # fmt: skip
    return registry.register(candidate, START_MS)


def _served(client: httpx.Client, replicas: int) -> set[str]:
    """The versions that the replicas report, once so many report, and none of them an error; none before."""
    reports: list[dict[str, Any]] = list(client.get("/status").json()["slot"].get("replicas", {}).values())
    if len(reports) < replicas or any(report["error"] for report in reports):
        return set()
    return {report["version"] for report in reports}


def _forecasters_mb() -> dict[int, float]:
    """Memory of each of the Forecaster's replicas below this process, in MB."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if "Forecaster" in " ".join(process.cmdline()):
                found[process.pid] = process.memory_full_info().uss / 1e6
    return found


def _until(claim: Callable[[], bool], limit_s: float, what: str) -> None:
    deadline_s = time.monotonic() + limit_s
    while not claim():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"not within {limit_s:g} s: {what}")
        time.sleep(0.02)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=5, help="of either kind")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a window")
    parser.add_argument("--rate", type=float, default=200.0, help="GET requests a second")
    parser.add_argument("--swaps", type=int, default=20, help="in a window of the second kind")
    parser.add_argument("--replicas", type=int, default=1, help="of the Forecaster")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
