"""Samples to closed rows: what ``services.ingest`` makes of a stream on one core, beside two references.

    python -m benchmarks.ingest [--samples FILE] [--step 1min] [--lateness 30s] [--rows-out ROWS.parquet]

FILE holds one ``receive_ms<TAB>topic<TAB>payload`` a line, as it arrived, packed with gzip where its name ends in
``.gz``; without it a workload is made (1,000 zones x 2 devices x 6 values every 10 s, 3 % out of order, 1 %
duplicates). The lines become log records as in the gateway (not timed); then records -> rows is timed in CPU seconds,
next to decoding the same records and nothing else, and to the same job written a message at a time in plain Python.
After the last line receive time goes on until every row is closed. ROWS has one line a zone, device, step and metric.
``rows_sha256`` depends on the rows alone: it is taken over each site's rows by end, zone, device and metric. The last
line printed is JSON.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import hashlib
import itertools
import json
import random
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from edge.clock import ReplayedClock
from edge.gateway import GatewaySettings
from edge.intake import Intake, Message
from edge.log import Record
from edge.reading import VOCABULARY, Sample, encode_message, sample_topic
from edge.samples import SampleColumns, decode_samples
from services.ingest.windows import PartitionWindows
from services.store.rows import DeviceRow

LINES = 20_000
READ_RECORDS = 200
REFERENCE_SAMPLES = 300_000
UNITS = {"s": 1, "min": 60, "h": 3600}
START_MS = 1_646_092_800_000
SAMPLE = msgspec.msgpack.Decoder(Sample)
METRICS = ("air_temp_c", "rh_pct", "co2_ppm", "par_umol_m2_s", "soil_vwc_pct", "vent_lee_pct")
LOWS = (15.0, 60.0, 400.0, 0.0, 40.0, 0.0)


class Line(NamedTuple):
    """One message as it arrived."""

    receive_ms: int
    topic: str
    payload: bytes


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file; a name that ends in .gz is unpacked, empty lines are left out."""
    if not path.is_file():
        sys.exit(f"{path} is not there")
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, 1):
            parts = line.rstrip(b"\r\n").split(b"\t", 2)
            if parts == [b""]:
                continue
            if len(parts) != 3 or not parts[0].isdigit():
                sys.exit(f"{path}, line {number}: expected receive_ms<TAB>topic<TAB>payload")
            yield Line(int(parts[0]), parts[1].decode(errors="replace"), parts[2])


def make_lines(zones: int, minutes: float, seed: int = 7, sites: int = 10) -> Iterator[Line]:
    """The workload; instants are made one after another, so that any length fits into memory."""
    rng = random.Random(seed)
    devices = [
        (f"site-{z % sites}", f"zone-{z}", f"{kind}-{z}", f"{rng.getrandbits(64):016x}")
        for z in range(zones)
        for kind in ("climate", "soil")
    ]
    late: list[tuple[int, Line]] = []
    for seq in range(int(minutes * 6)):
        ts = START_MS + seq * 10_000
        due, late = [line for at, line in late if at < ts], [x for x in late if x[0] >= ts]
        lines = [line._replace(receive_ms=ts) for line in due]
        for site, zone, device, boot in devices:
            values = {m: round(low + rng.random() * 10, 2) for m, low in zip(METRICS, LOWS, strict=True)}
            payload = encode_message([Sample(site, zone, device, boot, seq, ts, values)])
            receive_ms = ts + 20 * rng.randrange(1, 25)
            line = Line(receive_ms, sample_topic(site, zone, device), payload)
            chance = rng.random()
            if chance < 0.03:
                late.append((ts + rng.randrange(10_000, 25_000), line))
            else:
                lines.append(line)
                if chance < 0.04:
                    lines.append(line)
        yield from _as_taken(sorted(lines, key=lambda line: line.receive_ms))
    yield from _as_taken([line._replace(receive_ms=max(ts, line.receive_ms)) for _, line in late])


def _as_taken(lines: Sequence[Line]) -> Iterator[Line]:
    """A gateway that is busy takes as many messages as it may at once, and stamps them when it does."""
    size = GatewaySettings.max_batch
    for start in range(0, len(lines), size):
        batch = lines[start : start + size]
        yield from (line._replace(receive_ms=batch[-1].receive_ms) for line in batch)


def to_records(lines: Iterable[Line], step_ms: int, idle_ms: int, lateness_ms: int) -> Iterator[list[Record]]:
    """Records as a gateway would append them, all into one partition; messages of one receive time are one batch."""
    clock = ReplayedClock()
    intake: Intake | None = None
    offset = itertools.count()
    source = iter(lines)
    while chunk := list(itertools.islice(source, LINES)):
        records: list[Record] = []
        for receive_ms, batch in itertools.groupby(chunk, key=lambda line: line.receive_ms):
            clock.advance(receive_ms)
            intake = intake or Intake(clock, step_ms)
            records += _placed(intake.take([Message(line.topic, line.payload) for line in batch]), offset)
        yield records
    if intake is not None:
        end_ms = clock.now_ms() + 2 * step_ms + idle_ms + lateness_ms
        records = []
        while clock.now_ms() < end_ms:
            clock.advance(clock.now_ms() + step_ms // 10)
            records += _placed(intake.take(), offset)
        yield records


def _placed(new: Iterable[Any], offset: Iterator[int]) -> list[Record]:
    return [Record(0, next(offset), n.site, n.kind, n.receive_ms, n.payload, n.topic) for n in new]


@dataclass
class Rows:
    """What was closed; the rows themselves only if they are kept."""

    kept: list[tuple[str, int, DeviceRow]] | None = None
    count: int = 0
    digests: dict[str, Any] = field(default_factory=dict)

    def add(self, site: str, end_ms: int, devices: Iterable[DeviceRow]) -> None:
        """Take a step's rows; a site's steps come in rising order."""
        digest = self.digests.setdefault(site, hashlib.sha256())
        for row in sorted(devices):
            self.count += 1
            digest.update(repr((site, end_ms, *row)).encode())
            if self.kept is not None:
                self.kept.append((site, end_ms, row))

    def sha256(self) -> str:
        """Of all rows, whatever the order in which sites closed."""
        parts = "".join(f"{site} {digest.hexdigest()}\n" for site, digest in sorted(self.digests.items()))
        return hashlib.sha256(parts.encode()).hexdigest()

    def write(self, path: Path) -> None:
        """As Parquet."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = sorted(self.kept or [], key=lambda row: (row[0], row[2].zone, row[2].device, row[1], row[2].metric))
        columns: dict[str, Any] = {
            "zone": pa.array([f"{site}/{row.zone}" for site, _, row in rows], pa.string()),
            "device": pa.array([row.device for *_, row in rows], pa.string()),
            "end_ms": pa.array([end_ms for _, end_ms, _ in rows], pa.int64()),
            "metric": pa.array([row.metric for *_, row in rows], pa.string()),
            "count": pa.array([row.n for *_, row in rows], pa.int64()),
        }
        for name in ("mean", "min", "max", "last"):
            columns[name] = pa.array([getattr(row, name) for *_, row in rows], pa.float64())
        pq.write_table(pa.table(columns), path)


class PlainPython:
    """The reference: a message at a time into dictionaries; device rows and zone rows (median over devices, held
    values, ages) as ours, but no weather join, angles, counters or dead letters.
    """

    def __init__(self, step_ms: int, lateness_ms: int) -> None:
        self.rows = self.cells = 0
        self._step_ms, self._lateness_ms = step_ms, lateness_ms
        self._newest: dict[str, int] = {}
        self._closed: dict[str, int] = {}
        self._open: dict[str, dict[int, dict[tuple[str, str, str], list[float]]]] = {}
        self._seen: dict[str, dict[int, set[tuple[str, str, str, int]]]] = {}
        self._latest: dict[str, dict[str, dict[str, dict[str, tuple[int, float]]]]] = {}

    def take(self, payload: bytes) -> None:
        """Add one sample to its aggregates; close what the watermark has passed."""
        sample = SAMPLE.decode(payload)
        site = sample.site
        end = -(-sample.ts_ms // self._step_ms) * self._step_ms
        if end <= self._closed.get(site, 0):
            return
        seen = self._seen.setdefault(site, {}).setdefault(end, set())
        key = (sample.zone, sample.device, sample.boot, sample.seq)
        if key in seen:
            return
        seen.add(key)
        window = self._open.setdefault(site, {}).setdefault(end, {})
        for metric, value in sample.values.items():
            row = window.get((sample.zone, sample.device, metric))
            if row is None:
                window[sample.zone, sample.device, metric] = [1, value, value, value, value, sample.ts_ms]
            else:
                row[0] += 1
                row[1] += value
                if value < row[2]:
                    row[2] = value
                if value > row[3]:
                    row[3] = value
                if sample.ts_ms >= row[5]:
                    row[4], row[5] = value, sample.ts_ms
        if sample.ts_ms > self._newest.get(site, 0):
            self._newest[site] = sample.ts_ms
            target = (sample.ts_ms - self._lateness_ms) // self._step_ms * self._step_ms
            if target > self._closed.get(site, 0):
                self._close(site, target)

    def _close(self, site: str, target: int) -> None:
        for end in sorted(e for e in self._open[site] if e <= target):
            rows = [
                (site, zone, device, metric, end, n, total / n, low, high, last)
                for (zone, device, metric), (n, total, low, high, last, _) in self._open[site].pop(end).items()
            ]
            self._seen[site].pop(end, None)
            self.rows += len(rows)
            self._zone_rows(site, end, rows)
        self._closed[site] = target

    def _zone_rows(self, site: str, end: int, rows: list[tuple[Any, ...]]) -> None:
        latest = self._latest.setdefault(site, {})
        fresh = {}
        for _, zone, device, metric, _, _, mean, _, _, last in rows:
            fresh[zone, device, metric] = mean
            latest.setdefault(zone, {}).setdefault(metric, {})[device] = (end, last)
        for zone, metrics in latest.items():
            for metric, devices in metrics.items():
                hold_s = VOCABULARY[metric].hold_s or -1
                known = []
                for device, (ts_ms, last) in devices.items():
                    if (zone, device, metric) in fresh:
                        known.append(fresh[zone, device, metric])
                    elif end - ts_ms <= hold_s * 1000:
                        known.append(last)
                age_s = (end - max(ts_ms for ts_ms, _ in devices.values())) / 1000
                self.cells += 1 if known and median(known) == age_s else 0


@dataclass
class Timed:
    """CPU seconds of this process spent in some calls."""

    cpu_s: float = 0.0

    def __call__(self, work: Callable[[], Any]) -> Any:
        started = time.process_time()
        result = work()
        self.cpu_s += time.process_time() - started
        return result


def duration_ms(text: str) -> int:
    """``30s``, ``1min`` or ``1h`` in milliseconds."""
    found = re.fullmatch(r"(\d+)(s|min|h)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 30s, 1min or 1h")
    return int(found[1]) * UNITS[found[2]] * 1000


def compare(payloads: Sequence[bytes], our_speed: float, plain: PlainPython) -> None:
    """Print what the references take for the same samples; they come last, so that they do not burden ours.

    A message a time is MessagePack of one sample, the fastest that a per-message program could ask for.
    """
    columns, decoding, per_message = Timed(), Timed(), Timed()
    columns(lambda: [SampleColumns.of(payload) for payload in payloads])
    messages = [msgspec.msgpack.encode(sample) for payload in payloads for sample in decode_samples(payload)]
    count = len(messages)
    gc.collect()
    decoding(lambda: [SAMPLE.decode(message) for message in messages])
    started = time.process_time()
    for message in messages:
        plain.take(message)
    per_message.cpu_s = time.process_time() - started
    for what, cpu_s in (
        ("reference: decode our records, nothing else", columns.cpu_s),
        ("reference: decode a message at a time", decoding.cpu_s),
        ("reference: plain Python, a message at a time", per_message.cpu_s),
    ):
        print(f"{what:46}{count / cpu_s:12,.0f} samples a CPU-second")
    print(f"ours / plain Python: {our_speed * per_message.cpu_s / count:.2f}")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="Samples to closed rows, in samples a CPU-second.")
    parser.add_argument("--samples", type=Path, help="receive_ms<TAB>topic<TAB>payload a line; else a made workload")
    parser.add_argument("--step", type=duration_ms, default=60_000, help="length of a row (default: 1min)")
    parser.add_argument("--lateness", type=duration_ms, default=30_000, help="(default: 30s)")
    parser.add_argument("--idle", type=duration_ms, default=60_000, help="silence that closes rows (default: 1min)")
    parser.add_argument("--rows-out", type=Path, help="write the rows there, as Parquet")
    parser.add_argument("--zones", type=int, default=1000, help="of the made workload (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=20, help="of the made workload (default: %(default)s)")
    parser.add_argument("--no-references", action="store_true", help="leave the references out")
    given = parser.parse_args()
    lines = read_lines(given.samples) if given.samples else make_lines(given.zones, given.minutes)
    windows = PartitionWindows(given.step, given.lateness, given.idle, VOCABULARY)
    rows = Rows(kept=[] if given.rows_out else None)
    ours = Timed()
    total = Counter[str]()
    payloads: list[bytes] = []
    for records in to_records(lines, given.step, given.idle, given.lateness):
        for start in range(0, len(records), READ_RECORDS):
            part = records[start : start + READ_RECORDS]
            closed = ours(partial(windows.feed, part))
            total.update(accepted=closed.accepted, duplicates=closed.duplicates, late=closed.late)
            total["rejected"] += sum(closed.rejected.values())
            for step in closed.steps:
                rows.add(step.site, step.end_ms, step.devices)
        if not given.no_references and total["accepted"] < REFERENCE_SAMPLES:
            payloads += [record.payload for record in records if record.kind == "samples"]
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if given.rows_out:
        rows.write(given.rows_out)
    samples = total.total()
    our_speed = (samples - total["rejected"]) / max(ours.cpu_s, 1e-9)
    print(f"{'records -> rows (ours)':46}{our_speed:12,.0f} samples a CPU-second")
    if payloads:
        compare(payloads, our_speed, PlainPython(given.step, given.lateness))
    print(json.dumps({
        "samples": samples, "rows": rows.count, "duplicates": total["duplicates"], "late": total["late"],
        "rejected": total["rejected"], "cpu_s": round(ours.cpu_s, 3),
        "samples_per_cpu_s": round(samples / max(ours.cpu_s, 1e-9)),
        "rows_sha256": rows.sha256(), "peak_memory_mb": round(memory_mb),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
