"""The reference of ``benchmarks.ingest``: the same job, written a message at a time in plain Python."""

from __future__ import annotations

from statistics import median
from typing import Any

import msgspec

from edge.wire.reading import Sample
from edge.wire.vocabulary import VOCABULARY

__all__ = ["PlainPython"]

SAMPLE = msgspec.msgpack.Decoder(Sample)


class PlainPython:
    """A message at a time into dictionaries; device rows and zone rows (median over devices, held
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
