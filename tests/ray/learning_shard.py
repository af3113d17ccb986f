"""A shard that has written everything already, for tests of the learning loop. In a module of its own, as every actor
class of a test: who looks an actor up imports its module.
"""

from __future__ import annotations

from typing import Any

from tests.ray.fake_shard import FakeShard

__all__ = ["LearningShard"]


class LearningShard(FakeShard):
    """Its rows are what the test writes into the history; it tells of drifts that the test names."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.events: list[dict[str, Any]] = []

    def stats(self) -> dict[str, Any]:
        return {"backlog": 0, "behind": False, "events": self.events, "zone_rows": 0, "zones": ["demo/z1", "demo/z2"]}

    def flush(self) -> dict[str, int]:
        return {"0": 42}

    def drift(self, at_ms: int, words: str) -> None:
        self.events.append({"at_ms": at_ms, "site": "demo", "zone": None, "kind": "error drift", "words": words})
