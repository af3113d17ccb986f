"""Runs in a container of the cluster's image: settles the ledger, and prints it as one line of JSON.

    python3 settle.py MESSAGES

MESSAGES holds what the simulator published, one `kind<TAB>topic<TAB>payload` a line. Every message must be in the log
(Kafka); every true sample in the row of its zone, device and step once, or in a dead letter; every plan in the history
of plans, once; all nonsense in a dead letter; and every row of the history in InfluxDB. Which row a sample belongs to
is computed here from its own words, not by the system's code. Rows that do not add up are told with all that is known.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from deltalake import DeltaTable

from edge.log import Log, Record
from edge.wire.reading import Refusal
from edge.wire.samples import decode_samples
from edge.wire.topic import SITE_ZONE
from services.config import Settings, load_settings
from services.log import open_settings_log
from services.store.deadletters import DeadLetters
from services.store.history import DEVICE_ROWS, ZONE_ROWS
from services.store.plan_history import PlanHistory
from services.store.storage import Storage, storage_of
from services.store.tables.table_reader import TableSpec

PATIENCE_S = 90.0
KEPT_BYTES = 1024
"""A dead letter keeps so much of its message."""
DISPUTED = 10
TRUE = ("sample", "duplicates", "late")
_BOOT_AND_SEQ = re.compile(rb'\["[^"]+","[^"]+","[^"]+","([^"]+)",([0-9]+)')
"""How the payload of a late sample's letter begins: site, zone, device, boot, seq."""

Id = tuple[str, str, int]  # topic, boot, seq
Message = tuple[str, bytes]  # topic, payload
Place = tuple[str, str, int, str]  # zone, device, end of the step, metric
Step = tuple[str, str, int]  # zone, device, end of the step
PlanId = tuple[str, str, str, int]  # site, zone, source, when it was issued


@dataclass
class Published:
    """What the simulator wrote down: samples by their id, plans, and nonsense."""

    samples: dict[Id, dict[str, Any]] = field(default_factory=dict)
    plans: set[PlanId] = field(default_factory=set)
    nonsense: set[Message] = field(default_factory=set)

    @classmethod
    def read(cls, lines: Iterable[bytes]) -> Published:
        found = cls()
        for line in lines:
            kind, topic, payload = line.rstrip(b"\n").split(b"\t", 2)
            if kind.decode() in TRUE:
                body = json.loads(payload)
                found.samples[topic.decode(), body["boot"], body["seq"]] = body
            elif kind == b"plan":
                found.plans.add(plan_id(topic.decode(), payload))
            else:
                found.nonsense.add((topic.decode(), payload[:KEPT_BYTES]))
        return found


@dataclass
class Found:
    """What became of it: arrivals in the log, dead letters, and how many readings a row was made of."""

    arrived: Counter[Id] = field(default_factory=Counter)
    refused: Counter[Message] = field(default_factory=Counter)
    late: Counter[Id] = field(default_factory=Counter)
    dead_letters: Counter[Message] = field(default_factory=Counter)
    rows: dict[Place, int] = field(default_factory=dict)
    plans_in_log: set[PlanId] = field(default_factory=set)
    plans_kept: Counter[PlanId] = field(default_factory=Counter)
    seen_at: defaultdict[Id, list[str]] = field(default_factory=lambda: defaultdict(list))  # a sample's way, in words
    times_ms: dict[Id, int] = field(default_factory=dict)  # of samples in the log


def plan_id(topic: str, payload: bytes) -> PlanId:
    """What names a plan for ever."""
    site, zone = topic.split("/")[2:4]
    body = json.loads(payload)
    return site, zone, body["source"], body["issued"]


def balance(published: Published, found: Found, step_ms: int) -> dict[str, int]:
    """The ledger. A sample's late arrivals are letters; the first that was not late must be in its row, once."""
    samples, nonsense = published.samples, published.nonsense
    never_came = sum(not found.arrived[name] for name in samples)
    late = sum(0 < found.arrived[name] <= found.late[name] for name in samples)
    closed_ms = _closed_ms(found)
    still_open = sum(
        found.arrived[name] > found.late[name] and _end(body["ts"], step_ms) > closed_ms
        for name, body in samples.items()
    )
    lost, twice = Counter[Step](), Counter[Step]()
    for step, surplus in _surplus(published, found, step_ms).items():
        lost[step], twice[step] = max(0, -min(surplus.values())), max(0, *surplus.values())
    unanswered = sum(not found.dead_letters[message] for message in nonsense)
    plans = published.plans
    return {
        "published": len(samples) + len(plans) + len(nonsense), "samples": len(samples), "plans": len(plans),
        "nonsense": len(nonsense),
        "in_log": len(samples) - never_came + len(plans & found.plans_in_log)
        + sum(message in found.refused for message in nonsense),
        "in_rows": len(samples) - never_came - late - still_open - lost.total(), "late": late,
        "refused": len(nonsense) - unanswered, "open": still_open,
        "lost": lost.total() + never_came + unanswered + len(plans - found.plans_kept.keys()),
        "twice": twice.total() + sum(found.plans_kept[plan] > 1 for plan in plans),
        "copies": found.arrived.total() - len(found.arrived), "late_copies": found.late.total() - late,
    }  # fmt: skip


def _closed_ms(found: Found) -> int:
    return max((end_ms for _, _, end_ms, _ in found.rows), default=0)


def _surplus(published: Published, found: Found, step_ms: int) -> dict[Step, dict[str, int]]:
    """Steps of a device -> metric -> how many readings more than expected its row was made of.

    A sample's metrics share its fate, so a step counts by the metric that fared worst.
    """
    closed_ms = _closed_ms(found)
    last_ms = max((_end(body["ts"], step_ms) for body in published.samples.values()), default=0)
    expected: Counter[Place] = Counter()
    for name, body in published.samples.items():
        if found.arrived[name] > found.late[name] and (end_ms := _end(body["ts"], step_ms)) <= closed_ms:
            expected.update((*name[0].split("/")[3:5], end_ms, metric) for metric in body["values"])
    surplus: defaultdict[Step, dict[str, int]] = defaultdict(dict)
    for place in expected.keys() | found.rows.keys():
        if place[2] <= last_ms:  # what came later, to close the last rows, is no part of the account
            surplus[place[:3]][place[3]] = found.rows.get(place, 0) - expected[place]
    return surplus


def disputed(published: Published, found: Found, step_ms: int) -> list[str]:
    """The first of the rows that do not add up: by how much, and the way of each of their samples; also of those that
    should have been refused.
    """
    times_ms = {name: body["ts"] for name, body in published.samples.items()}
    steps = _surplus(published, found, step_ms).items()
    wrong = sorted((step, surplus) for step, surplus in steps if any(surplus.values()))[:DISPUTED]
    return [
        f"{'/'.join(map(str, step))} {surplus}: "
        + "; ".join(
            f"{name[1]}-{name[2]}{'' if name in times_ms else ', nonsense,'} at {ts_ms} {' '.join(found.seen_at[name])}"
            for name, ts_ms in (found.times_ms | times_ms).items()
            if (*name[0].split("/")[3:5], _end(ts_ms, step_ms)) == step
        )
        for step, surplus in wrong
    ]


def never_came(published: Published, found: Found, step_ms: int) -> list[tuple[int, int, int]]:
    """Stretches of event time whose samples or plans are not in the log: first and last time, and how many."""
    stretches: list[tuple[int, int, int]] = []
    times = [body["ts"] for name, body in published.samples.items() if not found.arrived[name]]
    times += [issued_ms for *_, issued_ms in published.plans - found.plans_in_log]
    for ts_ms in sorted(times):
        if stretches and ts_ms - stretches[-1][1] <= step_ms:
            begin_ms, _, count = stretches.pop()
            stretches.append((begin_ms, ts_ms, count + 1))
        else:
            stretches.append((ts_ms, ts_ms, 1))
    return stretches


def _end(ts_ms: int, step_ms: int) -> int:
    return -(-ts_ms // step_ms) * step_ms


def main() -> None:
    """Settle and print."""
    settings = load_settings()
    with Path(sys.argv[1]).open("rb") as lines:
        published = Published.read(lines)
    found = Found()
    storage = storage_of(settings)
    _read_log(found, _records(storage, open_settings_log(settings)))
    _read_dead_letters(found, settings)
    found.plans_kept = _kept_plans(settings)
    found.rows = Counter()  # as pandas reads them; a row that is there twice has twice as many samples
    for zone, device, end_ms, metric, count in _rows(
        storage, DEVICE_ROWS, "zone", "device", "end_ms", "metric", "count"
    ):
        found.rows[zone, device, end_ms, metric] += count
    ledger = balance(published, found, settings.stream.step_s * 1000)
    told = {ask.__name__: ask(published, found, settings.stream.step_s * 1000) for ask in (never_came, disputed)}
    print(json.dumps({**ledger, **_compared(settings), **told}))


def _rows(storage: Storage, table: TableSpec, *columns: str) -> Iterator[tuple[Any, ...]]:
    where = storage.address(table.folder)
    frame = DeltaTable(where, storage_options=storage.delta_options()).to_pandas(columns=list(columns))
    return frame.itertuples(index=False, name=None)


def _records(storage: Storage, log: Log) -> list[Record]:
    """What the log holds, once snapshots stand for all of it but ticks."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        found, unsaved = [], 0
        for partition in range(log.partitions):
            saved = max(_snapshots(storage, partition), default=0)
            offset, end = 0, log.end_offset(partition)
            while offset < end:
                for record in log.read(partition, offset, min(1000, end - offset)):
                    offset = record.offset + 1
                    found.append(record)
                    unsaved += record.kind != "tick" and record.offset >= saved
        if not unsaved or time.monotonic() > deadline_s:
            return found
        time.sleep(1.0)


def _snapshots(storage: Storage, partition: int) -> list[int]:
    """The offsets up to which snapshots stand for the log."""
    names = [name.removesuffix(".snapshot").split("-") for name in storage.list_folder("snapshots").names
             if name.endswith(".snapshot")]  # fmt: skip
    return [int(offset) for of, offset in names if of == f"p{partition}"]


def _read_log(into: Found, records: Iterable[Record]) -> None:
    decoder = msgspec.msgpack.Decoder(list[Refusal])
    for record in records:
        if record.kind == "samples":
            for s in decode_samples(record.payload):
                name = f"hothouse/v1/{s.site}/{s.zone}/{s.device}/sample", s.boot, s.seq
                into.arrived[name] += 1
                into.times_ms[name] = s.ts_ms
                into.seen_at[name].append(f"p{record.partition}@{record.offset}")
        elif record.kind == "plan":
            into.plans_in_log.add(plan_id(record.topic, record.payload))
        elif record.kind == "refused":
            into.refused.update((refusal.topic, refusal.payload) for refusal in decoder.decode(record.payload))


def _read_dead_letters(into: Found, settings: Settings) -> None:
    for partition in range(settings.log.partitions):
        kept = DeadLetters(storage_of(settings), partition)
        for letter in kept.newest(1_000_000):
            if letter.reason == "late":
                named = _BOOT_AND_SEQ.match(letter.payload)  # it may be cut short, and be no JSON any more
                assert named is not None
                name = letter.topic, named[1].decode(), int(named[2])
                into.late[name] += 1
                into.seen_at[name].append(f"late@{letter.offset}.{letter.item}")
            else:
                into.dead_letters[letter.topic, letter.payload] += 1


def _kept_plans(settings: Settings) -> Counter[PlanId]:
    history, found = PlanHistory(storage_of(settings)), Counter[PlanId]()
    for site in history.sites():
        for kept in history.read(site, -1, 2**62):
            found[site, kept.plan.zone or SITE_ZONE, kept.plan.source, kept.plan.issued_ms] += 1
    return found


def _compared(settings: Settings) -> dict[str, int]:
    """History and InfluxDB, once they agree: what could not be sent at once is sent again a little later."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        found = _compare(_zone_rows(settings), _points(settings))
        if not any(count for name, count in found.items() if name != "rows") or time.monotonic() > deadline_s:
            return found
        time.sleep(2.0)


def _compare(rows: Mapping[tuple[str, int], float], points: Mapping[tuple[str, int], float]) -> dict[str, int]:
    return {
        "rows": len(rows), "rows_not_in_influxdb": len(rows.keys() - points.keys()),
        "rows_other_in_influxdb": sum(key in points and abs(points[key] - value) > 1e-3 for key, value in rows.items()),
        "points_without_row": len(points.keys() - rows.keys()),
    }  # fmt: skip


def _zone_rows(settings: Settings) -> dict[tuple[str, int], float]:
    """Zone and time -> air temperature, in the history."""
    rows = _rows(storage_of(settings), ZONE_ROWS, "zone", "end_ms", "air_temp_c")
    return {(zone, end_ms): value for zone, end_ms, value in rows if value == value}


def _points(settings: Settings) -> dict[tuple[str, int], float]:
    """The same, asked of InfluxDB in Flux."""
    from influxdb_client import InfluxDBClient

    flux = (
        f'from(bucket: "{settings.influx.bucket}") |> range(start: 2000-01-01T00:00:00Z, stop: 2100-01-01T00:00:00Z)'
        ' |> filter(fn: (r) => r._measurement == "zone_climate" and r._field == "air_temp_c")'
        ' |> keep(columns: ["_time", "_value", "zone"])'
    )
    assert settings.influx.token_file is not None
    token = settings.influx.token_file.read_text().strip()
    with InfluxDBClient(settings.influx.url, token, org=settings.influx.org, timeout=60_000) as client:
        return {
            (record["zone"], round(record["_time"].timestamp() * 1000)): record["_value"]
            for table in client.query_api().query(flux)
            for record in table.records
        }


if __name__ == "__main__":
    main()
