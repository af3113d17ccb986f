"""What the history costs: rows of many zones written as they come, a year of them, read as people and trainings read.

    python -m benchmarks.history --zones 1000 --days 365
    python -m benchmarks.history --zones 6 --days 365 --storage s3://bucket/prefix

A step of five minutes is flushed by itself on the newest day, as in a system that runs; the days before are flushed
whole, to have them there sooner. Every zone has 13 metrics of the vocabulary, which follow the day and are rounded as
sensors round. Printed are seconds and megabytes; compare them within one run, or of two runs beside each other.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge.wire.vocabulary import VOCABULARY
from models.durations import DAY_MS
from services.config import load_settings
from services.learn.training import dataset
from services.store.history import History
from services.store.rows import SiteStep
from services.store.storage import Storage, address_of, open_storage
from services.store.zone_series import resampled

STEP_MS = 300_000
T0 = 1_640_995_200_000  # 2022-01-01 00:00 UTC
STEPS = 288
METRICS = (
    "air_temp_c", "rh_pct", "co2_ppm", "vent_lee_pct", "vent_wind_pct", "heat_pipe_low_c", "sp_heat_c", "sp_vent_c",
    "screen_energy_pct", "out_temp_c", "out_rh_pct", "out_radiation_w_m2", "wind_m_s",
)  # fmt: skip
CHANNELS = tuple(VOCABULARY)


def days_values(zones: int, day: int) -> npt.NDArray[np.float32]:
    """``[steps, zones, channels]`` of a day; NaN where there is no such sensor."""
    rng = np.random.default_rng(day)
    values = np.full((STEPS, zones, len(CHANNELS)), np.nan, np.float32)
    hour = np.arange(STEPS)[:, None] / 12
    for number, name in enumerate(METRICS):
        of_day = 10 * (number + 1) + 5 * np.sin((hour - 9) / 24 * 2 * np.pi) + rng.normal(0, 2, (1, zones))
        noise = np.cumsum(rng.normal(0, 0.1, (STEPS, zones)), axis=0)
        values[:, :, CHANNELS.index(name)] = np.round(of_day + noise, 1)
    return values


def steps_of(zones: int, day: int) -> Iterator[SiteStep]:
    """A day's steps, of sites with 20 zones each."""
    values, size = days_values(zones, day), 20
    ages = np.where(np.isnan(values), np.nan, 30).astype(np.float32)
    names = tuple(f"zone-{n:02}" for n in range(size))
    for step in range(STEPS):
        end_ms = T0 + day * DAY_MS + (step + 1) * STEP_MS
        for first in range(0, zones, size):
            part = values[step, first : first + size]
            site = f"site-{first // size:03}"
            yield SiteStep(0, site, end_ms, names[: len(part)], part, ages[step, first : first + size])


@contextmanager
def told(figures: dict[str, float], name: str) -> Iterator[None]:
    """Seconds, by the clock and of the processor."""
    began_s, used_s = time.perf_counter(), time.process_time()
    yield
    figures[name] = round(time.perf_counter() - began_s, 3)
    figures[f"{name}_cpu"] = round(time.process_time() - used_s, 3)


def median_of(count: int, act: Callable[[], object], figures: dict[str, float], name: str) -> None:
    """Milliseconds of the middle one of some."""
    spent = []
    for _ in range(count):
        began_s = time.perf_counter()
        act()
        spent.append((time.perf_counter() - began_s) * 1000)
    figures[name] = round(float(np.median(spent)), 1)


def measure(storage: Storage, zones: int, days: int, where: object) -> dict[str, float]:
    """The figures, in the order in which they are taken."""
    figures: dict[str, float] = {}
    history = History(storage, CHANNELS)
    with told(figures, "write_days_s"):
        for day in range(days - 1):
            history.add(steps_of(zones, day))
            history.flush()
            if (day + 1) % 30 == 0:
                print(f"{day + 1} of {days} days", file=sys.stderr, flush=True)
    newest = list(steps_of(zones, days - 1))
    sites = len(newest) // STEPS
    spent = []
    for step in range(STEPS):
        began_s = time.perf_counter()
        history.add(newest[step * sites : (step + 1) * sites])
        history.flush()
        spent.append((time.perf_counter() - began_s) * 1000)
    figures["flush_ms"], figures["flush_p99_ms"] = round(float(np.median(spent)), 1), round(np.quantile(spent, 0.99), 1)
    end_ms = T0 + days * DAY_MS
    with told(figures, "compact_s"):
        figures["files_replaced"] = history.compact(end_ms, [0])
    figures["files"] = len(history.files())
    reader = History(storage, (), 300)

    def year() -> object:
        return resampled(reader, "site-000", "zone-03", METRICS, T0, end_ms, DAY_MS // 2)

    def a_day() -> object:
        return resampled(reader, "site-000", "zone-03", METRICS, end_ms - DAY_MS, end_ms, STEP_MS)

    year()
    median_of(5, year, figures, "zone_year_ms")
    median_of(5, a_day, figures, "zone_day_ms")
    after_ms = end_ms - 30 * DAY_MS
    with told(figures, "training_month_s"):
        files = history.files(after_ms, end_ms)
        found = dataset.describe(files, after_ms, end_ms, where)  # type: ignore[arg-type]
        wanted = sorted(found.rows)[:60]
        dataset.gather(files, CHANNELS, after_ms, end_ms, wanted, where)  # type: ignore[arg-type]
    figures["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return figures


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zones", type=int, default=1000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--storage", default="", help="a bucket's URL; HOTHOUSE_STORAGE__… as for the system")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hothouse-history-"))
    try:
        settings = load_settings(
            None, data_dir=folder, **({"storage": {"url": asked.storage}} if asked.storage else {})
        )
        address = address_of(settings)
        figures = measure(open_storage(address), asked.zones, asked.days, address.remote)
        if address.folder is not None:
            found = [path for path in Path(address.folder).rglob("*") if path.is_file()]
            figures["objects"], figures["mb"] = len(found), round(sum(p.stat().st_size for p in found) / 1e6, 1)
        print(json.dumps({"zones": asked.zones, "days": asked.days} | figures))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
