"""What tests of the slow loop run it on: a cluster that trains nothing, and a clock that they advance."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.errors import ModelFilesError, TrainingError
from services.learn.loop.retrainer import Retrainer
from services.learn.loop.triggers import NewData
from services.learn.records import Candidate, TrainingRequest
from services.messages import ModelRow
from tests.services.learn.synthetic import make_candidate

__all__ = ["Clock", "FakeCluster", "Make"]

Make = Callable[..., Retrainer]
"""Makes a retrainer; what it is given are settings of ``learn``."""


class FakeCluster:
    """A cluster whose trainings come from ``results``: a candidate, or the error that it raises."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kind = folder, "network"
        self.days = 10.0
        self.results: list[bool | str | Exception] = []  # passed? or "shadow"
        self.orders: list[TrainingRequest] = []
        self.verdicts: list[bool | Exception] = []
        self.evidence: dict[str, Any] = {"rows": 40, "newest_ms": 10**12, "mae_ratio": {}}
        self.compared: list[tuple[str, str, str, int, float, bool]] = []
        self.now_ms = 500
        self.trains_on_all = False  # a candidate knows rows up to now; else up to 500
        self.rests = 0
        self.expected = False
        self.served: list[tuple[str, str]] = []
        self.events: list[dict[str, Any]] = []
        self.shown: tuple[list[ModelRow], dict[str, Any]] = ([], {})
        self.pointer = "online"
        self.drifts: list[tuple[int, str]] = []  # (row end, words)
        self.rows = 100
        self.needs_days = 0.0

    def news(self, since_ms: int) -> NewData:
        words = [said for at_ms, said in self.drifts if at_ms > since_ms]
        return NewData(drift=words[-1] if words else "", rows=self.rows)

    def history_days(self) -> float:
        return self.days

    def least_days(self) -> float:
        return self.needs_days

    def flush(self) -> dict[str, int]:
        return {"0": 17}

    def train(self, order: TrainingRequest, cancelled: threading.Event) -> Candidate:
        self.orders.append(order)
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        folder = self.folder / f"run{len(self.orders)}"
        candidate = make_candidate(folder, passed=result is True, shadow=result == "shadow", kind=self.kind)
        if self.trains_on_all:
            candidate["trained_on"]["known_to_ms"] = self.now_ms
        return candidate

    def new_copy(self) -> str:
        return str(self.folder / "made")

    def adopt(self, folder: str, copy: str) -> Candidate:
        if folder == "torn":
            raise ModelFilesError("the weights are torn")
        if folder == "typo":
            raise TrainingError("typo holds no model")
        return make_candidate(Path(copy), shadow=True, kind=self.kind)

    def longest_horizon_ms(self) -> int:
        return 0

    def newest_ms(self) -> int:
        return self.now_ms

    def compare(
        self, mine: str, theirs: str, theirs_name: str, from_ms: int, level: float, *, worse: bool
    ) -> dict[str, Any]:
        self.compared.append((Path(mine).name, Path(theirs).name, theirs_name, from_ms, level, worse))
        found = self.verdicts.pop(0)
        if isinstance(found, Exception):
            raise found
        return {"promote": found, "reason": "Words.", "evidence": self.evidence}

    def rest(self) -> None:
        self.rests += 1

    def serving(self) -> str:
        return self.pointer

    def serve(self, version: str, folder: str) -> None:
        self.pointer = version
        self.served.append((version, folder))

    def expect_network(self) -> None:
        self.expected = True

    def event(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def show(self, models: list[ModelRow], status: dict[str, Any]) -> None:
        self.shown = (models, status)

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events]


class Clock:
    """A clock that tests advance."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s
