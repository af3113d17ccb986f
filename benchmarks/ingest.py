"""Samples to closed rows: what ``services.ingest`` makes of a stream on one core, beside plain Python.

    python -m benchmarks.ingest [--samples FILE] [--step 1min] [--lateness 30s] [--rows-out ROWS.parquet]

FILE holds one ``receive_ms<TAB>topic<TAB>payload`` a line, as it arrived, packed with gzip where its name ends in
``.gz``. Without it a workload is made as it reaches a live gateway: 1,000 zones x 2 devices x 6 values every 10 s,
sites interleaved, each message with a receive time of its own, 3 % out of order, 1 % duplicates. The lines become
records as in the gateway (not timed), and are read as a shard reads them; records -> rows is timed in CPU seconds.

First all lines, in the records that their own receive times make. ``rows_sha256`` is of these: it depends on the rows
alone, and is taken over each site's rows by end, zone, device and metric. ROWS has one line a zone, device, step and
metric. After the last line receive time goes on until every row is closed. Then the curve: the first samples again, in
records of 1 to 1,000 samples of a site, each point beside the same job written a message at a time in plain Python, in
turns, the median of ``--passes``. The rows of all points are the same, unless a clock is ahead of its receive time.

The last line printed is JSON. The exit code is 1 where a ratio is less than wanted, or rows of the made workload are
not the same.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks._arrivals import Line, grouped, make_lines, read_lines, reads, to_records
from benchmarks._plain import PlainPython
from edge.log import Record
from edge.wire.samples import decode_samples
from edge.wire.vocabulary import VOCABULARY
from models.durations import MINUTE_MS
from services.ingest.windows.partition_windows import Closed, PartitionWindows
from services.store.rows import DeviceRow

UNITS = {"s": 1, "min": 60, "h": 3600}
SIZES = (1, 2, 5, 10, 20, 50, 200, 1000)
"""Samples of a record."""
WANTED = {1: 1.2, 10: 2.0, 1000: 4.0}
"""Samples of a record -> how many times as fast as plain Python; at 1,000 as it was before small records counted."""
ENOUGH_SAMPLES = 20_000
"""Fewer take so little time that their ratios are noise: nothing is wanted of them."""


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


class Timed:
    """Windows whose CPU seconds are counted."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.cpu_s = 0.0
        self._windows = PartitionWindows(given.step, given.lateness, given.idle, VOCABULARY)

    def feed(self, records: Sequence[Record]) -> Closed:
        """As theirs."""
        started_s = time.process_time()
        closed = self._windows.feed(records)
        self.cpu_s += time.process_time() - started_s
        return closed


@dataclass(frozen=True)
class Point:
    """One place on the curve: records of ``size`` samples, or of fewer where their sites fell silent."""

    size: int
    samples: int
    a_record: float  # samples, mean
    ours_per_s: float  # samples a CPU-second
    plain_per_s: float
    ratio: float  # of the two, median of the passes
    rows_sha256: str

    @property
    def is_whole(self) -> bool:
        """Whether records are about as large as they should be."""
        return self.a_record > self.size / 2

    @property
    def misses(self) -> bool:
        """Whether it is slower than wanted."""
        return self.is_whole and self.ratio < WANTED.get(self.size, 0.0)


def curve(records: Sequence[Record], given: argparse.Namespace) -> list[Point]:
    """Ours and the reference over the same samples, in turns, so that what else runs here burdens both alike.

    A message at a time is MessagePack of one sample, the fastest that a per-message program could ask for.
    """
    samples = [s for record in records if record.kind == "samples" for s in decode_samples(record.payload)]
    messages = [msgspec.msgpack.encode(sample) for sample in samples]
    points = []
    for size in SIZES:
        records_of_size = grouped(records, size, given.idle // 2)
        a_record = len(samples) / sum(record.kind == "samples" for record in records_of_size)
        rows = Rows()
        _ours_s(records_of_size, given, rows)  # which also warms up
        ours_s, plain_s = [], []
        for _ in range(given.passes):
            ours_s.append(_ours_s(records_of_size, given))
            plain_s.append(_plain_s(messages, given))
        ratio = median(plain / ours for plain, ours in zip(plain_s, ours_s, strict=True))
        speeds = len(samples) / median(ours_s), len(samples) / median(plain_s)
        points.append(Point(size, len(samples), a_record, *speeds, ratio, rows.sha256()))
    return points


def _ours_s(records: list[Record], given: argparse.Namespace, rows: Rows | None = None) -> float:
    gc.collect()
    windows = Timed(given)
    for part in reads([records]):
        closed = windows.feed(part)
        if rows is not None:
            for step in closed.steps:
                rows.add(step.site, step.end_ms, step.devices)
    return windows.cpu_s


def _plain_s(messages: Sequence[bytes], given: argparse.Namespace) -> float:
    gc.collect()
    plain = PlainPython(given.step, given.lateness)
    started_s = time.process_time()
    for message in messages:
        plain.take(message)
    return time.process_time() - started_s


def show(points: Sequence[Point], by_us: bool) -> list[str]:
    """Print the curve; what is wrong with it, in sentences. ``by_us``: the workload was made here."""
    print(f"{'samples a record':>16} {'ours':>12} {'plain Python':>12} {'ratio':>6} {'wanted':>6} {'a record':>10}")
    for point in points:
        wanted = f"{WANTED[point.size]:.1f}" if point.size in WANTED and point.is_whole else ""
        speeds = f"{point.ours_per_s:12,.0f} {point.plain_per_s:12,.0f} {point.ratio:6.2f} {wanted:>6}"
        print(f"{point.a_record:16.1f} {speeds} {1e6 * point.a_record / point.ours_per_s:7,.0f} µs")
    samples = points[0].samples
    print(f"{'':16} samples a CPU-second, of the first {samples:,} samples; rows {points[0].rows_sha256[:16]}")
    missed = [
        f"in records of {point.size} {point.ratio:.2f} times plain Python, {WANTED[point.size]:g} are wanted"
        for point in points
        if point.misses
    ]
    if samples < ENOUGH_SAMPLES:
        print(f"nothing is wanted of fewer than {ENOUGH_SAMPLES:,} samples")
        missed = []
    if others := [point.size for point in points if point.rows_sha256 != points[0].rows_sha256]:
        said = f"the rows of records of {', '.join(map(str, others))} are others"
        print(f"{said}: so it may be where a device's clock is ahead of the receive time")
        missed += [said] if by_us else []
    return missed


def duration_ms(text: str) -> int:
    """``30s``, ``1min`` or ``1h`` in milliseconds."""
    found = re.fullmatch(r"(\d+)(s|min|h)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 30s, 1min or 1h")
    return int(found[1]) * UNITS[found[2]] * 1000


def main() -> None:
    """Run and print; exit with 1 where something is missed."""
    given = _parser().parse_args()

    def lines() -> Iterator[Line]:
        return read_lines(given.samples) if given.samples else make_lines(given.zones, given.minutes)

    windows, total, records = Timed(given), Counter[str](), 0
    rows = Rows(kept=[] if given.rows_out else None)
    for part in reads(to_records(lines(), given.step, given.idle, given.lateness)):
        closed = windows.feed(part)
        total.update(accepted=closed.accepted, duplicates=closed.duplicates, late=closed.late)
        total.update(rejected=sum(closed.rejected.values()))
        records += sum(record.kind == "samples" for record in part)
        for step in closed.steps:
            rows.add(step.site, step.end_ms, step.devices)
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if given.rows_out:
        rows.write(given.rows_out)
    samples, cpu_s = total.total(), max(windows.cpu_s, 1e-9)
    carried = samples - total["rejected"]
    speed = carried / cpu_s
    print(f"as they came: {carried:,} samples in {records:,} records, {speed:,.0f} samples a CPU-second", flush=True)
    points: list[Point] = []
    missed: list[str] = []
    if carried and not given.no_references:
        first = to_records(lines(), given.step, given.idle, given.lateness, given.curve_samples)
        points = curve([*chain.from_iterable(first)], given)
        missed = show(points, by_us=given.samples is None)
    print(json.dumps({
        "samples": samples, "rows": rows.count, "duplicates": total["duplicates"], "late": total["late"],
        "rejected": total["rejected"], "cpu_s": round(windows.cpu_s, 3), "samples_per_cpu_s": round(samples / cpu_s),
        "rows_sha256": rows.sha256(), "peak_memory_mb": round(memory_mb),
        **{f"ratio_{point.size}": round(point.ratio, 2) if point.is_whole else None for point in points},
        "curve": {point.size: round(point.ours_per_s) for point in points},
    }))  # fmt: skip
    if missed:
        sys.exit("missed: " + "; ".join(missed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Samples to closed rows, in samples a CPU-second.")
    parser.add_argument("--samples", type=Path, help="receive_ms<TAB>topic<TAB>payload a line; else a made workload")
    parser.add_argument("--step", type=duration_ms, default=MINUTE_MS, help="length of a row (default: 1min)")
    parser.add_argument("--lateness", type=duration_ms, default=30_000, help="(default: 30s)")
    parser.add_argument("--idle", type=duration_ms, default=MINUTE_MS, help="silence that closes rows (default: 1min)")
    parser.add_argument("--rows-out", type=Path, help="write the rows there, as Parquet")
    parser.add_argument("--zones", type=int, default=1000, help="of the made workload (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=20, help="of the made workload (default: %(default)s)")
    parser.add_argument(
        "--curve-samples", type=int, default=MINUTE_MS, help="the curve takes so many, the first (default: %(default)s)"
    )
    parser.add_argument("--passes", type=int, default=3, help="over each point of the curve (default: %(default)s)")
    parser.add_argument("--no-references", action="store_true", help="leave the curve out")
    return parser


if __name__ == "__main__":
    main()
