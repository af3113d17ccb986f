"""Steps 12-14 of the way of a reading: one retraining as a Ray task.

It runs in a process of its own that ends with it, because Ray Data, Ray Train and torch, or what grows trees, need most
of a gigabyte that the retrainer must not hold while nothing is trained. So this module imports none of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from models.spec import ForecastSpec, Place
from services.config import LearnSettings

__all__ = ["TRAININGS", "Job", "run_job"]

RETRIES = 2
NICE, NICEST = 10, 19
"""What is not a network's training gives way to one, too."""
TRAININGS = "train"
"""Folder of the storage that holds what trainings keep on their way."""


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
    kind: str = "network"  # of the model to train


@ray.remote(num_cpus=0, max_calls=1, max_retries=RETRIES)
def run_job(job: Job) -> dict[str, Any]:
    """:func:`services.learn.challenger.learn`: a :class:`services.learn.registry.Candidate`.

    When its process or node is lost Ray runs it again, on another node if need be, and the training goes on from the
    newest epoch that it kept; an error that it raises is not tried again, nor one that was cancelled.
    """
    os.nice(NICE if job.kind == "network" else NICEST)  # it gives way to forecasts and requests
    from services.learn.challenger import learn
    from services.learn.reservations import release_reservations

    release_reservations(Path(job.storage, TRAININGS))
    return learn(job)
