"""Steps 12 to 14 of the way of a reading: one retraining as a Ray task, and how its result is waited for.

It runs in a process of its own that ends with it. Ray Data, Ray Train and torch, or the tree library, need most of a
gigabyte, which the retrainer must not hold while nothing is trained. So this module imports none of them.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import ray

from models.families import FAMILIES
from services.errors import HothouseError, TrainingError
from services.learn.records import Candidate
from services.learn.training.job import Job

__all__ = ["result_of", "run_job", "this_runtime"]

RETRIES = 2
MORE_MEMORY = "Give its machine more memory, or lower learn.window_days or learn.max_windows."
NICE, NICEST = 10, 19
"""Trainings of other kinds than networks give way to them, too."""


@ray.remote(num_cpus=0, max_calls=1, max_retries=RETRIES)
def run_job(job: Job) -> Candidate:
    """:func:`services.learn.training.challenger.learn`, or, for what is fine-tuned to forecasts,
    :func:`services.learn.training.fine_tuning.tuned_challenger.learn_tuned`.

    When its process or node is lost Ray runs it again, on another node if need be, and the training goes on from the
    newest epoch that it kept; an error that it raises is not tried again, nor one that was cancelled.
    """
    known = FAMILIES.get(job.kind)
    os.nice(NICE if known and known.by_ray else NICEST)  # it gives way to forecasts and requests
    if known and known.takes == "forecasts":
        from services.learn.training.fine_tuning.tuned_challenger import learn_tuned

        return learn_tuned(job)
    from services.learn.training.challenger import learn
    from services.learn.training.kept_runs import TRAININGS, KeptRuns
    from services.learn.training.placement_groups import release_reservations

    if known and known.by_ray:  # one at a time; trees may be trained beside it, and would take its workers away
        release_reservations(KeptRuns(Path(job.storage, TRAININGS), job.where))
    return learn(job)


def this_runtime() -> dict[str, Any]:
    """Ray Train looks its own runtime up by address: with a second one on the machine it needs the address."""
    return {"env_vars": {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}}


def result_of(running: Any, timeout_s: float, cancelled: threading.Event, what: str) -> Any:
    """Wait for a task's result; raises :class:`TrainingError`, or our own error that the task raised.

    The task is ended when it takes longer than ``timeout_s``, or soon after ``cancelled`` is set.
    """
    deadline_s = time.monotonic() + timeout_s
    while not ray.wait([running], timeout=0.25)[0]:
        if cancelled.is_set() or time.monotonic() > deadline_s:
            ray.cancel(running, force=True)
            late = f"{what} took longer than {timeout_s:g} s and was ended"
            raise TrainingError("the system stops" if cancelled.is_set() else late)
    try:
        return ray.get(running)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, HothouseError):
            raise error.cause from error
        raise TrainingError(f"{what} failed: {type(error.cause).__name__}: {error.cause}") from error
    except ray.exceptions.OutOfMemoryError as error:
        raise TrainingError(f"{what} was ended because memory ran out", MORE_MEMORY) from error
    except ray.exceptions.RayError as error:
        raise TrainingError(f"the process of {what} was lost: {str(error).splitlines()[0]}") from error
