"""Memory of a shard by its zones: windows, rings and the writing of snapshots, with the learners or without.

    python -m benchmarks.zones [--zones 10000] [--every-s 60] [--steps 4] [--learners]

Two devices a zone with three values each send every ``--every-s`` seconds; a site has 100 zones; rows are of 5 minutes,
as many of them kept as the default settings say. Memory is that of this process, peaks by the kernel's own mark.
The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from edge.log import Record
from edge.wire.reading import Sample
from edge.wire.samples import encode_samples
from edge.wire.vocabulary import VOCABULARY
from models.durations import HOUR_MS, MINUTE_MS
from services.config import Settings
from services.forecast_spec import forecast_spec, place_of
from services.ingest.learned.rings import Rings
from services.ingest.partition import Partition
from services.ingest.snapshots.snapshot import Snapshots
from services.ingest.windows.partition_windows import PartitionWindows
from services.messages import ONLINE_VERSION

START_MS = 1_646_092_800_000
ZONES_A_SITE = 100
KINDS = {"climate": ("air_temp_c", "rh_pct", "co2_ppm"), "control": ("vent_lee_pct", "heat_pipe_low_c", "lamp_pct")}


class WithoutLearners:
    """What a partition keeps of its zones, but for what is learned of them."""

    def __init__(self, windows: PartitionWindows, rings: Rings) -> None:
        self.windows, self.rings = windows, rings

    def take(self, records: list[Record]) -> None:
        """As a partition does."""
        for step in self.windows.feed(records).steps:
            indices = np.array([self.rings.index(step.site, zone) for zone in step.zones], np.int64)
            self.rings.write(indices, step.end_ms, step.values)

    def state(self) -> dict[str, Any]:
        """For a snapshot."""
        return {"windows": self.windows.state(), "rings": self.rings.state()}


def site_records(site: int, zones: int, seq: int, ts_ms: int) -> list[Record]:
    """One instant of a site."""
    rng = np.random.default_rng([site, seq])
    samples = [
        Sample(
            f"site-{site}", f"zone-{zone}", kind, f"9f3c62d1a07b{zone:04x}", seq, ts_ms,
            dict(zip(metrics, (20 + 10 * rng.random(3)).tolist(), strict=True)),
        )
        for zone in range(zones) for kind, metrics in KINDS.items()
    ]  # fmt: skip
    return [Record(0, 0, f"site-{site}", "samples", ts_ms, encode_samples(samples), "")]


def take(kept: Partition | WithoutLearners, records: list[Record]) -> None:
    """Take records; with learners also issue the forecasts from the rows that they close."""
    if not isinstance(kept, Partition):
        kept.take(records)
        return
    for origin in kept.take(records, 1):
        kept.learner.put_issued(origin, kept.learner.answer(origin, ONLINE_VERSION, None))


def now_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def peak_mb() -> float:
    """The most it ever was."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="Memory of a shard by its zones.")
    parser.add_argument("--zones", type=int, default=10_000)
    parser.add_argument("--every-s", type=int, default=60, help="seconds between samples (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=4, help="rows of 5 minutes to make (default: %(default)s)")
    parser.add_argument("--learners", action="store_true", help="with all that is learned of each zone")
    given = parser.parse_args()
    settings = Settings()
    spec = forecast_spec(settings)
    ring_steps = settings.stream.ring_hours * HOUR_MS // spec.step_ms
    windows = PartitionWindows(spec.step_ms, 30_000, MINUTE_MS, VOCABULARY)
    kept: Partition | WithoutLearners
    if given.learners:
        kept = Partition(0, spec, windows, ring_steps, lambda site: place_of(settings, site))
    else:
        kept = WithoutLearners(windows, Rings(spec.step_ms, ring_steps, len(spec.channels)))
    before_mb = now_mb()
    started = time.process_time()
    for seq in range(given.steps * 300 // given.every_s + 1):
        ts_ms = START_MS + seq * given.every_s * 1000
        for site in range(0, given.zones // ZONES_A_SITE):
            take(kept, site_records(site, ZONES_A_SITE, seq, ts_ms))
    rows_mb, rows_peak_mb, rows_s = now_mb(), peak_mb(), time.process_time() - started
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        snapshots = Snapshots(Path(folder), 0)
        snapshots.save(1, kept.state())
        snapshot_s = time.process_time() - started
        snapshot_mb = sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e6
        begin = given.steps * 300 // given.every_s + 1
        for seq in range(begin, begin + 3600 // given.every_s):
            ts_ms = START_MS + seq * given.every_s * 1000
            for site in range(0, given.zones // ZONES_A_SITE, 10):
                take(kept, site_records(site, ZONES_A_SITE, seq, ts_ms))
        hour_mb = snapshots.save(2, kept.state()).written_bytes / 1e6
    figures = {
        "zones": given.zones, "learners": given.learners, "start_mb": round(before_mb),
        "kb_a_zone": round((rows_mb - before_mb) * 1000 / given.zones, 1), "memory_mb": round(rows_mb),
        "peak_mb": round(rows_peak_mb), "peak_with_snapshot_mb": round(peak_mb()), "snapshot_mb": round(snapshot_mb),
        "snapshot_cpu_s": round(snapshot_s, 2), "snapshot_of_a_tenths_hour_mb": round(hour_mb, 1),
        "cpu_s": round(rows_s, 1),
    }  # fmt: skip
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
