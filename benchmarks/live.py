"""The highest rate that the whole live system holds: broker, gateway, log, shards, history, forecasts, API.

    python -m benchmarks.live [--minutes 5] [--rate 10000] [--try-s 65] [--samples-a-message 1]
                              [--log kafka://host:port/topic]

The system is what ``hothouse up`` starts, with 1-minute rows. Beside it, on the same cores, a load generator stands for
1,000 zones with two devices of six values each, speaking MQTT to Mosquitto. *Lag* is what was published and is not yet
counted by a shard, in seconds of the rate; shards tell their counts once a second, so that about half a second of it is
the telling. *Forecast lag* is the time from when a step's rows may close (its end, and the lateness) to when ``GET
/predict`` of a site has the forecast from it.

A rate is held where all of it is published, no lag is ever above 3 s, the lag of the last quarter is at most 1 s, and
it does not grow. Without ``--rate`` the rate is searched for in runs of ``--try-s``, doubled until one is not held and
then between; the highest that is held is then held for ``--minutes``, or a lower one is. Every sample must have been
accepted in the end. A table says what each rate took of the cores, part by part. The last line printed is JSON; the
exit code is 1 where ``--rate`` is not held.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks._held import ForecastLag, Held, show, told
from benchmarks._load import SITES, Load, zone_of
from edge.mqtt.broker import LocalBroker
from services.app import System
from services.config import Settings, load_settings

__all__ = ["Live", "part_of", "started"]

FIRST_RATE, CEILING = 1000.0, 200_000.0
TRY_S = 65.0
"""Longer than a step: a run has to hold a moment in which a row of every zone closes and is forecast from."""
SETTLE_S = 5.0
GATEWAY_S = 60.0
"""A gateway that has not subscribed after this will not."""
PRECISION = 1.2
EVERY_S = 0.5


def main() -> None:
    """Search, confirm and print."""
    given = _parser().parse_args()
    tried: list[Held] = []
    with (
        tempfile.TemporaryDirectory(prefix="hothouse-live-") as name,
        started(Path(name), given.log) as (broker, system),
        Load(broker, given.samples_a_message, given.zones) as load,
    ):
        live = Live(load, system, tried)
        live.await_gateway()
        rate = given.rate or _search(live, given.try_s)
        while True:
            print(f"{rate:.0f} samples/s for {given.minutes:g} minutes:", flush=True)
            held = live.hold(rate, given.minutes * 60, tell_s=10.0)
            if held.is_held or given.rate:
                break
            rate *= 0.85
        live.drain()
        counts = live.counts()
    show(tried)
    lost = load.published - counts["accepted"]
    assert lost == 0, f"{lost} of {load.published} samples were not accepted: {counts}"
    shown = {"samples_a_message": given.samples_a_message, "zones": given.zones, "held": held.is_held, **asdict(held)}
    shown |= {"published": load.published, "accepted": counts["accepted"], "tried": [asdict(each) for each in tried]}
    print(json.dumps(shown))
    if not held.is_held:
        sys.exit(1)


@contextmanager
def started(folder: Path, log: str, step_s: int = 60) -> Iterator[tuple[LocalBroker, System]]:
    """A system on a Mosquitto of ours, and the broker."""
    with (
        LocalBroker(folder / "broker", kind="mosquitto") as broker,
        System(_settings(folder, log, broker, step_s)) as system,
    ):
        yield broker, system


def _settings(folder: Path, log: str, broker: LocalBroker, step_s: int) -> Settings:
    sections: dict[str, Any] = {}
    if log:
        server, _, topic = log.removeprefix("kafka://").partition("/")
        sections = {"log": {"kind": "kafka"}, "kafka": {"servers": [server], "topic": topic, "group": topic}}
    return load_settings(
        data_dir=folder / "data",
        mqtt={
            "host": broker.host, "port": broker.port, "username": broker.username,
            "password_file": broker.password_file,
        },
        stream={"step_s": step_s},
        api={"port": 0},
        sites=[{"name": name} for name in SITES],
        **sections,
    )  # fmt: skip


class Live:
    """A running system under load; what was tried goes into ``tried``."""

    def __init__(self, load: Load, system: System, tried: list[Held]) -> None:
        self._load, self._tried = load, tried
        self._client = httpx.Client(base_url=system.url, timeout=10.0, trust_env=False)
        stream = system.settings.stream
        self._step_s, self._lateness_s = stream.step_s, stream.lateness_s

    def counts(self) -> Counter[str]:
        """What the shards have counted."""
        components = self._client.get("/status").raise_for_status().json()["components"]
        names = ("accepted", "duplicates", "late", "forecast_failures")
        return Counter({
            name: sum(int(figures.get(name, 0)) for part, figures in components.items() if part.startswith("shard-"))
            for name in names
        })  # fmt: skip

    def await_gateway(self) -> None:
        """Wait until the gateway has subscribed: nobody keeps what is published before."""
        deadline_s = time.monotonic() + GATEWAY_S
        while (
            not self._client.get("/status").raise_for_status().json()["components"].get("gateway", {}).get("connected")
        ):
            assert time.monotonic() < deadline_s, "the gateway has not connected to the broker"
            time.sleep(0.2)

    def lag(self) -> int:
        """Samples that were published and are not counted."""
        return self._load.published - self.counts()["accepted"]

    def origin_s(self, site: str) -> float:
        """Where a site's newest forecast starts from, as Unix time; 0 where it has none."""
        answer = self._client.get("/predict", params={"zone": f"{site}/{zone_of(SITES.index(site))}"})
        return float(answer.json()["origin_ms"]) / 1000 if answer.is_success else 0.0

    def hold(self, rate: float, seconds: float, tell_s: float = 0.0) -> Held:
        """Publish at ``rate`` for so long; every ``tell_s`` a line about the lag."""
        self.drain()
        self._load.rate = rate
        time.sleep(SETTLE_S)
        start_s, published, cpu = time.monotonic(), self._load.published, _cpu()
        forecasts = ForecastLag(self.origin_s, time.time(), self._step_s, self._lateness_s)
        seen: list[tuple[float, float]] = []
        told_s = 0.0
        while (now_s := time.monotonic() - start_s) < seconds:
            seen.append((now_s, self.lag() / rate))
            forecasts.look(time.time())
            if tell_s and now_s >= told_s:
                told_s += tell_s
                print(
                    f"  {now_s:5.0f} s: lag {seen[-1][1]:5.2f} s, of forecasts {forecasts.newest_s:5.2f} s", flush=True
                )
            time.sleep(EVERY_S)
        used_s = time.monotonic() - start_s
        sent = (self._load.published - published) / used_s
        cores = {name: round((used - cpu[name]) / used_s, 2) for name, used in _cpu().items()}
        self._load.rate = 0.0
        at_s, lags = np.array(seen).T
        growth = float(np.polyfit(at_s, lags, 1)[0])
        last = float(lags[-max(1, len(lags) // 4) :].mean())
        held = Held(
            round(rate), round(used_s), round(sent), round(last, 2), round(float(lags.max()), 2), round(growth, 4),
            forecasts.count, round(forecasts.longest_s, 2),
            {name: used for name, used in cores.items() if used >= 0.02},
        )  # fmt: skip
        self._tried.append(held)
        print(told(held), flush=True)
        return held

    def drain(self, timeout_s: float = 300.0) -> None:
        """Wait until everything that was published is counted."""
        self._load.rate = 0.0
        deadline_s = time.monotonic() + timeout_s
        while (lag := self.lag()) > 0:
            assert time.monotonic() < deadline_s, f"{lag} samples are still not counted: {self.counts()}"
            time.sleep(0.2)


def _search(live: Live, try_s: float) -> float:
    """The highest rate that is held in short runs: double until one is not, then close in."""
    low, high = 0.0, FIRST_RATE
    while high < CEILING:
        if not live.hold(high, try_s).is_held:
            break
        low, high = high, high * 2
    assert low, f"not even {high:g} samples/s are held"
    while high / low > PRECISION:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if live.hold(middle, try_s).is_held else (low, middle)
    return low


def _cpu() -> defaultdict[str, float]:
    """CPU seconds by part, of our process and all below it."""
    used: defaultdict[str, float] = defaultdict(float)
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            words, times = process.cmdline(), process.cpu_times()
        except psutil.Error:
            continue
        used[part_of(words)] += times.user + times.system
    return used


def part_of(words: list[str]) -> str:
    line = " ".join(words)
    parts = {
        "mosquitto": "broker", "edge.gateway": "gateway", "ray::ShardActor": "shards", "multiprocessing": "load",
        "ray::ServeReplica:hothouse:Forecaster": "forecaster", "ray::ServeReplica": "API",
        "ray::Retrainer": "retrainer", "ray::TrainController": "training", "ray::RayTrainWorker": "training",
        "ray::run_job": "training", "ray::ComparisonActor": "comparisons", "gcs_server": "Ray's GCS",
    }  # fmt: skip
    return next((part for sign, part in parts.items() if sign in line), "Ray and the rest")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="The highest rate that the live system holds.")
    parser.add_argument("--minutes", type=float, default=5.0, help="of the last run; default: %(default)s")
    parser.add_argument("--rate", type=float, help="samples/s; default: searched for")
    parser.add_argument("--try-s", type=float, default=TRY_S, help="of each run of the search; default: %(default)s")
    parser.add_argument("--samples-a-message", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--zones", type=int, default=1000, help="with two devices each; default: %(default)s")
    parser.add_argument("--log", default="", help="kafka://host:port/topic; default: the SQLite log")
    return parser


if __name__ == "__main__":
    main()
