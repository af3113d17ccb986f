"""``hothouse replay-training``: run a recorded training again, and see whether it gives the same weights."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from services.errors import TrainingError
from services.learn.job import Job
from services.learn.recipe import job_of

__all__ = ["replay_training"]


def replay_training(recipe: Mapping[str, Any], files: tuple[str, ...]) -> str:
    """The SHA-256 of the weights that a recipe gives now; a Ray runtime must be there.

    ``files`` are those of the history that may hold the recipe's range, in case the recorded ones are gone. Raises
    :class:`TrainingError` where it cannot be run again: it says so itself, or the history is no longer what it was.
    """
    if recipe.get("not_replayable"):
        raise TrainingError(f"it cannot be run again to the same weights: {recipe['not_replayable']}")
    job = job_of(recipe)
    if not all(Path(name).exists() for name in job.files):
        job = replace(job, files=files)
    with tempfile.TemporaryDirectory(prefix="hothouse-replay-") as folder:
        running = _run.remote(replace(job, storage=folder), dict(recipe["rows"]))
        try:
            return str(ray.get(running))
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, TrainingError) else TrainingError(str(error)) from error


@ray.remote(num_cpus=0, max_calls=1, max_retries=0)
def _run(job: Job, rows: dict[str, int]) -> str:
    """In a process of its own with the same options as a retraining's, so that torch has as many threads."""
    from services.learn.challenger import train_again

    return train_again(job, rows)
