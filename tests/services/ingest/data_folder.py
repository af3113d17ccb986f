"""A data folder of a version before: how ``tests/data/data_folder_10`` was made, and how a shard goes on with it.

In the root of a tree of that version, with the form of this file that fits it:
``PYTHONPATH=. python PATH/OF/THIS/FILE FOLDER`` writes it. Two sites and three zones for a day; a snapshot after 22
hours; then two hours more, and the power goes. ``forecasts.json`` names what that version forecast when it was started
again and the next four hours came.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np

from edge.log import NewRecord
from edge.log.sqlite import SqliteLog
from edge.wire.reading import Sample
from edge.wire.samples import encode_samples
from services.config import Settings, load_settings
from services.ingest.shard import Executors, Outputs, Shard
from services.messages import ONLINE_VERSION, ForecastReply, ForecastRequest, ShownAlert, ZoneForecast
from services.store.series import NullSeries

__all__ = ["CONFIG", "AtOnce", "Kept", "after", "open_shard", "settings_of"]

T0, STEP_MS, HOUR = 1_646_092_800_000, 300_000, 12
"""2022-03-01 00:00 UTC; steps an hour."""
SNAPSHOT, POWER_CUT, END = 22 * HOUR, 24 * HOUR, 28 * HOUR
DEVICES = (("north", "z1"), ("north", "z2"), ("south", "z1"), ("north", "_site"))
CONFIG = """\
[stream]
step_s = 300
lateness_s = 30

[forecast]
horizons_min = [5, 60, 360]
targets = ["air_temp_c", "vpd_kpa"]

[[sites]]
name = "north"
timezone = "Europe/Amsterdam"
latitude = 52.0
longitude = 4.4

[[sites]]
name = "south"
timezone = "Europe/Madrid"
latitude = 36.8
longitude = -2.5
"""


class AtOnce(Executor):
    """Runs in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Kept:
    """Keeps what a shard publishes."""

    def __init__(self) -> None:
        self.forecasts: list[ZoneForecast] = []
        self.figures: dict[str, Any] = {}

    def publish(self, forecasts: Sequence[ZoneForecast]) -> None:
        self.forecasts += forecasts

    def put_past(self, site: str, zone: str, end_ms: list[int], values: dict[str, list[float | None]]) -> None:
        pass

    def put_alerts(self, alerts: Sequence[ShownAlert]) -> None:
        pass

    def put_stats(self, stats: dict[str, Any]) -> None:
        self.figures = stats


def settings_of(folder: Path) -> Settings:
    """The folder's own settings file, for the folder where it is now."""
    (folder / "hothouse.toml").write_text(f'data_dir = "{folder}"\n\n{CONFIG}')
    return load_settings(folder / "hothouse.toml")


def records(step: int) -> Iterator[NewRecord]:
    """What comes within a step; the same in every version of Python."""
    for place, (site, zone) in enumerate(DEVICES):
        draw = random.Random(step * 100 + place)
        at = T0 + step * STEP_MS
        sun = max(0.0, 1 - abs(step % 288 - 144) / 72)
        values = {"air_temp_c": 18 + 6 * sun + draw.random(), "rh_pct": 80 - 15 * sun - 3 * draw.random()}
        if zone == "_site":
            values = {"out_temp_c": 4 + 5 * sun + draw.random(), "out_radiation_w_m2": 400 * sun}
        made = Sample(site, zone, "climate", "9f3c62d1a07be845", step, at, {k: round(v, 2) for k, v in values.items()})
        yield NewRecord(site, "samples", at, encode_samples([made]))


def after(folder: Path, steps: range) -> tuple[Shard, Kept, SqliteLog]:
    """A shard started on ``folder`` that takes what comes within ``steps``, a step at a time."""
    settings, live_state = settings_of(folder), Kept()
    log = SqliteLog(folder / "log.sqlite", 1)
    shard = open_shard(settings, log, live_state)
    _drain(shard)
    for step in steps:
        log.append(list(records(step)))
        _drain(shard)
    return shard, live_state, log


def digests(forecasts: Sequence[ZoneForecast]) -> dict[str, str]:
    """What was said of each zone at each origin, as a sha256."""
    said = {}
    for one in forecasts:
        text = json.dumps([one["forecasts"], one["now"], one["degraded"]], sort_keys=True)
        said[f"{one['site']}/{one['zone']} {one['origin']}"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return said


def open_shard(settings: Settings, log: SqliteLog, live_state: Kept) -> Shard:
    """A shard that does everything at once, whose clock hardly moves."""

    def answer(request: ForecastRequest) -> ForecastReply:
        return ForecastReply(version=ONLINE_VERSION, quantiles=request["baseline"])

    clock = iter(range(10**9))
    outputs, executors = Outputs(NullSeries(), live_state), Executors(AtOnce(), AtOnce(), AtOnce())
    return Shard(settings, [0], log, answer, outputs, executors, lambda: next(clock) * 1e-6)


def _drain(shard: Shard) -> None:
    while shard.step():
        pass
    shard.step()
    shard.step()


def _make(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        there = Path(name)
        shard, _, log = after(there, range(SNAPSHOT))
        shard.flush()
        for step in range(SNAPSHOT, POWER_CUT):
            log.append(list(records(step)))
            _drain(shard)
        log.close()
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(folder / "data.tar.xz", "w:xz", preset=9) as tar:
            for path in sorted(there.rglob("*")):
                if path.is_file() and not path.name.startswith("."):
                    one = tarfile.TarInfo(str(path.relative_to(there)))
                    one.size = path.stat().st_size
                    tar.addfile(one, io.BytesIO(path.read_bytes()))
        _, live_state, log = after(there, range(POWER_CUT, END))
        log.close()
    (folder / "forecasts.json").write_text(json.dumps(list(digests(live_state.forecasts)), indent=1) + "\n")
    print(len(live_state.forecasts), "forecasts")
    print(np.__version__)


if __name__ == "__main__":
    _make(Path(sys.argv[1]))
