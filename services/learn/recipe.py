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
from services.learn.job import Job

__all__ = ["differing_versions", "job_of", "recipe_of"]

PACKAGES = ("hothouse", "torch", "numpy")


def recipe_of(job: Job, rows: Mapping[str, int], not_replayable: str = "") -> dict[str, Any]:
    """The recipe of a training on ``rows`` (``site/zone`` -> how many); ``not_replayable`` says why it cannot be
    run again to the same bytes, empty where it can.
    """
    given = asdict(job) | {"learn": job.learn.model_dump(mode="json")}
    return {"job": given, "rows": dict(rows), "versions": _versions(), "not_replayable": not_replayable}


def job_of(recipe: Mapping[str, Any]) -> Job:
    """The job of a recipe; raises :class:`TrainingError` where there is none that this code understands."""
    try:
        given = dict(recipe["job"])
        spec = {name: _tuples(value) for name, value in given.pop("spec").items()}
        return Job(
            spec=ForecastSpec(**spec),
            learn=LearnSettings.model_validate(given.pop("learn")),
            places={site: Place(**place) for site, place in given.pop("places").items()},
            files=tuple(given.pop("files")),
            **given,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TrainingError(f"its recipe cannot be read: {error}") from error


def differing_versions(recipe: Mapping[str, Any]) -> list[str]:
    """What was another version when the model was trained, as ``torch 2.12.0 then, 2.13.0 now``."""
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
