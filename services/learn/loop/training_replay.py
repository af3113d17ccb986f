"""``hothouse replay-training``: run a recorded training again, and see whether it gives the same weights."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from services.learn.training.job import Job
from services.learn.training.recipe import job_of
from services.learn.training.task import result_of, this_runtime

__all__ = ["replay_training"]


def replay_training(recipe: Mapping[str, Any], files: tuple[str, ...]) -> str:
    """The SHA-256 of the weights that a recipe gives now; a Ray runtime must be there.

    ``files`` are those of the history that may hold the recipe's range, in case the recorded ones are gone. Raises
    our own errors where it cannot be run again: it says so itself, or the history is no longer what it was.
    """
    job = job_of(recipe)
    if job.where is not None or not all(Path(name).exists() for name in job.files):
        job = replace(job, files=files)
    with tempfile.TemporaryDirectory(prefix="hothouse-replay-") as folder:
        started = _run.options(runtime_env=this_runtime())
        running = started.remote(replace(job, storage=folder), dict(recipe["rows"]), recipe["started_from"])
        return str(result_of(running, job.learn.timeout_s, threading.Event(), "the training"))


@ray.remote(num_cpus=0, max_calls=1, max_retries=0)
def _run(job: Job, rows: dict[str, int], started_from: str) -> str:
    """In a process of its own with the same options as a retraining's, so that torch has as many threads."""
    from services.learn.training.challenger import train_again

    return train_again(job, rows, started_from)
