"""Steps 12-14 of the way of a reading: one retraining as a Ray task.

It runs in a process of its own that ends with it. Ray Data, Ray Train and torch, or the tree library, need most of a
gigabyte, which the retrainer must not hold while nothing is trained. So this module imports none of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import ray

from models.families import FAMILIES
from services.learn.records import Candidate
from services.learn.training.job import Job

__all__ = ["run_job"]

RETRIES = 2
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
