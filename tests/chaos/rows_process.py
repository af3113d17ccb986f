"""A writer of rows in a process of its own, which says what it is doing (told_child.py). No Ray, no torch.

``python -m tests.chaos.rows_process ADDRESS flush FIRST LAST`` flushes step after step, and compacts meanwhile in
another thread, as a shard does; ``ADDRESS migrate`` brings an old history over.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from models.features.plans import Plan
from services.errors import HistoryError, HothouseError, StorageAwayError
from services.ingest.snapshots.snapshot import Snapshots
from services.store.history import History
from services.store.plan_history import KeptPlan, PlanHistory
from services.store.rows import DeviceRow, SiteStep
from services.store.storage import Storage, StorageAddress, open_storage
from services.store.tables.migration import bring_over
from tests.chaos.told_child import say

__all__ = ["CHANNELS", "COMPACTED_MS", "SITES", "STEP_MS", "ZONES", "plan_of", "steps_of"]

CHANNELS = ("air_temp_c", "rh_pct")
ZONES = ("z1", "z2", "z3")
STEP_MS = 1_800_000
SITES = {"north": 1_646_092_800_000, "south": 1_648_771_200_000}
"""Each with the time before its first row: 2022-03-01, a month that is over, and 2022-04-01, one that is not."""
COMPACTED_MS = SITES["south"] + 86_400_000

TRIES = 5


def steps_of(n: int) -> list[SiteStep]:
    """The ``n``-th step of both sites."""
    values = np.array([[n + zone / 4, 50 + zone] for zone in range(len(ZONES))], np.float32)
    devices = [DeviceRow(zone, "climate", "air_temp_c", 3, n, n - 1, n + 1, n + 0.5) for zone in ZONES]
    return [
        SiteStep(0, site, before_ms + (n + 1) * STEP_MS, ZONES, values, np.zeros_like(values), devices)
        for site, before_ms in SITES.items()
    ]


def plan_of(n: int, site: str) -> KeptPlan:
    """The plan that a site got with its ``n``-th step, of two values."""
    issued_ms = SITES[site] + (n + 1) * STEP_MS
    times = np.array([issued_ms + STEP_MS, issued_ms + 2 * STEP_MS])
    return KeptPlan(site, n, Plan("weather", "weather", issued_ms, {"out_temp_c": (times, np.array([n, n + 1]))}))


def patiently(act: Callable[[], object]) -> None:
    """As a shard does: what the storage does not do is tried again. The time of a process that was stopped is over for
    a request, too.
    """
    for left in reversed(range(TRIES)):
        try:
            act()
            return
        except (StorageAwayError, HistoryError):
            if not left:
                raise


def flush(storage: Storage, first: int, last: int) -> None:
    """Steps ``first`` to ``last``, one after the other, each durable before it is said to be."""
    snapshots = Snapshots(storage, 0, "snapshots")  # the partition is ours; what a compaction asks, too
    history, plans = History(storage, CHANNELS), PlanHistory(storage)

    def compact(n: int) -> None:
        say("compaction begins", n)
        for table in (history, plans):
            patiently(lambda table=table: table.compact(COMPACTED_MS, [0], snapshots.check))  # type: ignore[misc]
        say("compaction ends", n)

    compacting: Future[None] | None = None
    with ThreadPoolExecutor(1) as merger:
        for n in range(first, last + 1):
            say("flush begins", n)
            history.add(steps_of(n))
            patiently(lambda: history.flush(lambda _: snapshots.check()))
            kept = [plan_of(n, site) for site in SITES]
            patiently(lambda kept=kept: plans.put(0, kept, snapshots.check))  # type: ignore[misc]
            say("flush ends", n)
            if compacting is None or compacting.done():
                if compacting is not None:
                    compacting.result()
                compacting = merger.submit(compact, n)


def migrate(storage: Storage) -> None:
    """An old history becomes tables."""
    say("migration begins")
    bring_over(storage)
    say("migration ends")


def main(address: str, what: str, *numbers: str) -> None:
    """Do it. What the system says of an error is all that is said."""
    storage = open_storage(StorageAddress(**json.loads(address)))
    try:
        if what == "flush":
            flush(storage, *map(int, numbers))
        else:
            migrate(storage)
    except HothouseError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
