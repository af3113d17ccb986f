"""A shard that is not there. In a module of its own: who looks an actor up imports its module."""

from __future__ import annotations

from typing import Any

import numpy as np

from services.config import Settings
from services.forecast_spec import forecast_spec

__all__ = ["FakeShard"]


class FakeShard:
    """A shard that only counts refreshes and knows a climatology."""

    def __init__(self, settings: Settings) -> None:
        self.spec = forecast_spec(settings)
        self.refreshed = 0

    def refresh(self) -> None:
        self.refreshed += 1

    def count(self) -> int:
        return self.refreshed

    def baseline(self, site: str, zone: str, origin_ms: int, now: Any) -> Any:
        return np.full((len(now), len(self.spec.horizons_min), len(self.spec.targets), 3), 20, np.float32)
