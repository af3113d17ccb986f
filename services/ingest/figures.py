"""Step 4 of the way of a reading, for operators: what a shard has done, how fast, and what fails now."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from services.ingest.partition import Partition
from services.messages import LeftZone

__all__ = ["Failures", "Rate", "figures"]

_log = logging.getLogger(__name__)

RATE_WINDOW_S = 5.0


class Failures:
    """Counts failures of what is tried again, and shows each until it works."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._now: dict[str, str] = {}

    def failed(self, what: str, error: BaseException) -> None:
        """``what`` failed once more; the first time in a row is logged."""
        if what not in self._now:
            _log.warning("%s failed: %s", what, error)
        self.counts[what] += 1
        self._now[what] = f"{what}: {type(error).__name__}: {str(error)[:300]}"

    def works(self, what: str) -> None:
        """``what`` works (again)."""
        self._now.pop(what, None)

    @property
    def last_error(self) -> str:
        """What fails now; empty when all works."""
        return "; ".join(list(self._now.values()))


class Rate:
    """Samples a second over the last few seconds."""

    def __init__(self, now_s: float) -> None:
        self._since_s, self._count, self._last = now_s, 0, 0.0

    def add(self, samples: int) -> None:
        """Count them."""
        self._count += samples

    def value(self, now_s: float) -> float:
        """The rate; before the first window is over, that of what has passed of it."""
        elapsed_s = now_s - self._since_s
        if elapsed_s >= RATE_WINDOW_S:
            self._last = self._count / elapsed_s
            self._since_s, self._count = now_s, 0
        elif self._last == 0 and elapsed_s > 0:
            return round(self._count / elapsed_s, 1)
        return round(self._last, 1)


def figures(partitions: Collection[Partition]) -> dict[str, Any]:
    """What was taken and made in these partitions, since the beginning of the log."""
    counts: Counter[str] = sum((p.counts for p in partitions), Counter())
    rejected: Counter[str] = sum((p.rejected for p in partitions), Counter())
    values_refused: Counter[str] = sum((p.values_refused for p in partitions), Counter())
    told: Counter[str] = sum((p.watch.counts for p in partitions), Counter())
    samples = counts["accepted"] + counts["duplicates"] + counts["late"] + sum(rejected.values())
    gone = {site for p in partitions for site in p.windows.sites if p.windows.zones(site).gone}
    watermarks = {site: step.end_ms for p in partitions for site, step in p.latest.items() if site not in gone}
    return {
        "samples": samples, "accepted": counts["accepted"], "duplicates": counts["duplicates"],
        "late": counts["late"], "rejected": dict(rejected), "values_refused": dict(values_refused),
        "plan_records": counts["plan_records"], "event_records": counts["event_records"],
        "plans": counts["plans"], "plans_repeated": counts["plans_repeated"],
        "copied_records": counts["copied_records"],
        "rows": counts["zone_rows"], "zone_rows": counts["zone_rows"], "device_rows": counts["rows"],
        "steps": counts["steps"], "forecasts": counts["forecasts"],
        "watermark_ms": watermarks, "origin_ms": max(watermarks.values(), default=None),
        "stream_ms": {site: at for p in partitions for site, at in p.stream_ms.items() if site not in gone},
        "zones": sorted(f"{site}/{zone}" for p in partitions for site, zone in p.zones),
        "left": [LeftZone(site=s, zone=z, left_ms=ms) for p in partitions for (s, z), ms in p.left_ms.items()],
        "first_rows": [row for p in partitions for row in p.first_rows()],
        "sites": sorted(watermarks), "scores": [p.scores.table() for p in partitions],
        "sensor_faults": {kind: n for kind, n in told.items() if not kind.endswith("drift")},
        "sensor_faults_now": sum(p.faults_now() for p in partitions),
        "drifts": {kind: n for kind, n in told.items() if kind.endswith("drift")},
        "events": [asdict(event) for p in partitions for event in p.watch.events],
        "offsets": {str(p.number): p.offset for p in partitions},
    }  # fmt: skip
