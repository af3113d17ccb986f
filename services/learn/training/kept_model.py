"""Step 14 of the way of a reading: a challenger's artefact in its folder, and the table of its errors."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from models import artefact
from models.families import Model
from models.spec import ForecastSpec
from services.errors import TrainingError
from services.learn.training.job import Job
from services.messages import F32
from services.store.storage import forget_folder, keep_folder

__all__ = ["ErrorTable", "error_table", "folder_of", "keep"]

ErrorTable = dict[str, dict[str, dict[str, float]]]
"""Target -> horizon in minutes -> whose -> mean absolute error in the target's unit."""


def folder_of(job: Job) -> Path:
    """Where the artefact of a job lies on this machine."""
    return Path(job.storage, "models", job.name)


def keep(
    job: Job, model: Model, golden: Any, seed: int, trained_on: Mapping[str, Any], errors: ErrorTable
) -> dict[str, Any]:
    """Save the artefact and read it back, for what cannot be loaded here is no model; its manifest.

    Raises :class:`TrainingError`, and leaves no folder, where it cannot be kept.
    """
    folder = folder_of(job)
    try:
        # Of a run of this job that was killed at its end: nobody has heard of it.
        shutil.rmtree(folder, ignore_errors=True)
        forget_folder(job.where, folder)
        manifest = artefact.save(
            folder, model, golden, trained_on=trained_on, seed=seed, metrics={"held_back_mae": errors},
            code_version=version("hothouse"), kind=job.kind,
        )  # fmt: skip
        artefact.load(folder, job.spec.hash).verify_golden()
        keep_folder(job.where, folder)
    except (artefact.ArtefactError, OSError, ValueError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise TrainingError(f"the challenger's artefact cannot be kept: {error}") from error
    return manifest


def error_table(means: Mapping[str, F32], spec: ForecastSpec) -> ErrorTable:
    """Of mean absolute errors ``[H, M]`` by whose they are; cells without a pair are left out."""
    return {
        target: {
            str(minutes): {name: round(float(mae[h, m]), 5) for name, mae in means.items() if np.isfinite(mae[h, m])}
            for h, minutes in enumerate(spec.horizons_min)
        }
        for m, target in enumerate(spec.targets)
    }
