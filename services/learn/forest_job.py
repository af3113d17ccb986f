"""Step 13 of the way of a reading: grow trees as a Ray task, in a process of its own that ends with it.

This module imports neither LightGBM nor pyarrow: who only starts the task needs neither.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import ray

from models.spec import ForecastSpec, Place

__all__ = ["ForestJob", "run_forest_job"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ForestJob:
    """What to grow trees from: the rows with ``after_ms < end_ms <= to_ms``."""

    storage: str
    spec: ForecastSpec
    places: Mapping[str, Place]  # site -> place
    files: tuple[str, ...]
    after_ms: int
    to_ms: int


@ray.remote(num_cpus=0, max_calls=1, max_retries=0)
def run_forest_job(job: ForestJob) -> str:
    """:func:`services.learn.forest.grow_forest`: the name of the forest that was kept."""
    os.nice(19)  # it gives way to forecasts and requests, and to the training of a network (10)
    from services.learn.forest import grow_forest

    return grow_forest(job)
