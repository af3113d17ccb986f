"""Step 13 of the way of a reading: grow trees as a Ray task, in a process of its own that ends with it.

This module imports neither LightGBM nor pyarrow: who only starts the task needs neither.
"""

from __future__ import annotations

import os

import ray

from services.learn.trees.forest_job import ForestJob

__all__ = ["run_forest_job"]


@ray.remote(num_cpus=0, max_calls=1, max_retries=0)
def run_forest_job(job: ForestJob) -> str:
    """:func:`services.learn.trees.growing.grow_forest`: the name of the forest that was kept."""
    os.nice(19)  # it gives way to forecasts and requests, and to the training of a network (10)
    from services.learn.trees.growing import grow_forest

    return grow_forest(job)
