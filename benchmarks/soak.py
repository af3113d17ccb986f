"""Hours of the whole system, watched: memory, files and open descriptors must not grow.

    python -m benchmarks.soak [--hours 1] [--zones 5] [--speed 900] [--every-s 30]      (make soak HOURS=24)

The system is what ``hothouse up`` starts, with its log in SQLite. ``hothouse simulate`` publishes a greenhouse through
Mosquitto at ``--speed`` times real time: at 900 an hour has 37 of its days, and files of days are merged and thrown
away as they will be. The network is trained every five minutes and swapped in; ``/predict`` is asked twenty times a
second with GET and five times with POST. Every ``--every-s`` each part's memory (that which is its own),
threads and descriptors are looked at, and files and bytes of the data folder and Ray's.

The first fifth, and at least 22 days of the greenhouse, are left out: caches and windows fill, the longest of which are
the 21 days that comparisons of models look back. Of the rest a line tells each part's medians of the four quarters.
*Flat* is a part whose last quarter is at most 5 % above its first, or at most 20 MB, 5 threads, 5 descriptors or 20
files. The history and the log grow by what they are given, and MLflow's files by a record a training: they are told and
not judged. Nor are ``replaced`` files, which tables keep for six hours of the wall clock: at 900 times real time a
day's small files come and are replaced every hundred seconds. The last line printed is JSON; the exit code is 1 where
something is not flat, a request failed, a forecast failed, a tenth of those that were due were not made, or no second
version ever answered.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil
from deltalake import DeltaTable
from rich.progress import Progress

from benchmarks._asking import Asking
from benchmarks.live import part_of
from edge.mqtt.broker import BrokerError, LocalBroker

HOTHOUSE = (sys.executable, "-c", "from services.cli import main; main()")
ASKED_HZ = 20.0
RETRAIN_EVERY_S = 300
STEP_S = 300
LEFT_OUT = 0.2
LEFT_OUT_DAYS = 22
GROWTH = 0.05
MOST_MORE = {"memory_mb": 20.0, "threads": 5.0, "descriptors": 5.0, "files": 20.0}
FIRST_S = 600.0
REPLACED = "replaced"
"""Files of tables that others stand for by now, and commits that a checkpoint does."""
GROWING = frozenset({REPLACED, "storage/history", "storage/mlflow"})
"""What is told and not judged."""
ALIKE = "comparisons"
"""Of these processes, of which there are one or two, the largest counts."""
ROWS = [{"end_ms": 1_646_092_800_000, "values": {"air_temp_c": 20.0, "vent_lee_pct": 30.0}}]
Figures = dict[str, dict[str, float]]
"""What is counted -> part -> how much of it."""


def main() -> int:
    """Run, print, judge."""
    given = _parser().parse_args()
    days = given.hours * given.speed / 24
    if days < 1.25 * LEFT_OUT_DAYS:
        raise SystemExit(f"of {days:.1f} days {LEFT_OUT_DAYS} are left out; give more --hours, or a higher --speed")
    with tempfile.TemporaryDirectory(prefix="hothouse-soak-") as name, _running(Path(name), given) as (url, process):
        data = Path(name) / "data"
        named = [(zone["site"], zone["zone"]) for zone in _await_zones(url, given.zones)]
        with Asking(url, named, ASKED_HZ, ROWS) as asking:
            asking.begin()
            seen = _watch(process, data, given.hours * 3600, given.every_s)
            asked = asking.end()
        status = httpx.get(f"{url}/status", timeout=20.0, trust_env=False).raise_for_status().json()
    counts, lines = _counts(status), judge(seen, max(LEFT_OUT, LEFT_OUT_DAYS / days))
    due = given.zones * int(given.hours * 3600 * given.speed / STEP_S)
    print(f"{given.hours:g} h, {len(seen)} looks; {asked.sent:,} requests, {asked.failures.total()} failed; {counts}")
    print(f"versions that answered: {', '.join(sorted(asked.versions))}; forecasts that were due: {due:,}")
    print(f"{'what':12} {'part':20} {'medians of the four quarters':>40} {'more':>8}")
    for line in lines:
        flat = "" if line["flat"] else "  grows"
        figures = " ".join(f"{quarter:9,.1f}" for quarter in line["quarters"]) + f" {line['more']:+9.1%}"
        print(f"{line['what']:12} {line['part']:20} {figures}{flat}")
    print(json.dumps({"hours": given.hours, "asked": asked.sent, "failed": asked.failures, **counts, "lines": lines}))
    works = counts["forecasts"] > 0.9 * due and not counts["forecast_failures"] and len(asked.versions) > 1
    return 0 if works and all(line["flat"] for line in lines) and not asked.failures.total() else 1


def judge(seen: list[Figures], left_out: float = LEFT_OUT) -> list[dict[str, Any]]:
    """A line a part and figure, with the medians of the four quarters of what counts: of what comes after the share
    ``left_out``.

    A part that was not there at most looks, such as a training, is left out.

    >>> looks = [{"memory_mb": {"shards": 100.0 + n}} for n in range(10)]
    >>> [(line["quarters"], line["flat"]) for line in judge(looks)]
    [([102.5, 104.5, 106.5, 108.5], True)]
    >>> looks = [{"memory_mb": {"shards": 100.0 + 10 * n}} for n in range(10)]
    >>> [line["flat"] for line in judge(looks)]
    [False]
    """
    counted = seen[int(left_out * len(seen)) :]
    lines = []
    for what in counted[0]:
        for part in sorted({part for figures in counted for part in figures[what]}):
            values = [figures[what][part] for figures in counted if part in figures[what]]
            if len(values) < 0.9 * len(counted):
                continue
            edges = [len(values) * n // 4 for n in range(5)]
            quarters = [median(values[begin : max(end, begin + 1)]) for begin, end in pairwise(edges)]
            first, last = quarters[0], quarters[-1]
            more = MOST_MORE.get(what)
            flat = more is None or part in GROWING or last - first <= max(more, GROWTH * first)
            lines.append({
                "what": what, "part": part, "quarters": quarters, "more": (last - first) / max(first, 1e-9),
                "flat": flat,
            })  # fmt: skip
    return lines


@contextmanager
def _running(folder: Path, given: argparse.Namespace) -> Iterator[tuple[str, psutil.Process]]:
    """A broker, a system and a greenhouse: the API's address, and the system's first process."""
    with LocalBroker(folder / "broker", kind="mosquitto") as broker:
        configuration = folder / "hothouse.toml"
        configuration.write_text(_configuration(folder, broker, given.speed))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOTHOUSE_")}
        log = (folder / "up.log").open("w")
        up = subprocess.Popen([*HOTHOUSE, "--config", configuration, "up"], stdout=log, stderr=log, env=environment)
        greenhouse = None
        try:
            url = _await_url(folder, up)
            login = ("--host", broker.host, "--port", broker.port, "--username", broker.username)
            password = ("--password-file", broker.password_file)
            pace = ("--speed", given.speed, "--clock", "--zones", given.zones, "--site", "demo")
            words = [*HOTHOUSE, "simulate", *login, *password, *pace]
            greenhouse = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log, env=environment)
            yield url, psutil.Process(up.pid)
        finally:
            for process in (greenhouse, up):
                if process is None:
                    continue
                process.terminate()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
            log.close()


def _configuration(folder: Path, broker: LocalBroker, speed: float) -> str:
    stale_s = max(1800, round(speed * 20))
    return (
        f'data_dir = "{folder / "data"}"\n'
        f'[mqtt]\nhost = "{broker.host}"\nport = {broker.port}\nusername = "{broker.username}"\n'
        f'password_file = "{broker.password_file}"\n'
        f'[gateway]\nclock = "replayed"\n[forecast]\nstale_after_s = {stale_s}\n'
        f"[learn]\nretrain_every_s = {RETRAIN_EVERY_S}\nforce_promote = true\nmin_days = 1.4\nmax_windows = 5000\n"
        f"keep_models = 5\n"
        f'[api]\nport = 0\n[[sites]]\nname = "demo"\n'
    )


def _await_url(folder: Path, up: subprocess.Popen[bytes]) -> str:
    """The address that ``hothouse up`` prints."""
    until_s = time.monotonic() + FIRST_S
    while time.monotonic() < until_s:
        text = (folder / "up.log").read_text()
        for word in text.split():
            if word.startswith("http://127.0.0.1:"):
                return word.rstrip("/.,;")
        if up.poll() is not None:
            break
        time.sleep(0.5)
    raise SystemExit(f"the system did not start:\n{text}")


def _await_zones(url: str, count: int) -> list[dict[str, Any]]:
    """The zones, once each has a forecast."""
    until_s = time.monotonic() + FIRST_S
    while time.monotonic() < until_s:
        found = httpx.get(f"{url}/health/ready", timeout=20.0, trust_env=False).json()
        if int(found.get("zones_usable", 0)) >= count:
            zones: list[dict[str, Any]] = httpx.get(f"{url}/zones", timeout=20.0, trust_env=False).json()["zones"]
            return zones
        time.sleep(2.0)
    raise SystemExit(f"not every zone has a forecast after {FIRST_S:g} s: {found}")


def _watch(process: psutil.Process, data: Path, seconds: float, every_s: float) -> list[Figures]:
    """A look every ``every_s`` for so long."""
    folders = {"": data, "Ray": Path(json.loads((data / "runtime.json").read_text())["folder"])}
    seen, began_s = [], time.monotonic()
    with Progress(disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("watching", total=seconds)
        while (passed_s := time.monotonic() - began_s) < seconds:
            bar.update(task, completed=passed_s)
            seen.append({**of_processes(process), **of_folders(folders)})
            time.sleep(max(0.0, len(seen) * every_s - (time.monotonic() - began_s)))
    return seen


def of_processes(first: psutil.Process) -> Figures:
    """Memory in MB, threads and descriptors of each part of a system."""
    found: dict[str, defaultdict[str, float]] = {
        what: defaultdict(float) for what in ("memory_mb", "threads", "descriptors")
    }
    for process in [first, *first.children(recursive=True)]:
        try:
            part = "hothouse up" if process.pid == first.pid else part_of(process.cmdline())
            figures = (process.memory_full_info().uss / 1e6, process.num_threads(), process.num_fds())
        except psutil.Error:
            continue
        for what, figure in zip(found, figures, strict=True):
            found[what][part] = max(found[what][part], figure) if part == ALIKE else found[what][part] + figure
    return {what: dict(parts) for what, parts in found.items()}


def of_folders(folders: Mapping[str, Path]) -> Figures:
    """Files and megabytes of each folder: of one with a name as a whole, of one without by the folders in it, and those
    in its storage. What tables have replaced is a part of its own.
    """
    files, mb = defaultdict[str, float](float), defaultdict[str, float](float)
    for name, folder in folders.items():
        replaced = _replaced(folder)
        for here, _, names in os.walk(folder):  # passes over folders that are thrown away meanwhile
            inside = Path(here).relative_to(folder).parts
            part = name or "/".join(inside[: 2 if inside[:1] == ("storage",) else 1]) or "."
            for file in names:
                with suppress(OSError):
                    path = Path(here) / file
                    mb[part] += path.stat().st_size / 1e6
                    files[REPLACED if path in replaced else part] += 1
    return {"files": dict(files), "disk_mb": dict(mb)}


def _replaced(folder: Path) -> set[Path]:
    """What the tables in a folder do not need any more, and have not removed yet."""
    found: set[Path] = set()
    for log in folder.rglob("_delta_log"):
        there = set(log.parent.rglob("*.parquet")) - set(log.glob("*.parquet"))
        with suppress(Exception):  # a table that is being made
            found |= there - {Path(uri.removeprefix("file://")) for uri in DeltaTable(log.parent).file_uris()}
        checkpoints = sorted(log.glob("*.checkpoint.parquet"))
        if checkpoints:
            found |= set(checkpoints[:-1])
            found |= {path for path in log.glob("*.json") if path.stem <= checkpoints[-1].name.partition(".")[0]}
    return found


def _counts(status: dict[str, Any]) -> dict[str, int]:
    """What the shards counted."""
    names = ("accepted", "late", "forecasts", "forecast_failures")
    shards = [figures for part, figures in status["components"].items() if part.startswith("shard-")]
    return {name: sum(int(figures.get(name, 0)) for figures in shards) for name in names}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Hours of the whole system: does anything grow?")
    parser.add_argument("--hours", type=float, default=1.0, help="default: %(default)s")
    parser.add_argument("--zones", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--speed", type=float, default=900.0, help="times real time; default: %(default)s")
    parser.add_argument("--every-s", type=float, default=30.0, help="between two looks; default: %(default)s")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokerError as error:
        sys.exit(str(error))
