"""Steps 12-14 of the way of a reading: one retraining as a Ray task.

It runs in a process of its own that ends with it, because Ray Data, Ray Train and torch need most of a gigabyte that
the retrainer must not hold while nothing is trained. So this module imports none of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray

from models.spec import ForecastSpec, Place
from services.config import LearnSettings

__all__ = ["Job", "run_job"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Everything that a retraining needs to know; its rows are those with ``after_ms < end_ms <= to_ms``."""

    name: str
    storage: str
    spec: ForecastSpec
    learn: LearnSettings
    places: Mapping[str, Place]  # site -> place
    files: tuple[str, ...]
    after_ms: int
    to_ms: int
    log_offsets: Mapping[str, int]
    champion: str  # ONLINE_VERSION, or "v3" and so on
    champion_folder: str  # empty without a network
    use_gpu: bool
    workers: int  # of Ray Train; 0: in the process of the job
    level: float = 0.1  # the chance of a mistake that the gate may take
    margin: float = 0.0  # by which it must be better, as a share of its rivals' errors
    shadow: bool = False  # it is judged on live rows afterwards
    all_rows: bool = False  # none is held back: only with ``shadow``


@ray.remote(num_cpus=0, max_calls=1, max_retries=0)
def run_job(job: Job) -> dict[str, Any]:
    """:func:`services.learn.challenger.learn`: a :class:`services.learn.registry.Candidate`."""
    os.nice(10)  # it gives way to forecasts and requests
    from services.learn.challenger import learn

    return learn(job)
