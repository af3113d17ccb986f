"""How near a system that got its history late comes to one that had it first, and how long an import takes.

    python -m benchmarks.late_history [RECORDING] [--live-days 3] [--first-days 1000] [--timezone Europe/Amsterdam]
    python -m benchmarks.late_history --simulated-days 63

The recording is taken twice by a shard, through its log: once in its order, and once with the first sample of the last
days, then everything before them by ``hothouse import``'s way, then the last days. Printed are the seconds that the
import took, differences of the history's rows, and the mean absolute errors of the last days' forecasts as shares of
those of the system that had it first. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.recordings.recording import load_recording
from edge.recordings.replay import RecordingSource
from edge.simulator.simulated_site import SimulatedSite
from edge.wire.samples import encode_samples
from edge.wire.topic import SITE_ZONE
from models.durations import DAY_MS, HOUR_MS, MINUTE_MS
from models.features.inputs import targets_of
from services.cli.history.history_rows import history_rows
from services.config import Settings, SiteSettings
from services.ingest.figures import ShardFigures
from services.ingest.shard import Executors, Outputs, Shard
from services.messages import ONLINE_VERSION, ForecastReply, ForecastRequest, ShownAlert, ZoneForecast
from services.store.history import History
from services.store.imports.import_job import new_job, open_jobs, words
from services.store.series import NullSeries

F64 = npt.NDArray[np.float64]


class Published:
    """What a page would be told: forecasts by zone and origin."""

    def __init__(self) -> None:
        self.forecasts: dict[tuple[str, int], ZoneForecast] = {}

    def publish(self, forecasts: Sequence[ZoneForecast]) -> None:
        """Keep them."""
        self.forecasts |= {(one["zone"], one["origin_ms"]): one for one in forecasts}

    def put_past(self, site: str, zone: str, end_ms: list[int], values: dict[str, list[float | None]]) -> None:
        """Not looked at."""

    def put_alerts(self, alerts: Sequence[ShownAlert]) -> None:
        """Not looked at."""

    def put_stats(self, stats: ShardFigures) -> None:
        """Not looked at."""


class System:
    """A shard on a log and a folder of its own, without a network."""

    def __init__(self, folder: Path, site: SiteSettings) -> None:
        self.settings, self.log, self.told = Settings(data_dir=folder, sites=(site,)), MemoryLog(1), Published()
        executors = Executors(*(ThreadPoolExecutor(1, name) for name in Executors._fields))
        self.shard = Shard(
            self.settings, range(1), self.log, _online, Outputs(NullSeries(), self.told), executors, time.monotonic
        )

    def feed(self, records: Iterator[NewRecord]) -> None:
        """Take records, and come to rest."""
        self.log.append(list(records))
        self.rest()

    def live(self, records: Iterator[NewRecord]) -> None:
        """Take records as they come, so that each row is forecast from."""
        for _, some in groupby(records, key=lambda record: record.receive_ms):
            self.log.append(list(some))
            while self.shard.step() or self.shard.awaits_forecasts:
                pass
        self.rest()

    def rest(self) -> None:
        """Work until nothing is left to do."""
        quiet = 0
        while quiet < 3:
            busy = self.shard.step() or self.shard.awaits_forecasts
            busy |= any(job.note()["state"] != "done" for job in open_jobs(self.settings.storage_folder))
            quiet = 0 if busy else quiet + 1
        self.shard.flush()

    @property
    def rows(self) -> pa.Table:
        """The history's."""
        return History(self.settings.storage_folder, self.shard.spec.channels, self.settings.stream.step_s).read()


def _online(request: ForecastRequest) -> ForecastReply:
    return ForecastReply(version=ONLINE_VERSION, quantiles=request["baseline"])


def records(folder: Path, timezone: str, site: str, from_ms: int, to_ms: int) -> Iterator[NewRecord]:
    """A recording's samples as they came."""
    source = RecordingSource(folder, site=site, timezone=timezone, boot_seed=1)
    source.skip(from_ms)
    for at_ms, samples in source.samples(to_ms):
        yield NewRecord(site, "samples", at_ms, encode_samples(samples))


def errors(system: System, rows: pa.Table, after_ms: int) -> F64:
    """Absolute errors of forecasts from origins after a time, by (zone, origin), horizon and target."""
    spec = system.shard.spec
    values = np.stack([rows[name].to_numpy() for name in spec.channels], axis=-1)
    keys = zip(rows["zone"].to_pylist(), rows["end_ms"].to_pylist(), strict=True)
    truth = dict(zip(keys, targets_of(values, spec), strict=True))
    none = np.full(len(spec.targets), np.nan)
    found = []
    for (zone, origin_ms), forecast in sorted(system.told.forecasts.items()):
        if origin_ms > after_ms:
            came = np.stack([truth.get((zone, origin_ms + h * MINUTE_MS), none) for h in spec.horizons_min])
            said = [[point["p50"] for point in forecast["forecasts"].get(t, ())] for t in spec.targets]
            whole = [one if one else [np.nan] * len(spec.horizons_min) for one in said]
            found.append(np.abs(np.array(whole, dtype=np.float64).T - came))
    return np.array(found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path, nargs="?", default=Path("tests/data/lettuce_2022"))
    parser.add_argument("--simulated-days", type=int, help="simulate two zones for so long, instead of a recording")
    parser.add_argument("--live-days", type=float, default=3)
    parser.add_argument("--first-days", type=float, default=1000, help="take no more of the recording")
    parser.add_argument("--timezone", default="Europe/Amsterdam")
    parser.add_argument("--no-first", action="store_true", help="only the import, and how long it takes")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.simulated_days:
            asked.recording, asked.timezone = Path(folder) / "simulated", "UTC"
            simulate(asked.recording, asked.simulated_days)
        measure(asked, Path(folder))


def simulate(folder: Path, days: int) -> None:
    """Write what two simulated zones measure every five minutes, as a recording."""
    site = SimulatedSite("late", 7, 1_706_745_600_000, zones=2, step_ms=300_000)
    rows: dict[str, list[dict[str, Any]]] = {zone: [] for zone in site.zones}
    for at_ms, measured in site.instants(site.start_ms + days * DAY_MS):
        for zone, held in rows.items():
            held.append({"time": pd.Timestamp(at_ms, unit="ms"), **measured[SITE_ZONE], **measured[zone]})
    folder.mkdir()
    for zone, held in rows.items():
        pd.DataFrame(held).to_csv(folder / f"{zone}.csv", index=False)


def measure(asked: argparse.Namespace, folder: Path) -> None:
    """Import late beside live, compare with a system that had it first, and print."""
    recording = load_recording(asked.recording, site="late", timezone=asked.timezone)
    times = [table.times_ms for table in recording.tables if len(table.times_ms)]
    first_ms = int(min(map(min, times)))
    last_ms = min(int(max(map(max, times))), first_ms + round(asked.first_days * DAY_MS))
    split_ms = last_ms - round(asked.live_days * DAY_MS)
    site = SiteSettings(name="late", timezone=asked.timezone)
    late = System(folder / "late", site)
    late.feed(records(asked.recording, asked.timezone, "late", split_ms, split_ms + HOUR_MS))
    stream, source = late.settings.stream, RecordingSource(asked.recording, site="late", timezone=asked.timezone)
    rows = history_rows(source, 1000 * stream.step_s, 1000 * stream.lateness_s, 1000 * stream.idle_s, {})
    began_s = time.monotonic()
    old = rows.filter(pa.array(rows["end_ms"].to_numpy() <= split_ms))
    if silent := sorted(set(old["zone"].to_pylist()) - set(late.rows["zone"].to_pylist())):  # their import would wait
        raise SystemExit(f"{', '.join(silent)} sent nothing as the last days began: take less with --first-days")
    job = new_job(late.settings.storage_folder, "late", old)
    late.rest()
    found: dict[str, Any] = {"import_s": round(time.monotonic() - began_s, 1), "rows": job.note()["rows"]}
    print(f"{words(job.note())}; {found['import_s']} s")
    if not asked.no_first:
        late.live(records(asked.recording, asked.timezone, "late", split_ms + HOUR_MS, last_ms))
        first = System(folder / "first", site)
        first.feed(records(asked.recording, asked.timezone, "late", first_ms - 1, split_ms + HOUR_MS))
        first.live(records(asked.recording, asked.timezone, "late", split_ms + HOUR_MS, last_ms))
        found |= compare(late, first, split_ms + 7_200_000)
    print(json.dumps(found))


def compare(late: System, first: System, after_ms: int) -> dict[str, Any]:
    """Print how far the one is from the other."""
    ours, theirs = late.rows, first.rows
    same = [theirs[name].equals(ours[name]) for name in ("zone", "end_ms")]
    differs = 0
    if all(same):
        for name in first.shard.spec.channels:
            one, other = ours[name].to_numpy(), theirs[name].to_numpy()
            differs += int((~((np.isnan(one) & np.isnan(other)) | (np.abs(one - other) < 1e-3))).sum())
    print(f"rows: {len(ours)} and {len(theirs)}, the same zones and ends: {all(same)}, other values: {differs}")
    off, wanted = (errors(system, theirs, after_ms) for system in (late, first))

    known = np.isfinite(off) & np.isfinite(wanted)
    means = [np.where(known, one, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1) for one in (off, wanted)]
    ratio = float(np.nanmean(means[0] / np.where(means[1] > 0, means[1], np.nan)))
    print(f"errors of {len(off)} forecasts as shares of those of the system that had it first: {ratio:.4f}")
    return {"rows_late": len(ours), "rows_first": len(theirs), "same_keys": all(same), "other_values": differs,
            "error_ratio": ratio, "forecasts": len(off)}  # fmt: skip


if __name__ == "__main__":
    main()
