"""Step 13 of the way of a reading: what a growing of trees is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from models.spec import ForecastSpec, Place

__all__ = ["ForestJob"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ForestJob:
    """What to grow trees from: the rows with ``after_ms < end_ms <= to_ms``."""

    storage: str
    spec: ForecastSpec
    places: Mapping[str, Place]  # site -> place
    files: tuple[str, ...]
    after_ms: int
    to_ms: int
