"""Steps 14 and 17 of the way of a reading: two models are compared on the same live rows, in a process of its own.

A model's forecast depends on rows alone, and on a climatology (for trees: on regressors) that older rows have warmed
up. So a challenger in shadow answers no requests and runs in no shard. Here it forecasts every row that the history has
got since, and so does the champion. What the online learners would make of either forecast is not compared. A
challenger that is slow, or breaks the process that it runs in, disturbs nobody.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from models.spec import ForecastSpec, Place
from services.errors import ModelFilesError, StorageAwayError
from services.learn.records import LiveVerdict
from services.learn.training import dataset
from services.messages import F32

if TYPE_CHECKING:
    from models import artefact
from services.store.storage import StorageAddress, fetch_folder

__all__ = ["Comparison", "ComparisonActor"]

KEPT_MODELS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two models, and the rows to compare them on: those with ``from_ms < end_ms <= to_ms`` are forecast.

    Rows from ``after_ms`` on warm the climatology up. A folder is that of an artefact, empty for the climatology.
    ``worse``: the question is whether ``mine`` is worse (``models.evaluation.gate.judge_worse``), not whether it is
    better.
    """

    spec: ForecastSpec
    places: Mapping[str, Place]  # site -> place
    files: tuple[str, ...]
    after_ms: int
    from_ms: int
    to_ms: int
    mine: str
    theirs: str
    theirs_name: str
    level: float
    margin: float = 0.0
    worse: bool = False
    where: StorageAddress | None = None  # the storage that ``files`` are URLs of; None: they are paths


class ComparisonActor:
    """A Ray actor that keeps the models that it has loaded; torch is imported with the first."""

    def __init__(self) -> None:
        os.nice(10)  # it gives way to forecasts and requests
        self._models: dict[str, artefact.Artefact] = {}

    def compare(self, asked: Comparison) -> LiveVerdict:
        """The gate's verdict on the two.

        If ``theirs`` cannot be loaded, the climatology stands in for it, and its name in the verdict says so. Raises
        :class:`ModelFilesError` if ``mine`` cannot be loaded, :class:`StorageAwayError` where nobody knows of either.
        """
        from models.evaluation.forecast_errors import evaluate
        from models.evaluation.gate import judge, judge_worse
        from models.families import takes_of
        from services.learn.training.examples import EVALUATED_ORIGINS, cases_of, origins_after, spread

        first = self._load(asked.mine, asked.spec, asked.where)
        takes, name = takes_of(first.kind), asked.theirs_name
        mine: Callable[[Any], F32] = first.model.answer
        theirs: Callable[[Any], F32] = _climatology
        if asked.theirs:
            try:
                second = self._load(asked.theirs, asked.spec, asked.where)
                if takes_of(second.kind) != takes:
                    raise ModelFilesError(f"it takes {takes_of(second.kind)}")
                theirs = second.model.answer
            except ModelFilesError:  # of another schema, since settings changed, or damaged: it can be no rival
                name = f"the climatology ({asked.theirs_name} cannot be loaded)"
        whole = dataset.describe(asked.files, asked.after_ms, asked.to_ms, asked.where)
        cases = cases_of(whole, asked.files, asked.spec, asked.places, takes, asked.where)
        origins = spread(origins_after(asked.from_ms + 1, cases), EVALUATED_ORIGINS)
        ours, rivals = (evaluate(predict, cases, origins) for predict in (mine, theirs))
        verdict = (
            judge_worse(ours, rivals, name, asked.level)
            if asked.worse
            else judge(ours, rivals, name, asked.level, asked.margin)
        )
        return LiveVerdict(promote=verdict.promote, reason=verdict.reason, evidence=verdict.evidence)

    def examine(self, folder: str, spec: ForecastSpec, where: StorageAddress | None = None) -> dict[str, Any]:
        """The manifest of an artefact that can serve; raises :class:`ModelFilesError` if it cannot, and why."""
        return dict(self._load(folder, spec, where).manifest)

    def _load(self, folder: str, spec: ForecastSpec, where: StorageAddress | None = None) -> artefact.Artefact:
        from models import artefact

        if folder not in self._models:
            try:
                fetch_folder(where, Path(folder))
                model = artefact.load(Path(folder), spec.hash)
                model.verify_golden()
            except StorageAwayError:
                raise
            except (artefact.ArtefactError, OSError, ValueError, RuntimeError, IndexError, TypeError) as error:
                raise ModelFilesError(str(error)) from error
            if len(self._models) >= KEPT_MODELS:
                self._models.clear()
            self._models[folder] = model
        return self._models[folder]


def _climatology(inputs: Any) -> F32:
    return np.asarray(inputs.baseline)
