"""Step 15 of the way of a reading: what a training was given, kept with its model, so that it can be run again.

A recipe is JSON. It names the rows by range and by their number in each zone: the history of a range does not change
once a step is closed, and where it did (a zone that was late, files that were lost) the numbers say so.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from models.spec import ForecastSpec, Place
from services.config import LearnSettings
from services.errors import TrainingError
from services.learn.training.job import Job
from services.learn.training.network_options import TUNABLE
from services.store.storage import StorageAddress

__all__ = ["differing_versions", "job_of", "recipe_of"]

PACKAGES = ("hothouse", "torch", "numpy", "lightgbm")
LEARN = {"epochs", "max_windows", "seed", "held_back", "timeout_s", "sharded", "fine_tuning_rate", *TUNABLE}
"""The settings that a training needs; others may name servers, and change."""


def recipe_of(job: Job, rows: Mapping[str, int], started_from: str, not_replayable: str = "") -> dict[str, Any]:
    """The recipe of a training on ``rows`` (``site/zone`` -> how many) that began with the weights of digest
    ``started_from``, empty if it began with random ones; ``not_replayable`` says why it cannot be run again to the
    same bytes, empty if it can.
    """
    given = asdict(job) | {"learn": job.learn.model_dump(mode="json", include=LEARN)}
    return {
        "job": given, "rows": dict(rows), "started_from": started_from, "versions": _versions(),
        "not_replayable": not_replayable,
    }  # fmt: skip


def job_of(recipe: Mapping[str, Any]) -> Job:
    """The job of a recipe.

    Raises :class:`TrainingError` if it cannot be run again, or if this code does not understand it.
    """
    if recipe.get("not_replayable"):
        raise TrainingError(f"it cannot be run again to the same weights: {recipe['not_replayable']}")
    try:
        if not (isinstance(recipe["rows"], Mapping) and isinstance(recipe["started_from"], str)):
            raise TypeError("rows or started_from")
        given = dict(recipe["job"])
        spec = {name: _tuples(value) for name, value in given.pop("spec").items()}
        return Job(
            spec=ForecastSpec(**spec),
            learn=LearnSettings.model_validate(given.pop("learn")),
            places={site: Place(**place) for site, place in given.pop("places").items()},
            files=tuple(given.pop("files")),
            where=StorageAddress(**where) if (where := given.pop("where", None)) else None,
            **given,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TrainingError(f"its recipe cannot be read: {error}") from error


def differing_versions(recipe: Mapping[str, Any]) -> list[str]:
    """The packages that had another version when the model was trained, as ``torch 2.12.0 then, 2.13.0 now``."""
    now = _versions()
    then: Mapping[str, str] = recipe.get("versions", {})
    return [f"{name} {then[name]} then, {now[name]} now" for name in now if then.get(name, now[name]) != now[name]]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a copy of the source that was not installed
            found[name] = "unknown"
    return found


def _tuples(value: Any) -> Any:
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value
