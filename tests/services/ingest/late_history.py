"""A stream whose first steps come late, as an import of history, for tests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from edge.log import NewRecord
from edge.log.memory import MemoryLog
from edge.wire.topic import SITE_ZONE
from edge.wire.vocabulary import VOCABULARY
from services.config import StreamSettings
from services.forecast_spec import forecast_spec
from services.ingest.shard import Shard
from services.ingest.windows.partition_windows import PartitionWindows
from services.store.history import History, zone_table
from services.store.imports.import_job import open_jobs
from tests.services.ingest.rig import Rig, filled
from tests.services.ingest.samples import STEP, T0, new_records, sample

__all__ = ["DAY", "PAST", "finish", "history", "in_order", "late", "rows_made", "rows_of", "stream"]

DAY = 288
PAST = 100
"""Steps that come late."""


def stream(first: int, last: int, zones: Sequence[str] = ("z1", "z2")) -> Iterator[NewRecord]:
    """Steps ``first`` to ``last``, of a day's course that is not the same each day."""
    for n in range(first, last):
        at, turn = T0 + n * STEP, 2 * math.pi * n / DAY
        batch = [
            sample(at, n, zone, air_temp_c=20 + 4 * math.sin(turn) + n % 7 / 3, rh_pct=70.0 - n % 11, co2_ppm=500.0)
            for zone in zones
        ]
        batch.append(sample(at, n, SITE_ZONE, "ws", out_temp_c=4.0 + n % 5))
        yield from new_records([batch])


def rows_of(rig: Rig, until_step: int) -> pa.Table:
    """The history's zone rows that end by then."""
    return history(rig).read(None, T0 + until_step * STEP)


def rows_made(records: Sequence[NewRecord], until_step: int) -> pa.Table:
    """The zone rows that a system with these records has by then; nothing is learned for it."""
    log, stream = filled(list(records)), StreamSettings()
    windows = PartitionWindows(stream.step_s * 1000, stream.lateness_s * 1000, stream.idle_s * 1000, VOCABULARY)
    steps = windows.feed(log.read(0, 0, log.end_offset(0))).steps
    table = zone_table(windows.channels, [step for step in steps if step.end_ms <= T0 + until_step * STEP])
    return table.sort_by([("zone", "ascending"), ("end_ms", "ascending")])


def history(rig: Rig) -> History:
    return History(rig.settings.storage_folder, forecast_spec(rig.settings).channels)


def finish(rig: Rig, shard: Shard) -> None:
    """Let the shard work until nothing is left to do."""
    rig.clock.tick_s = 0.05
    for _ in range(2000):
        busy = shard.step()
        if not busy and all(job.note()["state"] == "done" for job in open_jobs(rig.settings.storage_folder)):
            break
    shard.flush()


def late(folder: Path, log: MemoryLog | None = None) -> Rig:
    """A system that began with the last steps."""
    return Rig(folder, log or filled(list(stream(PAST, PAST + 30))))


def in_order(folder: Path) -> Rig:
    """A system that had all steps in their order, and has done all that there was to do."""
    rig = Rig(folder, filled(list(stream(0, PAST + 60))))
    finish(rig, rig.shard())
    return rig
