"""A steady ``GET /predict`` against the running system: how many fail, and how long the others take."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import httpx
import numpy as np

__all__ = ["Probe", "ProbeResult"]

TIMEOUT_S = 1.0


class ProbeResult(TypedDict):
    """How many requests were sent and failed, by reason; percentiles are ``None`` before the first answer."""

    sent: int
    failed: int
    failures: dict[str, int]
    p50_ms: float | None
    p99_ms: float | None


class Probe:
    """Asks for each zone in turn, ``rate_hz`` times a second, from a thread of its own.

    With ``rows`` it asks what follows from them (``POST``), which runs the network.

    A request fails when it does not answer within a second, or with anything but 200, or names no single version.
    Requests that fall behind are sent late, not left out.
    """

    def __init__(
        self,
        url: str,
        zones: Sequence[tuple[str, str]],
        rate_hz: float = 20.0,
        rows: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self._url = url
        self._zones = list(zones)
        self._rows = rows
        self._period_s = 1.0 / rate_hz
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self._latencies_ms: list[float] = []
        self._failures: Counter[str] = Counter()
        self.versions: Counter[str] = Counter()

    def start(self) -> None:
        """Begin asking."""
        self._thread.start()

    def stop(self) -> None:
        """Stop asking and wait for the request in flight."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(TIMEOUT_S + 1)

    @property
    def latencies_ms(self) -> list[float]:
        """How long each answer took."""
        return list(self._latencies_ms)

    def result(self) -> ProbeResult:
        """What came of the requests so far."""
        done = np.array(self._latencies_ms)
        p50_ms, p99_ms = np.percentile(done, [50, 99]).round(2).tolist() if done.size else (None, None)
        failed = sum(self._failures.values())
        return ProbeResult(
            sent=int(done.size) + failed, failed=failed, failures=dict(self._failures), p50_ms=p50_ms, p99_ms=p99_ms
        )

    def _run(self) -> None:
        due_s = time.monotonic()
        with httpx.Client(base_url=self._url, timeout=TIMEOUT_S, trust_env=False) as client:
            for site, zone in itertools.cycle(self._zones):
                if self._stop.wait(max(0.0, due_s - time.monotonic())):
                    return
                due_s += self._period_s
                self._ask(client, site, zone)

    def _ask(self, client: httpx.Client, site: str, zone: str) -> None:
        started_s = time.perf_counter()
        try:
            if self._rows is None:
                answer = client.get("/predict", params={"site": site, "zone": zone})
            else:
                answer = client.post("/predict", json={"site": site, "zone": zone, "rows": self._rows})
            version = answer.json().get("model_version") if answer.status_code == httpx.codes.OK else None
        except (httpx.HTTPError, ValueError) as error:
            self._failures[type(error).__name__] += 1
            return
        if not isinstance(version, str) or not version:
            self._failures[f"status {answer.status_code}"] += 1
            return
        self.versions[version] += 1
        self._latencies_ms.append((time.perf_counter() - started_s) * 1000)
