"""What a bucket is asked for by a shard, and what stays in it: requests and bytes a day.

    HOTHOUSE_STORAGE__URL=s3://bucket/costs HOTHOUSE_STORAGE__ENDPOINT=http://127.0.0.1:9000 \
        python -m benchmarks.storage_costs --zones 6 24 --days 1

A simulated site goes through a shard whose storage is the bucket, in simulated time: each device sends every minute, at
a second of its own. Requests pass a proxy that counts them, so the endpoint must be plain HTTP. What is counted begins
once the shard has started, and ends behind the first forecast after a midnight (UTC), which begins the daily merge.
Requests of other processes are computed from the intervals in the code. Of two runs with different zones what grows
with zones is told from what does not. What stays is what is there once a month is over, and its files were merged. A
folder of its own below ``storage.url`` is used, and removed. A snapshot costs most of the time: ``--snapshot-s 60``
makes fewer, and the figures of one can be multiplied. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from itertools import groupby
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec

from benchmarks._counted import Asked, CountingProxy
from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.simulator.simulated_site import SimulatedSite
from edge.simulator.simulator_source import SimulatorSource
from edge.wire.plan import encode_plan, plan_topic
from edge.wire.samples import encode_samples
from models.durations import DAY_MS, MINUTE_MS
from services.config import Settings, SiteSettings, load_settings
from services.ingest.figures import ShardFigures
from services.ingest.shard import Executors, Outputs, Shard
from services.messages import ONLINE_VERSION, ForecastReply, ForecastRequest, ShownAlert, ZoneForecast
from services.store.history import History
from services.store.plan_history import PlanHistory
from services.store.series import NullSeries
from services.store.storage import Storage, address_of, open_storage
from services.store.storage.owners import BEAT_S
from services.store.tables.delta_log import KEPT_H

P = ParamSpec("P")
T = TypeVar("T")

END_MS = 1_773_532_800_000  # 2026-03-15 00:00 UTC
AFTER_MS = 7 * MINUTE_MS
"""This long after midnight the first row of the day has closed, and yesterday's files are merged."""
LOOK_MS = 5000
"""How often the shard looks what is due where nothing comes."""
KINDS = ("PUT", "LIST", "GET", "HEAD", "DELETE", "POST")
MARK = "snapshots: the writer's mark"
TREES = "trees: the pointer"
TUNED = "the network that is fine-tuned: the pointer"
REPLACED = f"replaced files of tables, for {KEPT_H} hours"
BOUNDED = ("snapshots", MARK, REPLACED)
"""What stays of these does not grow with days. A table's log of commits is removed after a day, by wall time."""


class AtOnce(Executor):
    """Does what it is given before it returns, so that simulated time goes on behind it."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As the contract says."""
        done = Future[T]()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


class Unseen:
    """A live state at which nobody looks; ``failures`` are the newest that the shard told."""

    def __init__(self) -> None:
        self.failures: dict[str, int] = {}

    def publish(self, forecasts: Sequence[ZoneForecast]) -> None:
        """Not looked at."""

    def put_past(self, site: str, zone: str, end_ms: list[int], values: dict[str, list[float | None]]) -> None:
        """Not looked at."""

    def put_alerts(self, alerts: Sequence[ShownAlert]) -> None:
        """Not looked at."""

    def put_stats(self, stats: ShardFigures) -> None:
        """Keep what failed."""
        self.failures = dict(stats["failures"])


def arrivals(zones: int, start_ms: int, step_ms: int) -> Iterator[tuple[int, list[NewRecord]]]:
    """Records by the second in which they come: of each device every minute, ticks, and plans as they are issued."""
    source = SimulatorSource(SimulatedSite("north", 7, start_ms, zones=zones), boot_seed=1)
    devices: dict[tuple[str, str], int] = {}
    apart_ms = MINUTE_MS // (2 * zones + 1)
    for at_ms, samples in source.samples(END_MS + AFTER_MS):
        found: list[tuple[int, NewRecord]] = []
        for sample in samples:
            number = devices.setdefault((sample.zone, sample.device), len(devices))
            came_ms = at_ms + number * apart_ms // 1000 * 1000
            moved = msgspec.structs.replace(sample, ts_ms=came_ms)
            found.append((came_ms, NewRecord(source.site, "samples", came_ms, encode_samples([moved]))))
        for plan in source.plans():
            topic = plan_topic(plan.site, plan.zone, plan.source)
            found.append((at_ms, NewRecord(plan.site, "plan", at_ms, encode_plan(plan), topic)))
        for tick_ms in range(at_ms, at_ms + MINUTE_MS, step_ms // 10):
            found.append((tick_ms, NewRecord(source.site, "tick", tick_ms, b"")))
        found.sort(key=lambda one: one[0])
        for came_ms, some in groupby(found, key=lambda one: one[0]):
            yield came_ms, [record for _, record in some]


def run(settings: Settings, zones: int, days: float, proxy: CountingProxy) -> dict[str, Any]:
    """Let a site of so many zones go through a shard; what was asked for, and what stays."""
    start_ms = END_MS - round(days * DAY_MS)
    now_s, at_ms = [start_ms / 1000], start_ms
    told, log = Unseen(), MemoryLog(1)
    executors = Executors(*(AtOnce() for _ in Executors._fields))
    shard = Shard(settings, range(1), log, _online, Outputs(NullSeries(), told), executors, lambda: now_s[0])
    proxy.forget()
    began_s = time.monotonic()
    for came_ms, records in arrivals(zones, start_ms, 1000 * settings.stream.step_s):
        while at_ms < came_ms:
            at_ms = min(at_ms + LOOK_MS, came_ms)
            now_s[0] = at_ms / 1000
            if at_ms < came_ms:
                shard.step()
        log.append(records)
        while shard.step() or shard.awaits_forecasts:
            pass
    wall_s = time.monotonic() - began_s
    requests, sent, received = proxy.requests.copy(), proxy.sent.copy(), proxy.received.copy()
    shard.close()
    if any(told.failures.values()):
        raise SystemExit(f"the shard says that something failed: {told.failures}")
    place, days = _place(settings), days + AFTER_MS / DAY_MS
    snapshots = sum(n for one, n in requests.items() if one.kind == "PUT" and one.key.endswith(".snapshot"))
    return {
        "zones": zones, "days": round(days, 3), "wall_s": round(wall_s), "snapshot_s": settings.stream.snapshot_s,
        "snapshots": snapshots / days, "requests": _by_group(requests, place, days),
        "sent": _by_group(sent, place, days), "received": _by_group(received, place, days),
    }  # fmt: skip


def _online(request: ForecastRequest) -> ForecastReply:
    return ForecastReply(version=ONLINE_VERSION, quantiles=request["baseline"])


def _place(settings: Settings) -> str:
    return settings.storage.url.partition("://")[2].strip("/") + "/"


def group_of(key: str) -> str:
    """What a key of the storage belongs to.

    >>> [group_of(key) for key in ("snapshots/p0.epoch", "history/zone_rows/_delta_log/0.json", "slot-trees.json")]
    ["snapshots: the writer's mark", 'history/zone_rows/_delta_log', 'trees: the pointer']
    >>> group_of("history/zone_rows/p0/x.parquet"), group_of("imports/")
    ('history/zone_rows', 'imports')
    """
    if key.endswith(".epoch"):
        return MARK
    if key.startswith("slot-tuned"):
        return TUNED
    if key.startswith(("slot-trees", "models/forests")):
        return TREES
    folders = key.split("/")
    if folders[0] != "history":
        return folders[0]
    return "/".join(folders[: 3 if folders[2:3] == ["_delta_log"] else 2])


def _by_group(counts: Counter[Asked], place: str, days: float) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for (kind, key), count in counts.items():
        kinds = found.setdefault(group_of(key.removeprefix(place)), {})
        kinds[kind] = kinds.get(kind, 0) + count / days
    return dict(sorted(found.items()))


def objects(storage: Storage, folder: str = "") -> Iterator[tuple[str, int]]:
    """All objects below a folder, with their sizes."""
    for name, entry in storage.entries(folder).items():
        yield f"{folder}/{name}".strip("/"), entry.size
    for inner in storage.list_folder(folder).folders:
        yield from objects(storage, f"{folder}/{inner}".strip("/"))


def stays(settings: Settings) -> dict[str, float]:
    """Bytes by group: of tables those of files that they still have once the month is over."""
    from deltalake import DeltaTable  # it takes a while, and --help needs none of it

    storage = open_storage(address_of(settings))
    history, plans = History(storage, (), settings.stream.step_s), PlanHistory(storage)
    for table in (history, plans):
        table.compact(END_MS + 40 * DAY_MS, [0])
    found: dict[str, float] = {}
    sizes = dict(objects(storage))
    for folder in {group_of(key).removesuffix("/_delta_log") for key in sizes if "/_delta_log/" in key}:
        options = storage.delta_options()
        table_files = DeltaTable(storage.address(folder), storage_options=options).file_uris()
        there = {uri.partition(f"{folder}/")[2] for uri in table_files}
        for key in [key for key in sizes if key.startswith(f"{folder}/") and "/_delta_log/" not in key]:
            if key.removeprefix(f"{folder}/") not in there:
                found[REPLACED] = found.get(REPLACED, 0) + sizes.pop(key)
    for key, size in sizes.items():
        found[group_of(key)] = found.get(group_of(key), 0) + size
    return dict(sorted(found.items()))


def besides(settings: Settings, storage: Storage) -> dict[str, dict[str, float]]:
    """Requests a day of what is not in a shard, from the intervals in the code; while nothing happens."""
    beats, looks = DAY_MS / 1000 / BEAT_S, DAY_MS / 1000 / storage.poll_s
    return {
        "owner: the sign of life (computed)": {"PUT": beats, "LIST": beats},
        "keys.json: each process of the API (computed)": {"GET": looks},
        "alerts: each way to tell people (computed)": {"LIST": looks, "GET": looks},
        "dead letters: the terminal of `hothouse up` (computed)": {"LIST": looks, "GET": looks},
    }


def table(title: str, rows: dict[str, dict[str, float]]) -> None:
    """Print figures by group and kind."""
    kinds = [kind for kind in KINDS if any(kind in row for row in rows.values())]
    width = max(map(len, rows))
    print(f"\n{title}\n{'':{width}}" + "".join(f"{kind:>10}" for kind in kinds))
    whole = dict.fromkeys(KINDS, 0.0)
    for name, row in rows.items():
        print(f"{name:{width}}" + "".join(f"{row.get(kind, 0):10,.0f}" for kind in kinds))
        for kind, count in row.items():
            whole[kind] += count
    print(f"{'all':{width}}" + "".join(f"{whole[kind]:10,.0f}" for kind in kinds))


def growing(found: Sequence[dict[str, Any]], what: str) -> dict[str, list[float]]:
    """By group: what there is without zones, and what one zone adds; the line through the first and the last run."""
    first, last = found[0], found[-1]
    one, other = _sums(first[what]), _sums(last[what])
    lines = {}
    for name in sorted({*one, *other}):
        slope = (other.get(name, 0) - one.get(name, 0)) / (last["zones"] - first["zones"])
        lines[name] = [one.get(name, 0) - slope * first["zones"], slope]
    return lines


def _sums(figures: dict[str, Any]) -> dict[str, float]:
    return {name: sum(row.values()) if isinstance(row, dict) else row for name, row in figures.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zones", type=int, nargs="+", default=[6])
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--snapshot-s", type=float, help="stream.snapshot_s, where it is not to be the default")
    asked = parser.parse_args()
    found = []
    for zones in asked.zones:
        with tempfile.TemporaryDirectory() as folder:
            found.append(measure(Path(folder), zones, asked.days, asked.snapshot_s))
        tell(found[-1])
    lines: dict[str, dict[str, list[float]]] = {}
    if len({one["zones"] for one in found}) > 1:
        lines = {what: growing(found, what) for what in ("requests", "sent", "received", "stays")}
        for what, rows in lines.items():
            print(f"\n{what} a day: without zones, and for each zone")
            for name, (fixed, slope) in rows.items():
                print(f"{name:45}{fixed:16,.1f}{slope:16,.1f}")
    print(json.dumps({"runs": found, "lines": lines}))


def measure(folder: Path, zones: int, days: float, snapshot_s: float | None) -> dict[str, Any]:
    """The figures of one run."""
    said = load_settings(None, data_dir=folder)
    if not said.storage.url or not said.storage.endpoint.startswith("http://"):
        raise SystemExit("set HOTHOUSE_STORAGE__URL, and HOTHOUSE_STORAGE__ENDPOINT to a server of plain HTTP")
    where = said.storage.model_copy(update={"url": f"{said.storage.url.rstrip('/')}/costs-{uuid.uuid4().hex}"})
    stream = said.stream if snapshot_s is None else said.stream.model_copy(update={"snapshot_s": snapshot_s})
    direct = said.model_copy(update={"storage": where, "stream": stream, "sites": (SiteSettings(name="north"),)})
    storage = open_storage(address_of(direct))
    try:
        with CountingProxy(where.endpoint) as proxy:
            counted = direct.model_copy(update={"storage": where.model_copy(update={"endpoint": proxy.endpoint})})
            found = run(counted, zones, days, proxy)
        found["besides"] = besides(direct, storage)
        found["stays"] = {
            name: size if name in BOUNDED else size / found["days"] for name, size in stays(direct).items()
        }
        return found
    finally:
        for key, _ in list(objects(storage)):
            storage.delete(key)


def tell(found: dict[str, Any]) -> None:
    """Print a run."""
    took = f"{found['days']:g} days in {found['wall_s']} s"
    print(f"\n{found['zones']} zones, {took}, {found['snapshots']:,.0f} snapshots a day")
    table("requests a day", found["requests"] | found["besides"])
    table("bytes sent (PUT) and received (others) a day", {
        name: {kind: found["sent"][name].get(kind, 0) + found["received"][name].get(kind, 0) for kind in kinds}
        for name, kinds in found["requests"].items()
    })  # fmt: skip
    print(f"\nbytes that stay of a day; in all of {', '.join(BOUNDED)}")
    for name, size in found["stays"].items():
        print(f"{name:45}{size:16,.0f}")


if __name__ == "__main__":
    main()
