"""Steps 12-14 of the way of a reading: one retraining, from the history to a judged challenger.

Runs in the process of :func:`services.learn.training.task.run_job`; the retrainer itself never imports this module.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from models import artefact
from models.evaluation.gate import Verdict, judge
from models.features.inputs import Inputs
from models.network.quantile import QuantileNetwork
from models.network.training import Errors, FitResult, WindowSet, evaluate
from models.spec import ForecastSpec
from services.config import LearnSettings
from services.errors import TrainingError
from services.learn.training import dataset
from services.learn.training.dataset import DataRange
from services.learn.training.examples import EVALUATED_ORIGINS, origins_after, spread, zone_places
from services.learn.training.job import Job
from services.learn.training.network_options import network_options, training_config
from services.learn.training.recipe import recipe_of
from services.learn.training.reference_model import ReferenceModel, reference_model_of
from services.learn.training.trainer import TrainPlan, train
from services.messages import I64

__all__ = ["learn", "train_again"]

GOLDEN_EXAMPLES = 4
ALL_ROWS = "It was trained on all rows, also those since the drift; live rows judge it."


def learn(job: Job) -> dict[str, Any]:
    """Train a challenger, measure it beside the champion and the baselines, judge it, and keep its artefact.

    Returns a :class:`services.learn.promotion.registry.Candidate`. Whatever is no usable model raises
    :class:`TrainingError` (or :class:`HistoryError`) and leaves no artefact: weights or forecasts that are not finite,
    a history too short, a file that does not give its golden output again. A champion that has seen the held-back rows
    leaves fewer to compare on; where they are too few the gate refuses.
    """
    whole = dataset.describe(job.files, job.after_ms, job.to_ms)
    trained_on, cut_ms = _trained_on(job, whole)
    reference = reference_model_of(job, cut_ms, _options(job.learn))
    fitted = _fit(job, trained_on, cut_ms, reference)
    network = _network(job, fitted)
    windows, origins = _compared_on(job, whole, cut_ms)
    compared = spread(origins[windows.times(origins) >= reference.from_ms], EVALUATED_ORIGINS)
    challenger, champion = (evaluate(predict, windows, compared) for predict in (network.predict, reference.predict))
    verdict = judge(challenger, champion, reference.name, job.level, job.margin)
    if verdict.evidence.get("missing"):
        raise TrainingError(verdict.reason)
    reason = ALL_ROWS if job.all_rows else verdict.reason
    shadow = job.shadow and (job.all_rows or not _hopeless(verdict))

    lineage = {**trained_on.as_dict(), "held_back_until": whole.as_dict()["to"], "known_to_ms": whole.to_ms}
    errors = _table(challenger, champion, job.spec)
    golden = windows.inputs(spread(origins, GOLDEN_EXAMPLES))
    manifest = _keep(job, network, golden, {**lineage, "log_offsets": dict(job.log_offsets)}, errors)
    return {
        "folder": str(_folder(job)),
        "weights_sha256": manifest["weights_sha256"],
        "trained_on": lineage,
        "log_offsets": dict(job.log_offsets),
        "params": {
            "seed": job.learn.seed, "epochs": job.learn.epochs, "max_windows": job.learn.max_windows,
            "workers": job.workers, "use_gpu": job.use_gpu, "schema_hash": job.spec.hash,
            "champion": job.champion, "measured_against": reference.name, "warm_start": reference.initial_state is not
        None, },
        "held_back_mae": errors,
        "curves": _curves(fitted),
        "recipe": recipe_of(job, whole.rows, _started_from(reference), _not_replayable(job, fitted)),
        "evidence": {} if job.all_rows else verdict.evidence,
        "shadow": shadow,
        "passed": verdict.promote and not shadow,
        "reason": f"{reason} {reference.note}".strip(),
        "forced": False,
    }  # fmt: skip


def train_again(job: Job, rows: Mapping[str, int], started_from: str) -> str:
    """Train as :func:`learn` does, and nothing else; the SHA-256 of the weights.

    Raises :class:`TrainingError` where the range no longer holds ``rows`` (``site/zone`` -> how many), or where the
    weights that it began with, of digest ``started_from`` (empty: random ones), are gone.
    """
    whole = dataset.describe(job.files, job.after_ms, job.to_ms)
    if dict(whole.rows) != dict(rows):
        changed = sorted(name for name in {*whole.rows, *rows} if whole.rows.get(name) != rows.get(name))
        was, now = (sum(found.values()) for found in (rows, whole.rows))
        raise TrainingError(
            f"the history in that range has changed since the training: {was} rows then, {now} now "
            f"({', '.join(changed[:3])})"
        )
    trained_on, cut_ms = _trained_on(job, whole)
    reference = reference_model_of(job, cut_ms, _options(job.learn))
    if not started_from:
        reference = replace(reference, initial_state=None)
    elif _started_from(reference) != started_from:
        raise TrainingError(f"it began with the weights of {job.champion}, which no longer exist. {reference.note}")
    return artefact.digest(_network(job, _fit(job, trained_on, cut_ms, reference)).arrays())


def _started_from(reference: ReferenceModel) -> str:
    return "" if reference.initial_state is None else artefact.digest(reference.initial_state)


def _trained_on(job: Job, whole: DataRange) -> tuple[DataRange, int]:
    """The rows to train on, and the end of the newest of them: later ones are held back."""
    if job.all_rows:
        return whole, whole.to_ms
    cut_ms = whole.to_ms - round((whole.to_ms - whole.from_ms) * job.learn.held_back)
    return dataset.describe(job.files, job.after_ms, cut_ms), cut_ms


def _fit(job: Job, trained_on: DataRange, cut_ms: int, reference: ReferenceModel) -> FitResult:
    rows = dataset.read(job.files, job.spec.channels, trained_on)
    return train(rows, _plan(job, trained_on, cut_ms, reference))


def _network(job: Job, fitted: FitResult) -> QuantileNetwork:
    network = QuantileNetwork(job.spec, **_options(job.learn))
    network.load_arrays(fitted.state)
    network.eval()
    return network


def _not_replayable(job: Job, fitted: FitResult) -> str:
    if job.use_gpu:
        return "it was trained on a GPU, which adds in another order every time"
    return "it went on from a checkpoint, or with fewer workers than were planned" if fitted.resumed else ""


def _options(settings: LearnSettings) -> dict[str, Any]:
    return network_options(settings)


def _plan(job: Job, found: DataRange, cut_ms: int, reference: ReferenceModel) -> TrainPlan:
    return TrainPlan(
        name=job.name,
        folder=str(Path(job.storage, "train")),
        spec=job.spec,
        config=training_config(job.learn),
        places=zone_places(job.places, found),
        cut_ms=cut_ms,
        shares=dataset.share_out(found.rows, job.workers),
        workers=job.workers,
        use_gpu=job.use_gpu,
        initial_state=reference.initial_state,
        min_workers=job.learn.min_workers,
        sharded=job.learn.sharded,
    )


def _compared_on(job: Job, whole: DataRange, cut_ms: int) -> tuple[WindowSet, I64]:
    """Windows and the origins that were held back; where none was, those of the newest tenth, which prove nothing."""
    if job.all_rows:
        cut_ms = whole.to_ms - (whole.to_ms - whole.from_ms) // 10
    windows, origins = origins_after(cut_ms, whole, job.files, job.spec, job.places)
    if not len(origins):
        raise TrainingError("the history is too short: no row that was held back can be forecast")
    return windows, origins


def _hopeless(verdict: Verdict) -> bool:
    """Whether the held-back rows show that it is worse than a reference: live rows need not be waited for."""
    lowers: Mapping[str, float | None] = verdict.evidence.get("mae_ratio_lower", {})
    return any(lower is not None and lower >= 1 for lower in lowers.values())


def _table(challenger: Errors, champion: Errors, spec: ForecastSpec) -> dict[str, dict[str, dict[str, float]]]:
    """Mean absolute errors by target and horizon in minutes; cells without a pair are left out."""
    means = {name: challenger.mae(name) for name in ("model", "persistence", "naive_24h", "climatology")}
    means["champion"] = champion.mae()
    return {
        target: {
            str(minutes): {name: round(float(mae[h, m]), 5) for name, mae in means.items() if np.isfinite(mae[h, m])}
            for h, minutes in enumerate(spec.horizons_min)
        }
        for m, target in enumerate(spec.targets)
    }


def _curves(fitted: FitResult) -> dict[str, list[float]]:
    return {"loss": [epoch.loss for epoch in fitted.history]}


def _folder(job: Job) -> Path:
    return Path(job.storage, "models", job.name)


def _keep(
    job: Job, network: QuantileNetwork, golden: Inputs, trained_on: Mapping[str, Any], metrics: Mapping[str, Any]
) -> dict[str, Any]:
    """Save the artefact and read it back: what cannot be loaded here is no model."""
    folder = _folder(job)
    try:
        manifest = artefact.save(
            folder, network, golden, trained_on=trained_on, seed=job.learn.seed, metrics={"held_back_mae": metrics},
            code_version=version("hothouse"),
        )  # fmt: skip
        artefact.load(folder, job.spec.hash).verify_golden()
    except (artefact.ArtefactError, OSError, ValueError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise TrainingError(f"the challenger's artefact cannot be kept: {error}") from error
    return manifest
