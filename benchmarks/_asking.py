"""A load generator: ``GET`` and ``POST /predict`` at a steady rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks._child import Child
from services.demo.probe import Probe

__all__ = ["Asked", "Asking"]

PROBES = 4
"""Threads that send GET; each waits for its answer before it asks again."""
POST_HZ = 5.0


@dataclass
class Asked:
    """What was answered between :meth:`Asking.begin` and :meth:`Asking.end`; latencies are those of GET."""

    latencies_ms: list[float] = field(default_factory=list)
    posted: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    versions: set[str] = field(default_factory=set)

    @property
    def sent(self) -> int:
        """Requests, GET and POST, failed ones included."""
        return len(self.latencies_ms) + self.posted + self.failures.total()

    @property
    def percentiles_ms(self) -> tuple[float, float]:
        """p50 and p99 of GET."""
        p50, p99 = np.percentile(self.latencies_ms, [50, 99])
        return float(p50), float(p99)


class Asking(Child):
    """A process that asks at ``rate_hz`` (GET) and 5 times a second (POST, with ``rows``), when it is told to."""

    def __init__(
        self, url: str, zones: Sequence[tuple[str, str]], rate_hz: float, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        super().__init__()
        self._pipe, other = self.spawn.Pipe()
        self.runs(_ask, url, zones, rate_hz, rows, other)

    def begin(self) -> None:
        """Returns once requests are being sent."""
        self._pipe.send("begin")
        self._pipe.recv()

    def end(self) -> Asked:
        """Stop, wait for the requests in flight, and tell."""
        self._pipe.send("end")
        asked: Asked = self._pipe.recv()
        return asked


def _ask(
    url: str, zones: Sequence[tuple[str, str]], rate_hz: float, rows: Sequence[Mapping[str, Any]], pipe: Connection
) -> None:
    while True:
        pipe.recv()
        getting = [Probe(url, zones, rate_hz / PROBES) for _ in range(PROBES)]
        posting = Probe(url, zones, POST_HZ, rows)
        probes = [*getting, posting]
        for probe in probes:
            probe.start()
        pipe.send("begun")
        pipe.recv()
        for probe in probes:
            probe.stop()
        failures: Any = sum((Counter(probe.result()["failures"]) for probe in probes), Counter())
        latencies_ms = [taken for probe in getting for taken in probe.latencies_ms]
        versions = {version for probe in probes for version in probe.versions}
        pipe.send(Asked(latencies_ms, len(posting.latencies_ms), failures, versions))
